"""Built-in corpora, and everything that a person's `path` may lead to."""

import ast
import errno
import functools
import json
import os
import socket
from collections import Counter
from importlib import metadata
from pathlib import Path

import pytest

from engine.config import Arm
from engine.data import builtin, sources
from engine.errors import BadInput

PROSE = "A line of text that is not blank.\n"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def read(run_dir: Path, path: str) -> tuple[list[str], dict[str, int]]:
    skipped: Counter[str] = Counter()
    ticks = list(sources.pieces(run_dir, "a", Arm(path=path), skipped))
    fractions = [f for f, _ in ticks]
    assert fractions == sorted(fractions) and all(0 <= f <= 1 for f in fractions)
    return [text for _, text in ticks if text], dict(skipped)


def put(path: Path, data: str | bytes = PROSE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data)
    return path


# ---- built-in ----


@functools.cache
def documents(name: str) -> list[str]:
    """Of a built-in corpus: read once, since the whole library takes many seconds."""
    return list(builtin.documents(name))


@pytest.mark.parametrize("name", ["python-source", "python-topics", "repo-docs"])
def test_builtin_corpora_have_text_in_a_fixed_order(name: str) -> None:
    first = documents(name)
    assert sum(map(len, first)) > 50_000 and all(t.strip() for t in first)
    assert first == list(builtin.documents(name))


def test_docstrings_come_from_the_library_and_not_from_tests() -> None:
    texts = documents("repo-docstrings")
    assert len(texts) > 3000
    assert any(t.startswith("Serialize ``obj`` to a JSON formatted") for t in texts)
    assert not any(
        "idle_test" in p or "/test/" in p or "site-packages" in p for p in builtin._library_files()
    )


def test_python_that_does_not_parse_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = [
        put(tmp_path / "a.py", 'def f(:\n """x"""'),
        put(tmp_path / "b.py", b"# coding: no-such\n"),
        put(tmp_path / "c.py", b"\xff\xfe"),
    ]
    good = put(tmp_path / "d.py", '"""The module."""\ndef f():\n    """The function."""\n')
    monkeypatch.setattr(builtin, "_library_files", lambda: [str(p) for p in [*bad, good]])
    skipped: Counter[str] = Counter()
    assert [t for _, t in builtin.ticks("repo-docstrings", skipped) if t] == ["The module.", "The function."]
    assert skipped == {"unparsable files": 3}


def test_source_has_no_docstrings_and_still_parses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        '"""Die Übersicht.\n\nMore."""\nimport os\n\ndef f(): "one line"; return 1\n\n'
        'class A:\n    """Only this."""\n\n'
        "    def g(self):\n        '''Ümläut.'''  # a note\n        return \"a string\"\n"
    )
    put(tmp_path / "a.py", text)
    monkeypatch.setattr(builtin, "_library_files", lambda: [str(tmp_path / "a.py")])
    (source,) = builtin.documents("python-source")
    told = list(builtin.documents("repo-docstrings"))
    assert len(told) == 4
    assert not any(t.partition("\n")[0] in source for t in told)
    assert ast.parse(source)
    assert all(x in source for x in ("import os", "return 1", "# a note", '"a string"', "class A"))


def test_no_docstring_of_the_library_is_in_its_source() -> None:
    """However it is indented there."""
    source, *texts = (
        "\n".join(line.strip() for line in t.split("\n"))
        for t in ("\n".join(documents("python-source")), *documents("repo-docstrings"))
    )
    texts = [t for t in texts if len(t) > 200]
    lines = set(source.split("\n"))
    # What stands there has all its inner lines there: few are left to be looked for.
    likely = [t for t in texts if lines.issuperset(t.split("\n")[1:-1])]
    assert sum(t in source for t in likely) < 0.01 * len(texts)  # some are quoted elsewhere


def test_a_bare_installation_still_has_docs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtin, "_packages", list)
    assert sum(map(len, builtin.documents("repo-docs"))) > 2000


def test_an_unknown_corpus_names_the_nearest(run_dir: Path) -> None:
    with pytest.raises(BadInput, match=r"did you mean repo-docs"):
        builtin.documents("repo-doc")
    with pytest.raises(
        BadInput, match=r"^policy\.toml: arms\.a\.builtin: unknown corpus 'x'; there are .*python-source"
    ):
        list(sources.pieces(run_dir, "a", Arm(builtin="x"), Counter()))


# ---- where files are looked for ----


def test_files_folders_and_globs_relative_and_absolute(run_dir: Path) -> None:
    texts = run_dir.parent / "texts"
    for name in ("b.md", "a.txt", "deep/er/c.py", "deep/d.md"):
        put(texts / name, name)
    assert read(run_dir, "../texts/a.txt")[0] == ["a.txt"]
    assert read(run_dir, "../texts")[0] == ["a.txt", "b.md", "deep/d.md", "deep/er/c.py"]
    assert read(run_dir, str(texts))[0] == read(run_dir, "../texts")[0]
    assert read(run_dir, "../texts/*")[0] == ["a.txt", "b.md"]
    assert read(run_dir, f"{texts}/**/*.md")[0] == ["b.md", "deep/d.md"]
    assert read(run_dir, "../t?xts/[ab].*")[0] == ["a.txt", "b.md"]
    put(run_dir / "own.txt", "own")
    assert read(run_dir, "own.txt")[0] == ["own"]


def test_a_name_with_glob_characters_is_found_as_it_is(run_dir: Path) -> None:
    put(run_dir / "notes[1].txt", "one")
    put(run_dir / "notes1.txt", "other")
    assert read(run_dir, "notes[1].txt")[0] == ["one"]


def test_the_run_directory_itself_is_never_read(run_dir: Path) -> None:
    put(run_dir / "trainer.log")
    put(run_dir.parent / "a.txt", "a")
    assert read(run_dir, "..")[0] == ["a"]
    with pytest.raises(BadInput, match=r"has no text"):
        read(run_dir, ".")


@pytest.mark.parametrize(
    "path",
    ["missing.txt", "*.md", "empty", "/nowhere/**/*.txt", "a.txt/b", "x" * 300, "blank.txt", "**/x**y"],
)
def test_nothing_there_is_one_line_that_names_the_key(run_dir: Path, path: str) -> None:
    (run_dir / "empty").mkdir()
    put(run_dir / "a.txt")
    put(run_dir / "blank.txt", " \n\n")
    with pytest.raises(BadInput, match=r"^policy\.toml: arms\.a\.path: [^\n]+$"):
        read(run_dir, path)


def test_an_unreadable_file_is_named(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret, real = put(run_dir / "t" / "secret.txt"), os.open

    def refuse(path: Path, *args: int, **more: int) -> int:  # not by chmod: root may read everything
        if Path(path) == secret:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *args, **more)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(BadInput, match=r"secret\.txt: can't be read"):
        read(run_dir, "t")


# ---- what may lie among the texts ----


def test_traps_in_a_folder_are_skipped_and_counted(run_dir: Path) -> None:
    t = run_dir / "t"
    put(t / "good.txt")
    put(t / "image.png", b"\x89PNG\0\0")
    put(t / ".hidden")
    put(t / ".git" / "config")
    put(t / "x.txt" / "inner.txt", "inner")
    os.mkfifo(t / "pipe.txt")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(os.path.relpath(t / "socket.txt"))
    (t / "broken.txt").symlink_to("nowhere")
    (t / "loop").symlink_to(t)
    (t / "linked.txt").symlink_to(put(run_dir / "elsewhere.txt", "linked"))
    (t / "self.txt").symlink_to("self.txt")
    texts, skipped = read(run_dir, "t")
    assert texts == [PROSE, "linked", "inner"]
    assert skipped == {
        "binary files": 1,
        "hidden files": 1,
        "broken links": 1,
        "links to folders": 1,
        "devices, pipes and sockets": 3,
    }
    assert read(run_dir, "t/*.txt")[0] == [PROSE, "linked"]  # without the directory x.txt
    assert "inner" in read(run_dir, "t/**/*.txt")[0]


@pytest.mark.parametrize("name", ["pipe", "image", "/dev/null"])
def test_a_named_file_that_is_no_text_is_an_error(run_dir: Path, name: str) -> None:
    os.mkfifo(run_dir / "pipe")
    put(run_dir / "image", b"\0")
    with pytest.raises(BadInput, match=r"neither a file nor a folder|not text"):
        read(run_dir, name)


def test_undecodable_bytes_and_a_byte_order_mark(run_dir: Path) -> None:
    put(run_dir / "a.txt", b"\xef\xbb\xbfcaf\xe9 \xff ok")
    assert read(run_dir, "a.txt") == (
        ["caf\ufffd \ufffd ok"],
        {"texts with undecodable characters (replaced)": 1},
    )


def test_characters_across_block_borders_survive(run_dir: Path) -> None:
    text = "é京\n" * 200_000
    put(run_dir / "a.txt", text)
    texts, skipped = read(run_dir, "a.txt")
    assert "".join(texts) == text and not skipped
    assert max(map(len, texts)) <= sources.PIECE and all(t.endswith("\n") for t in texts)


def test_one_line_of_5_mb_comes_in_pieces(run_dir: Path) -> None:
    text = "x" * 5_000_000
    put(run_dir / "a.txt", text)
    put(run_dir / "a.jsonl", json.dumps({"text": text}))
    for name in ("a.txt", "a.jsonl"):
        texts = read(run_dir, name)[0]
        assert "".join(texts) == text and max(map(len, texts)) == sources.PIECE


# ---- JSON lines ----


def test_json_lines_good_and_bad(run_dir: Path) -> None:
    bad = [b"not json", b'{"text": 5}', b'{"txt": "x"}', b"[1]", b'"text"', b"[" * 100_000]
    bad += [b'{"text": ' + b"1" * 5000 + b"}"]
    good = [b'{"text": "lone \\ud800 and \\ud83d\\ude00"}', b'{"text": "caf\xe9"}', b'{"text": ""}']
    lines = [b'{"text": "one", "other": 1}', b"", *bad, *good, b'{"text": "last"}']
    put(run_dir / "t" / "a.JSONL", b"\n".join(lines))
    texts, skipped = read(run_dir, "t")
    assert texts == ["one", "lone \ufffd and 😀", "caf\ufffd", "last"]
    assert skipped == {"JSON lines without text": 7, "texts with undecodable characters (replaced)": 2}


def test_a_json_file_without_one_good_line_is_an_error(run_dir: Path) -> None:
    put(run_dir / "t" / "a.txt")
    put(run_dir / "t" / "b.jsonl", '\n{"content": "x"}\n{"content": "y"}\n')
    with pytest.raises(
        BadInput, match=r"^policy\.toml: arms\.a\.path: .*b\.jsonl: line 2: no field \"text\"; "
    ):
        read(run_dir, "t")


def test_an_overlong_json_line_is_skipped(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "LINE_LIMIT", 1000)
    put(run_dir / "a.jsonl", json.dumps({"text": "x" * 700_000}) + '\n{"text": "good"}\n')
    assert read(run_dir, "a.jsonl") == (["good"], {"JSON lines without text": 1})


def test_our_own_readme_is_in_no_corpus() -> None:
    """Else the data of a new run, and what is usual for real text, would change with it."""
    assert not any(text.startswith("# andrea-tui") for text in builtin.documents("repo-docs"))
    assert builtin.OURSELVES in {p.metadata["Name"] for p in metadata.distributions()}  # it is installed
