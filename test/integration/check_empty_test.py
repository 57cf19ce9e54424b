"""`cxlpool-fm --check-empty` and `cxlpool-agent --check-empty`: whether memory is granted, by what a stopped daemon left."""

import re
import subprocess

from testbed.emulated import pool_of_driver
from testbed.testing import BUILD, PoolTest, main


class CheckEmptyTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return pool_of_driver(BUILD, directory)

    def ask(self, program, config):
        done = subprocess.run([BUILD / 'bin' / program, '--check-empty', '--config', config], capture_output=True, text=True,
                              timeout=60)
        self.assertIn(done.returncode, (0, 1))
        self.assertEqual(bool(done.stderr), done.returncode == 1, 'why not')
        return done.returncode, done.stdout + done.stderr

    def ask_manager(self):
        """Stopped for it, and started again."""
        self.pool.manager.kill()
        answer = self.ask('cxlpool-fm', self.directory / 'fm.toml')
        self.pool.start_manager()
        self.pool.wait_hosts_online()
        return answer

    def ask_host(self, name):
        return self.ask('cxlpool-agent', self.pool.hosts[name].config)

    def test_a_region_from_start_to_end(self):
        self.assertEqual(self.ask_manager(), (0, 'the pool has no Region\n'))
        self.assertEqual(self.ask_host('host-a'), (0, 'this host has no memory of the pool\n'))
        self.pool.allocate('kv', '256MiB', 'host-a')
        status, said = self.ask_manager()
        self.assertEqual(status, 1, said)
        self.assertIn('the pool has 1 Region: see `cxlpool region list`', said)
        self.assertNotIn('another manager', said, 'nobody else has its records')
        status, said = self.ask_host('host-a')
        self.assertEqual(status, 1, said)
        self.assertIn('this host has 268435456 bytes of the pool', said)
        self.assertEqual(self.ask_host('host-b')[0], 0)
        self.pool.release('kv', '--detach-all')
        self.assertEqual(self.ask_manager()[0], 0)
        self.assertEqual(self.ask_host('host-a')[0], 0)

    def test_what_cannot_be_known_counts(self):
        status, said = self.ask('cxlpool-fm', self.directory / 'fm.toml')
        self.assertEqual(status, 1, 'the manager runs')
        self.assertIn('pool.db', said)
        for program in ('cxlpool-fm', 'cxlpool-agent'):
            status, said = self.ask(program, '/nowhere/it.toml')
            self.assertEqual(status, 1)
            self.assertIn('/nowhere/it.toml', said)
        forgets = self.directory / 'forgets.toml'
        forgets.write_text(re.sub(r'(?m)^path = .*pool.db"$', 'kind = "memory"', (self.directory / 'fm.toml').read_text()))
        status, said = self.ask('cxlpool-fm', forgets)
        self.assertEqual(status, 1)
        self.assertIn('no records on disk', said)
        self.pool.manager.kill()
        store = self.directory / 'store/pool.db'
        store.with_name('pool.db-wal').unlink()
        status, said = self.ask('cxlpool-fm', self.directory / 'fm.toml')
        self.assertEqual(status, 1, 'it lacks changes')
        self.assertIn('pool.db', said)
        for path in store.parent.glob('pool.db*'):
            path.unlink()
        self.assertEqual(self.ask('cxlpool-fm', self.directory / 'fm.toml'), (0, f'{store} is not there: the pool has no Region\n'))


if __name__ == '__main__':
    main()
