"""Folders for a while, which go away with their process, however it ends."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
import weakref
from contextlib import suppress
from pathlib import Path
from types import TracebackType

#: What their names begin with.
PREFIX = "tidewater-"
#: The file that their process holds locked.
LOCK = ".tidewater"
#: Seconds from which on a folder that is not locked was left behind: its process locks it as soon as it is there.
LEFT = 60.0

#: Where folders that were left behind have been looked for.
_looked_in: set[str] = set()


class Folder:
    """A folder of this user alone; removed at the end of the block, with its last reference, or as Python ends."""

    def __init__(self) -> None:
        parent = tempfile.gettempdir()
        if parent not in _looked_in:
            _looked_in.add(parent)
            remove_left(parent)
        #: Its full path.
        self.name = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
        lock = os.open(os.path.join(self.name, LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        # A file system without locks has no folders removed by others.
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        self._end = weakref.finalize(self, _remove, self.name, lock, os.getpid())

    def remove(self) -> None:
        """Removes it, and all that is in it."""
        self._end()

    def __enter__(self) -> Path:
        return Path(self.name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


def _remove(name: str, lock: int, process: int) -> None:
    # A child of a fork drops its copy, and the folder stays.
    if os.getpid() != process:
        return
    # Work that goes on in the background may write amid the removal.
    for _ in range(10):
        shutil.rmtree(name, ignore_errors=True)
        if not os.path.exists(name):
            break
        time.sleep(0.02)
    os.close(lock)


def remove_left(parent: str) -> None:
    """Removes folders of this user whose processes were killed; those of other live processes are locked."""
    try:
        entries = list(os.scandir(parent))
    except OSError:
        return
    for entry in entries:
        try:
            about = entry.stat(follow_symlinks=False)
            if not entry.name.startswith(PREFIX) or about.st_uid != os.getuid() or time.time() - about.st_mtime < LEFT:
                continue
            lock = os.open(os.path.join(entry.path, LOCK), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            # It is gone by now, or none of ours.
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(entry.path, ignore_errors=True)
        except OSError:
            # Its process lives.
            pass
        finally:
            os.close(lock)
