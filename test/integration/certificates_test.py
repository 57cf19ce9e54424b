"""Certificates end loudly: what is judged before the start, what is said before the end and after it, what a reload
changes and what it leaves alone, and what a revocation ends."""

import json
import re
import shutil
import signal
import subprocess
import threading
import time
from datetime import timedelta

from service_manager_test import NotifySocket
from testbed.certificates import expire, reissue
from testbed.emulated import EmulatedPool
from testbed.process import wait_until
from testbed.testing import BUILD, PoolTest, main

BAD_USAGE, BAD_CONFIG = 2, 78


def run(program, *arguments):
    done = subprocess.run([BUILD / 'bin' / program, *map(str, arguments)], capture_output=True, text=True, timeout=30)
    return done.returncode, done.stdout + done.stderr


class CertificatesTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return EmulatedPool(BUILD, directory, hosts={'host-a': [[1, 2]], 'host-b': [[1, 2]]})

    def setUp(self):
        self.agent = self.pool.hosts['host-a'].agent
        # Whatever a test does to certificates is undone after it.
        saved = self.directory / 'saved-pki'
        shutil.copytree(self.pool.pki, saved)
        self.addCleanup(self.restore, saved)

    def restore(self, saved):
        shutil.rmtree(self.pool.pki)
        shutil.copytree(saved, self.pool.pki)
        shutil.rmtree(saved)
        for daemon in (self.pool.manager, *(host.agent for host in self.pool.hosts.values())):
            if daemon.running:
                daemon.process.send_signal(signal.SIGHUP)
            else:
                daemon.start()
        self.pool.wait_manager()
        self.pool.wait_hosts_online()

    def pki(self, *words):
        return self.pool.run_cli('pki', *words, '--dir', self.pool.pki)

    def edited(self, config, *edits):
        text = config.read_text()
        for old, new in edits:
            self.assertIn(old, text)
            text = text.replace(old, new)
        path = self.directory / 'edited.toml'
        path.write_text(text)
        return path

    def manager_config(self, *edits):
        return self.edited(self.directory / 'fm.toml', *edits)

    def agent_config(self, *edits):
        return self.edited(self.pool.hosts['host-a'].config, *edits)

    def as_operator(self, name, *words):
        command = [w.replace('operator-admin', f'operator-{name}') for w in self.pool.cli_command(*words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def lines(self, daemon, since, word):
        return [line for line in daemon.log.read_text()[since:].splitlines() if word in line]

    def hosts(self):
        return {host['name'].removeprefix('hosts/'): host for host in self.pool.cli('host', 'list')['hosts']}

    # Before the start.

    def test_the_managers_check_says_what_the_manager_says(self):
        port = f'127.0.0.1:{self.pool.port}'
        for edits, status, said in (
                ([('manager-fm', 'operator-admin')], 1, r'fm? *.*tls\.cert: the certificate is for cxlpool://operator/admin'),
                ([('manager-fm', 'host-host-a')], 1, r'tls\.cert: the certificate is for cxlpool://host/host-a'),
                ([('manager-fm.key', 'absent.key')], 1, r'tls\.key: cannot read the private key'),
                ([('ca.pem"\ncert', 'absent.pem"\ncert')], 1, r'tls\.ca: cannot read the CA certificate'),
                ([(port, '127.0.0.1')], BAD_CONFIG, r'listen\[0\]\.address: .*no port'),
                ([(port, '127.0.0.1:99999')], BAD_CONFIG, r'listen\[0\]\.address: .*1 to 65535'),
                ([(f'"{port}"', '"0.0.0.0:7600"\ninsecure = true')], BAD_CONFIG, r'listen\[0\]\.address: .*without TLS'),
                ([('/fabric"', '/fabric"\n[sessions]\nheartbeat = "1ns"')], BAD_CONFIG, r'sessions\.heartbeat: is out of range'),
                ([('/fabric"', '/fabric"\n[sessions]\nlease = "inf"')], BAD_CONFIG, r'sessions\.lease: is out of range'),
                ([('root = "', 'root = "rel')], BAD_CONFIG, r'fabric\.root: is no absolute path'),
                ([('/store/pool.db', '/none/store/pool.db')], 1, r'store\.path: .* cannot be made'),
        ):
            with self.subTest(said):
                config = self.manager_config(*edits)
                checked = run('cxlpool-fm', '--check-config', '--config', config)
                started = run('cxlpool-fm', '--config', config)
                self.assertEqual((checked[0], started[0]), (BAD_USAGE, status), checked[1] + started[1])
                self.assertRegex(checked[1], r'edited\.toml:\d+: ' + said.removeprefix('fm? *.*'))
                self.assertRegex(started[1], r'edited\.toml:\d+: ' + said.removeprefix('fm? *.*'))
        self.assertEqual(run('cxlpool-fm', '--check-config', '--config', self.manager_config()), (0, f'{self.directory}/edited.toml: OK\n'))

    def test_a_wrong_command_line_names_the_program(self):
        for program in ('cxlpool-fm', 'cxlpool-agent'):
            status, said = run(program, '--confg', 'x')
            self.assertEqual(status, BAD_USAGE)
            self.assertTrue(said.startswith(f'{program}: '), said)

    def test_the_agents_checks_say_what_the_agent_says(self):
        for stem, identity in (('host-host-b', 'cxlpool://host/host-b'), ('operator-admin', 'cxlpool://operator/admin'),
                               ('manager-fm', 'cxlpool://manager/fm')):
            with self.subTest(stem):
                config = self.agent_config(('host-host-a.', f'{stem}.'), ('agent.sock', 'other.sock'))
                for words in (['--check-config'], ['check', '--offline'], ['check'], []):
                    status, said = run('cxlpool-agent', *words, '--config', config)
                    self.assertIn(status, (1, BAD_USAGE), said)
                    self.assertIn(f'the certificate is for {identity}', re.sub(r'\s+', ' ', said))
        config = self.agent_config((f'127.0.0.1:{self.pool.port}', '127.0.0.1'))
        self.assertEqual(run('cxlpool-agent', '--check-config', '--config', config)[0], BAD_USAGE)
        self.assertEqual(run('cxlpool-agent', '--config', config)[0], BAD_CONFIG)

    def test_the_agents_check_asks_what_the_session_would_be_told(self):
        log = self.pool.manager.log
        status, said = run('cxlpool-agent', 'check', '--config', self.agent_config())
        self.assertEqual(status, 0, said)
        said = re.sub(r'\s+', ' ', said)
        self.assertIn('takes hosts/host-a as cxlpool://host/host-a; its agent has a session from', said)
        mark = len(log.read_text())
        status, said = run('cxlpool-agent', 'check', '--config', self.agent_config(('/fabric"', '/other-fabric"')))
        self.assertEqual(status, 1, said)
        self.assertIn('other-fabric', said)
        self.pool.wait_hosts_online(5)
        self.assertEqual(self.lines(self.pool.manager, mark, 'host-a'), [])

    # Around the end.

    def test_what_ends_soon_is_said_everywhere(self):
        for stem in ('manager-fm', 'host-host-a', 'operator-admin'):
            role, name = stem.split('-', 1)
            self.pki('renew', role, name, '--days', '9')
        marks = {daemon: len(daemon.log.read_text()) for daemon in (self.pool.manager, self.agent)}
        for daemon in marks:
            daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.lines(self.pool.manager, marks[self.pool.manager], 'manager-fm.pem ends on'), 10, 'the manager warns')
        warning = wait_until(lambda: self.lines(self.agent, marks[self.agent], 'host-host-a.pem ends on'), 10, 'the agent warns')
        self.assertIn('in 8 days (', warning[0])
        self.assertIn('cxlpool pki renew host host-a', warning[0])
        for words in (['cxlpool-fm', '--check-config', '--config', self.directory / 'fm.toml'],
                      ['cxlpool-agent', '--check-config', '--config', self.pool.hosts['host-a'].config],
                      ['cxlpool-agent', 'check', '--config', self.pool.hosts['host-a'].config]):
            status, said = run(*words)
            self.assertEqual(status, 0, said)
            self.assertRegex(re.sub(r'\s+', ' ', said), r'(warning|certificate).* ends on .*in 8 days')
        # A new session shows the new certificate, and the manager says whose it is.
        self.agent.kill()
        self.agent.start()
        self.pool.wait_hosts_online()
        self.assertTrue(self.lines(self.pool.manager, marks[self.pool.manager], 'the certificate of host host-a'))
        host = self.hosts()['host-a']
        shown = json.loads(self.pool.run_cli('-o', 'json', 'pki', 'show', self.pool.pki / 'host-host-a.pem', tls=False))
        self.assertEqual(host['certificate_serial'], shown['serial'])
        self.assertEqual(host['certificate_expire_time'], shown['not_after'])
        table = self.as_operator('admin', 'host', 'list')
        self.assertIn('the certificate of host-a ends on', table.stdout)
        self.assertRegex(table.stderr, r'warning: .*operator-admin\.pem ends on .*in 8 days')

    def test_an_expired_certificate_is_called_that_on_both_sides(self):
        expire(self.pool.pki, 'manager-fm')
        status, said = run('cxlpool-fm', '--check-config', '--config', self.directory / 'fm.toml')
        self.assertEqual(status, BAD_USAGE)
        self.assertRegex(said, r'EXPIRED.*cxlpool pki renew manager fm')
        status, said = run('cxlpool-fm', '--config', self.directory / 'fm.toml')
        self.assertEqual(status, 1)
        self.assertIn('EXPIRED', said)
        # A manager that runs keeps what it has; asked to reload, it says what is wrong.
        mark = len(self.pool.manager.log.read_text())
        self.pool.manager.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.lines(self.pool.manager, mark, 'EXPIRED'), 10, 'the manager refuses the file')
        self.assertIsNotNone(self.pool.cli('host', 'list'))
        # Its certificate ends while it runs: short of that here, a few seconds from now.
        self.pki('renew', 'manager', 'fm')
        reissue(self.pool.pki, 'manager-fm', timedelta(days=-1), timedelta(seconds=3))
        self.pool.manager.process.send_signal(signal.SIGHUP)
        time.sleep(4)
        done = self.as_operator('admin', 'host', 'list')
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r'MANAGER_NOT_TRUSTED')
        self.assertRegex(done.stderr, r'EXPIRED on')
        status, said = run('cxlpool-agent', 'check', '--config', self.pool.hosts['host-a'].config)
        self.assertEqual(status, 1)
        self.assertIn('EXPIRED on', re.sub(r'\s+', ' ', said))
        # The operator's own, and the host's own.
        self.pki('renew', 'manager', 'fm')
        self.pool.manager.process.send_signal(signal.SIGHUP)
        expire(self.pool.pki, 'operator-admin')
        done = self.as_operator('admin', 'host', 'list')
        self.assertRegex(done.stderr, r'EXPIRED.*\n?.*cxlpool pki renew operator admin')
        self.pki('renew', 'operator', 'admin')
        expire(self.pool.pki, 'host-host-a')
        status, said = run('cxlpool-agent', 'check', '--config', self.pool.hosts['host-a'].config)
        self.assertEqual(status, 1)
        self.assertIn('EXPIRED', said)

    def test_an_agent_whose_certificate_ends_says_so_and_comes_back_with_the_new_one(self):
        reissue(self.pool.pki, 'host-host-a', timedelta(days=-1), timedelta(seconds=4))
        mark = len(self.agent.log.read_text())
        self.agent.kill()
        self.agent.start()
        self.pool.wait_hosts_online()
        time.sleep(4)
        self.pool.restart_manager()
        wait_until(lambda: self.lines(self.agent, mark, 'EXPIRED'), 20, 'the agent says that its certificate has expired')
        self.pki('renew', 'host', 'host-a')
        self.pool.wait_hosts_online(15)

    # Reload.

    def test_reloading_drops_nothing_and_serves_the_new_files(self):
        manager, errors, stop = self.pool.manager, [], threading.Event()
        marks = {daemon: len(daemon.log.read_text()) for daemon in (manager, self.agent)}

        def load():
            while not stop.is_set():
                done = self.as_operator('admin', 'capacity')
                if done.returncode:
                    errors.append(done.stderr)
        threads = [threading.Thread(target=load) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(5):
                self.pki('renew', 'manager', 'fm')
                self.pki('renew', 'host', 'host-a')
                manager.process.send_signal(signal.SIGHUP)
                self.agent.process.send_signal(signal.SIGHUP)
                time.sleep(0.3)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertEqual(errors, [])
        for daemon, stem in ((manager, 'manager-fm'), (self.agent, 'host-host-a')):
            self.assertTrue(daemon.running)
            shown = json.loads(self.pool.run_cli('-o', 'json', 'pki', 'show', self.pool.pki / f'{stem}.pem', tls=False))
            wait_until(lambda: self.lines(daemon, marks[daemon], shown['serial']), 10, 'the last one is in use')
        self.assertEqual(self.lines(manager, marks[manager], 'offline'), [])
        # Files that will not do: reported, and not used.
        for text in ('', 'nonsense', (self.pool.pki / 'operator-admin.pem').read_text()):
            (self.pool.pki / 'manager-fm.pem').write_text(text)
            mark = len(manager.log.read_text())
            manager.process.send_signal(signal.SIGHUP)
            wait_until(lambda: self.lines(manager, mark, 'stay in use'), 10, 'the manager refuses the file')
            self.assertIsNotNone(self.pool.cli('host', 'list'))

    def test_a_new_authority_beside_the_old_one(self):
        new = self.directory / 'new-pki'
        self.addCleanup(shutil.rmtree, new)
        for words in (('init',), ('issue', 'manager', 'fm'), ('issue', 'operator', 'admin'), ('issue', 'host', 'host-a'),
                      ('issue', 'host', 'host-b')):
            self.pool.run_cli('pki', *words, '--dir', new)
        daemons = [self.pool.manager, *(host.agent for host in self.pool.hosts.values())]

        def reload(text):
            for daemon in daemons:
                mark = len(daemon.log.read_text())
                daemon.process.send_signal(signal.SIGHUP)
                wait_until(lambda: self.lines(daemon, mark, 'read again'), 10, 'the files are in use')
            self.assertIsNotNone(self.pool.cli('host', 'list'), text)
        ca = self.pool.pki / 'ca.pem'
        ca.write_text(ca.read_text() + (new / 'ca.pem').read_text())
        reload('both are believed')
        for path in new.glob('*-*'):
            shutil.copy(path, self.pool.pki / path.name)
        reload('all show the new')
        shutil.copy(new / 'ca.pem', ca)
        reload('the old one is gone')
        for host in self.pool.hosts.values():
            host.agent.kill()
            host.agent.start()
        self.pool.wait_hosts_online()

    # Revocation.

    def test_an_old_certificate_is_revoked_and_the_new_one_is_not(self):
        self.pki('issue', 'operator', 'carol')
        old = self.directory / 'old-carol'
        for suffix in ('pem', 'key'):
            shutil.copy(self.pool.pki / f'operator-carol.{suffix}', f'{old}.{suffix}')
        old_key = [w.replace(f'{self.pool.pki}/operator-admin', str(old)) for w in self.pool.cli_command('capacity')]
        self.pki('issue', 'operator', 'carol', '--force')
        self.assertEqual(subprocess.run(old_key, capture_output=True, timeout=60).returncode, 0)
        self.pool.cli('certificate', 'revoke', f'{old}.pem', '--reason', 'laptop lost')
        done = subprocess.run(old_key, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertRegex(done.stderr, r'CERTIFICATE_REVOKED')
        self.assertIn('laptop lost', done.stderr)
        self.assertEqual(self.as_operator('carol', 'capacity').returncode, 0)
        self.pool.restart_manager()  # It is durable.
        self.assertIn('CERTIFICATE_REVOKED', subprocess.run(old_key, capture_output=True, text=True, timeout=60).stderr)
        listed = self.pool.cli('certificate', 'list')['revocations']
        self.assertEqual([(r['reason'], r['revoked_by']) for r in listed], [('laptop lost', 'cxlpool://operator/admin')])
        self.pool.cli('certificate', 'restore', listed[0]['subject'])
        self.assertEqual(subprocess.run(old_key, capture_output=True, timeout=60).returncode, 0)

    def test_nobody_revokes_the_certificate_that_he_calls_with_by_mistake(self):
        self.pki('issue', 'operator', 'dave')
        words = ['certificate', 'revoke', str(self.pool.pki / 'operator-dave.pem'), '--reason', 'mine']
        done = self.as_operator('dave', *words)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn('REVOKES_CALLER', done.stderr)
        self.assertEqual(self.as_operator('dave', 'capacity').returncode, 0)
        self.assertEqual(self.as_operator('dave', *words, '--yes').returncode, 0)
        self.assertEqual(self.as_operator('dave', 'capacity').returncode, 7)

    def test_a_host_is_revoked_and_its_session_and_watch_end_at_once(self):
        watch = subprocess.Popen(self.pool.cli_command('-o', 'json', 'region', 'watch', timeout='60s'),
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(watch.communicate)
        self.addCleanup(watch.kill)
        watch.stdout.readline()
        mark = len(self.agent.log.read_text())
        self.pool.cli('certificate', 'revoke', 'cxlpool://host/host-a', '--reason', 'stolen')
        wait_until(lambda: self.hosts()['host-a']['state'] != 'ONLINE', 2, 'its session is over', exactly=True)
        wait_until(lambda: self.lines(self.agent, mark, 'stolen'), 10, 'the agent says why')
        status, said = run('cxlpool-agent', 'check', '--config', self.pool.hosts['host-a'].config)
        self.assertEqual(status, 1)
        self.assertIn('was revoked', re.sub(r'\s+', ' ', said))
        self.assertIsNone(watch.poll())  # Another's goes on.
        self.assertEqual(self.hosts()['host-b']['state'], 'ONLINE')
        self.pool.cli('certificate', 'restore', 'cxlpool://host/host-a')
        self.pool.wait_hosts_online(6)

    # Enrolment.

    def test_an_enrolment_is_noticed_within_five_seconds(self):
        agent = self.pool.hosts['host-b'].agent
        agent.kill()
        self.pool.cli('host', 'retire', 'host-b')
        mark = len(agent.log.read_text())
        with NotifySocket(self.directory / 'enrol.notify') as notify:
            agent.start({'NOTIFY_SOCKET': notify.path})
            status = notify.expect('STATUS=refused: NOT_ENROLLED')[-1]
            self.assertIn('cxlpool host enrol host-b', status)
            time.sleep(6)
            self.assertEqual(len(self.lines(agent, mark, 'refuses this agent')), 1)
            self.pool.cli('host', 'enrol', 'host-b')
            wait_until(lambda: self.hosts()['host-b']['state'] == 'ONLINE', 5.5, 'the enrolment is noticed', exactly=True)
            notify.expect('STATUS=in a session with')


if __name__ == '__main__':
    main()
