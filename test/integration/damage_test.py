"""A whole pool whose store was damaged after a kill: nothing that a tenant has is given away or taken from its host, whatever the
operator then does about the store."""

import os
import re
import shutil
import subprocess

from testbed.emulated import EmulatedPool
from testbed.pool import CliError
from testbed.process import wait_until
from testbed.testing import BUILD, PoolTest, main

SUFFIXES = ('', '-wal', '-head')


class Damaged(PoolTest):
    """Each test has a pool of its own, killed with changes in its log."""

    @classmethod
    def make_pool(cls, directory):
        return EmulatedPool(BUILD, directory)

    def bytes_of(self, tag):
        """What lies in the fabric for a Region: its slots' files say who has it, its extents what is in it."""
        return {path.relative_to(self.pool.directory): path.read_bytes()
                for path in sorted((self.pool.directory / 'fabric').rglob('*')) if path.is_file() and tag in path.name}

    def setUp(self):
        self.store = self.pool.directory / 'store/pool.db'
        self.pool.allocate('live', '512MiB', 'host-a')
        self.write('live')
        self.pool.allocate('cold', '512MiB', 'host-a')
        self.write('cold')
        self.pool.cli('region', 'detach', 'cold', '--host', 'host-a', '--wait')
        self.tags = {name: region['tag'] for name, region in self.pool.regions().items()}
        self.pool.manager.kill()

    def tearDown(self):
        self.pool.manager.kill()

    def write(self, name):
        done = self.pool.hosts['host-a'].run(['pool-write', '--region', name])
        self.assertEqual(done.status, 0, done.err)

    def assert_live(self):
        done = self.pool.hosts['host-a'].run(['pool-verify', '--region', 'live'])
        self.assertEqual(done.status, 0, done.out + done.err)

    def file(self, suffix):
        return self.store.with_name(self.store.name + suffix)

    def assert_refused(self):
        self.pool.start_manager(wait=False)
        self.assertNotEqual(self.pool.manager.wait(20), 0)
        self.assertIn('may lack changes that were acknowledged', self.pool.manager.tail(3))
        self.assertEqual(self.fsck(), 1, 'fsck does not call it sound')

    def fsck(self, *flags):
        command = [BUILD / 'bin/cxlpool', 'fsck', self.store, *flags]
        return subprocess.run(command, capture_output=True, text=True, timeout=60).returncode

    def start_again(self):
        self.assertEqual(self.fsck(), 0)
        self.pool.start_manager()
        self.pool.wait_hosts_online()

    def free_bytes(self):
        return int(self.pool.cli('capacity')['capacity'].get('free_bytes', 0))

    def is_nobody(self):
        try:
            self.pool.cli('capacity', timeout='2s')
        except CliError as refused:
            return 'NO_ROLE' in refused.stderr
        return False

    def assert_full(self):
        self.pool.enrol_hosts()  # Their records are lost with the log.
        self.pool.wait_hosts_online()
        with self.assertRaises(CliError) as refused:
            self.pool.allocate('thief', '256MiB', 'host-b')
        self.assertIn('POOL_FULL', refused.exception.stderr)


class BitTest(Damaged):
    def test_a_bit_of_a_frame_that_was_written_again_loses_nothing(self):
        log = bytearray(self.file('-wal').read_bytes())
        log[32 + 24 + 200] ^= 1
        self.file('-wal').write_bytes(log)
        self.assert_refused()
        self.assertEqual(self.fsck('--repair'), 1)
        self.start_again()
        regions = self.pool.regions()
        self.assertEqual({name: region['state'] for name, region in regions.items()},
                         {'live': 'ALLOCATED', 'cold': 'ALLOCATED'})
        self.assert_live()


class LogTest(Damaged):
    def test_a_log_that_is_gone_gives_nothing_away(self):
        before = {name: self.bytes_of(tag) for name, tag in self.tags.items()}
        self.assertTrue(all(before.values()), before.keys())
        self.file('-wal').unlink()
        self.assert_refused()
        self.assertEqual(self.fsck('--repair'), 1)
        for suffix in SUFFIXES:
            if suffix != '-wal':
                self.assertTrue(self.file('.before-fsck' + suffix).exists())
        self.assertEqual(self.fsck(), 0)
        self.pool.start_manager(wait=False)
        wait_until(self.is_nobody, 30, 'the manager knows no role of the operator, for one may have been lost')
        self.pool.manager.stop()
        with (self.pool.directory / 'fm.toml').open('a') as config:
            config.write('[access]\nadmins = ["cxlpool://operator/admin"]\n')
        self.start_again()
        self.assert_full()
        self.assertEqual(before, {name: self.bytes_of(tag) for name, tag in self.tags.items()})
        self.assertTrue(all(region['state'] == 'QUARANTINED' for region in self.pool.regions().values()))


class BackupTest(Damaged):
    def test_a_backup_from_before_leaves_what_is_bound_to_its_host(self):
        self.pool.start_manager()
        self.pool.wait_hosts_online()
        self.pool.cli('backup', self.directory / 'backup.db')
        self.pool.allocate('since', '256MiB', 'host-a')
        self.write('since')
        self.pool.manager.stop()
        shutil.copy(self.directory / 'backup.db', self.store)
        os.chmod(self.store, 0o600)
        self.assert_refused()  # The head file of the store before is still there.
        self.file('-head').unlink()
        self.start_again()
        wait_until(lambda: any(name.startswith('stray-') for name in self.pool.regions()), 20, 'it is found')
        name = next(name for name in self.pool.regions() if name.startswith('stray-'))
        stray = self.pool.regions()[name]
        self.assertEqual(stray['state'], 'QUARANTINED')
        self.assertIn('host-a', stray['state_reason'])
        self.assert_live()
        # As the reason says.
        commands = re.findall(r'`cxlpool ([^`]*)`', stray['state_reason'])
        self.assertEqual(len(commands), 3, stray['state_reason'])
        self.pool.cli(*commands[0].split(), '--wait')
        self.pool.cli(*commands[2].split(), '--yes', '--wait')
        self.assertNotIn(name, self.pool.regions())
        self.assertEqual(self.pool.regions()['live']['state'], 'ALLOCATED')
        self.pool.release_all()


if __name__ == '__main__':
    main()
