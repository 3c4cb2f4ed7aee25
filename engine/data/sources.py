"""An arm's documents: files, folders, globs, JSON lines, or a built-in corpus.

Everything is read as a stream and in sorted order. What isn't text is skipped and counted, what a person named and
can't be read is an error. A long document comes in pieces, so that nothing has to fit into memory whole.
"""

import codecs
import hashlib
import json
import os
import platform
import re
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from engine.config import Arm
from engine.data import builtin
from engine.data.tokenizer import without_surrogates
from engine.errors import BadInput

PIECE = 256 * 1024  # characters in a piece at most
BLOCK = 256 * 1024  # bytes read at once
BINARY_HEAD = 8 * 1024  # a NUL in the first so many bytes: not text
LINE_LIMIT = 64 * 1024 * 1024  # bytes of a JSON line; a longer one is skipped
# A FIFO must not block us. Links are followed: people do link their texts together.
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

Ticks = Iterator[tuple[float, str]]


def source_of(arm: Arm) -> str:
    """How the manifest names where an arm comes from."""
    return f"builtin:{arm.builtin}" if arm.builtin else f"path:{arm.path}"


def pieces(run_dir: Path, name: str, arm: Arm, skipped: Counter[str]) -> Ticks:
    """(fraction read, piece of text) in a fixed order; an empty text only says how far the reading is.

    No piece has lone surrogates or more than PIECE characters; none is blank. `skipped` counts what was left out
    or repaired. Raises BadInput, one line that begins with the arm's key in `policy.toml`.
    """
    key = f"policy.toml: arms.{name}.{'builtin' if arm.builtin else 'path'}"
    found = False
    try:
        ticks = builtin.ticks(arm.builtin, skipped) if arm.builtin else _read_path(run_dir, arm.path, skipped)
        for fraction, text in ticks:
            yield fraction, ""
            for piece in split(_scrub(text, skipped)):
                found = True
                yield fraction, piece
    except BadInput as e:
        raise BadInput(f"{key}: {e}") from None
    if not found:
        left_out = ", ".join(f"{n} {what}" for what, n in sorted(skipped.items()))
        what = arm.builtin or _shown(arm.path)
        raise BadInput(f"{key}: {what} has no text" + (f" (skipped: {left_out})" if left_out else ""))


def split(text: str, limit: int = PIECE) -> Iterator[str]:
    """The text in pieces of at most `limit` characters, cut behind a newline if there is one; blank ones dropped."""
    start = 0
    while start < len(text):
        end = start + limit
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        piece = text[start:end]
        if not piece.isspace():
            yield piece
        start = max(end, start + 1)


def _scrub(text: str, skipped: Counter[str]) -> str:
    clean = without_surrogates(text)
    if clean != text:
        skipped["texts with undecodable characters (replaced)"] += 1
    return clean


# ---- which files ----


def _read_path(run_dir: Path, pattern: str, skipped: Counter[str]) -> Ticks:
    paths, named = find_files(run_dir, pattern, skipped)
    sizes = [_size(p) for p in paths]
    total, done = max(sum(sizes), 1), 0
    for path, size in zip(paths, sizes, strict=True):
        yield done / total, ""
        for position, text in _read_file(path, named, skipped):
            yield (done + min(position, size)) / total, text
        done += size


def find_files(run_dir: Path, pattern: str, skipped: Counter[str]) -> tuple[list[Path], bool]:
    """(files that an arm's `path` means, sorted; whether a single file was named). Raises BadInput.

    Relative to the run directory. Folders are read to any depth; links to folders inside them are not followed
    (they can form loops), hidden files and folders and the run directory itself are left out.
    """
    full = Path(os.path.normpath(run_dir / Path(pattern).expanduser()))
    try:
        mode = os.stat(full).st_mode
    except (FileNotFoundError, NotADirectoryError):
        files = _glob(full, skipped)
        if not files:
            raise BadInput(
                f"no file matches {_shown(full)}; paths are relative to {_shown(run_dir)}"
            ) from None
        return files, False
    except (OSError, ValueError) as e:
        raise BadInput(f"{_shown(full)}: can't be read: {_reason(e)}") from None
    if stat.S_ISDIR(mode):
        return _walk(full, run_dir, skipped), False
    if not stat.S_ISREG(mode):
        raise BadInput(f"{_shown(full)}: is neither a file nor a folder")
    return [full], True


def _glob(full: Path, skipped: Counter[str]) -> list[Path]:
    parts = full.parts
    wild = [i for i, part in enumerate(parts) if re.search(r"[*?\[]", part)]
    if not wild:
        return []
    base = Path(*parts[: wild[0]])
    try:
        matches = sorted(base.glob(str(Path(*parts[wild[0] :]))))
    except ValueError as e:
        raise BadInput(f"{_shown(full)}: not a pattern: {e}") from None
    files = []
    for path in matches:
        if any(p.startswith(".") for p in path.parts[len(base.parts) :]):
            skipped["hidden files"] += 1
        elif not path.is_dir():
            files.append(path)
    return files


def _walk(top: Path, run_dir: Path, skipped: Counter[str]) -> list[Path]:
    def fail(e: OSError) -> None:
        raise BadInput(f"{_shown(e.filename)}: can't be read: {_reason(e)}")

    files = []
    own = os.path.realpath(run_dir)
    for folder, dirs, names in os.walk(top, onerror=fail):
        if os.path.realpath(folder) == own:
            dirs.clear()
            continue
        dirs[:] = [d for d in dirs if not d.startswith(".")]
        skipped.update("links to folders" for d in dirs if os.path.islink(os.path.join(folder, d)))
        for name in names:
            if name.startswith("."):
                skipped["hidden files"] += 1
            else:
                files.append(Path(folder, name))
    return sorted(files)


def fingerprint(run_dir: Path, arm: Arm) -> str:
    """A hash of names, sizes and times of an arm's files, to tell cheaply that they changed. Raises BadInput.

    Of a built-in corpus: the Python version that carries it.
    """
    if arm.builtin:
        return f"python {platform.python_version()}"
    seen = hashlib.sha256()
    for path in find_files(run_dir, arm.path, Counter())[0]:
        try:
            info = os.stat(path)
        except OSError:
            continue  # a broken link, which the reading skips too
        seen.update(os.fsencode(path) + f"\0{info.st_size}\0{info.st_mtime_ns}\0".encode())
    return seen.hexdigest()


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0  # only for the progress; whatever it is shows at the opening


# ---- what is in a file ----


def _read_file(path: Path, named: bool, skipped: Counter[str]) -> Ticks:
    """(bytes read, text) of one file. A file that was named itself must be text; among others it is skipped."""

    def skip(why: str) -> None:
        if named:
            raise BadInput(f"{_shown(path)}: not text ({why})")
        skipped[why] += 1

    try:
        f = os.fdopen(os.open(path, _OPEN), "rb")
    except FileNotFoundError:
        return skip("broken links")
    except OSError as e:
        try:
            regular = stat.S_ISREG(os.stat(path).st_mode)
        except OSError:
            regular = False
        if regular:
            raise BadInput(f"{_shown(path)}: can't be read: {_reason(e)}") from None
        return skip("devices, pipes and sockets")  # a socket can't even be opened
    with f:
        if not stat.S_ISREG(os.fstat(f.fileno()).st_mode):
            return skip("devices, pipes and sockets")
        try:
            if b"\0" in f.read(BINARY_HEAD):
                return skip("binary files")
            f.seek(0)
            read = _json_lines if path.suffix.lower() == ".jsonl" else _plain
            yield from read(f, path, skipped)
        except OSError as e:
            raise BadInput(f"{_shown(path)}: can't be read: {_reason(e)}") from None


def _plain(f: BinaryIO, path: Path, skipped: Counter[str]) -> Ticks:
    # surrogateescape, so that undecodable bytes are replaced and counted at the one place that does it
    decoder = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape")
    pending, position = "", 0
    while block := f.read(BLOCK):
        position += len(block)
        pending += decoder.decode(block)
        while len(pending) > PIECE:
            end = pending.rfind("\n", 0, PIECE) + 1 or PIECE
            yield position, pending[:end]
            pending = pending[end:]
    yield position, pending + decoder.decode(b"", final=True)


def _json_lines(f: BinaryIO, path: Path, skipped: Counter[str]) -> Ticks:
    position = good = number = 0
    first_bad = ""
    while line := f.readline(LINE_LIMIT):
        number += 1
        start, position = position, position + len(line)
        if len(line) == LINE_LIMIT and not line.endswith(b"\n"):
            problem, text = f"longer than {LINE_LIMIT:,} bytes", ""
            position += _skip_line(f)
        elif line.isspace():
            continue
        else:
            problem, text = _json_text(line)
        if problem:
            skipped["JSON lines without text"] += 1
            first_bad = first_bad or f"line {number}: {problem}"
        good += not problem
        yield start, text
    if first_bad and not good:
        raise BadInput(
            f'{_shown(path)}: {first_bad}; every line must be an object with a string field "text"'
        )


def _json_text(line: bytes) -> tuple[str, str]:
    """(what is wrong, "") or ("", text)"""
    try:
        value = json.loads(line.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as e:
        return f"not JSON ({e})", ""
    if not isinstance(value, dict) or "text" not in value:
        return 'no field "text"', ""
    text = value["text"]
    return ("", text) if isinstance(text, str) else ('field "text" is not a string', "")


def _skip_line(f: BinaryIO) -> int:
    n = 0
    while block := f.readline(BLOCK):
        n += len(block)
        if block.endswith(b"\n"):
            break
    return n


def _reason(e: OSError | ValueError) -> str:
    return str(getattr(e, "strerror", None) or e)


def _shown(path: Path | str) -> str:
    """A name as it may stand in a message of one line, whatever bytes it has."""
    text = os.fspath(path).encode("utf-8", "replace").decode()
    return "".join(c if c.isprintable() else "?" for c in text)
