"""Roles, given and taken away by the command, as the people and programs who have them meet them."""

import subprocess
import time

from testbed.emulated import EmulatedPool
from testbed.pool import CliError, free_port
from testbed.process import wait_until
from testbed.testing import BUILD, PoolTest, main

WHY = ('--reason', 'of a test')


class AccessTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        cls.token_port = free_port()
        pool = EmulatedPool(BUILD, directory, hosts={'host-a': [[1, 2, 3, 4]]})
        pool.manager_toml = f'[[listen]]\naddress = "127.0.0.1:{cls.token_port}"\ntokens = true'
        return pool

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name in ('vic', 'otto', 'guard'):
            cls.pool.run_cli('pki', 'issue', 'operator', name, '--dir', cls.pool.pki)

    def setUp(self):
        super().setUp()
        self.addCleanup(self.pool.release_all)
        self.addCleanup(self.end_roles)
        self.assertEqual(self.pool.run_cli('access', 'list'),
                         "no role is bound: each certificate of an operator is an admin's\n")
        self.pool.cli('access', 'grant', 'admin', '--role', 'admin', *WHY)

    def end_roles(self):
        """The admin's is the last: while there are others he has to stay."""
        bound = [b['identity'] for b in self.pool.cli('access', 'list').get('role_bindings', [])]
        for identity in sorted(bound, key=lambda i: i.endswith('/admin')):
            self.pool.cli('access', 'revoke', identity)

    def command(self, name, *words):
        return [w.replace('operator-admin', f'operator-{name}') for w in self.pool.cli_command(*words)]

    def by(self, name, *words):
        """What the command of that operator prints; CliError as from the pool's own."""
        done = subprocess.run(self.command(name, *words), capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise CliError(words, done.returncode, done.stderr)
        return done.stdout

    def refused(self, name, reason, *words):
        with self.assertRaisesRegex(CliError, reason) as refused:
            self.by(name, *words)
        self.assertEqual(refused.exception.status, 7)
        return str(refused.exception)

    def test_each_role_does_what_it_may(self):
        self.assertIn('cxlpool access grant cxlpool://operator/vic --role ROLE --reason WHY',
                      self.refused('vic', 'NO_ROLE', 'region', 'list'))
        self.pool.cli('access', 'grant', 'vic', '--role', 'viewer', *WHY)
        self.pool.cli('access', 'grant', 'otto', '--role', 'operator', *WHY)
        self.assertEqual(self.by('vic', 'access', 'whoami'), 'cxlpool://operator/vic viewer\n')
        self.by('vic', 'doctor')
        said = self.refused('vic', 'ROLE_NOT_ALLOWED', 'region', 'allocate', 'kv', '--size', '256MiB')
        self.assertIn('has the role VIEWER and may not call AllocateRegion', said)
        self.by('otto', 'region', 'allocate', 'kv', '--size', '256MiB', '--host', 'host-a', '--wait')
        self.refused('vic', 'ROLE_NOT_ALLOWED', 'region', 'release', 'kv', '--detach-all')
        self.assertIn('let an admin do it', self.refused(
            'otto', 'ROLE_NOT_ALLOWED', 'region', 'release', 'kv', '--force', '--fence', '--reason', 'x', '--yes'))
        self.refused('otto', 'ROLE_NOT_ALLOWED', 'host', 'fence', 'host-a', '--reason', 'x', '--yes')
        self.refused('otto', 'ROLE_NOT_ALLOWED', 'access', 'grant', 'otto', '--role', 'admin', *WHY)
        table = self.by('vic', 'access', 'list').splitlines()
        self.assertRegex(table[0], r'^IDENTITY +ROLE +TENANTS +UNTIL +BOUND +BY +REASON$')
        self.assertRegex(table[2], r'^cxlpool://operator/otto +operator +- +- +20\S+Z +cxlpool://operator/admin +of a test$')
        self.by('otto', 'region', 'release', 'kv', '--detach-all', '--wait')

    def test_a_tenant_has_its_own_and_hears_of_nothing_else(self):
        for tenant in ('ml', 'db'):
            self.pool.cli('tenant', 'set', tenant, '--quota', '1GiB')
            self.addCleanup(self.pool.cli, 'tenant', 'remove', tenant)
        self.pool.cli('host', 'enrol', 'host-a', '--tenant', 'default', '--tenant', 'ml')
        self.addCleanup(self.pool.cli, 'host', 'enrol', 'host-a', '--tenant', 'default')
        self.pool.cli('access', 'grant', 'otto', '--role', 'tenant', '--tenant', 'ml', *WHY)
        self.pool.cli('access', 'grant', 'guard', '--role', 'scheduler', '--tenant', 'ml', *WHY)
        self.addCleanup(self.end_roles)
        self.addCleanup(self.pool.release_all)
        self.pool.cli('region', 'allocate', 'db.secret', '--tenant', 'db', '--size', '256MiB')
        self.assertEqual(self.by('otto', 'access', 'whoami'), 'cxlpool://operator/otto tenant of tenants/ml\n')
        self.by('otto', 'region', 'allocate', 'ml.kv', '--tenant', 'ml', '--size', '256MiB', '--host', 'host-a', '--wait')
        self.assertNotIn('secret', self.by('otto', 'region', 'list'))
        self.assertIn('ml.kv', self.by('otto', '-o', 'name', 'region', 'list'))
        self.assertNotIn('ml.kv', self.by('guard', '-o', 'name', 'region', 'list'))
        for words, status in ((('region', 'get', 'db.secret'), 3), (('tenant', 'get', 'db'), 3)):
            with self.assertRaises(CliError) as refused:
                self.by('otto', *words)
            self.assertEqual(refused.exception.status, status, words)
        self.refused('otto', 'NAME_NOT_YOURS', 'region', 'allocate', 'kv', '--tenant', 'ml', '--size', '256MiB')
        self.refused('otto', 'ROLE_NOT_ALLOWED', 'host', 'list')
        self.refused('otto', 'ROLE_NOT_ALLOWED', 'explain', 'host/host-a')
        with self.assertRaisesRegex(CliError, 'UNKNOWN_REGION'):
            self.by('otto', 'explain', 'region/db.secret')
        self.assertNotIn('secret', self.by('otto', 'doctor'))
        self.by('otto', 'region', 'release', 'ml.kv', '--detach-all', '--wait')
        with self.assertRaisesRegex(CliError, 'TENANT_HAS_ROLES'):
            self.pool.cli('tenant', 'remove', 'ml')

    def test_a_role_ends_by_itself_and_with_it_what_stands(self):
        self.pool.cli('access', 'grant', 'guard', '--role', 'viewer', '--for', '4s', *WHY)
        watch = subprocess.Popen(self.command('guard', 'region', 'watch'), stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True)
        self.addCleanup(watch.kill)
        began = time.monotonic()
        _, err = watch.communicate(timeout=60)
        self.assertIn('NO_ROLE', err)
        self.assertIn('it ended at ', err)
        self.assertLess(time.monotonic() - began, 30)

    def test_a_program_without_a_certificate_shows_a_token(self):
        file = self.directory / 'ci.token'
        file.write_text(self.pool.run_cli('token', 'create', 'ci', '--role', 'viewer', '--ttl', '1h', *WHY))
        file.chmod(0o600)
        token = file.read_text().strip()
        self.assertRegex(token, r'^cxlpool\.ci\.[A-Za-z0-9_-]{43}$')
        self.assertNotIn(token, self.pool.run_cli('-o', 'json', 'token', 'list'))

        def by_token(*words, port=self.token_port, **more):
            command = [str(BUILD / 'bin/cxlpool'), '--manager', f'127.0.0.1:{port}', '--ca', f'{self.pool.pki}/ca.pem', *words]
            return subprocess.run(command, capture_output=True, text=True, timeout=60,
                                  env={'CXLPOOL_TOKEN_FILE': str(file), 'PATH': '/usr/bin:/bin', **more})

        self.assertEqual(by_token('access', 'whoami').stdout, 'cxlpool://token/ci viewer\n')
        self.assertIn('has the role VIEWER and may not call', by_token('region', 'allocate', 'kv', '--size', '256MiB').stderr)
        elsewhere = by_token('capacity', '--timeout', '3s', port=self.pool.port)
        self.assertIn('CERTIFICATE_REFUSED', elsewhere.stderr)
        file.chmod(0o644)
        self.assertIn('cxlpool token revoke NAME', by_token('capacity').stderr)
        file.chmod(0o600)
        # A certificate on the command line is who the caller means to be; a token file there, too.
        both = subprocess.run(self.pool.cli_command('--token-file', file, 'access', 'whoami'), capture_output=True, text=True)
        self.assertEqual(both.stdout, 'cxlpool://token/ci viewer\n')
        watch = subprocess.Popen(self.pool.cli_command('--token-file', file, 'region', 'watch'), stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True)
        self.addCleanup(watch.kill)
        self.pool.restart_manager()
        self.assertEqual(by_token('access', 'whoami').stdout, 'cxlpool://token/ci viewer\n')
        self.assertEqual(self.pool.run_cli('token', 'revoke', 'ci'), 'cxlpool://token/ci has no role now\n')
        self.assertIn('BAD_TOKEN', watch.communicate(timeout=60)[1])
        self.assertIn('BAD_TOKEN', by_token('capacity').stderr)
        self.assertNotIn(token.split('.')[2], self.pool.manager.log.read_text())

    def test_roles_outlive_the_manager(self):
        self.pool.cli('access', 'grant', 'vic', '--role', 'viewer', '--for', '1h', *WHY)
        before = self.pool.cli('access', 'list')
        self.pool.restart_manager()
        self.assertEqual(self.pool.cli('access', 'list'), before)
        self.refused('otto', 'NO_ROLE', 'region', 'list')
        self.refused('vic', 'ROLE_NOT_ALLOWED', 'host', 'retire', 'host-a', '--yes')

    def test_nobody_is_locked_out(self):
        with self.assertRaisesRegex(CliError, 'LAST_ADMIN'):
            self.pool.cli('access', 'grant', 'admin', '--role', 'operator', *WHY)
        self.pool.cli('access', 'grant', 'vic', '--role', 'viewer', *WHY)
        with self.assertRaisesRegex(CliError, 'LAST_ADMIN'):
            self.pool.cli('access', 'revoke', 'admin')
        # An identity of the configuration is an admin whatever is bound.
        config = self.directory / 'fm.toml'
        text = config.read_text()
        self.addCleanup(self.pool.restart_manager)
        self.addCleanup(config.write_text, text)
        config.write_text(text + '[access]\nadmins = ["cxlpool://operator/guard"]\n')
        self.pool.restart_manager()
        self.assertEqual(self.by('guard', 'access', 'whoami'), 'cxlpool://operator/guard admin\n')
        self.by('guard', 'access', 'revoke', 'vic')
        wait_until(lambda: self.pool.cli('host', 'list')['hosts'][0]['state'] == 'ONLINE', 30, 'agents need no role')


if __name__ == '__main__':
    main()
