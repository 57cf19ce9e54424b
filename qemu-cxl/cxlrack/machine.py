"""The QEMU command line of one host. Pure: paths and a topology in, arguments out."""
import dataclasses
from pathlib import Path
from typing import Sequence

from cxlrack.topology import MIB, HostSpec

# How many commands can run in a host at once; each has a virtio-serial port of its own.
EXEC_CHANNELS = 8

GUEST_ADDRESS = '10.0.2.15'
FORWARD_ADDRESS = '10.0.2.100'

# What a guest that boots in an emulated processor can do without: seconds.
_FAST_BOOT = (
    'mitigations=off nokaslr nowatchdog tsc=reliable no_timer_check cryptomgr.notests rcupdate.rcu_expedited=1 '
    'random.trust_cpu=on audit=0 apparmor=0 8250.nr_uarts=1 i8042.noaux i8042.nokbd noresume')


@dataclasses.dataclass(frozen=True)
class HostPaths:
    """The files of one host, all in its own directory."""
    directory: Path

    @property
    def initrd(self) -> Path:
        return self.directory / 'initrd'

    @property
    def qmp(self) -> Path:
        """The fabric manager's QMP socket. A QMP socket serves one client: the launcher keeps off this one."""
        return self.directory / 'qmp'

    @property
    def qmp_evict(self) -> Path:
        """By which a fabric manager evicts another one from that socket."""
        return self.directory / 'qmp.evict'

    @property
    def qmp_ops(self) -> Path:
        """The launcher's QMP socket."""
        return self.directory / 'qmp-ops'

    @property
    def console(self) -> Path:
        """A socket: an interactive root shell on the serial console."""
        return self.directory / 'console'

    @property
    def process(self) -> Path:
        """Which process its QEMU is, as JSON: pid and start time."""
        return self.directory / 'process.json'

    @property
    def console_log(self) -> Path:
        return self.directory / 'console.log'

    @property
    def qemu_log(self) -> Path:
        return self.directory / 'qemu.log'

    def exec_pipe(self, channel: int) -> Path:
        """QEMU's name for two FIFOs, this with .in and with .out."""
        return self.directory / f'exec.{channel}'


@dataclasses.dataclass(frozen=True)
class Parts:
    """What a rack is made of: see ../fetch."""
    qemu: Path
    kernel: Path


@dataclasses.dataclass(frozen=True)
class WholeDevice:
    """A pool device that a host has from its boot on, whole: as a multi-headed device shows itself to each of its hosts."""
    name: str
    size: int
    path: Path
    serial: int


def arguments(host: HostSpec, paths: HostPaths, parts: Parts, forwards: dict[int, int],
              whole: Sequence[WholeDevice] = ()) -> list[str]:
    """`forwards`: guest port on FORWARD_ADDRESS -> TCP port on this machine's loopback. `whole`: in the order of
    host.whole."""
    args = [
        str(parts.qemu),
        '-name', host.name,
        '-machine', 'q35,cxl=on,hpet=off,vmport=off',
        '-accel', 'tcg,thread=multi',  # by name: where /dev/kvm exists it may still hang the guest
        '-cpu', 'max,-hypervisor',  # with the hypervisor bit Linux refuses to commit a CXL region
        '-smp', str(host.cpus),
        # A NUMA node said out loud: without one there is no SRAT, and Linux gives no node to a CXL window either
        '-m', f'{host.memory // MIB}M',
        '-object', f'memory-backend-ram,id=ram,size={host.memory // MIB}M', '-numa', 'node,memdev=ram',
        '-nodefaults', '-no-user-config', '-display', 'none',
        '-kernel', str(parts.kernel),
        '-initrd', str(paths.initrd),
        '-append', f'console=ttyS0 loglevel=4 {_fast_boot(host)} cxlpool.host={host.name} {host.kernel}'.strip(),
        '-chardev', f'socket,id=console,path={_quote(paths.console)},server=on,wait=off,'
                    f'logfile={_quote(paths.console_log)},logappend=on',
        '-serial', 'chardev:console',
    ]
    for socket in (paths.qmp, paths.qmp_evict, paths.qmp_ops):
        args += ['-qmp', f'unix:{_quote(socket)},server=on,wait=off']
    return args + _exec_channels(paths) + _network(forwards) + _cxl(host) + _whole(host, whole)


def _fast_boot(host: HostSpec) -> str:
    """Without what the host's own words set: the kernel does not take back audit=0."""
    own = {word.partition('=')[0] for word in host.kernel.split()}
    return ' '.join(word for word in _FAST_BOOT.split() if word.partition('=')[0] not in own)


def _exec_channels(paths: HostPaths) -> list[str]:
    # FIFOs, not sockets: QEMU holds both ends, so the guest never sees a hang-up when no launcher is there.
    args = ['-device', f'virtio-serial-pci,id=exec,bus=pcie.0,max_ports={EXEC_CHANNELS + 1}']
    for n in range(EXEC_CHANNELS):
        args += ['-chardev', f'pipe,id=exec-{n},path={_quote(paths.exec_pipe(n))}',
                 '-device', f'virtserialport,bus=exec.0,chardev=exec-{n},name=exec.{n}']
    return args


def _network(forwards: dict[int, int]) -> list[str]:
    # A closed network: the guest reaches these ports of loopback and nothing else, and nobody reaches the guest.
    # "cmd": a process a connection; the other form of guestfwd carries a single connection.
    netdev = 'user,id=net,restrict=on,ipv6=off'
    for guest_port, port in sorted(forwards.items()):
        netdev += f',guestfwd=tcp:{FORWARD_ADDRESS}:{guest_port}-cmd:' + _quote(f'socat STDIO TCP4:127.0.0.1:{port}')
    return ['-netdev', netdev, '-device', 'virtio-net-pci,netdev=net,romfile=,bus=pcie.0']


def _cxl(host: HostSpec) -> list[str]:
    args = []
    for bridge in range(host.bridges):
        args += [
            # hdm_for_passthrough: without it a host bridge with one root port takes one region only
            '-device', f'pxb-cxl,id=cxl.{bridge},bus=pcie.0,bus_nr={host.bus_number(bridge)},hdm_for_passthrough=on',
            '-device', f'cxl-rp,id=rp{bridge},bus=cxl.{bridge},port=0,chassis={bridge},slot={host.root_port_slot(bridge)}',
            '-device', f'cxl-upstream,id=us{bridge},bus=rp{bridge}',
        ]
        for port in range(host.ports):
            args += ['-device', f'cxl-downstream,id={host.port_id(bridge, port)},bus=us{bridge},addr={port:#x},port={port},'
                                f'chassis={bridge},slot={host.slot(bridge, port)}']
    windows = []
    for n, window in enumerate(host.windows):
        windows += [f'cxl-fmw.{n}.targets.{k}=cxl.{bridge}' for k, bridge in enumerate(window.bridges)]
        windows.append(f'cxl-fmw.{n}.size={window.size // MIB}M')
        if len(window.bridges) > 1:
            windows.append(f'cxl-fmw.{n}.interleave-granularity={window.granularity}')
    return args + ['-machine', ','.join(windows)]


def _whole(host: HostSpec, devices: Sequence[WholeDevice]) -> list[str]:
    args = []
    for index, device in enumerate(devices):
        memory = f'{device.name}-memory'
        args += ['-object', f'memory-backend-file,id={memory},share=on,size={device.size // MIB}M,'
                            f'mem-path={_quote(device.path)}',
                 '-device', f'cxl-type3,id={device.name},bus={host.port_id(*host.whole_port(index))},'
                            f'volatile-memdev={memory},sn={device.serial:#x}']
    return args


def _quote(value: object) -> str:
    """A value inside a QEMU option: a comma is written twice."""
    return str(value).replace(',', ',,')
