"""A pool on QEMU's emulated CXL switches: each host is a machine that runs a real agent on a real kernel."""

import subprocess
from pathlib import Path

from cxlrack import topology as topologies
from cxlrack.rack import MANAGER_GUEST_PORT, Rack

from .pool import Pool, free_port

REPOSITORY = Path(__file__).resolve().parents[2]

AGENT_LOG = '/var/log/cxlpool-agent.log'


def make_image(build: Path, image: Path, programs=(), applications=()):
    """The machine image with the programs just built, for the kernel $CXLPOOL_RACK_KERNEL; `programs` are further ones of
    build/bin, `applications` those that qemu-cxl/fetch --with has fetched."""
    extra = [word for name in programs for word in ('--bin', str(build / 'bin' / name))]
    extra += [word for name in applications for word in ('--with', name)]
    subprocess.run([str(REPOSITORY / 'qemu-cxl/mkimage'), '--build', str(build), '--out', str(image), *extra],
                   check=True, stdout=subprocess.DEVNULL)
    return image


class RackPool(Pool):
    driver = 'qemu'
    adapter = 'linux'  # Of the agents.

    def __init__(self, build, directory, topology='two-hosts', image=None, programs=(), applications=()):
        """`topology`: a file, a name of qemu-cxl/topologies, or its table."""
        super().__init__(build, directory)
        self.topology = topologies.parse(topology if isinstance(topology, dict) else topologies.load(topology))
        self.topology_name = topology
        self.image, self.programs, self.applications = image, programs, applications
        self.rack = None

    def host_names(self):
        return [host.name for host in self.topology.hosts]

    def guest_ports(self):
        """Port of fm.cxlpool in hosts -> where that manager listens."""
        return {MANAGER_GUEST_PORT + number: port for number, port in enumerate(self.ports)}

    def agent_toml(self, name):
        addresses = ','.join(f'fm.cxlpool:{port}' for port in self.guest_ports())
        return f'''
host = "{name}"
adapter = "{self.adapter}"
observe_interval = "1s"
[manager]
address = "{addresses}"
[tls]
ca = "/etc/cxlpool/ca.pem"
cert = "/etc/cxlpool/host.pem"
key = "/etc/cxlpool/host.key"
server_name = "fm.cxlpool"
[applications]
socket = "/run/cxlpool/agent.sock"
'''

    def overlay(self, name):
        return {
            '/etc/cxlpool/agent.toml': self.agent_toml(name).encode(),
            '/etc/cxlpool/ca.pem': (self.pki / 'ca.pem').read_bytes(),
            '/etc/cxlpool/host.pem': (self.pki / f'host-{name}.pem').read_bytes(),
            '/etc/cxlpool/host.key': ((self.pki / f'host-{name}.key').read_bytes(), 0o600),
        }

    def fabric_toml(self):
        # What a host was booted with is its own, and nothing that the fabric plugs.
        own = {d.name for host in self.topology.hosts for d in host.whole}
        devices = ''.join(f'[[device]]\nid = "{d.name}"\ncapacity = {d.size}\npath = "{self.rack.device_path(d.name)}"\n'
                          for d in self.topology.devices if d.name not in own)
        hosts = ''.join(f'[[host]]\nid = "{h.name}"\nqmp = "{self.rack.host(h.name).paths.qmp}"\n' for h in self.topology.hosts)
        return f'state = "{self.directory}/qemu-state"\n{devices}{hosts}'

    def start(self):
        if self.image is None:
            self.image = make_image(self.build, self.directory / 'image', self.programs, self.applications)
        self.make_pki()
        self.rack = Rack.up(self.topology_name, self.directory / 'rack', self.image,
                            {name: self.overlay(name) for name in self.host_names()}, forwards=self.guest_ports())
        self.hosts = {name: self.rack.host(name) for name in self.host_names()}
        self.enrol_unheard()
        self.write_manager_config()
        self.start_manager()
        self.wait_hosts_online()
        return self

    def enrol_unheard(self):
        """Where no agent dials yet: one that comes before its host is enrolled tries again a minute later."""
        dialled = self.ports
        self.listen([free_port() for _ in dialled])
        self.write_manager_config()
        self.start_manager()
        self.enrol_hosts()
        self.kill_managers()
        self.listen(dialled)

    def agent_logs(self):
        for name, guest in self.hosts.items():
            # Where its threads wait; then whether its clock still goes.
            for command in (f'tail -n 30 {AGENT_LOG}; dmesg | tail -n 8; cat /proc/uptime; '
                            'for t in /proc/$(cat /run/cxlpool-agent.pid)/task/*; do '
                            'echo $(cat $t/comm) $(cat $t/wchan) $(cut -d " " -f 14,15 $t/stat); done',
                            'sleep 1; cat /proc/uptime'):
                try:
                    yield name, guest.run(command, timeout=20).out
                except Exception as error:  # A test's failure is what counts, not this.
                    yield name, f'does not answer: {error}'

    def close(self):
        self.kill_managers()
        if self.rack:
            self.rack.down()

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_):
        self.close()


class SharedRackPool(RackPool):
    """Two machines that were booted with the same two devices, each of them whole: driver shared, nothing is plugged."""

    driver = adapter = 'shared'

    def __init__(self, build, directory, topology='shared', granule=256 << 20, **more):
        super().__init__(build, directory, topology, **more)
        self.granule = granule

    def fabric_toml(self):
        # What the first host calls a device says nothing of which one it is: the mark does, from then on.
        first = self.host_names()[0]
        devices = ''.join(f'[[device]]\nid = "{d.name}"\ncapacity = {d.size - self.granule}\n'
                          f'granule = {self.granule}\npath = "{first}/region{number}"\n'
                          for number, d in enumerate(self.topology.devices))
        hosts = ''.join(f'[[host]]\nid = "{name}"\n' for name in self.host_names())
        return f'state = "{self.directory}/fabric"\n{devices}{hosts}'

    def wait_hosts_online(self, timeout=60, **options):
        super().wait_hosts_online(timeout, **options)
        self.wait_devices(timeout)

    def start(self):
        """A slow host does not see in time that its devices are all zero: their bytes are found, and cleared once released."""
        super().start()
        for name in self.regions():
            self.release(name, '--force', '--reason', 'nobody has written anything here yet', '--yes')
        return self
