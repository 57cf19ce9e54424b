"""Every key of both configurations, a part of them each day, is taken away and changed while memory is held, and nothing
is given away.

One trial: a program on host-a holds a Region and has written to it; a daemon ends, one key of its configuration is
removed or changed, and it starts again. It refuses to, or it serves. While it serves the Region is released and host-b
asks for all that is free. As long as the program lives, its bytes stay what they are, nobody says that they are free,
and host-b reads zeroes alone. Then the key is put back and the program ends, and the Region has to go."""

import contextlib
import copy
import os
import re
import subprocess
import unittest

from testbed.emulated import EmulatedPool
from testbed.pool import free_port
from testbed.process import TestbedError, wait_until
from testbed.replicated import Etcd, etcd_program
from testbed.testing import BUILD, REPOSITORY, PoolTest, main, of_today

# Keys of another driver or adapter, which this one's configuration may not have.
OF_OTHERS = {'device.path', 'host.qmp', 'fabric.state', '[tiering]', 'tiering.demotion', 'tiering.numa_balancing',
             'tiering.local_weight', 'tiering.pool_weight', 'manager.insecure', 'listen.insecure', 'fabric.coherent',
             'shared.devices', 'shared.files'}
OF_ETCD = {f'store.{key}' for key in ('endpoints', 'prefix', 'ca', 'cert', 'key', 'advertise', 'takeover', 'max_bytes')}


def to_toml(tables):
    """TOML text of a dict: values, then tables, then arrays of tables."""
    def value(v):
        if isinstance(v, bool):
            return 'true' if v else 'false'
        if isinstance(v, list):
            return '[' + ', '.join(value(x) for x in v) + ']'
        return str(v) if isinstance(v, int) else '"' + v + '"'

    def lines(table, path):
        inner = []
        for key, v in table.items():
            if not (isinstance(v, dict) or isinstance(v, list) and v and isinstance(v[0], dict)):
                yield f'{key} = {value(v)}'
            else:
                inner.append((key, v))
        for key, v in inner:
            for one in v if isinstance(v, list) else [v]:
                name = '.'.join([*path, key])
                yield f'[[{name}]]' if isinstance(v, list) else f'[{name}]'
                yield from lines(one, [*path, key])

    return '\n'.join(lines(tables, [])) + '\n'


def places(table, path=()):
    """Every key and every table of it, as paths."""
    for key, v in table.items():
        yield (*path, key)
        if isinstance(v, dict):
            yield from places(v, (*path, key))
        elif isinstance(v, list) and v and isinstance(v[0], dict):
            for index, one in enumerate(v):
                yield (*path, key, index)
                yield from places(one, (*path, key, index))


def parent_of(table, path):
    for step in path[:-1]:
        table = table[step]
    return table


def key_of(path):
    """As docs/configuration.md calls it."""
    return '.'.join(step for step in path if isinstance(step, str))


class Trial:
    """One edit: a path, and what stands there then; None: it is taken away."""

    def __init__(self, path, new):
        self.path, self.new = path, new

    def apply(self, tables):
        tables = copy.deepcopy(tables)
        parent = parent_of(tables, self.path)
        if self.new is None:
            del parent[self.path[-1]]
        else:
            parent[self.path[-1]] = self.new
        return tables

    def __str__(self):
        where = '.'.join(str(step) for step in self.path)
        return f'{where} taken away' if self.new is None else f'{where} = {self.new!r}'


def documented_keys(heading):
    """The keys in the table below `heading` of docs/configuration.md."""
    text = (REPOSITORY / 'docs/configuration.md').read_text().split(f'## {heading}\n', 1)[1].split('\n## ', 1)[0]
    cells = re.findall(r'^\| ([^|]+) \|', text, flags=re.M)
    return {word for cell in cells for word in re.findall(r'`([^`]+)`', cell)}


class ConfigTrials(PoolTest):
    @classmethod
    def store(cls, pool):
        return {'kind': 'sqlite', 'path': f'{pool.directory}/store/pool.db'}

    @classmethod
    def make_pool(cls, directory):
        pool = EmulatedPool(BUILD, directory, hosts={'host-a': [[1, 2], [3, 4]], 'host-b': [[1, 2], [3, 4]]},
                            devices={'cmm-0': '128MiB', 'cmm-1': '128MiB'}, granule='32MiB')
        cls.socket = directory / 'fm.sock'
        pool.write_manager_config = lambda: cls.write_manager_config(pool)
        return pool

    @classmethod
    def write_manager_config(cls, pool):
        """With every key that the emulated driver may have."""
        EmulatedPool.write_manager_config(pool)
        device = {'latency_ns': 170, 'bandwidth_mib': 24000, 'heads': 2, 'capacity': '128MiB', 'granule': '32MiB'}
        link = {'latency_ns': 10, 'bandwidth_mib': 32000}
        cls.fm_toml = pool.directory / 'fm.toml'
        cls.fm = {
            'listen': [{'address': f'127.0.0.1:{pool.port}', 'tokens': True}, {'address': f'unix:{cls.socket}', 'insecure': True}],
            'tls': {'ca': f'{pool.pki}/ca.pem', 'cert': f'{pool.pki}/manager-fm.pem', 'key': f'{pool.pki}/manager-fm.key',
                    'server_name': 'fm.cxlpool'},
            'store': cls.store(pool),
            'fabric': {'driver': 'emulated', 'root': f'{pool.directory}/fabric', 'fence_program': '/bin/true',
                       'fence_timeout': '5s'},
            'device': [{'id': id, 'serial': f's-{id}', 'failure_domain': f'd-{id}', **device} for id in pool.devices],
            'host': [{'id': id, 'slots': [1, 2, 3, 4], 'uid': os.geteuid()} for id in pool.layout],
            'switch': [{'id': 'sw0', 'latency_ns': 60, 'bandwidth_mib': 64000, 'failure_domain': 'shelf'}],
            'link': [{'from': 'host-a', 'to': 'sw0', 'slots': [1, 2, 3, 4], **link}, {'from': 'host-b', 'to': 'sw0'},
                     {'from': 'sw0', 'to': 'cmm-0'}, {'from': 'sw0', 'to': 'cmm-1'}],
            'log_level': 'info', 'access': {'admins': ['cxlpool://operator/breakglass']},
            'metrics': {'listen': f'127.0.0.1:{free_port()}'},
            'audit': {'max_rows': 50000, 'max_bytes': '16MiB'},
            'placement': {'default': 'pack'},
            'sessions': {'heartbeat': '500ms', 'lease': '5s'},
            'reconciler': {'attach_timeout': '20s', 'discover_period': '500ms'},
        }
        cls.fm_toml.write_text(to_toml(cls.fm))

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.trials = {'cxlpool-fm': [0, 0], 'cxlpool-agent': [0, 0]}  # Refused to start, served.
        cls.failed = {'cxlpool-fm': 0, 'cxlpool-agent': 0}
        pool, host = cls.pool, cls.pool.hosts['host-a']
        pool.run_cli('pki', 'issue', 'host', 'host-c', '--dir', pool.pki)
        pool.run_cli('pki', 'issue', 'operator', 'other', '--dir', pool.pki)
        cls.agent = {
            'host': 'host-a', 'adapter': 'emulated', 'observe_interval': '200ms', 'log_level': 'info',
            'manager': {'address': f'127.0.0.1:{pool.port}'},
            'tls': {'ca': f'{pool.pki}/ca.pem', 'cert': f'{pool.pki}/host-host-a.pem',
                    'key': f'{pool.pki}/host-host-a.key', 'server_name': 'fm.cxlpool'},
            'metrics': {'listen': f'127.0.0.1:{free_port()}'},
            'applications': {'socket': str(host.socket), 'tenant': 'default', 'allowed_uids': [1000],
                             'may_open': 'own', 'may_release': 'own',
                             'max_connections': 64, 'max_connections_per_uid': 8,
                             'user': [{'uids': [1001], 'gids': [1001], 'tenant': 'default', 'may_allocate': True,
                                       'persistent': False, 'max_bytes': '1GiB', 'max_regions': 4,
                                       'may_open': 'own', 'may_release': 'own'}]},
            'release': {'offline_deadline': '10s', 'drain_timeout': '5s', 'drain_hook': '/bin/true'},
            'emulated': {'root': f'{pool.directory}/fabric',
                         'bridge': [{'name': f'ACPI0016:0{i}', 'slots': slots, 'max_regions': 4, 'window': '64GiB'}
                                    for i, slots in enumerate(pool.layout['host-a'])]},
        }
        # Bytes of a tenant that nobody is attached to meanwhile.
        pool.allocate('cold', '32MiB', 'host-a', '--device', 'cmm-1')
        cls.checked(host, 'pool-write', '--region', 'cold', '--seed', '4711')
        pool.cli('region', 'detach', 'cold', '--host', 'host-a', '--wait')

    @classmethod
    def tearDownClass(cls):
        for daemon, (refused, served) in cls.trials.items():
            print(f'config-change-{daemon}: {refused + served} trials, {refused} refused to start, {served} served; '
                  f'{cls.failed[daemon]} gave bytes away or said a false word')
        super().tearDownClass()

    @classmethod
    @contextlib.contextmanager
    def counted(cls, daemon):
        try:
            yield
        except BaseException:
            cls.failed[daemon] += 1
            raise

    @staticmethod
    def checked(host, *command, **options):
        done = host.run(command, **options)
        if done.status != 0:
            raise AssertionError(f'{command}: {done.status}: {done.out}{done.err}')
        return done.out

    # The way in that is no part of any trial but its own.
    def cli(self, *arguments, timeout='5s'):
        return subprocess.run([BUILD / 'bin/cxlpool', '--manager', f'unix:{self.socket}', '--timeout', timeout,
                               *map(str, arguments)], capture_output=True, text=True, timeout=60)

    def hold(self, seed):
        """A program that has written to a Region on host-a and keeps it mapped; the file of its bytes."""
        self.pool.allocate('held', '32MiB', 'host-a', '--device', 'cmm-0')
        holder = subprocess.Popen([BUILD / 'bin/pool-write', '--region', 'held', '--seed', str(seed), '--hold', '600'],
                                  env={**os.environ, 'CXLPOOL_SOCKET': str(self.pool.hosts['host-a'].socket)},
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(holder.communicate)
        self.addCleanup(holder.kill)
        self.assertTrue(holder.stdout.readline())
        tag = self.pool.regions()['held']['tag']
        return holder, self.pool.directory / 'fabric/extents' / f'{tag}.0'

    @staticmethod
    def sample(file):
        """Bytes here and there of the file; empty where it is gone."""
        if not file.exists():
            return b''
        with open(file, 'rb') as bytes_of:
            size = os.fstat(bytes_of.fileno()).st_size
            samples = []
            for at in range(0, size, 2 << 20):
                bytes_of.seek(at)
                samples.append(bytes_of.read(4096))
        return b''.join(samples)

    def try_to_take_it(self, holder, file, before):
        """Releases what is held and asks for all that is free, as another tenant's host would."""
        said = self.cli('region', 'release', 'held', '--detach-all', '--wait', '--wait-timeout', '1s')
        self.assertNotIn('scrubbed', said.stdout + said.stderr, 'while a program has it mapped')
        for size in ('224MiB', '96MiB', '32MiB'):
            grabbed = self.cli('region', 'allocate', 'grab', '--size', size, '--max-extents', '16', '--host', 'host-b',
                               '--wait', '--wait-timeout', '3s')
            if grabbed.returncode == 0:
                read = self.pool.hosts['host-b'].run(['pool-verify', '--region', 'grab', '--expect-zero'])
                self.assertEqual(read.status, 0, f'host-b reads what somebody wrote: {read.out}{read.err}')
                break
        self.assertIsNone(holder.poll(), 'the program has lost its memory')
        self.assertEqual(self.sample(file), before, 'the bytes are not what the program wrote')

    def settle(self, holder, file, before, seed):
        """All is as it was before the trial, and the program's end lets its Region go."""
        try:
            self.pool.wait_hosts_online(3, exactly=True)
        except TestbedError:  # Refused by another manager, an agent takes its time before it dials again.
            for host in self.pool.hosts.values():
                host.agent.kill()
                host.agent.start()
            self.pool.wait_hosts_online(20)
        self.assertIsNone(holder.poll(), 'the program has lost its memory')
        self.assertEqual(self.sample(file), before, 'the bytes are not what the program wrote')
        for region in self.pool.regions():
            if region not in ('cold', 'held'):
                flags = ['--force', '--reason', 'of a trial'] if region.startswith('stray-') else []
                self.pool.release(region, *flags)
        if 'held' in self.pool.regions():
            held = self.pool.regions()['held']
            self.assertNotEqual(held['state'], 'SCRUBBING')
        holder.kill()
        holder.wait()
        self.pool.try_cli('region', 'release', 'held', '--detach-all')
        wait_until(lambda: set(self.pool.regions()) == {'cold'}, 30, 'it lets go')
        self.assertFalse(file.exists(), 'its bytes are cleared')

    def check_cold(self):
        host = self.pool.hosts['host-a']
        self.pool.cli('region', 'attach', 'cold', '--host', 'host-a', '--wait')
        self.checked(host, 'pool-verify', '--region', 'cold', '--seed', '4711')
        self.pool.cli('region', 'detach', 'cold', '--host', 'host-a', '--wait')

    def changes_of(self, tables, others):
        """Each key and table once taken away, and changed in each way that `others` tells or that its type has."""
        for path in places(tables):
            yield Trial(path, None)
            value = parent_of(tables, path)[path[-1]]
            changes = others.get(key_of(path))
            if changes is not None:
                for new in changes(value):
                    yield Trial(path, new)
            elif isinstance(value, bool):
                yield Trial(path, not value)
            elif isinstance(value, int):
                yield Trial(path, value + 1)
            elif isinstance(value, str):
                yield Trial(path, value + 'x')

    def assert_all_keys(self, tables, heading, others=OF_OTHERS):
        written = {key_of(path) for path in places(tables)}
        documented = {key for key in documented_keys(heading) if not key.startswith('[')} - others
        self.assertEqual(documented - written, set(), 'a key that no trial changes')

    def trial_of_manager(self, trial, seed):
        pool = self.pool
        holder, file = self.hold(seed)
        before = self.sample(file)
        self.assertTrue(any(before))
        self.fm_toml.write_text(to_toml(trial.apply(self.fm)))
        pool.manager.kill() if seed % 2 else pool.manager.stop()
        pool.manager.start()

        def knows():
            return not pool.manager.running or self.cli('capacity', timeout='500ms').returncode == 0
        try:
            wait_until(knows, 10, 'it serves, or ends', exactly=True)
        except TestbedError:
            pass  # On another address: nobody can ask it anything.
        served = pool.manager.running
        self.trials['cxlpool-fm'][served] += 1
        if served:
            self.try_to_take_it(holder, file, before)
        else:
            self.assertNotEqual(pool.manager.process.returncode, 0)
        pool.manager.kill()
        self.fm_toml.write_text(to_toml(self.fm))
        pool.start_manager()
        self.settle(holder, file, before, seed)


class ConfigChangeTest(ConfigTrials):
    def test_1_the_managers(self):
        pool, directory = self.pool, self.pool.directory
        self.assert_all_keys(self.fm, 'cxlpool-fm', OF_OTHERS | OF_ETCD)
        others = {
            'listen.address': lambda v: ['127.0.0.1', 'unix:fm.sock'], 'listen.tokens': lambda v: [False], 'log_level': lambda v: ['error'],
            'tls.ca': lambda v: [f'{pool.pki}/host-host-a.pem'], 'tls.cert': lambda v: [f'{pool.pki}/operator-other.pem'],
            'tls.key': lambda v: [f'{pool.pki}/operator-other.key'],
            'access.admins': lambda v: [['cxlpool://operator/other'], ['cxlpool://host/host-a'], []],
            'metrics.listen': lambda v: [f'127.0.0.1:{free_port()}', f'127.0.0.1:{pool.port}', '[::]:1'],
            'store.kind': lambda v: ['memory'], 'store.path': lambda v: [f'{directory}/store/other.db'],
            'fabric.driver': lambda v: ['qemu'], 'fabric.root': lambda v: [f'{directory}/elsewhere'],
            'fabric.fence_program': lambda v: ['/bin/false', '/nonexistent'], 'fabric.fence_timeout': lambda v: ['7s'],
            'device.id': lambda v: ['cmm-9'], 'device.capacity': lambda v: ['256MiB', '64MiB'],
            'device.granule': lambda v: ['64MiB', '16MiB'],
            'host.id': lambda v: ['host-z', 'host-b' if v == 'host-a' else 'host-a'],
            'host.slots': lambda v: [[1], [2], [3, 4], [1, 2, 3, 4, 5], [11, 12, 13, 14]], 'host.uid': lambda v: [12345],
            'link.from': lambda v: ['cmm-0'], 'link.to': lambda v: ['cmm-1'], 'link.slots': lambda v: [[1], [4], [9]],
            'audit.max_rows': lambda v: [1000], 'audit.max_bytes': lambda v: ['1MiB'],
            'placement.default': lambda v: ['spread'], 'sessions.heartbeat': lambda v: ['1s'],
            'sessions.lease': lambda v: ['2s'], 'reconciler.attach_timeout': lambda v: ['2s'],
            'reconciler.discover_period': lambda v: ['1s'],
        }
        for seed, trial in of_today(enumerate(self.changes_of(self.fm, others), 1), 6):
            with self.subTest(str(trial)), self.counted('cxlpool-fm'):
                self.trial_of_manager(trial, seed)
        self.check_cold()

    def test_2_the_agents(self):
        pool, directory = self.pool, self.pool.directory
        self.assert_all_keys(self.agent, 'cxlpool-agent')
        others = {
            'host': lambda v: ['host-b', 'host-c'], 'adapter': lambda v: ['linux'],
            'observe_interval': lambda v: ['2s'], 'log_level': lambda v: ['warning'], 'manager.address': lambda v: ['127.0.0.1:1'],
            'tls.ca': lambda v: [f'{pool.pki}/host-host-a.pem'], 'tls.cert': lambda v: [f'{pool.pki}/host-host-c.pem'],
            'tls.key': lambda v: [f'{pool.pki}/host-host-c.key'],
            'metrics.listen': lambda v: [f'127.0.0.1:{free_port()}', f'127.0.0.1:{pool.port}'],
            'applications.socket': lambda v: [f'{directory}/other.sock'],
            'applications.allowed_uids': lambda v: [[5]], 'applications.user.uids': lambda v: [[5]],
            'applications.user.gids': lambda v: [[5]], 'applications.user.max_bytes': lambda v: ['1MiB'],
            **{f'applications.{of}{may}': lambda v: ['tenant'] for of in ('', 'user.') for may in ('may_open', 'may_release')},
            'release.offline_deadline': lambda v: ['2s'], 'release.drain_timeout': lambda v: ['2s'],
            'release.drain_hook': lambda v: ['/bin/false', '/nonexistent'],
            'emulated.root': lambda v: [f'{directory}/elsewhere'],
            'emulated.bridge.name': lambda v: ['ACPI0016:7f'], 'emulated.bridge.slots': lambda v: [[v[0]], [v[1]], [9]],
            'emulated.bridge.window': lambda v: ['1GiB'],
        }
        (directory / 'elsewhere/hosts/host-a').mkdir(parents=True, exist_ok=True)
        for seed, trial in of_today(enumerate(self.changes_of(self.agent, others), 1001), 6):
            with self.subTest(str(trial)), self.counted('cxlpool-agent'):
                self.trial_of_agent(trial, seed)
        self.check_cold()

    def trial_of_agent(self, trial, seed):
        host = self.pool.hosts['host-a']
        host.config.write_text(to_toml(self.agent))
        holder, file = self.hold(seed)
        before = self.sample(file)
        host.config.write_text(to_toml(trial.apply(self.agent)))
        host.agent.kill()
        host.agent.start()

        def knows():
            hosts = self.pool.try_cli('host', 'list') or {'hosts': []}
            return not host.agent.running or any(
                h['name'] == 'hosts/host-a' and h['state'] == 'ONLINE' for h in hosts['hosts'])
        try:
            wait_until(knows, 3, 'it serves, or ends', exactly=True)
        except TestbedError:
            pass  # It runs, and the manager refuses it or is not to be found.
        served = host.agent.running
        self.trials['cxlpool-agent'][served] += 1
        self.try_to_take_it(holder, file, before)
        host.agent.kill()
        host.config.write_text(to_toml(self.agent))
        host.agent.start()
        self.settle(holder, file, before, seed)


@unittest.skipUnless(etcd_program(), 'no etcd here: qemu-cxl/fetch --with etcd brings it')
class ConfigChangeOnEtcdTest(ConfigTrials):
    """The keys of a store on etcd: with others a manager finds an empty store, another one, or none."""

    @classmethod
    def store(cls, pool):
        for kind, name in (('manager', 'etcd'), ('host', 'etcd')):
            pool.run_cli('pki', 'issue', kind, name, '--dir', pool.pki)
        cls.etcd = Etcd(pool.directory, members=1, pki=pool.pki).start()
        cls.addClassCleanup(cls.etcd.close)
        return {'kind': 'etcd', 'endpoints': cls.etcd.endpoints, 'prefix': '/pool/', 'ca': f'{pool.pki}/ca.pem',
                'cert': f'{pool.pki}/operator-admin.pem', 'key': f'{pool.pki}/operator-admin.key',
                'advertise': f'127.0.0.1:{pool.port}', 'takeover': '1500ms', 'max_bytes': '4GiB'}

    def test_the_store(self):
        pool = self.pool
        self.assertEqual(OF_ETCD - {key_of(path) for path in places(self.fm)}, set(), 'a key that no trial changes')
        others = {
            'store.kind': lambda v: ['memory', 'sqlite'], 'store.endpoints': lambda v: [['127.0.0.1:1'], []],
            'store.prefix': lambda v: ['/pool/x/', '/'], 'store.advertise': lambda v: ['127.0.0.1:1', f'127.0.0.1:{pool.port}x'],
            'store.max_bytes': lambda v: ['1GiB', '17GiB'],
            'store.takeover': lambda v: ['10s', '500ms'], 'store.ca': lambda v: [f'{pool.pki}/host-host-a.pem'],
            'store.cert': lambda v: [f'{pool.pki}/operator-other.pem'], 'store.key': lambda v: [f'{pool.pki}/operator-other.key'],
        }
        of_store = [trial for trial in self.changes_of(self.fm, others) if trial.path[0] == 'store']
        for seed, trial in of_today(enumerate(of_store, 2001)):
            with self.subTest(str(trial)), self.counted('cxlpool-fm'):
                self.trial_of_manager(trial, seed)
        self.check_cold()


if __name__ == '__main__':
    main()
