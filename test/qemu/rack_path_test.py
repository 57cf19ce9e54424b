"""A Region as a path on a host with a real kernel: as uid 1000 a program that knows nothing of pools opens a DAX device by its
name, as far as it may and as long as `cxlpool run --as-file`, or it itself, lives; and a container by the device's number, which
the kubelet's plugin describes."""

import json
import re

from testbed.guest_programs import ALL_WAYS, AS_USER, READ_ONLY_WAYS, SETPRIV, SETPRIV_PROGRAM
from testbed.pool_bytes import check_zero
from testbed.rack import RackPool
from testbed.rack_trials import SESSIONS, RackTrials
from testbed.testing import BUILD, main, require_qemu

HOST = 'host-a'
# As in packaging/cxlpool-agent.service.
CAPABILITIES = '-all,+sys_admin,+sys_ptrace,+dac_read_search'


class RackPathTest(RackTrials):
    topology = {'device': [{'name': 'cmm-0', 'size': '512 MiB'}],
                'host': [{'name': HOST, 'bridges': 2, 'ports': 2}]}

    @classmethod
    def make_pool(cls, directory):
        require_qemu()
        pool = RackPool(BUILD, directory, cls.topology,
                        programs=('cxlpool', 'cxlpool-dra', 'fake-kubelet', 'pool-path', SETPRIV_PROGRAM))
        pool.manager_toml = SESSIONS
        return pool

    def setUp(self):
        super().setUp()
        self.guest = self.pool.hosts[HOST]

    def directly(self, path):
        """What uid 1000 is told of each way, without a hold of its own."""
        said = self.guest.run(' '.join(map(str, (*AS_USER, 'pool-path', path, '</dev/null'))))
        return dict(line.split(': ') for line in said.out.splitlines() if ': ' in line)

    def node_of(self, path):
        return self.guest.output(f'readlink -f {path}')

    def assert_closed(self, node):
        self.guest.wait_for(f'! ls /dev/cxlpool/* 2>/dev/null | grep -q {node.rsplit("/", 1)[-1]}', timeout=60)
        self.assertEqual(self.directly(node), {'open-r': 'EACCES', 'open-rw': 'EACCES'})
        # The mask of the access list is gone, too.
        self.assertEqual(self.guest.output(f'stat -c %a {node}'), '600')

    def test_1_a_program_opens_and_maps_it(self):
        pid, path, said = self.run_path(HOST, '--size', '256MiB', '--name', 'own')
        self.assertEqual(said, ALL_WAYS)
        self.assertEqual(self.guest.output(f'readlink {path}'), '../../' + path.rsplit('/', 1)[-1])
        self.assertEqual(self.directly(path)['open-rw'], 'ok')
        node = self.node_of(path)
        self.guest.run(f'kill -9 {pid}')
        self.wait_gone('own')
        self.guest.wait_for(f'! test -e {node}', timeout=60)
        self.assert_sound()
        check_zero(self, self.pool.rack.device_path('cmm-0'))

    def test_2_read_only_is_the_kernels(self):
        self.take('read', HOST, 'cmm-0', '--open-to', 'uid=1000')
        pid, path, said = self.run_path(HOST, '--region', 'read', '--read-only')
        self.assertEqual(said, READ_ONLY_WAYS)
        node = self.node_of(path)
        self.guest.run(f'kill -9 {pid}')
        self.assert_closed(node)
        self.pool.release('read')
        self.assert_sound()

    def test_3_the_next_agent_takes_it_back(self):
        self.take('kept', HOST, 'cmm-0', '--open-to', 'uid=1000')
        pid, path, _ = self.run_path(HOST, '--region', 'kept')
        node = self.node_of(path)
        self.stop_agent(HOST)
        self.start_agent(HOST)
        self.assert_closed(node)
        # What it has open it keeps, and is in the way of a release as any holder.
        self.pool.release('kept', wait=False)
        self.wait_state('kept', HOST, 'RELEASE_BLOCKED')
        self.assertTrue(re.search(rf'\b{pid}\b', self.pool.attachment('kept', HOST)['state_reason']))
        self.guest.run(f'kill -9 {pid}')
        self.wait_gone('kept')
        self.assert_sound()

    def test_4_three_capabilities_are_enough(self):
        """The agent as its unit runs it, but for what systemd alone can do."""
        self.stop_agent(HOST)
        self.guest.output(f'{SETPRIV} --bounding-set={CAPABILITIES} --inh-caps=-all cxlpool-agent --config /etc/cxlpool/agent.toml '
                          '>>/var/log/cxlpool-agent.log 2>&1 & echo $! >/run/three.pid')
        self.pool.wait_hosts_online()
        pid, path, said = self.run_path(HOST, '--size', '256MiB', '--name', 'three')
        self.assertEqual(said['store'], 'ok')
        node = self.node_of(path)
        self.assertEqual(self.guest.output(f'stat -c %U {node}'), 'root')
        self.guest.run(f'kill -9 {pid}')
        self.wait_gone('three')
        self.guest.output('kill $(cat /run/three.pid)')
        self.start_agent(HOST)
        self.assert_sound()

    def test_5_a_program_with_a_dev_of_its_own_is_refused(self):
        refused = self.guest.run("unshare -m sh -c 'mount -t tmpfs none /dev && "
                                 "cxlpool run --as-file --size 256MiB --name none -- true'")
        self.assertIn('OTHER_NAMESPACE', refused.err)
        self.assertEqual(self.pool.regions(), {})

    def test_6_a_container_has_the_device_of_its_claim(self):
        """What a runtime makes of the CDI file: a device of that number and mode, in a /dev of its own."""
        self.take('k8s-claim', HOST, 'cmm-0')
        plugin = self.guest.output('mkdir -p /run/registry; cxlpool-dra --registrar-dir /run/registry --plugin-dir /run/plugin '
                                   '--cdi-dir /run/cdi >/tmp/dra.log 2>&1 & echo $!')
        self.addCleanup(self.guest.run, f'kill {plugin}')
        prepared = json.loads(self.guest.output('fake-kubelet /run/registry prepare claim'))['claims']['claim']
        self.assertEqual(prepared['devices'][0]['cdiDeviceIds'], ['cxlpool.dev/region=k8s-claim'])
        [device] = json.loads(self.guest.output('cat /run/cdi/cxlpool.dev-region_k8s-claim.json'))['devices']
        [node] = device['containerEdits']['deviceNodes']
        self.assertEqual(device['containerEdits']['env'],
                         ['CXLPOOL_PATH=/dev/cxlpool/k8s-claim', f'CXLPOOL_SIZE_BYTES={512 << 20}'])
        script = (f'mkdir -p /mnt && mount -t tmpfs none /mnt && mknod -m {node["fileMode"]:o} /mnt/region {node["type"]} {node["major"]} {node["minor"]} && '
                  + ' '.join(map(str, AS_USER)) + ' pool-path /mnt/region </dev/null')
        said = self.guest.run(f"unshare -m sh -c '{script}'")
        self.assertEqual(dict(line.split(': ') for line in said.out.splitlines() if ': ' in line), ALL_WAYS, said.err)
        self.pool.release('k8s-claim', wait=False)
        self.wait_state('k8s-claim', HOST, 'RELEASE_BLOCKED')
        self.assertRegex(self.pool.attachment('k8s-claim', HOST)['state_reason'], rf'\b{plugin}\b')
        self.assertEqual(json.loads(self.guest.output('fake-kubelet /run/registry unprepare claim')), {'claims': {'claim': {}}})
        self.wait_gone('k8s-claim')
        self.assertEqual(self.guest.output('ls /run/cdi'), '')
        self.assert_sound()
        check_zero(self, self.pool.rack.device_path('cmm-0'))


if __name__ == '__main__':
    main()
