"""What hosts see of devices that every host sees whole: `device discover`, and `device add` by what it found.

Besides the pool's own device both hosts see a spare file, which becomes a device by its path alone, and one host sees a
file of its own. Isolation that only agents keep is refused to who demands the fabric's."""

import os

from testbed.emulated import SharedPool
from testbed.pool import CliError
from testbed.process import wait_until
from testbed.testing import BUILD, PoolTest, main

MIB = 1 << 20


class PoolWithSpares(SharedPool):
    """`spares`: file -> hosts that see it; none of them is the pool's yet."""

    def __init__(self, build, directory):
        self.spares = {}
        super().__init__(build, directory, devices={'cmm-0': '576MiB'}, granule='64MiB')
        for name, hosts in (('spare', ('host-a', 'host-b')), ('own', ('host-b',))):
            path = self.directory / 'devices' / name
            path.touch()
            os.truncate(path, 640 * MIB)
            self.spares[path] = hosts

    def agent_toml(self, name, bridges):
        files = [*self.files.values(), *(path for path, hosts in self.spares.items() if name in hosts)]
        return f'[shared]\nfiles = {[str(path) for path in files]}'


class SharedDiscoverTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return PoolWithSpares(BUILD, directory)

    def refused(self, reason, *command):
        with self.assertRaises(CliError) as refused:
            self.pool.cli(*command)
        self.assertIn(reason, str(refused.exception))
        return str(refused.exception)

    def discovered(self, *flags):
        seen = self.pool.cli('device', 'discover', *flags)
        return {(d['host'].split('/')[1], d['name']): d for d in seen['devices']}

    def test_1_what_is_seen_becomes_a_device(self):
        pool = self.pool
        ours, (spare, own) = str(pool.files['cmm-0']), map(str, pool.spares)
        seen = self.discovered()
        self.assertEqual(set(seen), {('host-a', ours), ('host-b', ours), ('host-a', spare), ('host-b', spare), ('host-b', own)})
        for host in ('host-a', 'host-b'):
            self.assertEqual((seen[host, ours]['mark'], seen[host, ours]['marked_device']), ('THIS_POOL', 'cmm-0'))
            self.assertEqual(seen[host, spare]['mark'], 'NO_MARK')
        self.assertEqual(seen['host-a', ours]['group'], seen['host-b', ours]['group'])
        self.assertNotEqual(seen['host-a', ours]['group'], seen['host-a', spare]['group'])
        self.assertEqual(set(self.discovered('--host', 'host-a')), {('host-a', ours), ('host-a', spare)})
        self.assertIn('cmm-0', pool.run_cli('device', 'discover'))

        self.assertIn(spare, self.refused('NOT_DISCOVERED', 'device', 'add', 'cmm-9', '--path', 'host-a/nothing'))
        self.refused('UNKNOWN_HOST', 'device', 'add', 'cmm-9', '--path', 'host-z/' + spare)
        self.assertIn('device add cmm-0', self.refused('DEVICE_UNFIT', 'device', 'add', 'cmm-9', '--path', 'host-a/' + ours))

        added = pool.cli('device', 'add', 'cmm-9', '--path', 'host-a/' + spare)
        self.assertEqual(added['state'], 'READY', added)
        self.assertEqual(int(added['capacity_bytes']) + int(added['granule_bytes']), 640 * MIB)
        seen = self.discovered()
        for host in ('host-a', 'host-b'):
            self.assertEqual(seen[host, spare]['marked_device'], 'cmm-9')
        self.assertEqual(seen['host-a', spare]['group'], seen['host-b', spare]['group'])
        self.assertEqual(seen['host-b', own]['mark'], 'NO_MARK', 'nothing but what was added has a mark')
        pool.allocate('kv', '64MiB', 'host-b', '--device', 'cmm-9')
        done = pool.hosts['host-b'].run(('pool-write', '--region', 'kv', '--seed', '17'))
        self.assertEqual(done.status, 0, done.err)
        pool.release('kv')
        wait_until(lambda: not pool.regions(), 60, 'the Region is gone')

    def test_2_isolation_that_only_agents_keep_is_not_the_fabrics(self):
        pool = self.pool
        self.refused('ISOLATION_NOT_ENFORCED', 'region', 'allocate', 'kw', '--size', '64MiB', '--isolation', 'fabric')
        pool.cli('tenant', 'set', 'ml', '--isolation', 'fabric')
        pool.restart_manager()
        pool.wait_hosts_online()
        self.assertEqual(pool.cli('tenant', 'show', 'ml')['isolation'], 'FABRIC')
        message = self.refused('ISOLATION_NOT_ENFORCED', 'region', 'allocate', 'kw', '--size', '64MiB', '--tenant', 'ml')
        self.assertIn('tenant set ml --isolation any', message)
        pool.cli('tenant', 'set', 'ml', '--isolation', 'any')
        pool.allocate('kw', '64MiB', 'host-a', '--tenant', 'ml')
        pool.release('kw')
        wait_until(lambda: not pool.regions(), 60, 'the Region is gone')

    def test_3_a_host_that_is_silent_is_named(self):
        host = self.pool.hosts['host-b']
        host.agent.kill()
        wait_until(lambda: ('host-b', str(self.pool.files['cmm-0'])) not in self.discovered(), 60, 'host-b shows nothing')
        silent = self.pool.cli('device', 'discover')['silent_hosts']
        self.assertEqual([s['host'] for s in silent], ['hosts/host-b'])
        self.refused('NOT_DISCOVERED', 'device', 'add', 'cmm-8', '--path', 'host-b/' + str(list(self.pool.spares)[1]))
        host.agent.start()
        self.pool.wait_hosts_online()


if __name__ == '__main__':
    main()
