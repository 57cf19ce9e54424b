"""A pool moves from a database into etcd and back, and is backed up there: --copy-store, backup, fsck and --check-empty on real members."""

import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import unittest
import urllib.request
from pathlib import Path

from testbed.certificates import expire
from testbed.emulated import EmulatedPool
from testbed.metrics import Scrape
from testbed.pool import free_port
from testbed.process import Daemon, wait_until
from testbed.replicated import Etcd, ReplicatedPool, etcd_program
from testbed.testing import BUILD, REPOSITORY, PoolTest, main, skip_program


class EtcdStoreTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return EmulatedPool(BUILD, directory)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for authority in ('etcd', 'other'):
            cls.pool.run_cli('pki', 'init', '--dir', str(cls.directory / authority))
            for role, name in (('manager', 'etcd'), ('host', 'etcd'), ('operator', 'fm')):
                cls.pool.run_cli('pki', 'issue', role, name, '--dir', str(cls.directory / authority))
        cls.etcd = Etcd(cls.directory, pki=cls.directory / 'etcd').start()
        cls.addClassCleanup(cls.etcd.close)

    def setUp(self):
        super().setUp()
        self.config = self.directory / 'fm.toml'
        self.on_disk = self.config.read_text()

    def in_etcd(self, prefix='/cxlpool/', ca='etcd', cert='etcd'):
        """The configuration with its records there; `ca` and `cert`: the authorities of what it names."""
        store = (f'kind = "etcd"\nendpoints = {self.etcd.endpoints}\nadvertise = "127.0.0.1:{self.pool.port}"\nprefix = "{prefix}"\n'
                 f'ca = "{self.directory}/{ca}/ca.pem"\ncert = "{self.directory}/{cert}/operator-fm.pem"\n'
                 f'key = "{self.directory}/{cert}/operator-fm.key"\n')
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

    def test_certificates_that_will_not_do_are_named(self):
        def check(name, status, **authorities):
            return self.run_fm('--check-config', '--config', self.write(name, self.in_etcd(**authorities)), status=status)
        self.assertIn('OK', check('good.toml', 0))
        self.assertRegex(check('wrong.toml', 2, ca='other'), r'wrong.toml:[0-9]+: store.cert: .*etcd/operator-fm.pem')
        self.assertRegex(check('none.toml', 2, cert='nowhere'), r'none.toml:[0-9]+: store.cert: .*nowhere/operator-fm.pem')
        # What fits itself, and is not etcd's.
        said = self.run_fm('--copy-store', self.write('other.toml', self.in_etcd(ca='other', cert='other')), self.directory / 'no.db', status=1)
        self.assertIn('that store.ca is the authority of their certificates', said)
        self.assertFalse((self.directory / 'no.db').exists())

    def test_a_pool_moves_and_is_backed_up(self):
        self.pool.allocate('kv', '256MiB', 'host-a')
        self.pool.manager.stop()
        there = self.write('etcd.toml', self.in_etcd())
        self.assertEqual('the pool has no Region\n', self.run_fm('--check-empty', '--config', there))
        self.run_fm('--copy-store', self.config, there)
        said = self.run_fm('--check-empty', '--config', there, status=1)
        self.assertIn('the pool has 1 Region:', said)
        self.assertIn('where `cxlpool status` shows that another manager leads, that one keeps the pool', said)
        self.assertIn('CXLPOOL_REMOVE_ANYWAY=1', said)
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


class ReplicaMetricsTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return ReplicatedPool(BUILD, directory)

    def scrape(self, number):
        url = f'http://127.0.0.1:{self.pool.metrics_ports[number]}/metrics'
        with urllib.request.urlopen(url, timeout=20) as answer:
            return Scrape(answer.read().decode())

    def figures(self, number):
        """What that manager says of its part."""
        scrape = self.scrape(number)
        names = ('cxlpool_fm_leader', 'cxlpool_fm_replicated', 'cxlpool_fm_epoch', 'cxlpool_store_revision', 'cxlpool_fm_standby_age_seconds')
        return {name.removeprefix('cxlpool_').removeprefix('fm_'): scrape.sum(name) for name in names}

    def test_the_leader_says_what_its_records_take_and_both_say_which_members_answer(self):
        leader = self.pool.wait_leader()
        before = self.scrape(leader).sum('cxlpool_store_size_bytes')
        self.pool.cli('tenant', 'set', 'one-more', '--quota', '1GiB')
        after = self.scrape(leader)
        self.assertGreater(after.sum('cxlpool_store_size_bytes'), before)
        self.assertEqual(after.sum('cxlpool_store_limit_bytes'), 3 << 30)
        self.assertNotIn('cxlpool_store_size_bytes', self.scrape(1 - leader).names())
        number_stopped = self.pool.etcd.wait_follower()
        stopped = self.pool.etcd.members[number_stopped]
        stopped.process.send_signal(signal.SIGSTOP)  # Its machine hangs: it does not answer at all.
        self.addCleanup(stopped.process.send_signal, signal.SIGCONT)

        def answering(number):
            scrape = self.scrape(number)
            return [scrape.sum('cxlpool_etcd_member_up', endpoint=endpoint) for endpoint in self.pool.etcd.endpoints]
        for number in (0, 1):
            wait_until(lambda: answering(number) == [int(n != number_stopped) for n in range(3)], 20, 'a member that hangs is seen')
        stopped.process.send_signal(signal.SIGCONT)
        for number in (0, 1):
            wait_until(lambda: answering(number) == [1, 1, 1], 20, 'it answers again')

    def test_a_standby_says_that_it_stands_by_until_it_leads(self):
        first = self.pool.wait_leader()
        other = 1 - first
        leader = self.figures(first)
        standby = wait_until(lambda: (now := self.figures(other))['store_revision'] == self.figures(first)['store_revision'] and now, 20,
                             'the standby sees what the leader committed')
        self.assertEqual((1, 1, 0), (leader['leader'], leader['replicated'], leader['standby_age_seconds']))
        self.assertEqual((0, 1, leader['epoch']), (standby['leader'], standby['replicated'], standby['epoch']))
        self.assertLess(standby['standby_age_seconds'], 5)
        self.pool.managers[first].kill()
        took_over = wait_until(lambda: (now := self.figures(other))['leader'] and now, 30, 'it leads')
        self.assertGreater(took_over['epoch'], leader['epoch'])
        self.pool.managers[first].start()

        def stands_by():
            try:
                return self.figures(first)['leader'] == 0
            except OSError:
                return False
        wait_until(stands_by, 30, 'the first one stands by')


def section(title):
    """Of docs/replicated.md."""
    [text] = re.findall(rf'^### {title}$(.*?)^##', (REPOSITORY / 'docs/replicated.md').read_text(), re.M | re.S)
    return text


class ExampleTest(unittest.TestCase):
    """packaging/examples/etcd-cxlpool.conf, with the certificates that docs/replicated.md has made, and what is done there to the members."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix='cxlpool-test-')
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        self.pki('init')
        self.pki('issue', 'operator', 'fm-a')
        self.ports = {(name, role): free_port() for name in 'abc' for role in ('2379', '2380')}
        self.members = {}
        for name in 'abc':
            self.pki('issue', 'manager', f'etcd-{name}', '--dns', f'etcd-{name}')
            self.pki('issue', 'host', f'etcd-{name}')
            self.start_member(name)

    def pki(self, *words):
        subprocess.run([BUILD / 'bin/cxlpool', 'pki', *words, '--dir', self.directory / 'pki'], check=True, capture_output=True)

    def here(self, text):
        """With the addresses that members have in this test."""
        return re.sub(r'etcd-([abc]):(\d+)', lambda found: f'127.0.0.1:{self.ports[found[1], found[2]]}', text)

    def start_member(self, name, more=()):
        """As the example says, and `more`: pairs of key and value."""
        example = (REPOSITORY / 'packaging/examples/etcd-cxlpool.conf').read_text()
        own = {'ETCD_DATA_DIR': str(self.directory / name)}
        for key, value in [*re.findall(r'(ETCD_\w+)=(\S+)', re.sub(r'(?m)^#.*', '', example)), *more]:
            value = value.replace('/etc/etcd/pki', str(self.directory / 'pki')).replace('0.0.0.0', f'etcd-{name}')
            if not key.endswith('CLUSTER'):
                value = value.replace('etcd-a', f'etcd-{name}')
            own[key] = self.here(value)
        self.members[name] = Daemon(f'etcd-{name}', [etcd_program()], self.directory / f'{name}.log', own).start()
        self.addCleanup(self.members[name].kill)

    def run_etcdctl(self, command, timeout='20s'):
        """A line of the guide, where the certificates are: how it ended, and what it says."""
        words = [str(etcd_program().with_name('etcdctl')), '--command-timeout', timeout, *shlex.split(self.here(command))[1:]]
        done = subprocess.run(words, cwd=self.directory / 'pki', capture_output=True, text=True, timeout=90)
        return done.returncode, done.stdout + done.stderr

    def etcdctl(self, command):
        status, said = self.run_etcdctl(command)
        self.assertEqual(0, status, f'{command}\n{said}')
        return said

    def change_members(self, command, is_done):
        """Until it has succeeded: the members may have run for a moment only. `is_done`: what it says where an earlier try, of
        which no answer came, had succeeded."""
        def tried():
            status, said = self.run_etcdctl(command)
            return status == 0 or is_done in said
        wait_until(tried, 60, command)

    HEALTH = ('etcdctl --endpoints etcd-a:2379,etcd-b:2379,etcd-c:2379 --cacert ca.pem --cert operator-fm-a.pem --key operator-fm-a.key '
              'endpoint health')

    def healthy(self):
        return self.run_etcdctl(self.HEALTH, timeout='3s')[1].count('is healthy')

    def wait_healthy(self, members=3):
        wait_until(lambda: self.healthy() == members, 30, f'{members} members are well')

    def test_a_member_is_replaced(self):
        self.wait_healthy()
        text = section('Replace a member')
        listed, remove, add = re.findall(r'^etcdctl .*$', text, re.M)
        put, get = (f'{listed.removesuffix("member list")}{words}' for words in ('put what stays', 'get what'))
        self.etcdctl(put)
        self.members['c'].kill()
        shutil.rmtree(self.directory / 'c')
        [lost] = re.findall(r'^(\w+), \w+, etcd-c,', self.etcdctl(listed), re.M)
        self.change_members(remove.replace(' ID', f' {lost}'), 'member not found')
        self.change_members(add, 'already exists')
        more = re.findall(r'^Environment=(\w+)=(\S+)$', text, re.M)
        self.assertEqual(1, len(more))
        self.start_member('c', more)
        self.wait_healthy()
        self.assertEqual(3, self.etcdctl(listed).count(', started, '))
        # It counts: another one may fail now, and what was there before is there.
        self.members['a'].kill()
        self.wait_healthy(2)
        self.assertIn('stays', self.etcdctl(get.replace('etcd-a:2379,etcd-b:2379', 'etcd-c:2379')))
        # And it starts again as it is.
        self.members['c'].kill()
        self.start_member('c', more)
        self.wait_healthy(2)

    def test_certificates_that_ended_are_renewed(self):
        self.wait_healthy()
        pki = self.directory / 'pki'
        for name in 'abc':
            expire(pki, f'manager-etcd-{name}')
        self.assertEqual(0, self.healthy())
        lines = re.findall(r'^cxlpool pki (renew (?:manager|host) etcd-a) --dir /root/etcd-pki$', section('Certificates of etcd'), re.M)
        self.assertEqual(2, len(lines))
        for name in 'abc':
            for line in lines:
                self.pki(*line.replace('etcd-a', f'etcd-{name}').split())
        self.wait_healthy()

    def test_its_members_serve_a_manager(self):
        pki = self.directory / 'pki'
        config = self.directory / 'fm.toml'
        config.write_text(f'''
[[listen]]
address = "unix:{self.directory}/fm.sock"
insecure = true
[store]
kind = "etcd"
endpoints = {[f'localhost:{self.ports[name, "2379"]}' for name in 'abc']}
ca = "{pki}/ca.pem"
cert = "{pki}/operator-fm-a.pem"
key = "{pki}/operator-fm-a.key"
advertise = "fm-a:7600"
[fabric]
driver = "emulated"
root = "{self.directory}/fabric"
''')
        done = subprocess.run([BUILD / 'bin/cxlpool-fm', '--check-empty', '--config', config], capture_output=True, text=True, timeout=60)
        self.assertEqual((0, 'the pool has no Region\n', ''), (done.returncode, done.stdout, done.stderr))
        for name in 'abc':
            self.assertNotIn('unrecognized environment', (self.directory / f'{name}.log').read_text())


if __name__ == '__main__':
    if etcd_program() is None:
        skip_program('no etcd here: qemu-cxl/fetch --with etcd brings it')
    main()
