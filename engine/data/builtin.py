"""Four corpora that every Python installation carries, so that a first run needs no download.

They differ between Python builds and installed packages, so the manifest records what was read. `pydoc_data` is
left out of the two source corpora, since it is `python-topics` once more and would leak its held-out part.
"""

import ast
import functools
import importlib
import itertools
import os
import sysconfig
import tokenize
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from engine.errors import BadInput
from engine.toml_io import did_you_mean

# Directories of the standard library that hold tests, other people's packages or other corpora.
SKIPPED_DIRS = frozenset(
    {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "pydoc_data"}
)
ENOUGH_DOCS = 64 * 1024  # characters of READMEs below which licence texts are added
LEAST_README = 64  # characters; shorter descriptions are placeholders such as "UNKNOWN"
OURSELVES = "andrea-tui"

Ticks = Iterator[tuple[float, str]]


def documents(name: str) -> Iterator[str]:
    """The texts of a corpus in a fixed order. Raises BadInput on an unknown name."""
    return (text for _, text in ticks(name, Counter()) if text)


def ticks(name: str, skipped: Counter[str]) -> Ticks:
    """(fraction read, text) in a fixed order; an empty text only says how far the reading is.

    What can't be parsed or decoded is counted in `skipped`. Raises BadInput on an unknown name.
    """
    if name not in CORPORA:
        raise BadInput(
            f"unknown corpus {name!r}{did_you_mean(name, CORPORA)}; there are {', '.join(CORPORA)}"
        )
    return CORPORA[name](skipped)


def _docstrings(skipped: Counter[str]) -> Ticks:
    paths = _library_files()
    for i, path in enumerate(paths):
        yield i / len(paths), ""
        texts = _docstrings_of(path)
        if texts is None:
            skipped["unparsable files"] += 1
        else:
            yield from ((i / len(paths), d.text) for d in texts)


@dataclass(frozen=True)
class _Docstring:
    text: str
    start: int  # byte offset in the UTF-8 source
    end: int
    alone: bool  # nothing else stands in its block


@functools.cache  # a preparation reads twice, for the tokenizer and for the tokens; parsing takes seconds
def _docstrings_of(path: str) -> tuple[_Docstring, ...] | None:
    """In the order of the source; None where it can't be parsed."""
    source = _source(path)
    if source is None:
        return None
    if '"""' not in source and "'''" not in source:
        return ()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in old modules
            todo: list[ast.AST] = [ast.parse(source)]
    except (SyntaxError, ValueError, RecursionError):
        return None
    lines = [0, *itertools.accumulate(len(x) + 1 for x in source.encode("utf-8").split(b"\n"))]
    found = []
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = (ast.get_docstring(node) or "").strip()
            if text:
                at = node.body[0]
                start = lines[at.lineno - 1] + at.col_offset
                end = lines[(at.end_lineno or at.lineno) - 1] + (at.end_col_offset or 0)
                found.append(_Docstring(text, start, end, len(node.body) == 1))
        for block in (
            "finalbody",
            "orelse",
            "handlers",
            "body",
        ):  # statements only; most nodes are expressions
            inner = getattr(node, block, None)
            if isinstance(inner, list):
                todo += reversed(inner)
    return tuple(found)


def _sources(skipped: Counter[str]) -> Ticks:
    """Code without its docstrings: they are `repo-docstrings`, whose held-out part they would give away."""
    paths = _library_files()
    for i, path in enumerate(paths):
        text, docstrings = _source(path), _docstrings_of(path)
        if text is None or docstrings is None:
            skipped["unparsable files"] += 1
            yield i / len(paths), ""
        else:
            yield i / len(paths), _without(text, docstrings)


def _without(source: str, docstrings: tuple[_Docstring, ...]) -> str:
    raw = source.encode("utf-8")
    for d in sorted(docstrings, key=lambda d: -d.start):
        if d.alone:
            raw = raw[: d.start] + b"pass" + raw[d.end :]
            continue
        start = raw.rfind(b"\n", 0, d.start) + 1
        end = raw.find(b"\n", d.end) + 1 or len(raw)
        if raw[start : d.start].isspace() or start == d.start:  # the usual case: its lines are its own
            rest = raw[d.end : end].strip()
            raw = raw[:start] + (raw[start : d.start] + rest + b"\n" if rest else b"") + raw[end:]
        else:
            raw = raw[: d.start] + b"pass" + raw[d.end :]
    return raw.decode("utf-8")


def _source(path: str) -> str | None:
    try:
        with tokenize.open(path) as f:  # follows the file's coding line
            return f.read()
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None


def _library_files() -> list[str]:
    found = []
    for folder, dirs, files in os.walk(sysconfig.get_path("stdlib")):
        dirs[:] = [d for d in dirs if d not in SKIPPED_DIRS]
        found += [os.path.join(folder, f) for f in files if f.endswith(".py")]
    return sorted(found)


def _topics(skipped: Counter[str]) -> Ticks:
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ImportError:  # some distributions package it apart
        skipped["missing modules"] += 1
        return
    for i, key in enumerate(sorted(topics)):
        yield i / len(topics), topics[key].strip()


def _readmes(skipped: Counter[str]) -> Ticks:
    total = 0
    packages = _packages()
    for i, package in enumerate(packages):
        try:
            about = package.metadata.json.get("description", "")
        except Exception:  # noqa: BLE001 – a damaged package raises anything; it is none of our business
            skipped["unreadable packages"] += 1
            continue
        text = about.strip() if isinstance(about, str) else ""
        total += len(text)
        yield i / len(packages), text if len(text) >= LEAST_README else ""
    if total < ENOUGH_DOCS:  # a bare installation: the licences are prose too
        yield from ((1.0, text) for text in _licences(packages))


def _packages() -> list[metadata.Distribution]:
    """But for this program itself: a corpus should not change with our own README."""
    named: dict[str, metadata.Distribution] = {}
    for package in metadata.distributions():
        try:
            name = package.metadata["Name"]
        except Exception:  # noqa: BLE001, S112 – as above
            continue
        if name and name.lower() != OURSELVES:
            named.setdefault(name.lower(), package)  # the first one on the path is the one that is imported
    return [named[name] for name in sorted(named)]


def _licences(packages: list[metadata.Distribution]) -> Iterator[str]:
    paths = [Path(sysconfig.get_path("stdlib")) / "LICENSE.txt"]
    for package in packages:
        names = [f for f in package.files or [] if "LICEN" in f.name.upper() and ".dist-info" in str(f)]
        paths += [Path(str(package.locate_file(f))) for f in sorted(names)]
    for path in paths:
        try:
            yield path.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            continue


CORPORA: dict[str, Callable[[Counter[str]], Ticks]] = {
    "repo-docstrings": _docstrings,
    "python-source": _sources,
    "python-topics": _topics,
    "repo-docs": _readmes,
}
