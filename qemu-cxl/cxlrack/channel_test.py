"""Tests of channel.py: its side of the protocol, against a server in a thread that speaks the other side."""
import os
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path
from typing import Callable

from cxlrack import channel
from cxlrack.process import Process


class Server(threading.Thread):
    """What QEMU and guest/exec-server are together: holds both ends of the FIFOs, so nobody sees a hang-up."""

    def __init__(self, pipe: Path, answer: Callable[[list[str], bytes], bytes]):
        super().__init__(daemon=True)
        for end in ('in', 'out'):
            os.mkfifo(f'{pipe}.{end}')
        self._in = open(os.open(f'{pipe}.in', os.O_RDWR), 'rb')
        self.out = os.open(f'{pipe}.out', os.O_RDWR)
        self._answer = answer
        self.lines: list[list[str]] = []
        self._path = f'{pipe}.in'

    def stop(self):
        if self.is_alive():
            with open(self._path, 'wb') as f:
                f.write(b'\n')
            self.join()
        self._in.close()
        os.close(self.out)

    def run(self):
        while True:
            words = self._in.readline().decode().split()
            if not words:
                return
            self.lines.append(words)
            if words[0] == 'ping':
                reply = b'\n@%s token\n' % words[1].encode()
            else:
                reply = self._answer(words, self._in.read(int(words[5]) + int(words[6])))
            while reply:
                reply = reply[os.write(self.out, reply):]


def echo(words: list[str], payload: bytes) -> bytes:
    """Status 3, the payload as output, "err" as error output."""
    return b'\n@%s 3 %d 3\n%serr' % (words[1].encode(), len(payload), payload)


class ChannelTest(unittest.TestCase):
    def setUp(self):
        self.directory = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.child = subprocess.Popen(['sleep', '100'])  # stands for QEMU
        self.addCleanup(self.child.wait)
        self.addCleanup(self.child.kill)
        self.process = Process.of(self.child.pid)
        self.pipes = [self.directory / 'exec.0', self.directory / 'exec.1']

    def server(self, number: int, answer=echo) -> Server:
        server = Server(self.pipes[number], answer)
        self.addCleanup(server.stop)
        server.start()
        return server

    def run_command(self, command: bytes = b'true', **options) -> channel.Result:
        return channel.run(self.pipes, self.process, command, user='app', timeout=5, **options)

    def test_command_and_input_arrive_and_output_comes_back(self):
        server = self.server(0)
        result = self.run_command(b'cat', input=b'\0in\n')
        self.assertEqual((result.status, result.stdout, result.stderr), (3, b'cat\0in\n', b'err'))
        self.assertEqual(server.lines[1][2:], ['token', 'app', '5', '3', '4', str(channel.MAX_OUTPUT_BYTES)])

    def test_more_than_a_pipe_holds(self):
        self.server(0)
        data = os.urandom(1 << 20)
        self.assertEqual(self.run_command(b'', input=data).stdout, data)

    def test_what_others_left_behind_is_skipped(self):
        server = self.server(0)
        os.write(server.out, b'half an answer\n@0123 0 5 0\nhello\n@')
        self.assertEqual(self.run_command(b'x').stdout, b'x')

    def test_a_server_stuck_on_a_dead_askers_answer_is_freed(self):
        server = self.server(0, lambda words, payload: bytes(300_000) if words[3] == 'root' else echo(words, payload))
        with open(f'{self.pipes[0]}.in', 'wb') as f:
            f.write(b'run 0123 token root 5 1 0 9\nx')  # and nobody reads what it answers
        self.assertEqual(self.run_command(b'y').stdout, b'y')
        self.assertEqual(server.lines[-1][3], 'app')

    def test_a_taken_channel_leaves_the_next(self):
        first, second = self.server(0), self.server(1)
        lock = channel.try_lock(self.directory / 'exec.0.lock')
        self.addCleanup(os.close, lock)
        self.assertEqual(self.run_command().status, 3)
        self.assertEqual((len(first.lines), len(second.lines)), (0, 2))

    def test_too_much_output_is_refused(self):
        self.server(0, lambda words, _: b'\n@%s 0 %d 0\n' % (words[1].encode(), channel.MAX_OUTPUT_BYTES + 1))
        with self.assertRaisesRegex(channel.ChannelError, 'limit'):
            self.run_command()

    def test_too_much_to_send_is_refused(self):
        with self.assertRaisesRegex(channel.ChannelError, 'command has'):
            self.run_command(bytes(channel.MAX_COMMAND_BYTES + 1))

    def test_the_end_of_qemu_ends_the_wait(self):
        def die(words, payload):
            self.child.kill()
            return b''
        self.server(0, die)
        with self.assertRaisesRegex(channel.ChannelError, 'ended'):
            self.run_command()

    def test_a_dead_qemu_is_named(self):
        self.server(0)
        self.child.kill()
        self.child.wait()
        with self.assertRaisesRegex(channel.ChannelError, 'not running'):
            self.run_command()

    def test_silence_asks_whether_to_go_on(self):
        for pipe in self.pipes:
            self.addCleanup(Server(pipe, echo).stop)  # never started

        def give_up():
            raise channel.ChannelError('paused')
        with self.assertRaisesRegex(channel.ChannelError, 'paused'):
            self.run_command(on_silence=give_up)


if __name__ == '__main__':
    unittest.main()
