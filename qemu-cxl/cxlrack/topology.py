"""A rack's topology: its pool devices and its hosts, as a TOML file says. The schema is in ../README.md.

Everything here is pure but `load`. Sizes are bytes.
"""
import dataclasses
import math
import re
import tomllib
from pathlib import Path

from cxlrack.errors import RackError

MIB = 1 << 20
GIB = 1 << 30

# Linux makes CXL regions, and CFMWS has windows, in multiples of this.
CXL_GRANULE = 256 * MIB

_UNITS = {'MiB': MIB, 'GiB': GIB, 'TiB': 1 << 40}
_NAME = re.compile(r'[a-z][a-z0-9-]{0,31}$')
_FIRST_BUS = 12
_LAST_BUS = 255
_PORTS_PER_CPU = 128
MAX_BRIDGES = 16
MAX_PORTS = 20
GRANULARITIES = (256, 512, 1024, 2048, 4096, 8192, 16384)


class TopologyError(RackError):
    """The file is not a topology. The message names the place in it."""


@dataclasses.dataclass(frozen=True)
class Device:
    """A memory device of the pool: a file on this machine."""
    name: str
    size: int


@dataclasses.dataclass(frozen=True)
class Window:
    """A CXL fixed memory window: host physical address space that leads to these host bridges."""
    bridges: tuple[int, ...]
    size: int
    granularity: int = 256  # bytes; matters with two bridges or more


@dataclasses.dataclass(frozen=True)
class HostSpec:
    """One host: `bridges` CXL host bridges, each with a root port and a switch of `ports` downstream ports.

    Slot numbers are unique in the host: the fabric manager and the host agent meet on them.
    """
    name: str
    bridges: int
    ports: int
    memory: int
    cpus: int
    windows: tuple[Window, ...]
    whole: tuple[Device, ...] = ()  # devices that the host is booted with, each as one memory device
    kernel: str = ''  # further words of the kernel's command line

    def bus_number(self, bridge: int) -> int:
        """The host bridge's own bus. After it: the root port's, the switch's inner one, one a downstream port."""
        return _FIRST_BUS + bridge * (self.ports + 3)

    def root_port_slot(self, bridge: int) -> int:
        return 1 + bridge

    def slot(self, bridge: int, port: int) -> int:
        """The PCIe slot number of a downstream port, as in /sys/bus/pci/slots."""
        return MAX_BRIDGES + 1 + MAX_PORTS * bridge + port

    def whole_port(self, index: int) -> tuple[int, int]:
        """Bridge and port of the i-th whole device: one a bridge, then the next port of each."""
        return index % self.bridges, index // self.bridges

    def port_id(self, bridge: int, port: int) -> str:
        """The QMP id of a downstream port: the `bus` of a device_add."""
        return f'p{bridge}_{port}'


@dataclasses.dataclass(frozen=True)
class Topology:
    devices: tuple[Device, ...]
    hosts: tuple[HostSpec, ...]

    def serial(self, device: Device) -> int:
        """What a whole device shows as its serial number, the same on every host."""
        return 0x77 + self.devices.index(device)

    def host(self, name: str) -> HostSpec:
        for host in self.hosts:
            if host.name == name:
                return host
        raise RackError(f'there is no host "{name}" in this rack; it has {", ".join(h.name for h in self.hosts)}')


def load(path: str | Path) -> dict:
    """The file's table, not yet checked: `parse` does that. A bare name means one of ../topologies."""
    path = Path(path)
    if path.suffix == '' and not path.exists():
        named = Path(__file__).resolve().parent.parent / 'topologies' / f'{path}.toml'
        if not named.exists():
            known = ', '.join(sorted(p.stem for p in named.parent.glob('*.toml')))
            raise TopologyError(f'topology {path}: neither a file nor one of {known}')
        path = named
    try:
        with open(path, 'rb') as f:
            return tomllib.load(f)
    except (OSError, tomllib.TOMLDecodeError) as e:
        raise TopologyError(f'topology {path}: {e}') from e


def parse(table: dict) -> Topology:
    """Checks every field; TopologyError names the first that is wrong."""
    top = _Table(table, 'the topology')
    devices = tuple(_device(t) for t in top.tables('device'))
    hosts = tuple(_host(t, devices) for t in top.tables('host'))
    top.done()
    if not hosts:
        raise TopologyError('the topology has no [[host]]')
    for kind, items in (('device', devices), ('host', hosts)):
        names = [item.name for item in items]
        for name in names:
            if names.count(name) > 1:
                raise TopologyError(f'two {kind}s are named "{name}"')
    return Topology(devices, hosts)


def parse_size(text: object, where: str) -> int:
    """"512 MiB" and the like, as bytes."""
    match = re.fullmatch(r'(\d{1,9}) ?(MiB|GiB|TiB)', text) if isinstance(text, str) else None
    if not match or int(match[1]) == 0:
        raise TopologyError(f'{where}: {text!r} is not a size; write one like "2 GiB" (MiB, GiB, TiB)')
    return int(match[1]) * _UNITS[match[2]]


class _Table:
    """A TOML table that is read field by field and then must be empty: a misspelt field is an error."""

    def __init__(self, table: object, where: str):
        if not isinstance(table, dict):
            raise TopologyError(f'{where} is not a table')
        self._rest = dict(table)
        self.where = where

    def take(self, field: str, default=None):
        if field not in self._rest and default is None:
            raise TopologyError(f'{self.where} has no "{field}"')
        return self._rest.pop(field, default)

    def name(self) -> str:
        name = self.take('name')
        if not isinstance(name, str) or not _NAME.match(name):
            raise TopologyError(f'{self.where}: {name!r} is not a name: lower-case letters, digits, dashes, up to 32')
        self.where = f'{self.where} "{name}"'
        return name

    def number(self, field: str, low: int, high: int, default: int | None = None) -> int:
        return self.in_range(field, self.take(field, default), low, high)

    def in_range(self, field: str, value: object, low: int, high: int) -> int:
        if type(value) is not int or not low <= value <= high:
            raise TopologyError(f'{self.where}: {field} is {value!r}; it must be from {low} to {high}')
        return value

    def size(self, field: str, multiple: int, default: str | None = None) -> int:
        size = parse_size(self.take(field, default), f'{self.where}: {field}')
        if size % multiple:
            raise TopologyError(f'{self.where}: {field} must be a multiple of {multiple // MIB} MiB')
        return size

    def tables(self, field: str) -> list['_Table']:
        value = self._rest.pop(field, [])
        if not isinstance(value, list):
            raise TopologyError(f'{self.where}: write [[{field}]], not [{field}]')
        return [_Table(item, field) for item in value]

    def done(self) -> None:
        if self._rest:
            raise TopologyError(f'{self.where} has a field "{next(iter(self._rest))}" that is not known')


def _device(table: _Table) -> Device:
    device = Device(table.name(), table.size('size', CXL_GRANULE))
    table.done()
    return device


def _host(table: _Table, devices: tuple[Device, ...]) -> HostSpec:
    name = table.name()
    bridges = table.number('bridges', 1, MAX_BRIDGES)
    ports = table.number('ports', 1, MAX_PORTS)
    window = table.size('window', CXL_GRANULE, '8 GiB')
    windows = [Window((bridge,), window) for bridge in range(bridges)]
    windows += [_interleave(t, bridges) for t in table.tables('interleave')]
    memory, cpus = table.size('memory', MIB, '1 GiB'), table.number('cpus', 1, 16, 1)
    whole = _whole(table, devices, bridges * ports)
    kernel = table.take('kernel', '')
    if not isinstance(kernel, str) or not kernel.isprintable():
        raise TopologyError(f'{table.where}: kernel is {kernel!r}; it must be words for the kernel')
    host = HostSpec(name, bridges, ports, memory, cpus, tuple(windows), whole, kernel)
    table.done()
    if host.bus_number(bridges) - 1 > _LAST_BUS:
        raise TopologyError(f'{table.where}: {bridges} bridges of {ports} ports need more PCI buses than there are; '
                            f'bridges x (ports + 3) may be {_LAST_BUS + 1 - _FIRST_BUS} at most')
    # A processor has about 220 interrupt vectors to give, and every port wants one.
    needed = math.ceil(bridges * (ports + 1) / _PORTS_PER_CPU)
    if cpus < needed:
        raise TopologyError(f'{table.where}: {bridges} bridges of {ports} ports need {needed} cpus, one for '
                            f'{_PORTS_PER_CPU} root and downstream ports: a cpu cannot take the interrupts of more')
    return host


def _whole(table: _Table, devices: tuple[Device, ...], ports: int) -> tuple[Device, ...]:
    names = table.take('whole', [])
    known = {device.name: device for device in devices}
    if not isinstance(names, list) or any(not isinstance(name, str) or name not in known for name in names):
        raise TopologyError(f'{table.where}: whole is {names!r}; it must list names of [[device]]s')
    if len(set(names)) != len(names):
        raise TopologyError(f'{table.where}: a device stands twice in {names}')
    if len(names) > ports:
        raise TopologyError(f'{table.where}: {len(names)} whole devices need as many ports; it has {ports}')
    return tuple(known[name] for name in names)


def _interleave(table: _Table, bridges: int) -> Window:
    targets = table.take('bridges')
    if not isinstance(targets, list) or len(targets) not in (2, 4, 8, 16):
        raise TopologyError(f'{table.where}: bridges is {targets!r}; it must list 2, 4, 8 or 16 host bridges')
    for target in targets:
        table.in_range('bridges', target, 0, bridges - 1)
    if len(set(targets)) != len(targets):
        raise TopologyError(f'{table.where}: a bridge stands twice in {targets}')
    granularity = table.take('granularity', 256)
    if granularity not in GRANULARITIES:
        raise TopologyError(f'{table.where}: granularity is {granularity!r}; it must be one of '
                            f'{", ".join(map(str, GRANULARITIES))}')
    window = Window(tuple(targets), table.size('size', CXL_GRANULE * len(targets), '8 GiB'), granularity)
    table.done()
    return window
