"""A running pool: one cxlpool-fm with mutual TLS on a loopback port, its CLI, and hosts.

Subclasses say what the hosts are: processes on this machine (emulated.py) or QEMU machines (rack.py).
"""

import json
import random
import socket
import subprocess
import uuid
from pathlib import Path

from .process import PATIENCE, Daemon, TestbedError, wait_until

GiB, MiB = 1 << 30, 1 << 20
WAIT = f'{90 * PATIENCE}s'  # Of a command, for what it has begun.


class CliError(Exception):
    """The CLI refused: its exit status and what it said on stderr."""

    def __init__(self, arguments, status, stderr):
        super().__init__(f'cxlpool {" ".join(arguments)}: exit {status}: {stderr.strip()}')
        self.status, self.stderr = status, stderr


def free_port():
    """A port to listen on later, and again: below those that the kernel gives to whoever connects, or asks for any."""
    while True:
        port = random.SystemRandom().randrange(10240, 32768)
        with socket.socket() as s:
            try:
                s.bind(('127.0.0.1', port))
                return port
            except OSError:
                continue


def region_id(name):
    return name.removeprefix('regions/')


class Pool:
    """Call start() of a subclass, then use; close() ends everything."""

    driver = ''
    manager_toml = ''  # More of the manager's configuration: tables of its own.

    def __init__(self, build: Path, directory: Path):
        self.build, self.directory = Path(build), Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.listen([free_port()])
        self.pki = self.directory / 'pki'
        self.manager = None
        self.hosts = {}

    # What subclasses say.
    def fabric_toml(self) -> str:
        raise NotImplementedError

    def host_names(self):
        raise NotImplementedError

    def listen(self, ports):
        """Where each manager listens, once its configuration is written."""
        self.ports, self.port = ports, ports[0]
        self.addresses = ','.join(f'127.0.0.1:{port}' for port in ports)  # As the CLI, and agents on this machine, have them.

    # Certificates and configuration.
    def make_pki(self):
        self.run_cli('pki', 'init', '--dir', self.pki)
        self.run_cli('pki', 'issue', 'manager', 'fm', '--dir', self.pki)
        self.run_cli('pki', 'issue', 'operator', 'admin', '--dir', self.pki)
        for host in self.host_names():
            self.run_cli('pki', 'issue', 'host', host, '--dir', self.pki)

    def manager_daemon(self, name, port, store):
        """A manager that listens there, with its configuration in NAME.toml; `store`: the lines of its [store], and more tables."""
        path = self.directory / f'{name}.toml'
        path.write_text(f'''
[[listen]]
address = "127.0.0.1:{port}"
[tls]
ca = "{self.pki}/ca.pem"
cert = "{self.pki}/manager-fm.pem"
key = "{self.pki}/manager-fm.key"
[store]
{store}
[fabric]
driver = "{self.driver}"
{self.fabric_toml()}
{self.manager_toml}
''')
        return Daemon('cxlpool-fm', [self.build / 'bin/cxlpool-fm', '--config', path], self.directory / f'{name}.log')

    def write_manager_config(self):
        store = self.directory / 'store'
        store.mkdir(mode=0o700, exist_ok=True)
        self.manager = self.manager_daemon('fm', self.port, f'path = "{store}/pool.db"')

    # The manager.
    def start_manager(self, env=None, wait=True):
        self.manager.start(env)
        if wait:
            self.wait_manager()

    def wait_manager(self):
        def answers():
            if not self.manager.running:
                raise TestbedError(f'cxlpool-fm ended; log:\n{self.manager.tail()}')
            return self.try_cli('capacity', timeout='2s') is not None
        wait_until(answers, 30, 'the manager answers')

    def daemons(self):
        """What runs for it on this machine, but for hosts."""
        return [self.manager] if self.manager else []

    def kill_managers(self):
        if self.manager:
            self.manager.kill()

    def restart_manager(self, env=None):
        self.manager.kill()
        self.start_manager(env)

    def enrol_hosts(self):
        for host in self.host_names():
            self.cli('host', 'enrol', host)

    def wait_hosts_online(self, timeout=60, **options):
        """`options`: wait_until's."""
        wait_until(lambda: all(h.get('state') == 'ONLINE' for h in self.cli('host', 'list')['hosts']), timeout,
                   'every host is online', **options)

    def wait_devices(self, timeout=60):
        """Shared devices are there once a host has marked them."""
        wait_until(lambda: all(d['state'] == 'READY' for d in self.cli('device', 'list')['devices']), timeout,
                   'every device is there')

    def proofs(self, host):
        """How often the manager has seen that a host reaches each of the shared devices: once in each life of its agent."""
        log = self.manager.log.read_text(errors='replace')
        ids = [device['name'].removeprefix('devices/') for device in self.cli('device', 'list')['devices']]
        return {id: log.count(f'host {host} reaches device {id}\n') for id in ids}

    def wait_proven_anew(self, host, before, timeout=60):
        """Until a host's agent that was started again is known to reach every device. `before`: what proofs() said then."""
        wait_until(lambda: all(count > before[id] for id, count in self.proofs(host).items()), timeout,
                   f'{host} reaches every device')

    # The operator.
    def cli_command(self, *arguments, timeout='20s', managers=None):
        return [str(self.build / 'bin/cxlpool'), '--manager', managers or self.addresses, '--ca', f'{self.pki}/ca.pem',
                '--cert', f'{self.pki}/operator-admin.pem', '--key', f'{self.pki}/operator-admin.key',
                '--timeout', timeout, *map(str, arguments)]

    def run_cli(self, *arguments, timeout='20s', limit=180 * PATIENCE, tls=True):
        command = self.cli_command(*arguments, timeout=timeout)
        if arguments[0] == 'pki' or not tls:
            command = [command[0], *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        if done.returncode != 0:
            raise CliError([str(a) for a in arguments], done.returncode, done.stderr)
        return done.stdout

    def spawn_cli(self, *arguments, timeout='60s'):
        """Starts one command, which retries by itself for as long as `timeout`; see finish_cli."""
        return subprocess.Popen(self.cli_command('-o', 'json', *arguments, timeout=timeout), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    @staticmethod
    def finish_cli(process, limit=120 * PATIENCE):
        """What a command of spawn_cli answered, as cli() would."""
        out, err = process.communicate(timeout=limit)
        if process.returncode != 0:
            raise CliError(process.args[11:], process.returncode, err)
        return json.loads(out) if out.strip() else None

    def cli(self, *arguments, **options):
        """Runs one command; its JSON answer."""
        out = self.run_cli('-o', 'json', *arguments, **options)
        return json.loads(out) if out.strip() else None

    def try_cli(self, *arguments, **options):
        """The same; None instead of a CliError."""
        try:
            return self.cli(*arguments, **options)
        except (CliError, ValueError):
            return None

    def regions(self):
        return {region_id(r['name']): r for r in self.cli('region', 'list').get('regions', [])}

    def allocate(self, name, size, host=None, *flags, wait=True):
        arguments = ['region', 'allocate', name, '--size', size]
        if host:
            arguments += ['--host', host]
        if wait:
            arguments += ['--wait', '--wait-timeout', WAIT]
        return self.cli(*arguments, *flags)

    def agent_logs(self):
        """(host, its agent's last lines) where they are no file of the pool's directory."""
        return []

    def release(self, name, *flags, wait=True):
        waiting = ['--wait', '--wait-timeout', WAIT] if wait else []
        return self.cli('region', 'release', name, '--detach-all', *waiting, *flags)

    def release_all(self):
        """Until there is no Region. One that is on its way may end between the list and the call."""
        for name in self.regions():
            try:
                self.release(name)
            except CliError as e:
                if 'UNKNOWN_REGION' not in str(e):
                    raise

    def attachment(self, name, host):
        """The Attachment of `name` on `host`, or None."""
        region = self.regions().get(name)
        for attachment in (region or {}).get('attachments', []):
            if attachment['host'] == f'hosts/{host}':
                return attachment
        return None

    @staticmethod
    def request_id():
        return str(uuid.uuid4())
