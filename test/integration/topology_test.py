"""What a pool is made of changes while it runs: a host and a device come, are used, are drained and go, and the
manager that serves it all is one process. Then another manager finds the pool as it was left."""

from testbed.emulated import EmulatedHost, EmulatedPool
from testbed.pool import CliError
from testbed.process import wait_until
from testbed.testing import BUILD, PoolTest, main

BRIDGES = [[1, 2], [3, 4]]


class TopologyTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return EmulatedPool(BUILD, directory, hosts={'host-a': BRIDGES}, devices={'cmm-0': '128MiB'}, granule='32MiB')

    def device(self, name):
        return next((d for d in self.pool.cli('device', 'list')['devices'] if d['name'] == f'devices/{name}'), None)

    def assert_refused(self, reason, *command):
        with self.assertRaises(CliError) as refused:
            self.pool.cli(*command)
        self.assertIn(reason, str(refused.exception))
        return str(refused.exception)

    def checked(self, host, *command):
        done = host.run(command)
        self.assertEqual(done.status, 0, f'{command}: {done.out}{done.err}')

    def test_1_a_host_and_a_device_come_and_go(self):
        pool = self.pool
        pid = pool.manager.process.pid
        # The device.
        added = pool.cli('device', 'add', 'cmm-9', '--capacity', '96MiB', '--granule', '32MiB', '--serial', 's9')
        self.assertEqual((added['state'], added['serial']), ('READY', 's9'), 'it is there when the call is answered')
        pool.cli('device', 'add', 'cmm-9', '--capacity', '96MiB', '--granule', '32MiB', '--serial', 's9')
        self.assert_refused('DEVICE_DIFFERS', 'device', 'add', 'cmm-9', '--capacity', '64MiB', '--granule', '32MiB',
                            '--serial', 's9')
        self.assert_refused('DEVICE_DIFFERS', 'device', 'add', 'cmm-9', '--capacity', '96MiB', '--granule', '32MiB',
                            '--serial', 'other')
        # The host.
        pool.run_cli('pki', 'issue', 'host', 'host-c', '--dir', pool.pki)
        self.assert_refused('BAD_TOPOLOGY', 'host', 'add', 'host-c', '--qmp', '/nowhere')
        pool.cli('host', 'add', 'host-c', '--slots', '1,2,3,4')
        pool.cli('host', 'enrol', 'host-c')
        host = pool.hosts['host-c'] = EmulatedHost(pool, 'host-c', BRIDGES)
        host.agent.start()
        pool.wait_hosts_online()
        # They are used.
        pool.allocate('kv', '64MiB', 'host-c', '--device', 'cmm-9')
        self.checked(host, 'pool-write', '--region', 'kv', '--seed', '17')
        self.checked(host, 'pool-verify', '--region', 'kv', '--seed', '17')
        # While they are in use neither goes, and each refusal says who is in the way.
        self.assertIn('kv', self.assert_refused('DEVICE_NOT_EMPTY', 'device', 'remove', 'cmm-9', '--yes'))
        self.assertIn('kv', self.assert_refused('HOST_HAS_ATTACHMENTS', 'host', 'remove', 'host-c', '--yes'))
        self.assertIn('kv', self.assert_refused('HOST_HAS_ATTACHMENTS', 'host', 'add', 'host-c', '--slots', '11'))
        # The device grows under the Region.
        grown = pool.cli('device', 'add', 'cmm-9', '--capacity', '160MiB', '--granule', '32MiB', '--serial', 's9')
        self.assertEqual((int(grown['capacity_bytes']), grown['state']), (160 << 20, 'READY'))
        pool.allocate('more', '96MiB', 'host-c', '--device', 'cmm-9')
        # They are drained, and removed.
        drained = pool.cli('device', 'drain', 'cmm-9')
        self.assertEqual(sorted(drained['regions']), ['regions/kv', 'regions/more'])
        self.checked(host, 'pool-verify', '--region', 'kv', '--seed', '17')
        for region in ('kv', 'more'):
            pool.release(region)
        wait_until(lambda: not pool.regions(), 30, 'the Regions are gone')
        pool.cli('device', 'remove', 'cmm-9', '--yes')
        self.assertEqual(self.device('cmm-9')['state'], 'REMOVED')
        pool.run_cli('host', 'remove', 'host-c', '--yes')
        host.agent.kill()
        del pool.hosts['host-c']
        self.assertEqual([h['name'] for h in pool.cli('host', 'list')['hosts']], ['hosts/host-a'])
        self.assertEqual([h['name'] for h in pool.cli('topology')['tables']['hosts']], ['hosts/host-a'])
        # What was there all the time still works, and it is the same manager.
        pool.allocate('old', '32MiB', 'host-a')
        pool.release('old')
        self.assertEqual(pool.manager.process.pid, pid)
        self.assertTrue(pool.manager.running)

    def test_2_another_manager_finds_what_was_left(self):
        pool = self.pool
        pool.cli('device', 'add', 'cmm-7', '--capacity', '64MiB', '--granule', '32MiB')
        pool.cli('host', 'add', 'host-e', '--slots', '5,6')
        pool.cli('device', 'remove', 'cmm-0', '--yes')
        before = pool.cli('topology')['tables']
        for end in (pool.manager.kill, pool.manager.stop):
            end()
            pool.start_manager()
            self.assertEqual(pool.cli('topology')['tables'], before, 'what the configuration lists is not taken in again')
            self.assertEqual(self.device('cmm-7')['state'], 'READY')
            self.assertEqual(self.device('cmm-0')['state'], 'REMOVED')
        self.assertIn('cxlpool topology apply', pool.manager.tail(200), 'that the file says otherwise is in the log')
        pool.cli('device', 'add', 'cmm-0')
        self.assertEqual(self.device('cmm-0')['state'], 'READY')
        self.assertEqual(int(self.device('cmm-0')['capacity_bytes']), 128 << 20)

    def test_3_a_file_says_what_the_pool_is_to_be(self):
        pool = self.pool
        file = pool.directory / 'rack.toml'
        device = '[[device]]\nid = "{}"\ncapacity = "{}"\ngranule = "32MiB"\n'
        file.write_text(device.format('cmm-0', '128MiB') + device.format('cmm-8', '64MiB') + '''
[[host]]
id = "host-a"
slots = [1, 2, 3, 4]
[[switch]]
id = "sw0"
latency_ns = 60
[[link]]
from = "host-a"
to = "sw0"
[[link]]
from = "sw0"
to = "cmm-8"
''')
        steps = {('ADD', 'device cmm-8'), ('ADD', 'switch sw0'), ('ADD', 'link host-a - sw0'), ('ADD', 'link sw0 - cmm-8'),
                 ('REMOVE', 'device cmm-7'), ('REMOVE', 'host host-e')}
        before = pool.cli('topology')['tables']
        dry = pool.cli('topology', 'apply', file, '--dry-run')
        self.assertEqual({(s['verb'], s['what']) for s in dry['steps']}, steps)
        self.assertEqual(pool.cli('topology')['tables'], before)
        done = pool.cli('topology', 'apply', file)
        self.assertEqual({(s['verb'], s['what']) for s in done['steps']}, steps)
        self.assertEqual(pool.cli('topology', 'apply', file).get('steps', []), [], 'once more changes nothing')
        # The links lead host-a to cmm-8 alone.
        self.assertTrue(self.assert_refused('NO_PATH', 'region', 'allocate', 'x', '--size', '32MiB', '--host', 'host-a',
                                                     '--device', 'cmm-0'))
        pool.allocate('kv', '32MiB', 'host-a', '--device', 'cmm-8')
        # Nothing of a file is done where a part of it cannot be.
        file.write_text(device.format('cmm-0', '128MiB') + device.format('cmm-6', '64MiB'))
        before = pool.cli('topology')['tables']
        self.assertIn('kv', self.assert_refused('DEVICE_NOT_EMPTY', 'topology', 'apply', file))
        self.assertEqual(pool.cli('topology')['tables'], before)
        pool.release('kv')
        # The manager's own configuration is such a file.
        pool.cli('topology', 'apply', pool.directory / 'fm.toml')
        self.assertEqual([d['name'] for d in pool.cli('topology')['tables']['devices']], ['devices/cmm-0'])
        self.assertIn('rack.toml:2: ', self.assert_refused('BAD_CONFIG', 'topology', 'apply', self.bad_file()))

    def bad_file(self):
        file = self.pool.directory / 'rack.toml'
        file.write_text('[[device]]\nid = "Not An Id"\ncapacity = "1GiB"\n')
        return file


if __name__ == '__main__':
    main()
