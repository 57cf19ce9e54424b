"""Devices that every host sees whole, as files, with real processes: life, refusals, kills, many Regions, and every way
in which a device may be another than the one that it is taken for."""

import os
import random
import shutil
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from testbed.demo import Demo
from testbed.emulated import EmulatedHost, SharedPool
from testbed.pool import CliError, MiB
from testbed.process import TestbedError, wait_until
from testbed.testing import BUILD, PoolTest, main

AGENT_UP = ('before-DeviceGrant', 'after-DeviceGrant', 'before-CreateHostRegion',
            'after-CreateHostRegion', 'before-BindDax', 'after-BindDax', 'before-Report')
AGENT_DOWN = ('before-UnbindDax', 'after-UnbindDax', 'before-DestroyHostRegion', 'after-DestroyHostRegion',
              'before-DeviceRevoke', 'after-DeviceRevoke', 'before-PowerOff', 'after-PowerOff', 'before-DeviceClear',
              'after-DeviceClear')
MANAGER_UP = ('before-bind', 'after-bind', 'after-commit-BOUND', 'report-SEGMENT_ONLINE', 'before-commit-ONLINE',
              'after-commit-ALLOCATED')
MANAGER_DOWN = ('after-commit-OFFLINE', 'before-unbind', 'after-unbind', 'after-commit-EJECTING', 'after-proof',
                'after-commit-drop', 'before-scrub', 'after-scrub', 'before-commit-gone', 'after-commit-gone')


class SharedTest(PoolTest):
    """What these tests share."""

    def left_on(self, host):
        """What a host's agent has written down: grants, and pieces other than the marks' windows."""
        directory, align = self.pool.directory / host, 2 * MiB
        grants = [line for line in self.lines(directory / 'grants')]
        pieces = [line for line in self.lines(directory / 'pieces') if line.split()[:2] != ['0', str(align)]]
        return grants + pieces

    @staticmethod
    def lines(path):
        """Below the first one, which names the file's kind and the boot."""
        return path.read_text().splitlines()[1:] if path.exists() else []

    def assert_nothing_left(self):
        self.assert_pool_empty()
        for host in self.pool.hosts:
            self.assertEqual(self.left_on(host), [], host)

    def refused(self, status, reason, *arguments):
        with self.assertRaises(CliError) as refused:
            self.pool.cli(*arguments)
        self.assertEqual(refused.exception.status, status, refused.exception.stderr)
        self.assertIn(reason, refused.exception.stderr)
        self.assertIn('remedy', refused.exception.stderr)

    def program(self, host, *words):
        done = self.pool.hosts[host].run([str(word) for word in words])
        self.assertEqual(done.status, 0, done.out + done.err)
        return done.out


class SharedChainTest(SharedTest):
    @classmethod
    def make_pool(cls, directory):
        return SharedPool(BUILD, directory)

    def test_1_the_demo_holds(self):
        Demo(self.pool, emulated=True).hold(self)
        self.assert_nothing_left()

    def test_2_a_refusal_says_why_and_changes_nothing(self):
        before = self.pool.cli('capacity')
        allocate = ('region', 'allocate', 'x', '--size')
        self.refused(5, 'POOL_FULL', *allocate, '8GiB', '--host', 'host-a')
        self.refused(5, 'POOL_FRAGMENTED', *allocate, '3GiB', '--host', 'host-a')
        self.refused(3, 'UNKNOWN_HOST', *allocate, '1GiB', '--host', 'host-z')
        self.refused(3, 'UNKNOWN_DEVICE', *allocate, '1GiB', '--device', 'cmm-9')
        self.refused(3, 'UNKNOWN_REGION', 'region', 'release', 'nobody')
        self.assertEqual(self.pool.cli('capacity'), before)
        self.assert_nothing_left()

    def allocating(self, name):
        return 'region', 'allocate', name, '--size', '256MiB', '--host', 'host-a', '--wait', '--wait-timeout', '60s'

    def assert_one_online(self, name):
        self.assertEqual(list(self.pool.regions()), [name])
        self.assertEqual(self.pool.attachment(name, 'host-a')['state'], 'ONLINE')
        self.program('host-a', 'pool-write', '--region', name, '--seed', 1)

    def gone(self):
        wait_until(lambda: (regions := self.pool.try_cli('region', 'list')) is not None and not regions.get('regions'), 60,
                   'it is gone')
        self.assert_nothing_left()

    def crash_agent_at(self, point):
        """The agent of host-a starts again, and ends when it passes `point`."""
        agent = self.pool.hosts['host-a'].agent
        agent.kill()
        agent.start({'CXLPOOL_CRASH_AT': point} if point else None)
        self.pool.wait_hosts_online()
        # Its proofs began anew: until then nothing is placed there, and it is not the one that clears.
        wait_until(lambda: not self.pool.cli('host', 'show', 'host-a')['unreached_devices'], 60, 'host-a reaches every device')
        return agent

    def test_3_killed_at_every_rung_the_agent_goes_on(self):
        self.pool.allocate('first', '256MiB', 'host-b', '--device', 'cmm-0')  # So that it is host-a that clears.
        self.pool.release('first')
        for i, (up, down) in enumerate(zip(AGENT_UP + (None,) * (len(AGENT_DOWN) - len(AGENT_UP)), AGENT_DOWN)):
            name = f'a{i}'
            with self.subTest(up):
                agent = self.crash_agent_at(up)
                command = self.pool.spawn_cli(*self.allocating(name))
                if up:
                    agent.wait(30)
                    agent.start()
                self.pool.finish_cli(command)
                self.assert_one_online(name)
            with self.subTest(down):
                agent = self.crash_agent_at(down)
                self.pool.release(name, wait=False)
                agent.wait(30)
                agent.start()
                self.gone()

    def test_4_killed_at_every_rung_the_manager_goes_on(self):
        self.kill_manager_at(MANAGER_UP, MANAGER_DOWN, self.allocating, self.assert_one_online, lambda name: self.gone())

    def test_5_agent_and_manager_killed_at_any_time(self):
        """Seeded, but when a process dies is the machine's."""
        random_ = random.Random(18)
        for i in range(12):
            name, agent = f'r{i}', self.pool.hosts['host-a'].agent
            self.pool.wait_hosts_online()
            command = self.pool.spawn_cli(*self.allocating(name))
            self.kill_both(random_, agent)
            self.pool.finish_cli(command)
            self.assert_one_online(name)
            command = self.pool.spawn_cli('region', 'release', name, '--detach-all', '--wait')
            self.kill_both(random_, agent)
            self.pool.finish_cli(command)
            self.gone()

    def kill_both(self, random_, agent):
        for daemon, start in random_.sample(((agent, agent.start), (self.pool.manager, self.pool.start_manager)), 2):
            try:
                wait_until(lambda: False, random_.random() * 0.6, 'it is time')
            except Exception:  # noqa: BLE001 - it is time
                pass
            daemon.kill()
            start()
        self.pool.wait_hosts_online()

    def test_6_killed_with_memory_online_the_agent_finds_it_again(self):
        for name, mode in (('dax', 'devdax'), ('ram', 'system-ram')):
            self.pool.allocate(name, '256MiB', 'host-a', '--mode', mode)
        self.program('host-a', 'pool-write', '--region', 'dax', '--seed', 5)
        before = {name: self.pool.attachment(name, 'host-a')['segments'] for name in ('dax', 'ram')}
        self.crash_agent_at(None)
        self.program('host-a', 'pool-verify', '--region', 'dax', '--seed', 5)
        for name, segments in before.items():
            self.assertEqual(self.pool.attachment(name, 'host-a')['segments'], segments)
            self.pool.release(name)
        self.assert_nothing_left()


class SharedManyTest(SharedTest):
    @classmethod
    def make_pool(cls, directory):
        return SharedPool(BUILD, directory, devices={'cmm-0': '1026MiB', 'cmm-1': '1026MiB'}, granule='2MiB')

    def test_1_two_hundred_at_once_on_one_host(self):
        names = [f'n{i}' for i in range(200)]
        with ThreadPoolExecutor(4) as workers:
            list(workers.map(lambda name: self.pool.allocate(name, '4MiB', 'host-a'), names))
        self.assertEqual(sorted(self.pool.regions()), sorted(names))
        self.assertEqual(len(self.left_on('host-a')), 400)  # A grant and a piece each.
        self.program('host-a', 'pool-write', '--region', 'n0', '--seed', 1)
        with ThreadPoolExecutor(4) as workers:
            list(workers.map(self.pool.release, names))
        self.assert_nothing_left()

    def test_2_a_thousand_allocations_and_releases_in_random_order(self):
        """Whoever has room gets it: no order of Regions is in anybody's way."""
        random_ = random.Random(20260)
        total = int(self.pool.cli('capacity')['total_bytes'])
        live, done, free = {}, 0, total
        with ThreadPoolExecutor(4) as workers:
            while done < 1000:
                begun = []
                for _ in range(min(8, 1000 - done)):
                    size = random_.choice((2, 4, 6, 16, 64)) * MiB
                    if free < size:
                        break
                    host, name = random_.choice(('host-a', 'host-b')), f'r{done}'
                    flags = ('--max-extents', '8')
                    begun.append(workers.submit(self.pool.allocate, name, size, host, *flags))
                    live[name], free, done = size, free - size, done + 1
                for each in begun:
                    each.result()
                gone = random_.sample(sorted(live), random_.randrange(len(live) + 1) if free > 64 * MiB else len(live) // 2)
                list(workers.map(self.pool.release, gone))
                free += sum(live.pop(name) for name in gone)
            list(workers.map(self.pool.release, live))
        self.assertEqual(int(self.pool.cli('capacity')['total_bytes']), total)
        self.assert_nothing_left()


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
            pool.cli('region', 'attach', name, '--host', 'host-b', '--access', 'ro', '--wait', '--wait-timeout', '60s')
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
