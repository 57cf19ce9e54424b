"""Tests of qmp.py against a scripted server."""
import json
import socket
import tempfile
import threading
import unittest
from pathlib import Path

from cxlrack.qmp import Qmp, QmpError

GREETING = b'{"QMP": {"version": {}, "capabilities": []}}\r\n'
OK = b'{"return": {}}\r\n'


class QmpTest(unittest.TestCase):
    def setUp(self):
        self.path = Path(self.enterContext(tempfile.TemporaryDirectory())) / 'qmp'
        self.requests = []

    def serve(self, *answers: bytes, greeting: bytes = GREETING, hang_up: bool = False) -> None:
        """Greets, then answers one request after the other (the first is qmp_capabilities), then waits for the client to
        leave, or leaves itself."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.path))
        listener.listen(1)

        def run():
            with listener, listener.accept()[0] as connection:
                connection.sendall(greeting)
                for answer in answers:
                    line = connection.makefile('rb').readline()
                    if not line:
                        return
                    self.requests.append(json.loads(line))
                    connection.sendall(answer)
                if not hang_up:
                    connection.recv(1)

        thread = threading.Thread(target=run)
        thread.start()
        self.addCleanup(thread.join)

    def test_a_command_and_its_return(self):
        self.serve(OK, b'{"return": {"status": "running"}}\r\n')
        with Qmp(self.path) as qmp:
            self.assertEqual(qmp.execute('query-status', {'a': 1}), {'status': 'running'})
        self.assertEqual(self.requests[1], {'execute': 'query-status', 'arguments': {'a': 1}})

    def test_an_event_before_the_return_is_kept(self):
        events = b'{"event": "DEVICE_DELETED", "data": {"path": "/x"}}\n{"event": "DEVICE_DELETED", "data": {"device": "d"}}\n'
        self.serve(OK, events + OK)
        with Qmp(self.path) as qmp:
            qmp.execute('device_del')
            self.assertEqual(qmp.wait_event('DEVICE_DELETED', 1, device='d')['data'], {'device': 'd'})
            self.assertEqual(len(qmp.events), 1)

    def test_a_refusal_carries_its_class(self):
        self.serve(OK, b'{"error": {"class": "DeviceNotFound", "desc": "no device x"}}\n')
        with Qmp(self.path) as qmp, self.assertRaises(QmpError) as caught:
            qmp.execute('device_del')
        self.assertEqual(caught.exception.kind, 'DeviceNotFound')
        self.assertIn('no device x', str(caught.exception))

    def test_silence_ends_at_the_deadline(self):
        self.serve(OK, b'{"ret')
        with Qmp(self.path) as qmp, self.assertRaisesRegex(QmpError, 'no answer in time'):
            qmp.execute('query-status', timeout=0.1)

    def test_garbage_is_named(self):
        self.serve(OK, b'\xff\xfe hello\n')
        with Qmp(self.path) as qmp, self.assertRaisesRegex(QmpError, 'not JSON'):
            qmp.execute('query-status')

    def test_a_closed_connection_is_named(self):
        self.serve(OK, hang_up=True)
        with Qmp(self.path) as qmp, self.assertRaises(QmpError):
            qmp.execute('query-status')

    def test_something_else_that_listens_is_refused(self):
        self.serve(greeting=b'{"hello": 1}\n')
        with self.assertRaisesRegex(QmpError, 'not a QMP socket'):
            Qmp(self.path)

    def test_nobody_listens(self):
        with self.assertRaises(QmpError):
            Qmp(self.path)


if __name__ == '__main__':
    unittest.main()
