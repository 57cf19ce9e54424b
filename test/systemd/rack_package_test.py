"""A Debian with a real systemd as a host of the rack, on Linux's CXL drivers, with the packages in it: the agent under its unit as it is
shipped brings memory online and takes it away; then `cxlpool quickstart` makes a pool of a CXL device of the machine's own."""

import json
import re
import subprocess

from testbed.guest_programs import GuestPrograms
from testbed.machines import install_packages, make_packages, require_machines
from testbed.pool import WAIT, MiB
from testbed.process import wait_until
from testbed.rack import RackPool
from testbed.testing import BUILD, REPOSITORY, PoolTest, main, require_qemu

AGENT, MANAGER = 'cxlpool-agent', 'cxlpool-fm'
PACKAGES = (AGENT, MANAGER, 'cxlpool-cli', 'libcxlpool1')
HOST = 'host-a'
# The journal then tells each system call that a unit's filter refuses.
TELL_REFUSED_CALLS = 'audit=1 audit_backlog_limit=8192 SYSTEMD_LOG_SECCOMP=1'
REFUSED_CALL = r'SECCOMP .* exe="/usr/sbin/{name}" .* syscall=(\d+)'
# clone3: RestrictNamespaces= cannot look into it, and the C library then takes clone.
EXPECTED_CALLS = {435}
TOPOLOGY = {'device': [{'name': 'cmm-0', 'size': '1 GiB'}, {'name': 'own', 'size': '512 MiB'}],
            'host': [{'name': HOST, 'bridges': 2, 'ports': 2, 'memory': '2 GiB', 'whole': ['own'], 'kernel': TELL_REFUSED_CALLS}]}
SIZE = 256 * MiB
DENIED = re.compile(r'denied|not permitted|EPERM|EACCES', re.I)


class PackagedPool(RackPool):
    """Its host's image is made of the packages."""

    def agent_logs(self):
        for name, guest in self.hosts.items():
            yield name, guest.run("journalctl --no-pager -n 40 -u 'cxlpool-*'; cxlpool-agent check", timeout=60).out


class RackPackageTest(GuestPrograms, PoolTest):
    @classmethod
    def make_pool(cls, directory):
        require_qemu()
        root = require_machines()
        packages = make_packages(directory / 'packages')
        tree = install_packages(root, [path for path in packages if path.name.partition('_')[0] in PACKAGES],
                                directory / 'tree', f'systemctl enable {AGENT}')
        image = directory / 'image'
        subprocess.run([REPOSITORY / 'qemu-cxl/mkdebian', tree, image], check=True, stdout=subprocess.DEVNULL)
        return PackagedPool(BUILD, directory, TOPOLOGY, image=image)

    def setUp(self):
        super().setUp()
        self.guest = self.pool.hosts[HOST]

    def unit(self, name, *properties):
        said = self.guest.output(f'systemctl show {name} {" ".join(f"-p {p}" for p in properties)}')
        return dict(line.split('=', 1) for line in said.splitlines())

    def assert_ready(self, name, **more):
        """It is as systemd started it at first, and says that it is ready."""
        expected = {'ActiveState': 'active', 'SubState': 'running', 'Result': 'success', 'NRestarts': '0', **more}
        self.assertEqual(self.unit(name, *expected), expected)
        said = self.guest.output(f'journalctl --no-pager -o cat -u {name}')
        self.assertEqual([line for line in said.splitlines() if DENIED.search(line)], [])
        refused = re.findall(REFUSED_CALL.format(name=name), self.guest.output('journalctl --no-pager -o cat _TRANSPORT=audit'))
        self.assertEqual(set(map(int, refused)), EXPECTED_CALLS)

    def assert_agent_ready(self):
        self.assert_ready(AGENT, StatusText=f'in a session with the fabric manager at fm.cxlpool:7600')

    def attach(self, *mode):
        """Its segment."""
        self.pool.cli('region', 'attach', 'kv', '--host', HOST, '--wait', '--wait-timeout', WAIT, *mode)
        attachment = self.pool.attachment('kv', HOST)
        self.assertEqual(attachment['state'], 'ONLINE')
        [segment] = attachment['segments']
        self.assert_agent_ready()
        return segment

    def detach(self):
        self.pool.cli('region', 'detach', 'kv', '--host', HOST, '--wait', '--wait-timeout', WAIT)
        self.assertIsNone(self.pool.attachment('kv', HOST))
        self.assert_agent_ready()

    def blocked(self):
        """Why it does not go."""
        attachment = self.pool.attachment('kv', HOST)
        return attachment and attachment['state'] == 'RELEASE_BLOCKED' and attachment['state_reason']

    def memory(self):
        """Bytes of each NUMA node that has any."""
        return {int(node): int(kib) << 10 for node, kib in
                re.findall(r'Node (\d+) MemTotal: +([1-9]\d*) kB', self.guest.output('cat /sys/devices/system/node/node*/meminfo'))}

    def test_1_the_agent_under_its_unit(self):
        self.assertEqual(self.unit(AGENT, 'FragmentPath', 'DropInPaths', 'DevicePolicy', 'UnitFileState'), {
            'FragmentPath': f'/lib/systemd/system/{AGENT}.service', 'DropInPaths': '', 'DevicePolicy': 'closed', 'UnitFileState': 'enabled'})
        self.assert_agent_ready()
        before = self.memory()
        self.pool.allocate('kv', SIZE, None, '--open-to', 'everybody')

        dax = self.attach()
        self.guest.output(f'test -c /dev/{dax["dax_device"]} && pool-write --region kv --seed 7', timeout=120)
        self.detach()
        self.assertEqual(self.guest.output('ls /sys/bus/dax/devices'), '')

        node = int(self.attach('--mode', 'system-ram')['numa_node'])
        self.assertEqual(self.memory(), {**before, node: SIZE})
        self.guest.output('pool-verify --region kv --node --bytes 64MiB', timeout=120)
        self.detach()
        self.assertEqual(self.memory(), before)

        # What another user holds is not taken, although he had it from somebody else than the agent.
        dev = f'/dev/{self.attach()["dax_device"]}'
        self.guest.output('pool-write --region kv --seed 8', timeout=120)
        holder = self.guest.output(f'setpriv --reuid 65534 --regid 65534 --clear-groups sleep 600 <{dev} >/dev/null 2>&1 & echo $!')
        self.pool.release('kv', wait=False)
        blocked = wait_until(self.blocked, 60, 'the agent says who holds it')
        self.assertIn(f'in use by process {holder} ', blocked)
        self.assert_agent_ready()
        self.guest.output(f'kill {holder}')
        wait_until(lambda: 'kv' not in self.pool.regions(), 60, 'the Region is gone')
        self.assert_pool_empty()
        self.assert_agent_ready()

    def test_2_quickstart(self):
        """The same machine, once more from the beginning."""
        self.guest.output(f'systemctl disable --now {AGENT} && rm -r /etc/cxlpool && mkdir /etc/cxlpool && systemctl reset-failed')
        done = self.guest.run('cxlpool quickstart', timeout=240)
        self.assertEqual(done.status, 0, done.out + done.err)
        self.guest.output('pool-write --region first --seed 1 && pool-verify --region first --seed 1', timeout=120)
        for unit in (MANAGER, AGENT):
            self.assert_ready(unit, UnitFileState='enabled', DropInPaths='')
        self.guest.output('cxlpool region release first --detach-all --wait', timeout=120)
        capacity = json.loads(self.guest.output('cxlpool -o json capacity'))
        self.assertEqual(capacity['free_bytes'], capacity['total_bytes'])


if __name__ == '__main__':
    main()
