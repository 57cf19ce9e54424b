"""Who may speak for whom: each wrong agent and wrong caller is refused with its reason."""

import socket
import ssl
import subprocess

from testbed.emulated import EmulatedPool
from testbed.pool import CliError
from testbed.process import Daemon, wait_until
from testbed.testing import BUILD, PoolTest, main


class IdentityTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return EmulatedPool(BUILD, directory, hosts={'host-a': [[1, 2]], 'host-b': [[1, 2]]})

    def second_agent(self, host, edit):
        """An agent for `host` with an edited configuration; its log once it was refused."""
        original = self.pool.hosts[host]
        config = self.directory / 'second.toml'
        text = original.config.read_text().replace(str(original.socket), str(self.directory / 'second.sock'))
        config.write_text(edit(text))
        agent = Daemon('second agent', [BUILD / 'bin/cxlpool-agent', '--config', config], self.directory / 'second.log')
        agent.log.write_text('')
        agent.start()
        return agent

    def assert_refused(self, agent, reason):
        try:
            wait_until(lambda: reason in agent.log.read_text(), 20, f'the agent is refused with {reason}')
        finally:
            agent.kill()

    def test_a_second_agent_of_one_host(self):
        agent = self.second_agent('host-a', lambda text: text)
        self.assert_refused(agent, 'another agent of host')
        self.pool.wait_hosts_online(5)

    def test_the_certificate_of_another_host(self):
        agent = self.second_agent('host-a', lambda text: text.replace('host-host-a', 'host-host-b'))
        self.assert_refused(agent, 'the certificate is for cxlpool://host/host-b')

    def test_a_retired_host(self):
        self.pool.hosts['host-b'].agent.kill()
        self.pool.cli('host', 'retire', 'host-b')
        agent = self.pool.hosts['host-b'].agent
        agent.log.write_text('')
        agent.start()
        wait_until(lambda: 'no host in service is enrolled as' in agent.log.read_text(), 20, 'the retired host is refused')
        agent.kill()
        self.pool.cli('host', 'enrol', 'host-b')
        agent.start()
        self.pool.wait_hosts_online()

    def test_a_host_that_nobody_enrolled(self):
        self.pool.run_cli('pki', 'issue', 'host', 'host-x', '--dir', self.pool.pki)
        agent = self.second_agent('host-a', lambda text: text.replace('host = "host-a"', 'host = "host-x"')
                                  .replace('host-host-a', 'host-host-x')
                                  .replace('fabric"', 'fabric-x"'))
        (self.directory / 'fabric-x/hosts/host-x').mkdir(parents=True, exist_ok=True)
        for slot in (1, 2):
            (self.directory / f'fabric-x/hosts/host-x/slot-{slot}').mkdir(exist_ok=True)
        self.assert_refused(agent, 'no host in service is enrolled as cxlpool://host/host-x')

    def test_a_hosts_certificate_may_not_operate_the_pool(self):
        command = self.pool.cli_command('device', 'list')
        command = [word.replace('operator-admin', 'host-host-a') for word in command]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertIn('ROLE_NOT_ALLOWED', done.stderr)

    def test_a_certificate_of_another_authority(self):
        other = self.directory / 'other-pki'
        self.pool.run_cli('pki', 'init', '--dir', other)
        self.pool.run_cli('pki', 'issue', 'operator', 'admin', '--dir', other)
        # Our own client would not even dial with it; a stranger's would.
        context = ssl.create_default_context(cafile=str(self.pool.pki / 'ca.pem'))
        context.load_cert_chain(other / 'operator-admin.pem', other / 'operator-admin.key')
        context.set_alpn_protocols(['h2'])
        with socket.create_connection(('127.0.0.1', self.pool.port), timeout=10) as plain:
            with self.assertRaises((ssl.SSLError, ConnectionResetError)):
                with context.wrap_socket(plain, server_hostname='fm.cxlpool') as secure:
                    self.assertEqual(secure.recv(1), b'', 'the manager talks to a stranger')
                    raise ConnectionResetError
        command = [word.replace(f'{self.pool.pki}/operator', f'{other}/operator')
                   for word in self.pool.cli_command('region', 'list', timeout='3s')]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn('was not issued by the authority', done.stderr)

    def test_no_certificate_at_all(self):
        with self.assertRaises(CliError):
            command = [str(BUILD / 'bin/cxlpool'), '--manager', f'127.0.0.1:{self.pool.port}', '--insecure',
                       '--timeout', '3s', 'region', 'list']
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            raise CliError(command, done.returncode, done.stderr) if done.returncode else AssertionError(done.stdout)


if __name__ == '__main__':
    main()
