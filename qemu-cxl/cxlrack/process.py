"""A process by its pid and its start time, so that a pid used again is never taken for it, and never signalled."""
import dataclasses
import os
import select
import signal
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Process:
    pid: int
    start_time: int  # in clock ticks since boot: field 22 of /proc/PID/stat

    @staticmethod
    def of(pid: int) -> 'Process':
        """ProcessLookupError when there is none."""
        state = _stat(pid)
        if state is None:
            raise ProcessLookupError(f'no process {pid}')
        return Process(pid, state[1])

    def alive(self) -> bool:
        """A zombie has let go of everything: not alive."""
        state = _stat(self.pid)
        return state is not None and state[1] == self.start_time and state[0] not in 'ZX'

    def open(self) -> int | None:
        """A pidfd, readable once the process ends; None when it already did. The caller closes it."""
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return None
        if not self.alive():
            os.close(fd)
            return None
        return fd

    def kill(self, timeout: float) -> bool:
        """SIGKILL, and waits for the end. False if it is still there after `timeout` seconds."""
        fd = self.open()
        if fd is None:
            return True
        try:
            try:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            except ProcessLookupError:
                return True
            return bool(select.select([fd], [], [], timeout)[0])
        finally:
            os.close(fd)


def _stat(pid: int) -> tuple[str, int] | None:
    """State and start time."""
    try:
        text = Path(f'/proc/{pid}/stat').read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(')') + 2:].split()  # the command's name before it may hold anything
    return fields[0], int(fields[19])
