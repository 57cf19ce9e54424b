"""Tests on two machines that see the pool's devices whole: what they ask of both, and what must be as it was."""

from .guest_programs import GuestPrograms
from .pool import MiB
from .process import wait_until
from .rack import SharedRackPool
from .testing import BUILD, PoolTest, require_qemu

# A short lease: it runs out here.
SESSIONS = '[sessions]\nheartbeat = "1s"\nlease = "4s"\n'
SIZE = 256 * MiB
DAX = '/sys/bus/dax/devices'
# Size and driver of each DAX device, whatever its number.
LIST_DAX = (f'for d in {DAX}/*; do echo $(cat $d/size) $([ -e $d/driver ] && basename $(readlink $d/driver) || echo none); '
            'done | sort')


class SharedRackTest(GuestPrograms, PoolTest):
    programs = applications = ()

    @classmethod
    def make_pool(cls, directory):
        require_qemu(*cls.applications)
        pool = SharedRackPool(BUILD, directory, programs=cls.programs, applications=cls.applications)
        pool.manager_toml = SESSIONS
        return pool

    def setUp(self):
        super().setUp()
        self.before = self.census()
        self.capacity = self.free()
        self.a, self.b = self.pool.hosts['host-a'], self.pool.hosts['host-b']

    def pid(self):
        """Of host-a's agent."""
        return self.a.run('cat /run/cxlpool-agent.pid 2>/dev/null').out.strip()

    # What must be as it was.
    def census(self):
        """Of each host: its DAX devices, who has them, its nodes with memory, and how much memory it has."""
        return {name: (guest.output(LIST_DAX).splitlines(), guest.output('cat /sys/devices/system/node/has_memory'),
                       guest.output('grep MemTotal /proc/meminfo'), guest.output('ls /sys/devices/system/memory | grep -c memory'))
                for name, guest in self.pool.hosts.items()}

    def free(self):
        return {key: value for key, value in self.pool.cli('capacity').items() if key != 'revision'}

    def assert_as_before(self):
        self.pool.wait_hosts_online()
        self.assert_pool_empty()
        self.assertEqual(self.free(), self.capacity)
        self.assertEqual(self.census(), self.before)

    def state(self, name, host):
        attachment = self.pool.attachment(name, host)
        return attachment['state'] if attachment else 'gone'

    def segment(self, name, host):
        [segment] = self.pool.attachment(name, host)['segments']
        return segment

    def wait_gone(self, name):
        wait_until(lambda: (seen := self.pool.try_cli('region', 'list')) is not None
                   and all(r['name'] != f'regions/{name}' for r in seen.get('regions', [])), 90, f'{name} is gone')

    def wait_session_over(self, host):
        wait_until(lambda: next(h for h in self.pool.cli('host', 'list')['hosts'] if h['name'] == f'hosts/{host}')['state']
                   != 'ONLINE', 60, f'the lease of {host} ran out')

    def take(self, name, host, *flags, size='256MiB', device='cmm-0'):
        self.pool.allocate(name, size, host, '--device', device, *flags)

    def write(self, host, name, seed):
        self.pool.hosts[host].output(f'pool-write --region {name} --seed {seed}', timeout=120)

    def verify(self, host, name, seed):
        self.pool.hosts[host].output(f'pool-verify --region {name} --seed {seed}', timeout=120)

    def place(self, name):
        """Where its bytes are: file, offset, length."""
        [extent] = self.pool.regions()[name]['extents']
        return (self.pool.rack.device_path(extent['device'].removeprefix('devices/')),
                self.pool.granule + int(extent.get('dpa_bytes', 0)), int(extent['length_bytes']))
