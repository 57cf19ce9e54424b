"""Devices that every host sees whole: every way in which one may be another than the one that it is taken for."""

import os
import shutil
import tempfile
import unittest
from pathlib import Path

from testbed.emulated import EmulatedHost, SharedPool
from testbed.pool import WAIT, CliError
from testbed.process import TestbedError, wait_until
from testbed.testing import BUILD, main


class IdentityPool(SharedPool):
    """Its devices need not be there: a test says which it waits for. `shown`: host -> the files that its agent names."""

    manager_toml = '[reconciler]\nattach_timeout = "15s"\n'  # One that is not proven is tried again for so long.

    def __init__(self, directory, files=None, shown=None, **more):
        super().__init__(BUILD, directory, devices={'cmm-0': '514MiB', 'cmm-1': '514MiB'}, granule='2MiB', **more)
        self.files = files or self.files
        self.shown = shown or {}

    def agent_toml(self, name, bridges):
        return f'[shared]\nfiles = {[str(path) for path in self.shown.get(name, self.files.values())]}'

    def wait_devices(self, timeout=60):
        pass

    def device(self, id):
        return next(d for d in self.cli('device', 'list')['devices'] if d['name'] == f'devices/{id}')

    def wait_device(self, id, state, *words):
        """Until its state is that one, and what is said of it has these words."""
        def is_so():
            device = self.device(id)
            return device['state'] == state and all(word in str(device) for word in words)
        try:
            wait_until(is_so, 60, f'{id} is {state} ({words})')
        except TestbedError as e:
            raise TestbedError(f'{e}; it is {self.device(id)}') from None

    def restart_agent(self, name):
        host = self.hosts[name]
        host.agent.kill()
        self.hosts[name] = EmulatedHost(self, name, [])
        self.hosts[name].agent.start()
        self.wait_hosts_online()


class SharedIdentityTest(unittest.TestCase):
    """Names say nothing of which device it is. A pool for each test."""

    def pool_of(self, sub='pool', **more):
        if not hasattr(self, 'directory'):
            self.directory = Path(tempfile.mkdtemp(prefix='cxlpool-test-'))
            self.directory.chmod(0o755)
            self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        (self.directory / sub).mkdir(exist_ok=True)
        pool = IdentityPool(self.directory / sub, **more)
        self.addCleanup(pool.close)
        return pool

    def ready(self, pool):
        pool.start()
        for id in pool.devices:
            pool.wait_device(id, 'READY')
        return pool

    def works(self, pool, host, device, name):
        pool.allocate(name, '4MiB', host, '--device', device)
        self.program(pool, host, 'pool-write', '--region', name, '--seed', 1)
        pool.release(name)

    def program(self, pool, host, *words):
        done = pool.hosts[host].run([str(word) for word in words])
        self.assertEqual(done.status, 0, done.out + done.err)

    def refused(self, pool, host, device, *words):
        """Bytes of the device do not get to the host, and the operator hears why."""
        with self.assertRaises(CliError) as refused:
            pool.allocate('refused', '4MiB', host, '--device', device)
        for word in words:
            self.assertIn(word, refused.exception.stderr)
        # Where it was found out only after it had been placed, its time runs out.
        wait_until(lambda: 'refused' not in pool.regions(), 90, 'the Region that was refused is gone')

    def test_devices_that_another_host_has_under_swapped_names(self):
        pool = self.pool_of()
        (self.directory / 'swapped').mkdir()
        swapped = [self.directory / 'swapped' / id for id in pool.files]
        for path, file in zip(swapped, reversed(pool.files.values())):
            os.link(file, path)
        pool.shown['host-b'] = swapped
        self.ready(pool)
        for i, device in enumerate(pool.files):
            name = f'both{i}'
            pool.allocate(name, '64MiB', 'host-a', '--device', device, '--sharing', 'single-writer', '--open-to', 'everybody')
            self.program(pool, 'host-a', 'pool-write', '--region', name, '--seed', i)
            pool.cli('region', 'attach', name, '--host', 'host-b', '--access', 'ro', '--wait', '--wait-timeout', WAIT)
            self.program(pool, 'host-b', 'pool-verify', '--region', name, '--seed', i)
        # And in another order on a host that has them online.
        pool.shown['host-a'] = list(reversed(pool.files.values()))
        pool.restart_agent('host-a')
        for i in range(2):
            wait_until(lambda i=i: pool.attachment(f'both{i}', 'host-a')['state'] == 'ONLINE', 60, 'it is online again')
            self.program(pool, 'host-a', 'pool-verify', '--region', f'both{i}', '--seed', i)
            pool.release(f'both{i}')

    def test_a_copy_is_not_the_device(self):
        pool = self.ready(self.pool_of())
        copy = self.directory / 'copy'
        shutil.copyfile(pool.files['cmm-0'], copy)
        before = copy.read_bytes()
        pool.shown['host-b'] = [copy, pool.files['cmm-1']]
        pool.restart_agent('host-b')
        self.refused(pool, 'host-b', 'cmm-0', 'host host-b does not load what host host-a has just stored there')
        self.assertEqual(copy.read_bytes(), before)
        self.works(pool, 'host-a', 'cmm-0', 'here')
        self.works(pool, 'host-b', 'cmm-1', 'there')
        # The right one again.
        del pool.shown['host-b']
        pool.restart_agent('host-b')
        self.works(pool, 'host-b', 'cmm-0', 'again')

    def test_another_pools_device_is_left_as_it_is(self):
        first = self.ready(self.pool_of())
        first.close()
        before = {id: file.read_bytes() for id, file in first.files.items()}
        second = self.pool_of('second', files=first.files)
        second.start()
        second.wait_device('cmm-0', 'UNREACHABLE', 'with the mark of device cmm-0 of pool', 'another pool')
        with self.assertRaises(CliError):
            second.allocate('x', '4MiB', 'host-a', wait=False)
        self.assertEqual({id: file.read_bytes() for id, file in first.files.items()}, before)

    def test_half_a_mark(self):
        pool = self.pool_of()
        # Without its first word it was never finished, and is none; with it, it is somebody's.
        with open(pool.files['cmm-0'], 'r+b') as file:
            file.seek(8)
            file.write(b'\x20\0\0\0half of a mark')
        with open(pool.files['cmm-1'], 'r+b') as file:
            file.write(b'CXLPMARK\x20\0\0\0half')
        before = pool.files['cmm-1'].read_bytes()
        pool.start()
        pool.wait_device('cmm-0', 'READY')
        pool.wait_device('cmm-1', 'UNREACHABLE', 'has a mark of a pool that is damaged', 'not bare')
        self.works(pool, 'host-a', 'cmm-0', 'x')
        self.assertEqual(pool.files['cmm-1'].read_bytes(), before)
        # As the text says.
        with open(pool.files['cmm-1'], 'r+b') as file:
            file.write(bytes(4096))
        pool.wait_device('cmm-1', 'READY')
        self.works(pool, 'host-b', 'cmm-1', 'y')

    def test_a_mark_that_is_damaged_later(self):
        pool = self.ready(self.pool_of())
        for host in ('host-a', 'host-b'):
            pool.allocate(f'on-{host}', '4MiB', host, '--device', 'cmm-0')
            self.program(pool, host, 'pool-write', '--region', f'on-{host}', '--seed', 9)
        with open(pool.files['cmm-0'], 'r+b') as file:
            file.seek(20)
            whole = file.read(8)
            file.seek(20)
            file.write(b'scribble')
        pool.wait_device('cmm-0', 'UNREACHABLE', 'damaged')
        with self.assertRaises(CliError):
            pool.allocate('x', '4MiB', 'host-a', '--device', 'cmm-0', wait=False)
        # What hosts have they keep.
        for host in ('host-a', 'host-b'):
            self.program(pool, host, 'pool-verify', '--region', f'on-{host}', '--seed', 9)
        self.works(pool, 'host-a', 'cmm-1', 'y')
        with open(pool.files['cmm-0'], 'r+b') as file:
            file.seek(20)
            file.write(whole)
        pool.wait_device('cmm-0', 'READY')
        for host in ('host-a', 'host-b'):
            pool.release(f'on-{host}')
        self.works(pool, 'host-b', 'cmm-0', 'z')


if __name__ == '__main__':
    main()
