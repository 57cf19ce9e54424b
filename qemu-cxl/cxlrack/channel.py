"""Runs a command in a host: the launcher's side of guest/exec-server, where the protocol is written down.

A channel is a pair of FIFOs that QEMU ties to one virtio-serial port. The holder of its lock owns it. What a dead
launcher left in it, or what a paused host answers late, is skipped: answers carry the asker's nonce, and a command is
sent only to a server that has just answered a ping.
"""
import contextlib
import dataclasses
import os
import secrets
import select
from pathlib import Path
from typing import Callable, Iterator

from cxlrack.deadline import Deadline, try_lock
from cxlrack.errors import RackError
from cxlrack.process import Process

MAX_COMMAND_BYTES = 128 << 10
MAX_INPUT_BYTES = 64 << 20
MAX_OUTPUT_BYTES = 64 << 20
TIMED_OUT = 124

# How long one channel may take to answer a ping before the next is tried: a server may be busy with a command whose
# asker is gone.
_PING_S = 2.0
# A command ends by its own timeout in the host; the answer may take this much longer.
_GRACE_S = 15.0


class ChannelError(RackError):
    """The host did not answer, or its QEMU ended."""


@dataclasses.dataclass(frozen=True)
class Result:
    """How a command ended. `timed_out`: it was killed, and the output is what came until then."""
    status: int
    stdout: bytes
    stderr: bytes

    @property
    def out(self) -> str:
        return self.stdout.decode(errors='replace')

    @property
    def err(self) -> str:
        return self.stderr.decode(errors='replace')

    @property
    def ok(self) -> bool:
        return self.status == 0

    @property
    def timed_out(self) -> bool:
        return self.status == TIMED_OUT


def run(pipes: list[Path], process: Process, command: bytes, *, user: str, timeout: float, input: bytes = b'',
        on_silence: Callable[[], None] = lambda: None) -> Result:
    """Runs shell text on the first of these channels that is free. `timeout` in seconds, for the command alone.

    `on_silence` is called when a server does not answer; it may raise to give up, else the next channel is tried.
    """
    for name, size, limit in (('command', len(command), MAX_COMMAND_BYTES), ('input', len(input), MAX_INPUT_BYTES)):
        if size > limit:
            raise ChannelError(f'the {name} has {size} bytes; {limit} is the limit')
    with _free_channel(pipes, process, Deadline(timeout + _GRACE_S), on_silence) as (channel, token):
        nonce = secrets.token_hex(16)
        header = f'run {nonce} {token} {user} {max(1, round(timeout))} {len(command)} {len(input)} {MAX_OUTPUT_BYTES}\n'
        deadline = Deadline(timeout + _GRACE_S)
        channel.send(header.encode() + command + input, deadline)
        status, out_bytes, err_bytes = (int(field) for field in channel.answer(nonce, deadline).split())
        if out_bytes + err_bytes > MAX_OUTPUT_BYTES:
            raise ChannelError(f'the command wrote {out_bytes + err_bytes} bytes; {MAX_OUTPUT_BYTES} is the limit: '
                               'write to a file in the host')
        return Result(status, channel.receive(out_bytes, deadline), channel.receive(err_bytes, deadline))


@contextlib.contextmanager
def _free_channel(pipes: list[Path], process: Process, deadline: Deadline,
                  on_silence: Callable[[], None]) -> Iterator[tuple['_Channel', str]]:
    """A channel whose server answers, and that server's token."""
    while True:
        for pipe in pipes:
            if deadline.over():
                raise ChannelError('no answer from the host: it is paused, still booting, or all its channels are busy')
            lock = try_lock(pipe.with_name(pipe.name + '.lock'))
            if lock is None:
                continue
            try:
                with _Channel(pipe, process) as channel:
                    nonce = secrets.token_hex(16)
                    try:
                        channel.send(f'ping {nonce}\n'.encode(), Deadline(_PING_S))
                        token = channel.answer(nonce, Deadline(_PING_S))
                    except _NoAnswer:
                        on_silence()
                        continue
                    yield channel, token
                    return
            finally:
                os.close(lock)
        select.select([], [], [], min(0.02, deadline.left()))  # all taken: look again


class _NoAnswer(ChannelError):
    pass


class _Channel:
    def __init__(self, pipe: Path, process: Process):
        self._buffer = b''
        self._pidfd = process.open()
        self._in = self._out = -1
        try:
            if self._pidfd is None:
                raise ChannelError('its QEMU is not running')
            self._in = os.open(f'{pipe}.in', os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._out = os.open(f'{pipe}.out', os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as e:
            self.close()
            raise ChannelError(f'{pipe}: {e.strerror}') from e
        except ChannelError:
            self.close()
            raise

    def send(self, data: bytes, deadline: Deadline) -> None:
        view = memoryview(data)
        while view:
            # What comes meanwhile is kept: a server may still be stuck writing its answer to somebody who is gone.
            ready_in, ready_out = self._wait(deadline, writing=True)
            if ready_in:
                self._fill()
            if ready_out:
                try:
                    view = view[os.write(self._in, view[:4096]):]
                except BlockingIOError:
                    pass

    def answer(self, nonce: str, deadline: Deadline) -> str:
        """The rest of the line that answers `nonce`; all before it is dropped."""
        mark = f'\n@{nonce} '.encode()
        while True:
            start = self._buffer.find(mark)
            if start >= 0:
                end = self._buffer.find(b'\n', start + len(mark))
                if end >= 0:
                    line = self._buffer[start + len(mark):end]
                    self._buffer = self._buffer[end + 1:]
                    return line.decode()
            else:
                self._buffer = self._buffer[-len(mark):]
            self._wait(deadline)
            self._fill()

    def receive(self, count: int, deadline: Deadline) -> bytes:
        parts, have = [self._buffer], len(self._buffer)
        while have < count:
            self._wait(deadline)
            self._buffer = b''
            self._fill()
            parts.append(self._buffer)
            have += len(self._buffer)
        data = b''.join(parts)
        self._buffer = data[count:]
        return data[:count]

    def close(self) -> None:
        for fd in (self._in, self._out, self._pidfd):
            if fd is not None and fd >= 0:
                os.close(fd)
        self._in = self._out = -1
        self._pidfd = None

    def __enter__(self) -> '_Channel':
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _fill(self) -> None:
        try:
            self._buffer += os.read(self._out, 65536)
        except BlockingIOError:
            pass

    def _wait(self, deadline: Deadline, writing: bool = False) -> tuple[bool, bool]:
        writers = [self._in] if writing else []
        readable, writable, _ = select.select([self._out, self._pidfd], writers, [], deadline.left())
        if self._pidfd in readable:
            raise ChannelError('its QEMU ended meanwhile')
        if not readable and not writable:
            raise _NoAnswer('no answer from the host in time: it is paused, overloaded or dead')
        return self._out in readable, self._in in writable
