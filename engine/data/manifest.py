"""`data/manifest.json`: what lies in `data/`, with sizes and hashes. Its appearance is the commit of a preparation."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from engine.data.tokenizer import Tokenizer, load
from engine.errors import BadInput
from engine.rundir.files import exists, open_regular, read_file, replace_file

DATA_DIR = "data"
MANIFEST_FILE = "data/manifest.json"
TOKENIZER_FILE = "data/tokenizer.json"
ARMS_DIR = "data/arms"
VERSION = 1
PARTS = ("train", "heldout")


class Part(Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """One token file."""

    tokens: int  # separators included
    bytes: int  # UTF-8 bytes of the text, without separators
    documents: int  # pieces, each followed by a separator
    sha256: str  # of the file


class ArmData(Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    source: str  # "builtin:NAME" or "path:…" as the policy names it
    content_sha256: str  # of the texts as they were read, in order
    train: Part
    heldout: Part
    skipped: dict[str, int]  # why -> how many files, lines or pieces were left out or repaired
    python: str = ""  # version that a built-in corpus came from
    fingerprint: str = ""  # of the files as they were, see sources.fingerprint


class Manifest(Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    version: int
    tokenizer_kind: str
    tokenizer_vocab: int
    tokenizer_sha256: str
    arms: dict[str, ArmData]


def token_path(run_dir: Path, arm: str, part: str) -> Path:
    return run_dir / ARMS_DIR / f"{arm}.{part}.u16"


def load_manifest(run_dir: Path) -> Manifest:
    """Raises BadInput with one line where it is missing, damaged or of another version."""
    path = run_dir / MANIFEST_FILE
    try:
        m = msgspec.json.decode(read_file(path), type=Manifest)
    except FileNotFoundError:
        raise BadInput(f"{path}: missing; starting the training prepares the data") from None
    except (OSError, msgspec.DecodeError, RecursionError) as e:
        raise BadInput(f"{path}: damaged ({e}); restore it from a backup") from None
    if m.version != VERSION:
        raise BadInput(
            f"{path}: version {m.version}, this program knows {VERSION}; use the program that wrote it"
        )
    return m


def manifest_if_there(run_dir: Path) -> Manifest | None:
    """None before the first preparation has ended. Raises BadInput where it is damaged."""
    return load_manifest(run_dir) if exists(run_dir / MANIFEST_FILE) else None


def save_manifest(run_dir: Path, m: Manifest) -> None:
    data = msgspec.json.format(msgspec.json.encode(m, order="deterministic"), indent=1)
    replace_file(run_dir / MANIFEST_FILE, data + b"\n")


def load_tokenizer(run_dir: Path, m: Manifest) -> Tokenizer:
    """The frozen tokenizer, checked against the manifest's hash. Raises BadInput."""
    path = run_dir / TOKENIZER_FILE
    try:
        data = read_file(path, limit=1 << 26)
    except OSError as e:
        raise BadInput(f"{path}: can't be read ({e.strerror or e}); restore it from a backup") from None
    if hashlib.sha256(data).hexdigest() != m.tokenizer_sha256:
        raise BadInput(f"{path}: altered since the data was prepared; restore it from a backup")
    t = load(m.tokenizer_kind, data)
    if t.vocab != m.tokenizer_vocab:
        raise BadInput(
            f"{path}: {t.vocab} entries, the manifest says {m.tokenizer_vocab}; restore data/ from a backup"
        )
    return t


def verify(run_dir: Path, m: Manifest, full: bool = False, arms: Iterable[str] | None = None) -> None:
    """Check that the token files are there with their sizes (full: their sha256 too).

    `arms` limits the check to these arms; an arm that a pivot dropped may be gone. Raises BadInput with one line
    that names every damaged arm.
    """
    damaged = []
    for arm in sorted(m.arms if arms is None else arms):
        if arm not in m.arms:
            damaged.append(f"{arm} (never prepared)")
            continue
        for name in PARTS:
            what = _damage(token_path(run_dir, arm, name), getattr(m.arms[arm], name), full)
            if what:
                damaged.append(f"{arm} ({name} part {what})")
    if damaged:
        raise BadInput(
            f"{run_dir / DATA_DIR}: data of {', '.join(damaged)}; restore it from a backup or drop the arm: "
            f"andrea-tui pivot {run_dir} --policy FILE"
        )


def _damage(path: Path, part: Part, full: bool) -> str:
    try:
        size = os.lstat(path).st_size
        if size != 2 * part.tokens:
            return f"has {size:,} bytes, not {2 * part.tokens:,}"
        return "altered" if full and _sha256(path) != part.sha256 else ""
    except FileNotFoundError:
        return "missing"
    except OSError as e:
        return f"can't be read: {e.strerror or e}"


def _sha256(path: Path) -> str:
    with os.fdopen(open_regular(path), "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
