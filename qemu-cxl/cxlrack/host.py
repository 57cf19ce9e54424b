"""One emulated host: a QEMU process, what it runs, and the commands sent into it."""
import contextlib
import dataclasses
import json
import os
import re
import shlex
import subprocess
import threading
import time
from pathlib import Path
from typing import Callable, Iterator, Sequence

from cxlrack import channel, machine
from cxlrack.channel import Result
from cxlrack.deadline import PATIENCE, Deadline, locked
from cxlrack.errors import CommandFailed, RackError
from cxlrack.jsonfile import write_json
from cxlrack.process import Process
from cxlrack.qmp import Qmp, QmpError
from cxlrack.topology import HostSpec

BOOT_TIMEOUT_S = 300.0
RUN_TIMEOUT_S = 60.0

_BRIDGE_OF_SLOT = ('bus=$(cut -d: -f1,2 /sys/bus/pci/slots/%d/address); '
                   'root=$(readlink -f /sys/class/pci_bus/$bus | grep -o "^/sys/devices/pci[^/]*"); '
                   'basename $(readlink -f $root/firmware_node)')
_READY = r'cxlpool-rack: %s READY, kernel \S+ up ([\d.]+) s'
_PANIC = b'Kernel panic'
_KILL_TIMEOUT_S = 10.0
_QMP_TIMEOUT_S = 10.0
_POLL_S = 0.02
_MAX_CLOCK = 2  # a guest's seconds in one of ours,
_CLOCK_GRACE_S = 10  # beside so many

Command = str | Sequence[str]


class Host:
    """Made by Rack. Safe for several threads: each command has a channel of its own."""

    def __init__(self, spec: HostSpec, paths: machine.HostPaths, arguments: list[str], changed: Callable[[], None]):
        self.spec = spec
        self.paths = paths
        self._arguments = arguments
        self._changed = changed  # called when it has become another process
        self._console_mark = 0  # where in the console's log this boot begins
        self._marked = float('-inf')  # and when: long ago, where another launcher began it

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def process(self) -> Process | None:
        """Its QEMU, alive or not; None before the first boot. Read from its file: another launcher may boot it too."""
        try:
            return Process(**json.loads(self.paths.process.read_text()))
        except FileNotFoundError:
            return None

    @property
    def pid(self) -> int:
        return self._booted().pid

    # Commands in the host.

    def run(self, command: Command, *, user: str = 'root', timeout: float = RUN_TIMEOUT_S, input: bytes = b'',
            check: bool = False, exactly: bool = False) -> Result:
        """Runs shell text, or a list of words, as `user` (root or app) and waits for its end.

        After `timeout` seconds, times PATIENCE unless `exactly`, its process group is killed; the result says so. With
        `check`, CommandFailed unless the status is 0. RackError: the host did not take it or did not answer.
        """
        timeout *= 1 if exactly else PATIENCE
        text = command if isinstance(command, str) else shlex.join(command)
        if not re.fullmatch(r'[a-z_][a-z0-9_-]*', user):
            raise RackError(f'{user!r} is not a user name')
        pipes = [self.paths.exec_pipe(n) for n in range(machine.EXEC_CHANNELS)]
        try:
            result = channel.run(pipes, self._booted(), text.encode(), user=user, timeout=timeout, input=input,
                                 on_silence=self._refuse_paused)
        except channel.ChannelError as e:
            raise channel.ChannelError(f'{self.name} is {self.status()}: {_short(text)}: {e}{self._remedy()}') from e
        if check and not result.ok:
            how = f'took longer than {timeout:g} s' if result.timed_out else f'ended with status {result.status}'
            raise CommandFailed(f'{self.name}: {_short(text)}: {how}\n{result.out}{result.err}'.rstrip(), result)
        return result

    def output(self, command: Command, **options) -> str:
        """What a command that must succeed wrote to its standard output, stripped."""
        return self.run(command, check=True, **options).out.strip()

    def wait_for(self, command: Command, timeout: float = 30, interval: float = 0.1, exactly: bool = False,
                 **options) -> Result:
        """Runs a command again and again until its status is 0; RackError with its last output after `timeout`, times
        PATIENCE unless `exactly`."""
        timeout *= 1 if exactly else PATIENCE
        deadline = Deadline(timeout)
        while True:
            result = self.run(command, timeout=max(1.0, deadline.left()), exactly=True, **options)
            if result.ok:
                return result
            if deadline.over():
                text = command if isinstance(command, str) else shlex.join(command)
                raise RackError(f'{self.name}: {_short(text)}: still status {result.status} after {timeout:g} s\n'
                                f'{result.out}{result.err}'.rstrip())
            time.sleep(interval)

    def put(self, path: str, data: bytes, *, mode: int = 0o644, owner: str = 'root') -> None:
        """Writes a file in the host, its directories too, by a rename."""
        target, temporary = shlex.quote(path), shlex.quote(f'{path}.{os.urandom(4).hex()}')
        self.run(f'mkdir -p "$(dirname {target})" && umask 077 && cat >{temporary} && chmod {mode:o} {temporary} && '
                 f'chown {shlex.quote(owner)} {temporary} && mv {temporary} {target}', input=data, check=True)

    def get(self, path: str) -> bytes:
        return self.run(['cat', path], check=True).stdout

    def host_bridge(self, slot: int) -> str:
        """The ACPI name (ACPI0016:00) of the CXL host bridge that a PCIe slot is behind, as the guest's kernel says."""
        return self.output(_BRIDGE_OF_SLOT % slot)

    # Its life.

    def status(self) -> str:
        """running, paused, dead; or what else QEMU says it is."""
        try:
            return self.qmp('query-status')['status'] if self._alive() else 'dead'
        except RackError:
            return 'not answering on QMP' if self._alive() else 'dead'

    def pause(self) -> None:
        """Stops its processors. It keeps its memory and its mappings."""
        self.qmp('stop')

    def resume(self) -> None:
        self.qmp('cont')

    def reset(self, *, wait: bool = True, timeout: float = BOOT_TIMEOUT_S) -> None:
        """Pulls its reset line: a reboot without a shutdown. What is plugged in stays plugged in."""
        self._mark_console()
        self.qmp('system_reset')
        if wait:
            self.wait_ready(timeout)

    def kill(self) -> None:
        """Power gone: SIGKILL to its QEMU, and waits until it is. Not an error if it already is."""
        process = self.process
        if process and not process.kill(_KILL_TIMEOUT_S):
            raise RackError(f'{self.name}: QEMU (pid {process.pid}) is still there {_KILL_TIMEOUT_S:g} s after SIGKILL; '
                            f'see /proc/{process.pid}/stack')

    def boot(self, *, wait: bool = True, timeout: float = BOOT_TIMEOUT_S) -> None:
        """Powers it on, with the same sockets as before, nothing plugged in."""
        if self._alive():
            raise RackError(f'{self.name} is on already (pid {self.pid}); to reboot it: rack reset {self.name}')
        self.start()
        if wait:
            self.wait_ready(timeout)

    def start(self) -> None:
        """Starts QEMU and returns without waiting for the guest."""
        for stale in (self.paths.qmp, self.paths.qmp_evict, self.paths.qmp_ops, self.paths.console):
            stale.unlink(missing_ok=True)
        for n in range(machine.EXEC_CHANNELS):
            for end in ('in', 'out'):
                fifo = Path(f'{self.paths.exec_pipe(n)}.{end}')
                fifo.unlink(missing_ok=True)  # a new one: nothing sent to the host before can be read by it now
                os.mkfifo(fifo, 0o600)
        self._mark_console()
        with open(self.paths.qemu_log, 'ab') as log:
            # Not QEMU's -daemonize: its sockets would name the parent, which is gone, as their owner (SO_PEERCRED).
            child = subprocess.Popen(self._arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                     cwd=self.paths.directory, start_new_session=True, umask=0o077)
        write_json(self.paths.process, dataclasses.asdict(Process.of(child.pid)))
        threading.Thread(target=child.wait, daemon=True).start()  # no zombie while this launcher lives
        self._changed()

    def wait_ready(self, timeout: float = BOOT_TIMEOUT_S) -> None:
        """Until the guest's init is done. A guest that measured its processor's clock wrongly, as happens on a busy machine, lives
        many times too fast: it is reset, so that no timeout of its programs means milliseconds."""
        deadline = Deadline(timeout)
        marker = re.compile((_READY % re.escape(self.name)).encode())
        while True:
            text = self._console_since_mark()
            ready = marker.search(text)
            if ready and float(ready.group(1)) <= _MAX_CLOCK * (time.monotonic() - self._marked) + _CLOCK_GRACE_S:
                return
            if ready:
                self.reset(wait=False)
            if _PANIC in text:
                raise self._boot_failure('its kernel panicked')
            if not self._alive():
                raise self._boot_failure('its QEMU ended')
            if deadline.over():
                raise self._boot_failure(f'not ready after {timeout:g} s (a busy machine? a longer --timeout?)')
            time.sleep(_POLL_S)

    # QMP.

    def qmp(self, command: str, arguments: dict | None = None, timeout: float = _QMP_TIMEOUT_S):
        """One command on the launcher's own socket."""
        with self.qmp_session(timeout) as session:
            return session.execute(command, arguments, timeout=timeout)

    @contextlib.contextmanager
    def qmp_session(self, timeout: float = _QMP_TIMEOUT_S) -> Iterator[Qmp]:
        """The launcher's own socket for several commands; other launcher commands on this host wait meanwhile."""
        if not self._alive():
            raise RackError(f'{self.name} is dead; rack boot {self.name}')
        deadline = Deadline(timeout)
        try:
            with locked(self.paths.qmp_ops.with_name('qmp-ops.lock'), deadline, self.name):
                with self._qmp_connect(deadline) as session:
                    yield session
        except QmpError as e:
            raise QmpError(f'{self.name}: {e}', e.kind) from e

    def console_tail(self, lines: int = 20) -> str:
        text = self._console_since_mark().decode(errors='replace').replace('\r', '')
        return '\n'.join(text.splitlines()[-lines:])

    def _qmp_connect(self, deadline: Deadline) -> Qmp:
        while not self.paths.qmp_ops.exists() and not deadline.over() and self._alive():
            time.sleep(_POLL_S)  # QEMU has only just been started
        return Qmp(self.paths.qmp_ops, max(0.1, deadline.left()))

    def _alive(self) -> bool:
        process = self.process
        return process is not None and process.alive()

    def _booted(self) -> Process:
        process = self.process
        if process is None:
            raise RackError(f'{self.name} was never booted; rack boot {self.name}')
        return process

    def _refuse_paused(self) -> None:
        if self.status() == 'paused':
            raise channel.ChannelError('no answer from the host')

    def _remedy(self) -> str:
        return {'paused': f'; rack resume {self.name}', 'dead': f'; rack boot {self.name}'}.get(
            self.status(), f'; see {self.paths.console_log}')

    def _mark_console(self) -> None:
        self._marked = time.monotonic()
        with contextlib.suppress(FileNotFoundError):
            self._console_mark = self.paths.console_log.stat().st_size

    def _console_since_mark(self) -> bytes:
        try:
            with open(self.paths.console_log, 'rb') as f:
                f.seek(self._console_mark)
                return f.read()
        except FileNotFoundError:
            return b''

    def _boot_failure(self, what: str) -> RackError:
        qemu = self.paths.qemu_log.read_text(errors='replace').splitlines()[-10:]
        tail = '\n'.join(f'  | {line}' for line in self.console_tail().splitlines() + qemu) or '  | (nothing)'
        return RackError(f'{self.name}: {what}. Its console and QEMU said last:\n{tail}\n'
                         f'All of it: {self.paths.console_log} and {self.paths.qemu_log}. '
                         'If the image or the kernel is at fault, run qemu-cxl/fetch and qemu-cxl/mkimage again.')


def _short(text: str) -> str:
    line = text.strip().split('\n', 1)[0]
    return line if line == text.strip() and len(line) <= 100 else line[:97] + '...'
