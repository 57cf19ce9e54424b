"""A pool without CXL and without machines: each host is an agent process with the emulated adapter."""

import contextlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .pool import Pool
from .process import Daemon

NOBODY = 65534


@dataclass
class Result:
    status: int
    out: str
    err: str


def mebibytes(size):
    """Of '2GiB' or '256MiB'."""
    return int(size[:-3]) * {'MiB': 1, 'GiB': 1024}[size[-3:]]


class EmulatedHost:
    """One agent process, and what runs beside it."""

    def __init__(self, pool, name, slots_by_bridge):
        self.pool, self.name = pool, name
        self.directory = pool.directory / name
        self.directory.mkdir(exist_ok=True)
        os.chmod(self.directory, 0o755)
        self.socket = self.directory / 'agent.sock'
        self.config = self.directory / 'agent.toml'
        self.config.write_text(f'''
host = "{name}"
adapter = "{pool.driver}"
observe_interval = "500ms"
[manager]
address = "{pool.addresses}"
[tls]
ca = "{pool.pki}/ca.pem"
cert = "{pool.pki}/host-{name}.pem"
key = "{pool.pki}/host-{name}.key"
server_name = "fm.cxlpool"
[applications]
socket = "{self.socket}"
{pool.agent_toml(name, slots_by_bridge)}
''')
        # CXLPOOL_AGENT_BEFORE: the agent of an earlier release, which is to go on working with this manager.
        program = os.environ.get('CXLPOOL_AGENT_BEFORE') or pool.build / 'bin/cxlpool-agent'
        self.agent = Daemon('cxlpool-agent', [program, '--config', self.config],
                            self.directory / 'agent.log')

    def run(self, command, *, user='root', timeout=120):
        """Runs a program beside the agent: a name alone is one of ours. user='app': nobody, if we are root."""
        words = [str(w) for w in command]
        if (self.pool.build / 'bin' / words[0]).exists():
            words[0] = str(self.pool.build / 'bin' / words[0])
        if user != 'root' and os.geteuid() == 0:
            words = ['setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}', '--clear-groups', *words]
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout,
                              env={**os.environ, 'CXLPOOL_SOCKET': str(self.socket)})
        return Result(done.returncode, done.stdout, done.stderr)


    def hold(self, region):
        """A process that has the Region open and stays. The caller kills it and reads the rest of its output."""
        holder = subprocess.Popen([self.pool.build / 'bin/pool-write', '--region', region, '--hold', '300'],
                                  env={**os.environ, 'CXLPOOL_SOCKET': str(self.socket)}, stdout=subprocess.PIPE, text=True)
        assert holder.stdout.readline(), f'pool-write holds {region}'
        return holder


class EmulatedPool(Pool):
    """`hosts`: name -> bridges, each a list of slots. `devices`: id -> size."""

    driver = 'emulated'

    def __init__(self, build, directory, hosts=None, devices=None, granule='256MiB'):
        super().__init__(build, directory)
        self.layout = hosts or {name: [[20 * b + 17, 20 * b + 18] for b in range(8)] for name in ('host-a', 'host-b')}
        self.devices = devices or {'cmm-0': '2GiB', 'cmm-1': '2GiB'}
        self.granule = granule

    def host_names(self):
        return list(self.layout)

    def fabric_toml(self):
        devices = ''.join(f'[[device]]\nid = "{id}"\ncapacity = "{size}"\ngranule = "{self.granule}"\n'
                          for id, size in self.devices.items())
        hosts = ''.join(f'[[host]]\nid = "{name}"\nslots = {sum(bridges, [])}\n' for name, bridges in self.layout.items())
        return f'root = "{self.directory}/fabric"\n{devices}{hosts}'

    def agent_toml(self, name, bridges):
        """The adapter's tables in the configuration of that host's agent."""
        bridges = ''.join(f'[[emulated.bridge]]\nname = "ACPI0016:{index:02x}"\nslots = {slots}\nwindow = "64GiB"\n'
                          for index, slots in enumerate(bridges))
        return f'[emulated]\nroot = "{self.directory}/fabric"\n{bridges}'

    def start(self):
        self.make_pki()
        self.write_manager_config()
        self.start_manager()
        self.enrol_hosts()
        for name, bridges in self.layout.items():
            self.hosts[name] = EmulatedHost(self, name, bridges)
            self.hosts[name].agent.start()
        self.wait_hosts_online()
        return self

    def close(self):
        for host in self.hosts.values():
            host.agent.kill()
        self.kill_managers()

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_):
        self.close()
        shutil.rmtree(self.directory / 'fabric', ignore_errors=True)


class SharedPool(EmulatedPool):
    """Devices that every host sees whole, as files: driver shared, without CXL. `devices`: id -> size of the file."""

    driver = 'shared'

    def __init__(self, build, directory, hosts=('host-a', 'host-b'), devices=None, granule='256MiB'):
        super().__init__(build, directory, {name: [] for name in hosts}, devices or {'cmm-0': '2304MiB', 'cmm-1': '2304MiB'}, granule)
        (self.directory / 'devices').mkdir(exist_ok=True)
        self.files = {id: self.directory / 'devices' / id for id in self.devices}
        for id, path in self.files.items():
            if not path.exists():
                path.touch()
                os.truncate(path, mebibytes(self.devices[id]) << 20)

    def fabric_toml(self):
        first = self.host_names()[0]
        devices = ''.join(f'[[device]]\nid = "{id}"\ngranule = "{self.granule}"\npath = "{first}/{self.files[id]}"\n'
                          f'capacity = "{mebibytes(size) - mebibytes(self.granule)}MiB"\n'
                          for id, size in self.devices.items())
        hosts = ''.join(f'[[host]]\nid = "{name}"\n' for name in self.layout)
        return f'state = "{self.directory}/fabric"\n{devices}{hosts}'

    def agent_toml(self, name, bridges):
        return f'[shared]\nfiles = {[str(path) for path in self.files.values()]}\n'

    def wait_hosts_online(self, timeout=60, **options):
        super().wait_hosts_online(timeout, **options)
        self.wait_devices(timeout)


def pool_of_driver(build, directory, **shape):
    """An EmulatedPool; in a test that is to run on devices that every host sees whole (CXLPOOL_DRIVER=shared), a SharedPool."""
    return (SharedPool if os.environ.get('CXLPOOL_DRIVER') == 'shared' else EmulatedPool)(build, directory, **shape)


def on_a_small_disk(pool):
    """The same pool, with the manager's store on a file system of a few MiB, which only the manager's processes see. As root."""
    write_manager_config = pool.write_manager_config

    def write_config():
        write_manager_config()
        store = pool.directory / 'store'
        store.mkdir(exist_ok=True)
        mount = f'mount -t tmpfs -o size=4m,mode=0700 cxlpool-store {store} && exec "$@"'
        pool.manager.command = ['unshare', '--mount', 'sh', '-c', mount, 'sh', *pool.manager.command]
    pool.write_manager_config = write_config
    return pool


def fill_small_disk(pool):
    """Leaves no space on it. Answers the file that took it."""
    store = Path(f'/proc/{pool.manager.process.pid}/root{pool.directory}/store')
    assert (store / 'pool.db').exists()
    filler = store / 'filler'
    with contextlib.suppress(OSError), filler.open('wb', buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return filler
