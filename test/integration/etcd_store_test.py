"""A pool moves from a database into etcd and back, and is backed up there: --copy-store, backup, fsck and --check-empty on real members."""

import re
import subprocess

from testbed.emulated import EmulatedPool
from testbed.replicated import Etcd, etcd_program
from testbed.testing import BUILD, PoolTest, main, skip_program


class EtcdStoreTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return EmulatedPool(BUILD, directory)

    def setUp(self):
        super().setUp()
        self.etcd = Etcd(self.directory).start()
        self.addCleanup(self.etcd.close)
        self.config = self.directory / 'fm.toml'
        self.on_disk = self.config.read_text()

    def in_etcd(self, prefix='/cxlpool/'):
        """The configuration with its records there."""
        store = f'kind = "etcd"\nendpoints = {self.etcd.endpoints}\nadvertise = "127.0.0.1:{self.pool.port}"\nprefix = "{prefix}"\n'
        return re.sub(r'(?m)^path = .*pool.db"$', store, self.on_disk)

    def write(self, name, text):
        path = self.directory / name
        path.write_text(text)
        return path

    def run_fm(self, *words, status=0):
        done = subprocess.run([BUILD / 'bin/cxlpool-fm', *words], capture_output=True, text=True, timeout=120)
        self.assertEqual(status, done.returncode, done.stderr)
        return done.stdout + done.stderr

    def run_on(self, text):
        """Starts the manager, which is stopped, with this configuration."""
        self.config.write_text(text)
        self.pool.start_manager({'STATE_DIRECTORY': str(self.directory)})
        self.pool.wait_hosts_online()

    def test_a_pool_moves_and_is_backed_up(self):
        self.pool.allocate('kv', '256MiB', 'host-a')
        self.pool.manager.stop()
        there = self.write('etcd.toml', self.in_etcd())
        self.assertEqual('the pool has no Region\n', self.run_fm('--check-empty', '--config', there))
        self.run_fm('--copy-store', self.config, there)
        self.assertIn('the pool has 1 Region:', self.run_fm('--check-empty', '--config', there, status=1))
        self.assertIn('already (name another store.prefix', self.run_fm('--copy-store', self.config, there, status=1))

        self.run_on(self.in_etcd())
        self.assertEqual(['kv'], list(self.pool.regions()))
        self.assertIn(f'the manager at 127.0.0.1:{self.pool.port} has the pool', self.run_fm('--copy-store', there, self.directory / 'no.db', status=1))
        self.pool.allocate('more', '256MiB')
        backup = self.directory / 'backup.db'
        self.assertIn('revision', self.pool.run_cli('backup', str(backup)))
        self.pool.allocate('since', '256MiB')
        self.pool.run_cli('fsck', str(backup))

        # The backup is put back.
        self.pool.manager.stop()
        restored = self.write('restored.toml', self.in_etcd('/restored/'))
        self.run_fm('--copy-store', backup, restored)
        self.run_on(self.in_etcd('/restored/'))
        self.assertEqual({'kv', 'more'}, set(self.pool.regions()))
        self.pool.release('more')

        # And back to the disk, where the old database is in the way.
        self.pool.manager.stop()
        back = self.write('back.toml', self.on_disk)
        self.assertIn('pool.db', self.run_fm('--copy-store', restored, back, status=1))
        for path in (self.directory / 'store').iterdir():
            path.unlink()
        self.run_fm('--copy-store', restored, back)
        self.run_on(self.on_disk)
        self.assertEqual(['kv'], list(self.pool.regions()))
        self.pool.release('kv', '--detach-all')


if __name__ == '__main__':
    if etcd_program() is None:
        skip_program('no etcd here: qemu-cxl/fetch --with etcd brings it')
    main()
