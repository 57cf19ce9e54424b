"""What a host's certificate may do, and what one local user may do to another's Region: tried as calls."""

import contextlib
import os
import re
import shlex
import subprocess
import sys
import unittest
import uuid
from pathlib import Path

from testbed.emulated import EmulatedPool, NOBODY, Result
from testbed.process import wait_until
from testbed.testing import BUILD, PoolTest, main

OTHER = NOBODY - 1  # A user id that is nobody else's either.
REPOSITORY = Path(__file__).resolve().parents[2]
RELEASED = b'\x2a\x00'  # A LocalResponse: no code, and an empty LocalReleaseResponse.
NO_TAG = '0f8fad5b-d9cb-469f-a165-70867728950e'


class BorderTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return EmulatedPool(BUILD, directory, hosts={'host-a': [[1, 2, 3, 4]], 'host-b': [[1, 2, 3, 4]]})

    def setUp(self):
        super().setUp()
        self.addCleanup(self.pool.release_all)

    def as_host(self, host, *arguments):
        """The operator's command under a host's certificate."""
        command = [word.replace('operator-admin', f'host-{host}') for word in self.pool.cli_command(*arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return Result(done.returncode, done.stdout, done.stderr)

    def refused(self, reason, host, *arguments):
        done = self.as_host(host, *arguments)
        self.assertNotEqual(done.status, 0, done.out)
        self.assertIn(reason, done.err)
        return done.err

    def as_user(self, uid, *command):
        """One of our programs as a local user of host-a."""
        words = ['setpriv', f'--reuid={uid}', f'--regid={uid}', '--clear-groups', *map(str, command)]
        words[4] = str(self.pool.build / 'bin' / words[4])
        done = subprocess.run(words, capture_output=True, text=True, timeout=60,
                              env={**os.environ, 'CXLPOOL_SOCKET': str(self.pool.hosts['host-a'].socket)})
        return Result(done.returncode, done.stdout, done.stderr)

    def test_what_is_not_a_hosts_is_not_there_for_it(self):
        made = self.as_host('host-a', 'region', 'allocate', 'kv', '--size', '256MiB', '--host', 'host-a', '--ttl', '1h')
        self.assertEqual(made.status, 0, made.err)
        wait_until(lambda: self.pool.regions()['kv']['state'] == 'ALLOCATED', 30, 'it is made')
        before = self.pool.regions()['kv']
        for there, missing in (('kv', 'zz'), (before['tag'], NO_TAG)):
            for call in (('show', '{}'), ('release', '{}', '--detach-all', '--yes'), ('renew', '{}', '--ttl', '10s')):
                with self.subTest(call=call, name=there):
                    seen, unseen = (self.refused('UNKNOWN_REGION', 'host-b', 'region',
                                                 *(word.format(name) for word in call)).replace(name, 'NAME')
                                    for name in (there, missing))
                    self.assertEqual(seen, unseen, 'the refusal tells whether there is one')
        after = self.pool.regions()['kv']
        self.assertEqual((after['state'], after['expire_time']), (before['state'], before['expire_time']))
        # Its own it sees, renews and gives back.
        for call in (('show', 'kv'), ('renew', 'kv', '--ttl', '2h'), ('release', 'kv', '--detach-all', '--yes')):
            done = self.as_host('host-a', 'region', *call)
            self.assertEqual(done.status, 0, done.err)
        wait_until(lambda: 'kv' not in self.pool.regions(), 30, 'it is gone')

    def test_a_host_allocates_on_itself_for_the_tenants_of_its_enrolment(self):
        self.pool.cli('tenant', 'set', 'vip')
        self.addCleanup(self.pool.cli, 'tenant', 'remove', 'vip')
        allocate = ('region', 'allocate', 'evil', '--size', '256MiB')
        self.refused('NOT_YOUR_HOST', 'host-b', *allocate, '--host', 'host-a')
        self.refused('NOT_YOUR_HOST', 'host-b', *allocate)
        said = self.refused('TENANT_NOT_YOURS', 'host-b', *allocate, '--host', 'host-b', '--tenant', 'vip')
        # The remedy is a command: an operator runs it as it stands.
        remedy = re.search(r'`cxlpool (host enrol [^`]*)`', said)
        self.assertIsNotNone(remedy, said)
        self.pool.cli(*shlex.split(remedy.group(1)))
        self.addCleanup(self.pool.cli, 'host', 'enrol', 'host-b', '--tenant', 'default')
        tenants = {host['name']: host['tenants'] for host in self.pool.cli('host', 'list')['hosts']}
        self.assertEqual(tenants, {'hosts/host-a': ['tenants/default'],
                                   'hosts/host-b': ['tenants/default', 'tenants/vip']})
        self.assertIn('default,vip', self.pool.run_cli('host', 'list'))
        done = self.as_host('host-b', *allocate, '--host', 'host-b', '--tenant', 'vip')
        self.assertEqual(done.status, 0, done.err)
        self.pool.release('evil')

    def test_an_attachment_shows_a_region_of_the_hosts_tenants_only(self):
        self.pool.cli('tenant', 'set', 'ml')
        self.addCleanup(self.pool.cli, 'tenant', 'remove', 'ml')
        for name, tenant in (('ours', 'default'), ('theirs', 'ml')):
            self.pool.allocate(name, '256MiB', 'host-b', '--tenant', tenant)
        self.assertEqual(self.as_host('host-b', 'region', 'show', 'ours').status, 0)
        self.refused('NOT_OWNER', 'host-b', 'region', 'renew', 'ours', '--ttl', '10s')
        self.refused('UNKNOWN_REGION', 'host-b', 'region', 'show', 'theirs')
        self.refused('UNKNOWN_REGION', 'host-b', 'region', 'release', 'theirs', '--detach-all', '--yes')
        for name in ('ours', 'theirs'):
            self.pool.release(name)

    def test_a_retired_host_may_nothing(self):
        made = self.as_host('host-b', 'region', 'allocate', 'kv', '--size', '256MiB', '--host', 'host-b')
        self.assertEqual(made.status, 0, made.err)
        self.pool.cli('region', 'detach', 'kv', '--host', 'host-b', '--wait')
        self.pool.hosts['host-b'].agent.kill()
        self.pool.cli('host', 'retire', 'host-b')
        for call in (('show', 'kv'), ('renew', 'kv', '--ttl', '10s'), ('release', 'kv', '--detach-all', '--yes'),
                     ('allocate', 'kw', '--size', '256MiB', '--host', 'host-b')):
            self.refused('NOT_ENROLLED', 'host-b', 'region', *call)
        self.pool.cli('host', 'enrol', 'host-b')
        self.pool.hosts['host-b'].agent.start()
        self.pool.wait_hosts_online()
        self.pool.release('kv')

    @unittest.skipUnless(os.geteuid() == 0, 'needs root, to run programs as other users')
    def test_a_region_is_its_makers(self):
        made = self.as_user(NOBODY, 'pool-write', '--allocate', '256MiB', '--name', 'mine', '--persistent')
        self.assertEqual(made.status, 0, made.err)
        self.assertEqual(self.pool.regions()['mine']['maker'], {'host': 'hosts/host-a', 'uid': NOBODY})
        self.assertIn(f'uid {NOBODY} on host-a', self.pool.run_cli('region', 'show', 'mine'))
        self.assertEqual(self.as_user(NOBODY, 'pool-verify', '--region', 'mine').status, 0)
        for name in ('mine', self.pool.regions()['mine']['tag']):
            denied = self.as_user(OTHER, 'pool-verify', '--region', name)
            self.assertEqual(denied.status, 3)
            self.assertIn('was not made by user id', denied.err)
        self.assertEqual(self.pool.hosts['host-a'].run(['pool-verify', '--region', 'mine']).status, 0, 'root may')
        self.pool.release('mine')

    @unittest.skipUnless(os.geteuid() == 0, 'needs root, to run programs as other users')
    def test_a_region_is_released_by_its_maker(self):
        self.make('mine', NOBODY)
        tag = self.pool.regions()['mine']['tag']
        for name in ('mine', tag):
            self.assertIn(b'REGION_NOT_YOURS', self.local_release(OTHER, name))
        self.assertEqual(self.pool.regions()['mine']['state'], 'ALLOCATED')
        # While the agent does not know yet whose it is, nobody releases anything.
        agent = self.pool.hosts['host-a'].agent
        agent.kill()
        self.pool.manager.kill()
        agent.start()
        wait_until(lambda: b'MANAGER_NOT_HEARD' in self.local_release(OTHER, tag), 20, 'it is asked, and has not heard')
        self.pool.start_manager()
        self.pool.wait_hosts_online()
        self.assertIn(b'REGION_NOT_YOURS', self.local_release(OTHER, 'mine'))
        self.assertEqual(self.local_release(NOBODY, 'mine'), RELEASED)
        wait_until(lambda: 'mine' not in self.pool.regions(), 30, 'it is gone')

    def make(self, name, uid, *flags):
        made = self.as_user(uid, 'pool-write', '--allocate', '256MiB', '--name', name, '--persistent', *flags)
        self.assertEqual(made.status, 0, made.err)

    def local_release(self, uid, name):
        """What the agent answers to a user's Release, as bytes."""
        inner = b''.join(bytes([field << 3 | 2, len(text)]) + text
                         for field, text in ((1, str(uuid.uuid4()).encode()), (2, f'regions/{name}'.encode())))
        request = b'\x08\x01\x22' + bytes([len(inner)]) + inner
        # An agent that has just been started does not listen yet.
        program = ('import socket, sys, time\n'
                   's = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n'
                   'while s.connect_ex(sys.argv[1]) != 0: time.sleep(0.02)\n'
                   's.send(bytes.fromhex(sys.argv[2]))\n'
                   'sys.stdout.buffer.write(s.recv(65536))')
        words = ['setpriv', f'--reuid={uid}', f'--regid={uid}', '--clear-groups', sys.executable, '-c', program,
                 str(self.pool.hosts['host-a'].socket), request.hex()]
        return subprocess.run(words, stdout=subprocess.PIPE, timeout=60, check=True).stdout

    @contextlib.contextmanager
    def holder(self, uid, program, *arguments):
        """A program that goes on using its Region meanwhile."""
        process = subprocess.Popen(['setpriv', f'--reuid={uid}', f'--regid={uid}', '--clear-groups',
                                    self.pool.build / 'bin' / program, *arguments, '--hold', '600'],
                                   env={**os.environ, 'CXLPOOL_SOCKET': str(self.pool.hosts['host-a'].socket)},
                                   stdout=subprocess.PIPE, text=True)
        try:
            self.assertTrue(process.stdout.readline())
            yield
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    def configure(self, applications):
        """host-a's agent, with these lines in and below [applications]."""
        host = self.pool.hosts['host-a']
        host.agent.kill()
        if not hasattr(self, 'original'):
            self.original = host.config.read_text()
            self.addCleanup(lambda: (host.agent.kill(), host.config.write_text(self.original), host.agent.start(),
                                     self.pool.wait_hosts_online()))
        host.config.write_text(self.original.replace('[emulated]', applications + '\n[emulated]', 1))
        host.agent.start()
        self.pool.wait_hosts_online()

    @unittest.skipUnless(os.geteuid() == 0, 'needs root, to run programs as other users')
    def test_every_key_of_applications_does_something(self):
        """From the file to a refused or a granted call: a key that is read and lost on the way is found here."""
        self.pool.cli('tenant', 'set', 'ml')
        self.pool.cli('host', 'enrol', 'host-a', '--tenant', 'ml', '--tenant', 'default')
        self.addCleanup(self.pool.cli, 'host', 'enrol', 'host-a', '--tenant', 'default')

        def verify(uid, name):
            return self.as_user(uid, 'pool-verify', '--region', name).err

        def write(uid, name, *flags):
            return self.as_user(uid, 'pool-write', '--allocate', '256MiB', '--name', name, *flags)

        def tenant(name):
            return self.pool.regions()[name]['tenant']

        self.make('r', NOBODY)
        self.assertIn('was not made by', verify(OTHER, 'r'))

        self.configure(f'allowed_uids = [{NOBODY}]')
        self.assertIn('may not use', verify(OTHER, 'r'))
        self.assertEqual(verify(NOBODY, 'r'), '')
        self.configure('may_open = "tenant"')
        self.assertEqual(verify(OTHER, 'r'), '')
        self.assertIn(b'REGION_NOT_YOURS', self.local_release(OTHER, 'r'))
        self.configure('may_release = "tenant"')
        self.assertIn('was not made by', verify(OTHER, 'r'))
        self.assertEqual(self.local_release(OTHER, 'r'), RELEASED)
        wait_until(lambda: 'r' not in self.pool.regions(), 30, 'it is gone, and its host bridge free')
        self.configure('tenant = "ml"')
        self.make('t', NOBODY)
        self.assertEqual(tenant('t'), 'tenants/ml')

        for most in ('max_connections = 1', 'max_connections_per_uid = 1'):
            self.configure('tenant = "ml"\n' + most)
            with self.holder(NOBODY, 'pool-verify', '--region', 't'):
                self.assertIn('at most', verify(NOBODY, 't'), most)

        def rule(text, whom=f'uids = [{OTHER}]'):
            self.configure(f'[[applications.user]]\n{whom}\n{text}')

        rule('tenant = "ml"\npersistent = true')
        self.make('u', OTHER)
        self.assertEqual(tenant('u'), 'tenants/ml')
        self.assertIn('was not made by', verify(OTHER, 't'))
        rule('tenant = "ml"\nmay_open = "tenant"', f'gids = [{OTHER}]')
        self.assertEqual(verify(OTHER, 't'), '')
        self.assertIn(b'REGION_NOT_YOURS', self.local_release(OTHER, 't'))
        rule('tenant = "ml"\nmay_release = "tenant"')
        self.assertEqual(self.local_release(OTHER, 't'), RELEASED)
        wait_until(lambda: 't' not in self.pool.regions(), 30, 'it is gone')
        rule('may_allocate = false')
        self.assertIn('not allocate any', write(OTHER, 'x').err)
        rule('persistent = false')
        self.assertIn('outlive the process', write(OTHER, 'x', '--persistent').err)
        rule('max_bytes = "100MiB"')  # Less than a granule.
        self.assertIn('max_bytes', write(OTHER, 'x').err)
        rule('max_regions = 1')
        self.pool.release('u')
        with self.holder(OTHER, 'pool-write', '--allocate', '256MiB', '--name', 'x'):
            self.assertIn('max_regions', write(OTHER, 'y').err)
        guide = (REPOSITORY / 'docs/configuration.md').read_text()
        keys = set(re.findall(r'`applications\.((?:user\.)?\w+)`', guide)) - {'user'}
        self.assertEqual(keys, {'socket', 'tenant', 'allowed_uids', 'may_open', 'may_release', 'max_connections',
                                'max_connections_per_uid', 'user.uids', 'user.gids', 'user.tenant', 'user.may_allocate',
                                'user.persistent', 'user.max_bytes', 'user.max_regions', 'user.may_open',
                                'user.may_release'}, 'try a new key here')

    @unittest.skipUnless(os.geteuid() == 0, 'needs root, to run programs as other users')
    def test_its_maker_or_an_operator_says_who_else_opens_it(self):
        made = self.as_user(NOBODY, 'pool-write', '--allocate', '256MiB', '--name', 'ours', '--persistent', '--open-to',
                            f'uid={OTHER}')
        self.assertEqual(made.status, 0, made.err)
        self.assertEqual(self.as_user(OTHER, 'pool-verify', '--region', 'ours').status, 0)
        self.assertEqual(self.as_user(OTHER - 1, 'pool-verify', '--region', 'ours').status, 3)
        for name, flags, may in (('o1', (), ()), ('o2', ('--open-to', f'gid={OTHER}'), (OTHER,)),
                                 ('o3', ('--open-to', 'everybody'), (NOBODY, OTHER))):
            self.pool.allocate(name, '256MiB', 'host-a', *flags)
            self.pool.hosts['host-a'].run(['pool-write', '--region', name])
            for uid in (NOBODY, OTHER):
                status = self.as_user(uid, 'pool-verify', '--region', name).status
                self.assertEqual(status, 0 if uid in may else 3, (name, uid))
            self.pool.release(name)
        self.pool.release('ours')


if __name__ == '__main__':
    main()
