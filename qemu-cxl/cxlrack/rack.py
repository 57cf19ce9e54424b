"""A rack of emulated hosts on one pool: brings it up, finds it again from another process, takes it down.

    with Rack.up('two-hosts', directory, image, manager_port=7600) as rack:
        print(rack.host('host-a').output('cxl list'))

Everything is in `directory`: rack.json (what runs, for other processes and for people), pool/ and a folder a host.
QEMU processes outlive the launcher, which knows them by pid and start time.
"""
import json
import os
import shutil
from pathlib import Path
from typing import Mapping

from cxlrack import cpio, machine
from cxlrack import topology as topology_file
from cxlrack.deadline import Deadline, locked
from cxlrack.errors import RackError
from cxlrack.host import BOOT_TIMEOUT_S, Host
from cxlrack.jsonfile import write_json
from cxlrack.topology import Topology

STATE_VERSION = 1

# The port at which a host finds the fabric manager, on machine.FORWARD_ADDRESS (fm.cxlpool in a host).
MANAGER_GUEST_PORT = 7600

_LOCK_TIMEOUT_S = 30.0
_SOCKET_PATH_MAX = 107  # sun_path, less its final zero

Overlay = str | Path | Mapping[str, cpio.Content]


class Rack:
    """Use `up` or `attach`. As a context manager it goes down at the end."""

    def __init__(self, directory: Path, state: dict):
        self.directory = directory
        self._state = state
        self.topology: Topology = topology_file.parse(state['topology'])
        parts = machine.Parts(Path(state['qemu']), Path(state['kernel']))
        forwards = {int(guest): port for guest, port in state['forwards'].items()}
        self.hosts: dict[str, Host] = {}
        for spec in self.topology.hosts:
            paths = machine.HostPaths(directory / spec.name)
            whole = [machine.WholeDevice(d.name, d.size, self.device_path(d.name), self.topology.serial(d))
                     for d in spec.whole]
            self.hosts[spec.name] = Host(spec, paths, machine.arguments(spec, paths, parts, forwards, whole), self._save)

    @staticmethod
    def up(topology: str | Path | dict, directory: str | Path, image: str | Path,
           overlays: Mapping[str, Overlay] | None = None, manager_port: int | None = None, *,
           forwards: Mapping[int, int] | None = None, timeout: float = BOOT_TIMEOUT_S) -> 'Rack':
        """Boots every host of a topology (a file, a name of ../topologies, or its table) and waits until all are ready.

        `overlays`: files for one host, a directory or a mapping of path to content. `manager_port`: the TCP port of
        loopback at which the fabric manager listens or will; hosts find it at fm.cxlpool:7600. `forwards`: guest port
        -> loopback port, for more. On failure nothing is left running; the logs stay.
        """
        directory, image = Path(directory).resolve(), Path(image).resolve()
        table = topology if isinstance(topology, dict) else topology_file.load(topology)
        parsed = topology_file.parse(table)
        parts = _parts(image)
        ports = dict(forwards or {})
        if manager_port is not None:
            ports[MANAGER_GUEST_PORT] = manager_port
        _check_ports(ports)
        for name in overlays or {}:
            parsed.host(name)
        _prepare_directory(directory, parsed)
        with locked(directory / 'lock', Deadline(_LOCK_TIMEOUT_S), 'rack up'):
            _refuse_live(directory)
            rack = Rack(directory, {
                'version': STATE_VERSION, 'topology': table, 'image': str(image),
                'qemu': str(parts.qemu), 'kernel': str(parts.kernel),
                'forwards': {str(guest): port for guest, port in ports.items()}, 'hosts': {},
            })
            try:
                rack._start(image, overlays or {})
                deadline = Deadline(timeout)
                for host in rack.hosts.values():
                    host.wait_ready(deadline.left())
            except BaseException:
                rack._stop()
                raise
        return rack

    @staticmethod
    def attach(directory: str | Path) -> 'Rack':
        """The rack that another process brought up in `directory`."""
        directory = Path(directory).resolve()
        path = directory / 'rack.json'
        try:
            state = json.loads(path.read_text())
        except FileNotFoundError:
            raise RackError(f'there is no rack in {directory} (no rack.json); name another by --dir, '
                            'or: rack up') from None
        except (OSError, ValueError) as e:
            raise RackError(f'{path}: {e}') from e
        if state.get('version') != STATE_VERSION:
            raise RackError(f'{path} has version {state.get("version")}, this launcher knows {STATE_VERSION}: '
                            'take the rack down with the launcher that brought it up')
        return Rack(directory, state)

    def host(self, name: str) -> Host:
        return self.hosts[self.topology.host(name).name]

    def device_path(self, name: str) -> Path:
        """The file that is this pool device."""
        if name not in {device.name for device in self.topology.devices}:
            raise RackError(f'there is no device "{name}" in this rack')
        return self.directory / 'pool' / name

    def down(self) -> None:
        """Ends every host and removes the pool and the sockets. The logs stay."""
        with locked(self.directory / 'lock', Deadline(_LOCK_TIMEOUT_S), 'rack down'):
            self._stop()

    def __enter__(self) -> 'Rack':
        return self

    def __exit__(self, *_) -> None:
        self.down()

    def _start(self, image: Path, overlays: Mapping[str, Overlay]) -> None:
        pool = self.directory / 'pool'
        shutil.rmtree(pool, ignore_errors=True)
        pool.mkdir(mode=0o700)
        for device in self.topology.devices:
            fd = os.open(pool / device.name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            os.truncate(fd, device.size)
            os.close(fd)
        for host in self.hosts.values():
            overlay = overlays.get(host.name, {})
            files = overlay if isinstance(overlay, Mapping) else cpio.from_directory(overlay)
            shutil.rmtree(host.paths.directory, ignore_errors=True)
            host.paths.directory.mkdir(mode=0o700)
            cpio.write_initrd(host.paths.initrd, image, files)
        self._save()
        for host in self.hosts.values():
            host.start()

    def _stop(self) -> None:
        for host in self.hosts.values():
            host.kill()
        shutil.rmtree(self.directory / 'pool', ignore_errors=True)
        logs = ('console.log', 'qemu.log')
        for host in self.hosts.values():
            if host.paths.directory.exists():
                for path in host.paths.directory.iterdir():
                    if path.name not in logs:
                        path.unlink()
        for name in ('rack.json', 'rack.json.lock'):
            (self.directory / name).unlink(missing_ok=True)

    def _save(self) -> None:
        with locked(self.directory / 'rack.json.lock', Deadline(_LOCK_TIMEOUT_S), 'rack.json'):
            self._state['hosts'] = {host.name: self._describe(host) for host in self.hosts.values()}
            self._state['pool'] = [{'name': d.name, 'size': d.size, 'path': str(self.device_path(d.name))}
                                   for d in self.topology.devices]
            write_json(self.directory / 'rack.json', self._state)

    @staticmethod
    def _describe(host: Host) -> dict:
        spec, paths, process = host.spec, host.paths, host.process
        return {
            'pid': process.pid if process else None,
            'start_time': process.start_time if process else None,
            'qmp': str(paths.qmp), 'qmp_ops': str(paths.qmp_ops), 'console': str(paths.console),
            'console_log': str(paths.console_log), 'qemu_log': str(paths.qemu_log),
            'ports': [{'id': spec.port_id(b, p), 'bridge': b, 'slot': spec.slot(b, p)}
                      for b in range(spec.bridges) for p in range(spec.ports)],
        }


def cache_directory() -> Path:
    """Where ../fetch puts the rack's parts."""
    home = os.environ.get('XDG_CACHE_HOME') or str(Path.home() / '.cache')
    return Path(os.environ.get('CXLPOOL_CACHE') or f'{home}/cxlpool') / 'rack'


def _parts(image: Path) -> machine.Parts:
    if not image.is_file():
        raise RackError(f'there is no machine image {image}; make one: qemu-cxl/mkimage --out {image}')
    try:
        kernel = json.loads(image.with_name(image.name + '.json').read_text())['kernel']
    except (OSError, ValueError, KeyError) as e:
        raise RackError(f'{image}.json does not say which kernel the image is for ({e}); '
                        'make it again: qemu-cxl/mkimage') from e
    cache = cache_directory()
    parts = machine.Parts(cache / 'qemu-system-x86_64', cache / 'kernel' / kernel / 'vmlinux')
    for part in (parts.qemu, parts.kernel):
        if not part.exists():
            raise RackError(f'{part} is missing; run: qemu-cxl/fetch --kernel {kernel}')
    if not shutil.which('socat'):
        raise RackError('socat is missing; as root: apt-get install socat')
    return parts


def _check_ports(forwards: Mapping[int, int]) -> None:
    for port in (*forwards, *forwards.values()):
        if not 1 <= port <= 65535:
            raise RackError(f'{port} is not a TCP port')


def _prepare_directory(directory: Path, parsed: Topology) -> None:
    longest = max(len(str(machine.HostPaths(directory / host.name).qmp_evict)) for host in parsed.hosts)
    if longest > _SOCKET_PATH_MAX:
        raise RackError(f'{directory} is too long for a Unix socket in it (by {longest - _SOCKET_PATH_MAX}): '
                        'choose a shorter --dir')
    taken = {'pool', 'lock'} & {host.name for host in parsed.hosts}
    if taken:
        raise RackError(f'a host may not be named {taken.pop()}: the rack has a file of that name')
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def _refuse_live(directory: Path) -> None:
    if not (directory / 'rack.json').exists():
        return
    for host in Rack.attach(directory).hosts.values():
        if host.process and host.process.alive():
            raise RackError(f'a rack is up in {directory} ({host.name} is pid {host.pid}); rack down --dir {directory}, '
                            'or choose another --dir')
