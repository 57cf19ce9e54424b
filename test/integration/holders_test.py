"""Who uses a Region: a program counts, its host's agent reads and reports, the manager keeps, an operator asks."""

import os
import subprocess
import sys

from testbed.emulated import pool_of_driver
from testbed.process import wait_until
from testbed.testing import BUILD, PoolTest, main

# Maps a Region once and half of it again; says so; ends with its input.
PROGRAM = """
import sys
import cxlpool
region = cxlpool.open('kv')
whole, half = region.map(), region.map(length=128 << 20)
print('mapped', flush=True)
sys.stdin.read()
"""


class HoldersTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return pool_of_driver(BUILD, directory, hosts={'host-a': [[1, 2]], 'host-b': [[1, 2]]})

    def start(self):
        program = subprocess.Popen([sys.executable, '-c', PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   env={**os.environ, 'CXLPOOL_SOCKET': str(self.pool.hosts['host-a'].socket),
                                        'PYTHONPATH': str(BUILD / 'libpool/python')})
        self.addCleanup(program.communicate)
        self.addCleanup(program.kill)
        self.assertEqual(program.stdout.readline(), 'mapped\n')
        return program

    def holders(self, host='hosts/host-a'):
        hosts = {entry['host']: entry for entry in self.pool.cli('region', 'holders', 'kv')['hosts']}
        return {int(holder['pid']): holder for holder in hosts[host].get('holders', [])}

    def test_a_program_is_shown_as_long_as_it_has_the_region_open(self):
        self.pool.allocate('kv', '256MiB', 'host-a')
        first, second = self.start(), self.start()

        def both_counted():
            held = self.holders()
            return held.keys() == {first.pid, second.pid} and all(int(h['mapped_bytes']) for h in held.values())
        wait_until(both_counted, 40, 'the manager has heard of both')
        for pid, holder in self.holders().items():
            self.assertEqual({key: int(holder[key]) for key in ('uid', 'open_bytes', 'mapped_bytes', 'live_bytes', 'pins')},
                             {'uid': os.getuid(), 'open_bytes': 256 << 20, 'mapped_bytes': 384 << 20, 'live_bytes': 0, 'pins': 0})
            self.assertGreater(int(holder['start_ticks']), 0)
            self.assertIn('python', holder['program'])
        table = self.pool.run_cli('region', 'holders', 'kv')
        self.assertRegex(table, rf'host-a +{first.pid} +python\S* +{os.getuid()} +256 MiB +384 MiB +0 B')
        print(table)

        first.kill()
        wait_until(lambda: self.holders().keys() == {second.pid}, 40, 'one of them is gone')
        # A manager that is started again hears of them with the session.
        self.pool.restart_manager()
        wait_until(lambda: self.pool.regions() and self.holders().keys() == {second.pid}, 40, 'the new manager knows')
        second.communicate('', timeout=20)
        wait_until(lambda: self.holders() == {}, 40, 'nobody has it open')


if __name__ == '__main__':
    main()
