"""A run directory's files under a second name: hard links where that is possible, so that a branch costs no room.

None of the files that are shared is ever written in place, so neither run can change the other's.
"""

import fcntl
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from engine.data import manifest as manifests
from engine.data.manifest import Manifest
from engine.rundir import names
from engine.rundir.files import create_file, fsync_dir, open_regular, write_all

_FICLONE = 0x40049409  # <linux/fs.h>: share the blocks of a file, copied when either is written


def share(source: Path, target: Path) -> bool:
    """A regular file under a second name: hard link (True), else reflink, else a copy. Raises OSError."""
    try:
        os.link(source, target, follow_symlinks=False)
        return True
    except FileNotFoundError:
        raise
    except OSError:  # another file system, or one without hard links
        pass
    with open(open_regular(source), "rb") as a, open(create_file(target), "wb") as b:
        try:
            fcntl.ioctl(b.fileno(), _FICLONE, a.fileno())
        except OSError:
            shutil.copyfileobj(a, b, 1 << 23)
    return False


def share_data(run_dir: Path, part: Path) -> Manifest:
    """`data/` as its manifest has it now; arms that are being added meanwhile are left out. Raises BadInput."""
    manifest = manifests.load_manifest(run_dir)
    wanted = {manifests.token_path(run_dir, a, p).name for a in manifest.arms for p in manifests.PARTS}
    for folder in (names.DATA, manifests.ARMS_DIR):
        (part / folder).mkdir(mode=0o700)
        for entry in os.scandir(run_dir / folder):
            token_file = entry.name.endswith(".u16")
            unfinished = entry.name.endswith(".part") or ".tmp-" in entry.name
            if not _regular(entry) or unfinished or (token_file and entry.name not in wanted):
                continue
            if f"{folder}/{entry.name}" != manifests.MANIFEST_FILE:
                with suppress(FileNotFoundError):  # a cache that was replaced just now
                    share(Path(entry.path), part / folder / entry.name)
    manifests.save_manifest(part, manifest)
    return manifest


def share_archive(run_dir: Path, part: Path, name: str) -> None:
    """One folder of the archive, as far as it is there. Raises OSError."""
    folder = run_dir / names.ARCHIVE / name
    if not name or not folder.is_dir():
        return
    (part / names.ARCHIVE / name).mkdir(mode=0o700, parents=True)
    for entry in os.scandir(folder):
        if _regular(entry):
            share(Path(entry.path), part / names.ARCHIVE / name / entry.name)


def _regular(entry: "os.DirEntry[str]") -> bool:
    return stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode)


def write_new(path: Path, data: bytes) -> None:
    """A new file, durably. Raises OSError."""
    fd = create_file(path)
    try:
        write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_tree(part: Path) -> None:
    """All files and folders are on the disk before the name is."""
    for folder, _, files in os.walk(part, topdown=False):
        for name in files:
            fd = open_regular(Path(folder) / name)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        fsync_dir(Path(folder))
