"""Both daemons under a service manager: ready, watchdog, stopping, by a notify socket of our own.

And the unit files, by systemd-analyze where the machine has it.
"""

import shutil
import socket
import subprocess
import unittest

from testbed.emulated import EmulatedPool
from testbed.testing import BUILD, REPOSITORY, PoolTest, main


class NotifySocket:
    def __init__(self, path):
        self.path = str(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(20)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def expect(self, word):
        """Waits for it; returns what came until then, it included."""
        came = []
        while True:
            came.append(self.socket.recv(4096).decode())
            if word in came[-1]:
                return came


class ServiceManagerTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return EmulatedPool(BUILD, directory, hosts={'host-a': [[1, 2]]})

    def check(self, daemon, name):
        with NotifySocket(self.directory / f'{name}.notify') as notify:
            daemon.kill()
            daemon.start({'NOTIFY_SOCKET': notify.path, 'WATCHDOG_USEC': '400000'})
            notify.expect('READY=1')
            for _ in range(3):
                notify.expect('WATCHDOG=1')
            daemon.process.terminate()
            notify.expect('STOPPING=1')
            self.assertEqual(daemon.wait(10), 0)
        daemon.start()

    def test_the_agent(self):
        self.check(self.pool.hosts['host-a'].agent, 'agent')
        self.pool.wait_hosts_online()

    def test_the_agent_is_not_ready_while_its_manager_is_away(self):
        agent, manager = self.pool.hosts['host-a'].agent, self.pool.manager
        with NotifySocket(self.directory / 'away.notify') as notify:
            agent.kill()
            manager.kill()
            agent.start({'NOTIFY_SOCKET': notify.path})
            came = notify.expect('STATUS=waiting for the fabric manager at')
            manager.start()
            came += notify.expect('READY=1')
            # Whichever of the two is said first, the other follows at once.
            came += [] if any('in a session with' in text for text in came) else notify.expect('in a session with')
            self.assertEqual([text for text in came if text.startswith('READY')], ['READY=1'])
        agent.kill()
        agent.start()
        self.pool.wait_manager()
        self.pool.wait_hosts_online()

    def test_the_manager(self):
        self.check(self.pool.manager, 'manager')
        self.pool.wait_manager()
        self.pool.wait_hosts_online()

    def test_the_units(self):
        if not shutil.which('systemd-analyze'):
            raise unittest.SkipTest('systemd-analyze is not on this machine')
        for unit in ('cxlpool-fm.service', 'cxlpool-agent.service'):
            text = (REPOSITORY / 'packaging' / unit).read_text()
            self.assertIn('Type=notify', text)
            self.assertIn('WatchdogSec=', text)
            # The programs are not installed: point the unit at the build.
            program = unit.removesuffix('.service')
            copy = self.directory / unit
            copy.write_text(text.replace(f'/usr/sbin/{program}', str(BUILD / 'bin' / program)))
            done = subprocess.run(['systemd-analyze', 'verify', '--man=no', copy], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr.strip()), (0, ''))


if __name__ == '__main__':
    main()
