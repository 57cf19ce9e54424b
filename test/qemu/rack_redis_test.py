"""An unmodified Redis on pool memory: numactl, or `cxlpool run`, binds it to the NUMA node of a system-ram Region; its pages
are there, its values are in the pool's files, and the Region goes when it has ended, or sooner."""

import hashlib
import mmap
import re

from testbed.guest_programs import AS_USER, SETPRIV_PROGRAM
from testbed.pool_bytes import check_zero
from testbed.rack import RackPool
from testbed.rack_trials import SESSIONS, RackTrials
from testbed.testing import BUILD, main, require_qemu

HOST = 'host-a'
VALUE_BYTES = 64 << 10
VALUES = 1600  # 100 MiB
# A value differs from every other, and is known from its number.
FILL = ('for i = 1, ARGV[1] do redis.call("SET", "key:" .. i, '
        'string.rep(string.format("value %09d ", i), ARGV[2] / 16)) end return "filled"')
CHECK = ('local bad = 0 for i = 1, ARGV[1] do if redis.call("GET", "key:" .. i) ~= '
         'string.rep(string.format("value %09d ", i), ARGV[2] / 16) then bad = bad + 1 end end return bad')


class RackRedisTest(RackTrials):
    topology = {'device': [{'name': 'cmm-0', 'size': '512 MiB'}],
                'host': [{'name': HOST, 'bridges': 2, 'ports': 2}]}

    @classmethod
    def make_pool(cls, directory):
        require_qemu('redis')
        pool = RackPool(BUILD, directory, cls.topology, programs=('cxlpool', SETPRIV_PROGRAM),
                        applications=('redis',))
        pool.manager_toml = SESSIONS
        return pool

    def setUp(self):
        super().setUp()
        self.guest = self.pool.hosts[HOST]

    def redis(self, *words):
        """What `redis-cli` answers."""
        return self.guest.output(['redis-cli', *map(str, words)], timeout=120)

    def start_redis(self):
        """The NUMA node it is bound to, and its pid."""
        self.take('redis', HOST, 'cmm-0', '--mode', 'system-ram')
        node = int(self.segment('redis', HOST)['numa_node'])
        pid, _ = self.hold(HOST, 'numactl', '-m', node, 'redis-server', '--save', '""', '--port', 6379,
                           says='Ready to accept connections')
        self.addCleanup(self.guest.run, f'kill -9 {pid}')
        return node, pid

    def fill(self):
        self.assertEqual(self.redis('EVAL', FILL, 0, VALUES, VALUE_BYTES), 'filled')

    def assert_values(self):
        self.assertEqual(self.redis('EVAL', CHECK, 0, VALUES, VALUE_BYTES), '0')
        self.assertEqual(self.redis('DBSIZE'), str(VALUES + 1))

    def share_on(self, node, pid):
        """MiB of the process on the node, and in all, as numastat has them."""
        table = [line.split() for line in self.guest.output(f'numastat -p {pid}').splitlines()]
        [nodes] = [[int(word) for word in row if word.isdigit()] for row in table if row[:1] == ['Node']]
        [total] = [[float(word) for word in row[1:]] for row in table if row[:1] == ['Total']]
        return total[nodes.index(node)], total[-1]

    def in_pool(self, text):
        with open(self.pool.rack.device_path('cmm-0'), 'rb') as file, \
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(text.encode()) >= 0

    def stop_redis(self, pid):
        self.guest.run(['redis-cli', 'SHUTDOWN', 'NOSAVE'])
        self.guest.wait_for(f'! kill -0 {pid}', timeout=60)

    def test_1_it_runs_on_the_pool(self):
        node, pid = self.start_redis()
        secret = hashlib.sha256(b'redis').hexdigest()
        self.assertEqual(self.redis('SET', 'secret', secret), 'OK')
        self.fill()
        self.assertEqual(self.redis('GET', 'secret'), secret)
        self.assert_values()
        info = self.redis('INFO')
        used = int(re.search(r'used_memory:(\d+)', info)[1])
        print(re.search(r'redis_version:\S+', info)[0], f'uses {used >> 20} MiB')
        self.assertGreater(used, VALUES * VALUE_BYTES)
        there, total = self.share_on(node, pid)
        print(f'numastat: {there} of {total} MiB on node {node}')
        self.assertGreater(there, 0.9 * total)
        self.assertGreater(there, VALUES * VALUE_BYTES >> 20)
        self.assertTrue(self.in_pool(secret))
        self.stop_redis(pid)
        self.pool.release('redis')
        self.assert_sound()
        check_zero(self, self.pool.rack.device_path('cmm-0'))

    def test_2_the_region_goes_while_it_runs(self):
        node, pid = self.start_redis()
        self.assertEqual(self.redis('SET', 'first', 'value'), 'OK')
        self.fill()
        self.pool.release('redis')
        self.assert_values()
        there, total = self.share_on(0, pid)
        print(f'numastat: {there} of {total} MiB on node 0')
        self.assertEqual(there, total)
        self.stop_redis(pid)
        self.assert_sound()

    def run_redis(self, name, *policy):
        """As uid 1000, by `cxlpool run`: (its NUMA node, its pid, the lines of its numa_maps)."""
        pid, _ = self.hold(HOST, *AS_USER, 'cxlpool', 'run', '--size', '256MiB',
                           '--name', name, *policy, '--', 'redis-server', '--save', '""', '--port', 6379, '--dir', '/tmp',
                           says='Ready to accept connections')
        self.addCleanup(self.guest.run, f'kill -9 {pid}')
        self.assertEqual(self.guest.output(f'cat /proc/{pid}/comm'), 'redis-server')
        maps = self.guest.output(f'cat /proc/{pid}/numa_maps').splitlines()
        return int(self.segment(name, HOST)['numa_node']), pid, maps

    def test_3_cxlpool_run(self):
        node, pid, maps = self.run_redis('strict', '--strict')
        self.assertEqual({line.split()[1] for line in maps}, {f'bind:{node}'})
        self.assertEqual(self.redis('SET', 'first', 'value'), 'OK')
        self.fill()
        self.assert_values()
        there, total = self.share_on(node, pid)
        print(f'cxlpool run --strict: {there} of {total} MiB on node {node}')
        self.assertGreater(there, VALUES * VALUE_BYTES >> 20)
        self.assertGreater(there, 0.9 * total)
        self.stop_redis(pid)
        self.wait_gone('strict')
        node, pid, maps = self.run_redis('prefer')
        self.assertEqual({line.split()[1] for line in maps}, {f'prefer:{node}'})
        self.guest.run(f'kill -9 {pid}')
        self.wait_gone('prefer')
        node, pid, maps = self.run_redis('both', '--interleave')
        self.assertEqual({line.split()[1] for line in maps}, {f'interleave:0,{node}' if node > 1 else 'interleave:0-1'})
        self.stop_redis(pid)
        self.wait_gone('both')
        refused = self.guest.run('cxlpool run --size 256MiB --name none -- no-such-program')
        self.assertIn('NO_PROGRAM', refused.err)
        self.assertEqual(self.pool.regions(), {})
        self.assert_sound()
        check_zero(self, self.pool.rack.device_path('cmm-0'))


if __name__ == '__main__':
    main()
