"""A parent for a test program: whatever becomes of it, no process and no file that it made stays behind."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # prctl(2)
_INSIDE = 'CXLPOOL_SUPERVISED'
_GRACE_S = 3  # For what was asked to end as the last thing.


class _Ended(BaseException):
    """Somebody wants the supervisor to end."""


def supervise():
    """Returns in the test program. Around it, runs it, clears up behind it and exits as it did; with 1 if processes of
    its were still there. Ends with the process that started it, and with SIGTERM, SIGINT or SIGHUP."""
    if os.environ.pop(_INSIDE, ''):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # Orphans among its descendants become its children.
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)

    def end(number, _):
        raise _Ended(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    directory = tempfile.mkdtemp(prefix='cxlpool-')
    os.chmod(directory, 0o755)  # Other users' applications come to sockets in it.
    status = 1
    try:
        program = subprocess.Popen([sys.executable, *sys.orig_argv[1:]],
                                   env={**os.environ, _INSIDE: '1', 'TMPDIR': directory})
        status = program.wait()
        left = _left_after(_GRACE_S)
        if left:
            print('left running:', *left, sep='\n  ', file=sys.stderr)
            status = status or 1
    except _Ended as e:
        print(f'ended by signal {e}', file=sys.stderr)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        _kill_children()
        shutil.rmtree(directory, ignore_errors=True)
    sys.exit(status if status >= 0 else 128 - status)


def _children():
    """Pids, with those that ended reaped."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return []
    return [int(pid) for task in Path('/proc/self/task').iterdir() for pid in (task / 'children').read_text().split()]


def _left_after(grace_s):
    """The command lines of children that do not end by themselves."""
    end = time.monotonic() + grace_s
    while _children() and time.monotonic() < end:
        time.sleep(0.02)
    left = []
    for pid in _children():
        line = Path(f'/proc/{pid}/cmdline').read_bytes().replace(b'\0', b' ').decode(errors='replace')
        left.append(f'{pid} {line[:200]}')
    return left


def _kill_children():
    """And what becomes a child by their end."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        children = _children()
        if not children:
            return
        for pid in children:
            os.kill(pid, signal.SIGKILL)  # Its number is its own until it is reaped here.
        time.sleep(0.02)
