"""A moment after which a wait is over, and a lock between processes that keeps to one."""
import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Iterator

from cxlrack.errors import RackError

# CI's machines do other things, too: what must come some time may take so many times as long there.
PATIENCE = 3 if os.environ.get('CI') else 1
_LOCK_POLL_S = 0.02


class Deadline:
    def __init__(self, seconds: float):
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds, never below zero."""
        return max(0.0, self._end - time.monotonic())

    def over(self) -> bool:
        return self.left() == 0.0


def try_lock(path: Path) -> int | None:
    """The lock file's descriptor while we hold it, None while another process or thread does. Closing it unlocks."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


@contextlib.contextmanager
def locked(path: Path, deadline: Deadline, what: str) -> Iterator[None]:
    while (fd := try_lock(path)) is None:
        if deadline.over():
            raise RackError(f'{what}: another command holds {path}; wait for it, or end it (fuser {path})')
        time.sleep(_LOCK_POLL_S)
    try:
        yield
    finally:
        os.close(fd)
