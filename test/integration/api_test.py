"""The whole API by the operator's command, over real processes and no CXL: where bytes go, how Regions change, who may
have how much, what becomes of devices, and a backup that a new manager takes up."""

import json
import os
import pty
import subprocess

from testbed.emulated import EmulatedPool
from testbed.pool import GiB, MiB, CliError
from testbed.process import wait_until
from testbed.testing import BUILD, PoolTest, main

DEVICES = {f'cmm-{i}': '2GiB' for i in range(4)}


class SwitchedPool(EmulatedPool):
    """Two shelves of two devices: the first near by, the second two switches away. host-b sees the first alone."""

    def fabric_toml(self):
        toml = super().fabric_toml()
        for shelf, devices in enumerate((('cmm-0', 'cmm-1'), ('cmm-2', 'cmm-3'))):
            toml += f'[[switch]]\nid = "sw{shelf}"\nlatency_ns = 70\nfailure_domain = "shelf-{shelf}"\n'
            for device in devices:
                toml = toml.replace(f'id = "{device}"\n', f'id = "{device}"\nlatency_ns = 150\nbandwidth_mib = 20000\n')
                toml += f'[[link]]\nfrom = "sw{shelf}"\nto = "{device}"\n'
        for ends in (('host-a', 'sw0'), ('host-b', 'sw0'), ('host-a', 'sw1')):
            far = ends == ('host-a', 'sw1')
            toml += f'[[link]]\nfrom = "{ends[0]}"\nto = "{ends[1]}"\nlatency_ns = {200 if far else 10}\n'
        return toml


class ApiTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return SwitchedPool(BUILD, directory, devices=DEVICES)

    def tearDown(self):
        for tenant in self.pool.cli('tenant', 'list')['tenants']:
            self.pool.cli('tenant', 'set', tenant['name'], '--quota', 'none', '--reserved', 'none', '--host-cap', 'none')
        self.pool.release_all()
        for device in DEVICES:
            self.pool.cli('device', 'add', device)
        self.assert_pool_empty()

    def refused(self, status, reason, *arguments):
        with self.assertRaises(CliError) as refused:
            self.pool.cli(*arguments)
        self.assertEqual(refused.exception.status, status, refused.exception.stderr)
        self.assertIn(reason, refused.exception.stderr)

    def devices_of(self, name):
        return [extent['device'].removeprefix('devices/') for extent in self.pool.regions()[name]['extents']]

    def batch(self, lines, *arguments, status=0):
        """Allocates one batch from standard input; its results."""
        command = self.pool.cli_command('-o', 'json', 'region', 'allocate', '--batch', '-', *arguments)
        text = ''.join(json.dumps(line) + '\n' for line in lines)
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, status, done.stderr)
        return json.loads(done.stdout)['results']


class CommandTest(ApiTest):
    def run_command(self, *arguments, **env):
        return subprocess.run(self.pool.cli_command(*arguments), capture_output=True, text=True, timeout=60,
                              stdin=subprocess.DEVNULL, env={**os.environ, **env})

    def test_no_proxy_is_used(self):
        proxies = {name: 'http://127.0.0.1:9' for name in ('http_proxy', 'https_proxy', 'grpc_proxy', 'HTTP_PROXY')}
        done = self.run_command('capacity', '--fail-fast', **proxies)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_what_destroys_is_listed_and_wants_a_yes(self):
        self.pool.allocate('kv', '512MiB', 'host-a')
        before = self.pool.regions()['kv']
        self.refused(2, 'CONFIRM_REQUIRED', 'host', 'fence', 'host-a', '--reason', 'it hangs')
        self.refused(2, 'CONFIRM_REQUIRED', 'device', 'fail', 'cmm-0', '--reason', 'smoke')
        self.refused(2, 'CONFIRM_REQUIRED', 'region', 'release', 'kv', '--force', '--reason', 'why')
        along = self.pool.cli('host', 'fence', 'host-a', '--reason', 'it hangs', '--dry-run')
        self.assertEqual([r['name'] for r in along['regions']], ['regions/kv'])
        said = self.run_command('region', 'release', 'kv', '--force', '--fence', '--reason', 'why', '--dry-run').stdout
        self.assertIn('Fenced first, with all that they have: host-a', said)
        self.refused(4, 'REGION_ATTACHED', 'region', 'release', 'kv', '--dry-run')
        self.pool.cli('region', 'release', 'kv', '--detach-all', '--dry-run')
        self.assertEqual(self.pool.regions()['kv'], before)

    def test_a_person_at_a_terminal_is_asked(self):
        self.pool.allocate('kv', '256MiB', 'host-a')
        for answer, status in (('n', 4), ('y', 0)):
            person, terminal = pty.openpty()
            process = subprocess.Popen(self.pool.cli_command('region', 'release', 'kv', '--detach-all', '--wait'), stdin=terminal,
                                       stdout=subprocess.PIPE, stderr=terminal, text=True)
            os.close(terminal)
            said = b''
            while b'Go on? [y/N]' not in said:
                said += os.read(person, 4096)
            self.assertIn(b'detached first from host-a', said)
            os.write(person, answer.encode() + b'\n')
            self.assertEqual(process.wait(60), status)
            process.stdout.close()
            os.close(person)
            self.assertEqual('kv' in self.pool.regions(), answer == 'n')

    def test_what_is_not_there_is_an_error(self):
        self.refused(3, 'UNKNOWN_HOST', 'region', 'list', '--host', 'host-z')
        self.refused(3, 'UNKNOWN_DEVICE', 'region', 'list', '--filter', 'device = cmm-9')
        self.refused(3, 'UNKNOWN_REGION', 'region', 'watch', 'nope')
        self.refused(2, 'REVISION_UNKNOWN', 'region', 'watch', '--from-revision', '1000000', '--for', '5s')
        self.pool.allocate('kv', '256MiB')
        self.refused(3, 'UNKNOWN_HOST', 'region', 'detach', 'kv', '--host', 'host-z')

    def test_a_call_that_finds_nothing_to_do_changes_nothing(self):
        before = self.pool.allocate('kv', '256MiB', 'host-a')
        for again in (('attach', 'kv', '--host', 'host-a'), ('detach', 'kv', '--host', 'host-b'), ('resize', 'kv', '256MiB'),
                      ('rename', 'kv', 'kv')):
            self.assertEqual(self.pool.cli('region', *again)['etag'], before['etag'], again)
        self.assertIn('nothing was changed', self.run_command('region', 'detach', 'kv', '--host', 'host-b').stdout)

    def test_a_dry_run_tells_nothing_that_nothing_would_have(self):
        planned = self.pool.cli('region', 'allocate', '--size', '256MiB', '--host', 'host-a', '--dry-run')['region']
        for field in ('name', 'tag', 'etag'):
            self.assertEqual(planned[field], '', field)
        for field in (planned['generation'], planned['attachments'][0]['generation'],
                      planned['attachments'][0]['segments'][0]['serial']):
            self.assertEqual(field, '0')

    def test_a_host_that_was_enrolled_by_mistake_is_removed(self):
        self.pool.cli('host', 'enrol', 'host-x')
        self.assertEqual(self.pool.cli('host', 'show', 'host-x')['state'], 'ENROLLED')
        self.refused(2, 'CONFIRM_REQUIRED', 'host', 'remove', 'host-x')
        self.pool.cli('host', 'remove', 'host-x', '--yes')
        self.refused(3, 'UNKNOWN_HOST', 'host', 'show', 'host-x')

    def test_a_host_whose_agent_ended_is_offline(self):
        self.pool.hosts['host-b'].agent.kill()
        wait_until(lambda: self.pool.cli('host', 'show', 'host-b')['state'] == 'OFFLINE', 30, 'host-b is OFFLINE')
        self.pool.hosts['host-b'].agent.start()
        self.pool.wait_hosts_online()


class PlacementTest(ApiTest):
    def test_a_plan_says_where_and_how_far_and_changes_nothing(self):
        before = self.pool.cli('capacity')
        planned = self.pool.cli('region', 'allocate', 'kv', '--size', '512MiB', '--host', 'host-a', '--policy', 'latency',
                                '--dry-run')
        self.assertEqual(planned['plan']['latency_ns'], 230)
        self.assertEqual(planned['plan']['bandwidth_mib_per_second'], 20000)
        self.assertEqual([b['stack_depth'] for b in planned['plan']['bridges']], [1])
        self.assertEqual(self.pool.cli('capacity'), before)
        made = self.pool.allocate('kv', '512MiB', 'host-a', '--policy', 'latency')
        self.assertEqual(made['extents'], planned['region']['extents'])
        self.assertEqual(made['policy'], 'LATENCY')

    def test_each_policy_keeps_its_word(self):
        near = {'cmm-0', 'cmm-1'}
        self.pool.allocate('near', '1GiB', 'host-a', '--policy', 'latency')
        self.assertLessEqual(set(self.devices_of('near')), near)
        self.pool.allocate('apart', '256MiB', None, '--policy', 'isolate', '--isolate-from', 'near')
        self.assertLessEqual(set(self.devices_of('apart')), {'cmm-2', 'cmm-3'})
        striped = self.pool.allocate('striped', '1GiB', None, '--policy', 'bandwidth', '--interleave-ways', '4',
                                     '--interleave-granularity', '4KiB')
        self.assertEqual((striped['interleave_ways'], striped['interleave_granularity_bytes']), (4, 4096))
        self.assertEqual(sorted(self.devices_of('striped')), sorted(DEVICES))
        for i in range(2):
            self.pool.allocate(f'spread-{i}', '256MiB', None, '--policy', 'spread')
        self.assertEqual(len({*self.devices_of('spread-0'), *self.devices_of('spread-1')}), 2)
        self.pool.allocate('reached', '1GiB', 'host-b')
        self.assertLessEqual(set(self.devices_of('reached')), near)
        self.refused(4, 'NO_PATH', 'region', 'allocate', 'x', '--size', '256MiB', '--host', 'host-b', '--device', 'cmm-2')
        self.refused(4, 'TOO_FEW_DEVICES', 'region', 'allocate', 'x', '--size', '2GiB', '--policy', 'bandwidth',
                     '--interleave-ways', '8')

    def test_the_topology_is_told(self):
        paths = {(p['host'], p['device']): p for p in self.pool.cli('topology')['paths']}
        self.assertEqual(paths['hosts/host-a', 'devices/cmm-0']['latency_ns'], 230)
        self.assertEqual(paths['hosts/host-a', 'devices/cmm-2']['via'], ['sw1'])
        self.assertNotIn(('hosts/host-b', 'devices/cmm-2'), paths)
        text = self.pool.run_cli('topology')
        self.assertIn('reaches cmm-0 by sw0: 230 ns, 20000 MiB/s', text)
        self.assertIn('fails with shelf-1', text)


class EditTest(ApiTest):
    def test_a_region_grows_and_shrinks_where_nobody_is_attached(self):
        self.pool.allocate('kv', '256MiB')
        self.assertEqual(self.pool.cli('region', 'resize', 'kv', '1GiB', '--wait')['size_bytes'], str(GiB))
        shrunk = self.pool.cli('region', 'resize', 'kv', '256MiB', '--wait')
        self.assertEqual(shrunk['size_bytes'], str(256 * MiB))
        wait_until(lambda: self.pool.cli('capacity')['allocated_bytes'] == str(256 * MiB), 30, 'the rest is free')

    def test_an_attached_region_keeps_its_bytes_over_growth_and_shrinking(self):
        self.pool.allocate('kv', '256MiB', 'host-a')
        host = self.pool.hosts['host-a']
        done = host.run(['pool-write', '--region', 'kv', '--seed', '7'])
        self.assertEqual(done.status, 0, done.err)
        grown = self.pool.cli('region', 'resize', 'kv', '512MiB', '--wait')
        self.assertEqual(len(grown['attachments'][0]['segments']), 2)
        self.assertEqual(grown['attachments'][0]['state'], 'ONLINE')
        shrunk = self.pool.cli('region', 'resize', 'kv', '256MiB', '--wait')
        self.assertEqual(len(shrunk['attachments'][0]['segments']), 1)
        done = host.run(['pool-verify', '--region', 'kv', '--seed', '7'])
        self.assertEqual(done.status, 0, done.err)

    def test_a_part_of_an_extent_stays(self):
        self.pool.allocate('kv', '512MiB')
        self.refused(4, 'RESIZE_INSIDE_EXTENT', 'region', 'resize', 'kv', '256MiB')
        self.refused(5, 'POOL_FULL', 'region', 'resize', 'kv', '64GiB')

    def test_a_new_name_leaves_the_rest(self):
        before = self.pool.allocate('kv', '256MiB', 'host-a')
        after = self.pool.cli('region', 'rename', 'kv', 'kv2')
        self.assertEqual(after['tag'], before['tag'])
        self.assertNotEqual(after['generation'], before['generation'])
        self.assertEqual(after['attachments'], before['attachments'])
        self.refused(3, 'UNKNOWN_REGION', 'region', 'show', 'kv')
        self.assertEqual(self.pool.cli('region', 'show', before['tag'])['name'], 'regions/kv2')
        self.pool.allocate('kv', '256MiB')
        self.refused(4, 'REGION_EXISTS', 'region', 'rename', 'kv', 'kv2')

    def test_an_old_etag_is_refused(self):
        etag = self.pool.allocate('kv', '256MiB')['etag']
        self.pool.cli('region', 'rename', 'kv', 'kv2', '--etag', etag)
        for edit in (('rename', 'kv2', 'kv3'), ('resize', 'kv2', '512MiB'), ('release', 'kv2'),
                     ('attach', 'kv2', '--host', 'host-a')):
            self.refused(4, 'ETAG_MISMATCH', 'region', *edit, '--etag', etag)

    def test_a_lease_that_nobody_renews_ends(self):
        self.pool.allocate('short', '256MiB', 'host-a', '--ttl', '10s')
        self.pool.allocate('renewed', '256MiB', None, '--ttl', '10s')
        renewed = self.pool.cli('region', 'renew', 'renewed', '--ttl', '1h')
        self.assertIn('expire_time', renewed)
        wait_until(lambda: set(self.pool.regions()) == {'renewed'}, 40, 'the lease is over and the bytes are free')
        self.pool.allocate('forever', '256MiB')
        self.refused(4, 'NO_LEASE', 'region', 'renew', 'forever')
        self.refused(2, 'BAD_TTL', 'region', 'allocate', 'x', '--size', '256MiB', '--ttl', '5s')


class TenantTest(ApiTest):
    def test_a_quota_holds_and_a_reservation_is_kept(self):
        self.pool.cli('tenant', 'set', 'ml', '--quota', '1GiB')
        self.pool.allocate('a', '768MiB', None, '--tenant', 'ml')
        self.refused(5, 'QUOTA_EXCEEDED', 'region', 'allocate', 'b', '--size', '512MiB', '--tenant', 'ml')
        self.refused(5, 'QUOTA_EXCEEDED', 'region', 'resize', 'a', '2GiB')
        self.pool.allocate('b', '256MiB', None, '--tenant', 'ml')
        ml = self.pool.cli('tenant', 'get', 'ml')
        self.assertEqual((ml['used_bytes'], ml['regions']), (str(GiB), '2'))
        self.refused(4, 'TENANT_HAS_REGIONS', 'tenant', 'remove', 'ml')
        self.pool.cli('tenant', 'set', 'blue', '--reserved', '6GiB')
        self.refused(5, 'RESERVED_FOR_OTHERS', 'region', 'allocate', 'c', '--size', '2GiB')
        self.refused(4, 'RESERVED_TOO_MUCH', 'tenant', 'set', 'green', '--reserved', '4GiB')
        self.refused(2, 'BAD_TENANT', 'tenant', 'set', 'blue', '--quota', '1GiB')
        self.refused(3, 'UNKNOWN_TENANT', 'region', 'allocate', 'c', '--size', '1GiB', '--tenant', 'nobody')
        self.refused(4, 'TENANT_IS_DEFAULT', 'tenant', 'remove', 'default')
        self.pool.cli('tenant', 'remove', 'blue')
        self.refused(3, 'UNKNOWN_TENANT', 'tenant', 'get', 'blue')

    def test_a_host_takes_so_much_of_a_tenant(self):
        self.pool.cli('tenant', 'set', 'ml', '--host-cap', '512MiB')
        self.pool.allocate('a', '512MiB', 'host-a', '--tenant', 'ml')
        self.refused(5, 'HOST_CAP_EXCEEDED', 'region', 'allocate', 'b', '--size', '256MiB', '--tenant', 'ml',
                     '--host', 'host-a')
        self.pool.allocate('b', '256MiB', 'host-b', '--tenant', 'ml')


class DeviceTest(ApiTest):
    def test_a_drained_device_ends_empty_and_leaves(self):
        self.pool.allocate('kv', '256MiB', None, '--device', 'cmm-3')
        drained = self.pool.cli('device', 'drain', 'cmm-3')
        self.assertEqual(drained['regions'], ['regions/kv'])
        self.assertEqual(drained['device']['state'], 'DRAINING')
        self.refused(4, 'DEVICE_DRAINING', 'region', 'allocate', 'x', '--size', '256MiB', '--device', 'cmm-3')
        self.refused(4, 'DEVICE_NOT_EMPTY', 'device', 'remove', 'cmm-3', '--yes')
        self.pool.release('kv')
        self.assertEqual(self.pool.cli('device', 'drain', 'cmm-3')['region_count'], '0')
        self.assertEqual(self.pool.cli('device', 'remove', 'cmm-3', '--yes')['state'], 'REMOVED')
        self.refused(5, 'POOL_FULL', 'region', 'allocate', 'x', '--size', '7GiB', '--max-extents', '16')
        self.assertEqual(self.pool.cli('device', 'add', 'cmm-3')['state'], 'READY')
        self.pool.allocate('x', '7GiB', None, '--max-extents', '16')
        self.refused(3, 'UNKNOWN_DEVICE', 'device', 'drain', 'cmm-9')


class ManyTest(ApiTest):
    def test_a_batch_has_an_outcome_an_item(self):
        lines = [{'region_id': f'b{i}', 'size_bytes': str(256 * MiB)} for i in range(3)]
        lines[1]['tenant'] = 'tenants/nobody'
        results = self.batch(lines, status=3)
        self.assertEqual([r['code'] for r in results], [0, 5, 0])
        self.assertEqual(results[1]['error']['reason'], 'UNKNOWN_TENANT')
        self.assertEqual(set(self.pool.regions()), {'b0', 'b2'})
        self.pool.cli('region', 'release', 'b0', 'b2', '--wait')

    def test_a_batch_sent_again_makes_nothing_twice(self):
        lines = [{'region_id': f'b{i}', 'size_bytes': '1', 'request_id': self.pool.request_id()} for i in range(4)]
        first = self.batch(lines)
        again = self.batch(lines)
        self.assertEqual([r['region']['tag'] for r in first], [r['region']['tag'] for r in again])
        single = self.pool.cli('region', 'allocate', 'b0', '--size', '1', '--request-id', lines[0]['request_id'])
        self.assertEqual(single['tag'], first[0]['region']['tag'])
        self.assertEqual(len(self.pool.regions()), 4)

    def test_lists_are_filtered_ordered_and_paged(self):
        self.pool.cli('tenant', 'set', 'ml')
        self.batch([{'region_id': f'f{i}', 'size_bytes': str((i % 3 + 1) * 256 * MiB),
                     'tenant': f'tenants/{"ml" if i % 2 else "default"}'} for i in range(9)])

        def names(*arguments):
            return [r['name'].removeprefix('regions/') for r in self.pool.cli('region', 'list', *arguments)['regions']]
        self.assertEqual(names('--filter', 'tenant = ml'), ['f1', 'f3', 'f5', 'f7'])
        self.assertEqual(names('--filter', f'size_bytes > {512 * MiB} AND tenant != ml'), ['f2', 'f8'])
        self.assertEqual(names('--filter', 'name : 7'), ['f7'])
        self.assertEqual(names('--order-by', 'name desc'), [f'f{i}' for i in reversed(range(9))])
        self.assertEqual(names('--order-by', 'size_bytes desc')[:3], ['f8', 'f5', 'f2'])
        self.refused(2, 'BAD_FILTER', 'region', 'list', '--filter', 'colour = red')
        self.refused(2, 'BAD_ORDER_BY', 'region', 'list', '--order-by', 'colour')


class BackupTest(ApiTest):
    def test_a_manager_takes_a_backup_up(self):
        kept = self.pool.allocate('kept', '256MiB', 'host-a')
        copy = self.directory / 'copy.db'
        answer = self.pool.cli('backup', copy)
        self.assertEqual(int(answer['size_bytes']), copy.stat().st_size)
        self.refused(4, 'BACKUP_EXISTS', 'backup', copy)
        store = self.directory / 'store'
        self.assertEqual([p.name for p in store.iterdir() if not p.name.startswith('pool.db')], [])
        self.pool.manager.kill()
        for file in store.iterdir():
            file.unlink()
        copy.rename(store / 'pool.db')
        self.pool.start_manager()
        self.pool.wait_hosts_online()
        self.assertEqual(self.pool.regions()['kept']['tag'], kept['tag'])
        wait_until(lambda: self.pool.attachment('kept', 'host-a')['state'] == 'ONLINE', 30, 'it is online as before')


class FailedDeviceTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return EmulatedPool(BUILD, directory, hosts={'host-a': [[1, 2]]})

    def test_what_was_on_a_broken_device_is_released_on_ones_word(self):
        self.pool.allocate('lost', '256MiB', None, '--device', 'cmm-1')
        self.pool.allocate('kept', '256MiB', None, '--device', 'cmm-0')
        self.assertEqual(self.pool.cli('device', 'fail', 'cmm-1', '--reason', 'smoke', '--yes')['state'], 'FAILED')
        self.assertEqual(self.pool.regions()['lost']['state'], 'QUARANTINED')
        with self.assertRaisesRegex(CliError, 'REGION_QUARANTINED'):
            self.pool.cli('region', 'release', 'lost')
        with self.assertRaisesRegex(CliError, 'DEVICE_FAILED'):
            self.pool.cli('device', 'add', 'cmm-1')
        self.pool.cli('region', 'release', 'lost', '--force', '--reason', 'the device burned', '--yes')
        wait_until(lambda: set(self.pool.regions()) == {'kept'}, 30, 'it is gone')
        with self.assertRaisesRegex(CliError, 'DEVICE_FAILED'):
            self.pool.cli('region', 'allocate', 'x', '--size', '256MiB', '--device', 'cmm-1')


del ApiTest  # Its subclasses have the tests.

if __name__ == '__main__':
    main()
