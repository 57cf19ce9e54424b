"""A pool whose records lie on three members of etcd, with managers that stand in for one another."""

import json
import os
import signal
import subprocess
import urllib.request
from pathlib import Path

from .emulated import EmulatedPool
from .pool import free_port
from .process import Daemon, wait_until

LOOPBACK = '127.0.0.1'


def etcd_program():
    """What `qemu-cxl/fetch --with etcd` brings; None: it is not there."""
    cache = os.environ.get('CXLPOOL_CACHE') or os.path.join(os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache', 'cxlpool')
    program = Path(cache) / 'rack/applications/etcd/usr/bin/etcd'
    return program if os.access(program, os.X_OK) else None


class Etcd:
    """Three members on this machine. `pki`: with TLS, and certificates of the authority there, as docs/replicated.md makes them:
    manager-etcd and host-etcd, for what a member is asked and for what it asks the others."""

    def __init__(self, directory: Path, members=3, pki=None):
        self.directory = Path(directory)
        self.pki = pki
        self.clients = [free_port() for _ in range(members)]
        self.endpoints = [f'{LOOPBACK}:{port}' for port in self.clients]
        self.peers = [free_port() for _ in range(members)]
        self.members = [Daemon(f'etcd {n}', self.command(n), self.directory / f'etcd{n}.log') for n in range(members)]

    def command(self, n):
        scheme = 'http' if self.pki is None else 'https'
        client, peer = (f'{scheme}://{LOOPBACK}:{ports[n]}' for ports in (self.clients, self.peers))
        cluster = ','.join(f'm{i}={scheme}://{LOOPBACK}:{port}' for i, port in enumerate(self.peers))
        tls = [] if self.pki is None else [
            '--client-cert-auth', '--trusted-ca-file', self.pki / 'ca.pem', '--cert-file', self.pki / 'manager-etcd.pem',
            '--key-file', self.pki / 'manager-etcd.key', '--client-cert-file', self.pki / 'host-etcd.pem', '--client-key-file',
            self.pki / 'host-etcd.key', '--peer-client-cert-auth', '--peer-trusted-ca-file', self.pki / 'ca.pem', '--peer-cert-file',
            self.pki / 'manager-etcd.pem', '--peer-key-file', self.pki / 'manager-etcd.key', '--peer-client-cert-file',
            self.pki / 'host-etcd.pem', '--peer-client-key-file', self.pki / 'host-etcd.key']
        return [etcd_program(), '--name', f'm{n}', '--data-dir', self.directory / f'etcd{n}', '--listen-client-urls', client,
                '--advertise-client-urls', client, '--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer,
                '--initial-cluster', cluster, '--heartbeat-interval', '50', '--election-timeout', '500', '--snapshot-count', '500',
                '--experimental-snapshot-catchup-entries', '500', '--quota-backend-bytes', str(8 << 30), '--log-level', 'warn', *tls]

    def start(self):
        for member in self.members:
            if not member.running:
                member.start()
        return self

    def leader(self):
        """The number of the member that leads; None: there is none, or it cannot be known."""
        for n, member in enumerate(self.members):
            if not member.running:
                continue
            try:
                with urllib.request.urlopen(f'http://{LOOPBACK}:{self.clients[n]}/v3/maintenance/status', b'{}', timeout=2) as answer:
                    status = json.load(answer)
            except OSError:
                continue
            if status.get('leader') == status['header']['member_id']:
                return n
        return None

    def wait_follower(self):
        """The number of a member that another one leads: when it ends, etcd goes on at once."""
        leads = wait_until(lambda: [n for n in [self.leader()] if n is not None], 20, 'etcd has a leader')[0]
        return (leads + 1) % len(self.members)

    def close(self):
        for member in self.members:
            if member.running:
                member.process.send_signal(signal.SIGKILL)
                member.process.wait()


class ReplicatedManagers:
    """Mixed in before a kind of pool. `managers`: how many; all of them are processes of this machine, as etcd's members are."""

    def __init__(self, build, directory, managers=2, takeover='1500ms', **shape):
        super().__init__(build, directory, **shape)
        self.takeover = takeover
        self.etcd = Etcd(self.directory)
        self.metrics_ports = [free_port() for _ in range(managers)]
        self.listen([free_port() for _ in range(managers)])
        self.managers = []

    def write_manager_config(self):
        self.managers = [self.manager_daemon(f'fm{number}', port, f'''kind = "etcd"
endpoints = {self.etcd.endpoints}
advertise = "{LOOPBACK}:{port}"
takeover = "{self.takeover}"
[metrics]
listen = "{LOOPBACK}:{metrics}"''') for number, (port, metrics) in enumerate(zip(self.ports, self.metrics_ports))]
        self.manager = self.managers[0]

    def start_manager(self, env=None, wait=True):
        self.etcd.start()
        for manager in self.managers:
            manager.start(env)
        if wait:
            self.wait_manager()

    def wait_manager(self):
        wait_until(lambda: self.try_cli('capacity', timeout='2s'), 60, 'a manager leads')

    def daemons(self):
        return [*self.managers, *self.etcd.members]

    def kill_managers(self):
        for manager in self.managers:
            manager.kill()

    def leader(self, timeout='1s'):
        """The number of the manager that serves; None: none does at the moment."""
        for number, manager in enumerate(self.managers):
            if not manager.running:
                continue
            one = subprocess.run(self.cli_command('capacity', timeout=timeout, managers=f'{LOOPBACK}:{self.ports[number]}'),
                                 capture_output=True)
            if one.returncode == 0:
                return number
        return None

    def wait_leader(self, timeout=30):
        return wait_until(lambda: [n for n in [self.leader('100ms')] if n is not None], timeout, 'a manager leads')[0]

    def close(self):
        super().close()
        self.etcd.close()


class ReplicatedPool(ReplicatedManagers, EmulatedPool):
    """Agents are processes of this machine, too."""


def replicated(kind):
    """That kind of pool, with several managers."""
    return type(f'Replicated{kind.__name__}', (ReplicatedManagers, kind), {})
