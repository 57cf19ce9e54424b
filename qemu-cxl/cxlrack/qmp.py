"""A client of QEMU's machine protocol: one command at a time, every wait with a deadline.

A QMP socket serves one client; a second one gets no greeting until the first leaves.
"""
import json
import socket
from pathlib import Path

from cxlrack.deadline import Deadline
from cxlrack.errors import RackError

_MAX_BUFFER = 16 << 20


class QmpError(RackError):
    """QEMU refused a command. `kind` is QMP's error class."""

    def __init__(self, message: str, kind: str = ''):
        super().__init__(message)
        self.kind = kind


class Qmp:
    """A connection. Not for two threads at once. Events that came are in `events`, oldest first."""

    def __init__(self, path: Path, timeout: float = 10):
        self._path = path
        self._buffer = b''
        self.events: list[dict] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        deadline = Deadline(timeout)
        try:
            self._socket.settimeout(max(deadline.left(), 0.01))
            self._socket.connect(str(path))
            if 'QMP' not in self._message(deadline):
                raise QmpError(f'{path}: not a QMP socket')
            self.execute('qmp_capabilities', timeout=deadline.left())
        except OSError as e:
            self.close()
            raise QmpError(f'{path}: {e}') from e
        except BaseException:
            self.close()
            raise

    def execute(self, command: str, arguments: dict | None = None, *, timeout: float = 10):
        """What the command returned. QmpError: it was refused, or no answer came in time."""
        deadline = Deadline(timeout)
        request = {'execute': command, 'arguments': arguments or {}}
        try:
            self._socket.settimeout(max(deadline.left(), 0.01))
            self._socket.sendall(json.dumps(request).encode() + b'\n')
        except OSError as e:
            raise QmpError(f'{self._path}: {command}: {e}') from e
        while True:
            message = self._message(deadline)
            if 'event' in message:
                self.events.append(message)
            elif 'error' in message:
                error = message['error']
                raise QmpError(f'{command}: {error.get("desc")}', error.get('class', ''))
            elif 'return' in message:
                return message['return']

    def wait_event(self, name: str, timeout: float, **data) -> dict:
        """The first event `name` whose data has these values, one that already came or a coming one; it is taken out."""
        deadline = Deadline(timeout)
        while True:
            for event in self.events:
                if event['event'] == name and all(event.get('data', {}).get(k) == v for k, v in data.items()):
                    self.events.remove(event)
                    return event
            self.events.append(self._message(deadline))

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> 'Qmp':
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _message(self, deadline: Deadline) -> dict:
        while b'\n' not in self._buffer:
            if deadline.over():
                raise QmpError(f'{self._path}: no answer in time; is another client connected to this socket?')
            self._socket.settimeout(deadline.left() or 0.01)
            try:
                data = self._socket.recv(65536)
            except TimeoutError:
                continue
            except OSError as e:
                raise QmpError(f'{self._path}: {e}') from e
            if not data:
                raise QmpError(f'{self._path}: QEMU closed the connection')
            self._buffer += data
            if len(self._buffer) > _MAX_BUFFER:
                raise QmpError(f'{self._path}: a message of more than {_MAX_BUFFER >> 20} MiB')
        line, self._buffer = self._buffer.split(b'\n', 1)
        try:
            message = json.loads(line)
        except ValueError as e:
            raise QmpError(f'{self._path}: not JSON: {line[:200]!r}') from e
        if not isinstance(message, dict):
            raise QmpError(f'{self._path}: not a QMP message: {line[:200]!r}')
        return message
