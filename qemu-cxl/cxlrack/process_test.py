"""Tests of process.py."""
import dataclasses
import os
import select
import subprocess
import unittest

from cxlrack.process import Process


class ProcessTest(unittest.TestCase):
    def setUp(self):
        self.child = subprocess.Popen(['sleep', '100'])
        self.addCleanup(self.child.wait)
        self.addCleanup(self.child.kill)

    def test_kill_waits_for_the_end(self):
        process = Process.of(self.child.pid)
        self.assertTrue(process.alive())
        self.assertTrue(process.kill(10))
        self.assertFalse(process.alive())

    def test_a_zombie_is_not_alive_and_killing_it_again_is_no_error(self):
        process = Process.of(self.child.pid)
        process.kill(10)  # nobody has waited for the child: it is a zombie
        self.assertFalse(process.alive())
        self.assertTrue(process.kill(0))

    def test_another_process_of_the_same_pid_is_left_alone(self):
        other = dataclasses.replace(Process.of(self.child.pid), start_time=1)
        self.assertFalse(other.alive())
        self.assertIsNone(other.open())
        self.assertTrue(other.kill(1))
        self.assertIsNone(self.child.poll())

    def test_open_is_readable_after_the_end(self):
        fd = Process.of(self.child.pid).open()
        self.addCleanup(os.close, fd)
        self.assertEqual(select.select([fd], [], [], 0)[0], [])
        self.child.kill()
        self.assertEqual(select.select([fd], [], [], 10)[0], [fd])

    def test_no_such_process(self):
        self.child.kill()
        self.child.wait()
        with self.assertRaises(ProcessLookupError):
            Process.of(self.child.pid)


if __name__ == '__main__':
    unittest.main()
