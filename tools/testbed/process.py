"""A daemon of ours: started, watched, killed by its own handle, its log kept."""

import os
import signal
import subprocess
import time
from pathlib import Path

from cxlrack.deadline import PATIENCE


class TestbedError(Exception):
    """Something did not happen in time; the text says what, and shows the log's end."""


def wait_until(condition, timeout, what, exactly=False):
    """The first true value of `condition()`, polled; TestbedError after `timeout` seconds, times PATIENCE unless `exactly`:
    for what the product promises within that time."""
    timeout *= 1 if exactly else PATIENCE
    end = time.monotonic() + timeout
    while True:
        asked = time.monotonic()
        value = condition()
        if value:
            return value
        now = time.monotonic()
        if now > end:
            raise TestbedError(f'{what}: not within {timeout} s')
        # Most conditions run the CLI. Whoever is waited for shares these processors, and should have the most of them.
        time.sleep(min(1, max(0.02, 3 * (now - asked))))


class Daemon:
    """One process. Its log is appended to over restarts."""

    def __init__(self, name, command, log: Path, env=None):
        self.name, self.command, self.log = name, [str(c) for c in command], Path(log)
        self.env = dict(env or {})
        self.process = None

    def start(self, env=None):
        with open(self.log, 'ab') as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env={**os.environ, **self.env, **(env or {})})
        return self

    @property
    def running(self):
        return self.process is not None and self.process.poll() is None

    def wait(self, timeout):
        """The exit status; TestbedError if it goes on for longer than `timeout` seconds."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TestbedError(f'{self.name} did not end within {timeout} s; log:\n{self.tail()}') from None

    def kill(self):
        """kill -9."""
        if self.running:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def stop(self, timeout=10):
        """SIGTERM; SIGKILL and TestbedError if that takes longer than `timeout` seconds."""
        if not self.running:
            return
        self.process.terminate()
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TestbedError(f'{self.name} did not stop within {timeout} s; log:\n{self.tail()}') from None

    def tail(self, lines=20):
        return '\n'.join(self.log.read_text(errors='replace').splitlines()[-lines:]) if self.log.exists() else ''
