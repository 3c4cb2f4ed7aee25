"""What a sample audit costs beside the training: sampling and measuring as steps, and as a share of the time.

The real Trainer on a preset with the built-in text: some steps, then audits of the same weights, in turns.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench import report
from bench.speed import open_trainer, steps
from engine.config import CONFIG_FILE, POLICY_FILE, build, config_text, policy_text
from engine.rundir import names
from engine.rundir.lines import LineDecoder
from engine.rundir.records import Event

QUICK = True
ROUNDS, STEPS = 4, 12


def main(argv: list[str]) -> int:
    parser = report.arguments("audit", __doc__)
    parser.add_argument("--preset", default="andrea-tiny")
    args = parser.parse_args(argv)
    out = report.Report(report.command("audit", argv))
    with (
        tempfile.TemporaryDirectory(prefix="andrea-bench-", dir=args.dir) as scratch,
        report.words_to_stderr(),
    ):
        run = Path(scratch) / "run"
        config, policy = build(args.preset, [])
        run.mkdir()
        (run / POLICY_FILE).write_text(policy_text(policy), "utf-8")
        (run / CONFIG_FILE).write_text(config_text(config), "utf-8")
        trainer = open_trainer(run)
        steps(trainer, 3)
        t0 = time.perf_counter()
        trainer.auditor.make(trainer.model, trainer.step)
        first = time.perf_counter() - t0
        took = []
        for _ in range(ROUNDS):
            took += steps(trainer, STEPS)
            trainer.auditor.make(trainer.model, trainer.step)
        trainer.saver.wait()
        trainer.s.close()
        told = LineDecoder(Event).feed((run / names.EVENTS).read_bytes())
    audits = [e.info for e in told if e.event == "audit"][1:]
    step, whole = statistics.median(took), statistics.median(a["seconds"] for a in audits)
    measuring = statistics.median(a["measuring"] for a in audits)
    every = config.train.sample_every
    out.head(Path(tempfile.gettempdir()))
    out.table(
        f"An audit of {args.preset}: {2 * len(config.audit.prompts)} texts of {config.audit.tokens} tokens",
        [{
            "a step": f"{step:.3f} s", "an audit": f"{whole:.2f} s", "of which measuring": f"{measuring:.2f} s",
            "in steps": f"{whole / step:.1f}", f"share of the time, every {every} steps":
            f"{whole / (whole + every * step):.1%}", "the first one (makes the indexes)": f"{first:.1f} s",
        }],
    )  # fmt: skip
    out.save(args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
