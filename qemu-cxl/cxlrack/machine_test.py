"""Tests of machine.py."""
import unittest
from pathlib import Path

from cxlrack import machine, topology

PARTS = machine.Parts(Path('/cache/qemu'), Path('/cache/vmlinux'))


def build(directory: str = '/rack/host-a', forwards: dict[int, int] | None = None, **host) -> list[str]:
    table = {'host': [{'name': 'host-a', 'bridges': 2, 'ports': 3} | host]}
    spec = topology.parse(table).hosts[0]
    return machine.arguments(spec, machine.HostPaths(Path(directory)), PARTS, forwards or {})


def values(arguments: list[str], option: str) -> list[str]:
    return [arguments[i + 1] for i, argument in enumerate(arguments[:-1]) if argument == option]


class MachineTest(unittest.TestCase):
    def test_downstream_ports_carry_the_ids_and_slots_of_the_topology(self):
        ports = [v for v in values(build(), '-device') if v.startswith('cxl-downstream')]
        self.assertEqual(len(ports), 6)
        self.assertIn('cxl-downstream,id=p1_2,bus=us1,addr=0x2,port=2,chassis=1,slot=39', ports)

    def test_a_whole_device_is_there_at_power_on(self):
        table = {'device': [{'name': 'cmm-0', 'size': '1 GiB'}],
                 'host': [{'name': 'host-a', 'bridges': 2, 'ports': 3, 'whole': ['cmm-0']}]}
        spec = topology.parse(table).hosts[0]
        whole = [machine.WholeDevice('cmm-0', topology.GIB, Path('/a,b/cmm-0'), 0x77)]
        arguments = machine.arguments(spec, machine.HostPaths(Path('/rack/host-a')), PARTS, {}, whole)
        self.assertIn('memory-backend-file,id=cmm-0-memory,share=on,size=1024M,mem-path=/a,,b/cmm-0', values(arguments, '-object'))
        self.assertEqual(values(arguments, '-device')[-1], 'cxl-type3,id=cmm-0,bus=p0_0,volatile-memdev=cmm-0-memory,sn=0x77')

    def test_a_window_a_bridge_and_then_the_interleaved(self):
        windows = values(build(interleave=[{'bridges': [0, 1], 'size': '4 GiB', 'granularity': 512}]), '-machine')[-1]
        self.assertEqual(windows, 'cxl-fmw.0.targets.0=cxl.0,cxl-fmw.0.size=8192M,'
                                  'cxl-fmw.1.targets.0=cxl.1,cxl-fmw.1.size=8192M,'
                                  'cxl-fmw.2.targets.0=cxl.0,cxl-fmw.2.targets.1=cxl.1,cxl-fmw.2.size=4096M,'
                                  'cxl-fmw.2.interleave-granularity=512')

    def test_every_device_names_its_bus(self):
        for device in values(build(), '-device'):
            self.assertIn('bus=', device)

    def test_the_network_is_closed(self):
        for forwards in ({}, {7600: 40000, 7601: 40001}):
            netdev, = values(build(forwards=forwards), '-netdev')
            self.assertIn('restrict=on', netdev)
            self.assertIn('ipv6=off', netdev)
            self.assertNotIn('hostfwd', netdev)
            self.assertEqual(netdev.count('guestfwd='), len(forwards))

    def test_a_forward_starts_a_process_for_each_connection(self):
        netdev, = values(build(forwards={7600: 40000}), '-netdev')
        self.assertTrue(netdev.endswith('guestfwd=tcp:10.0.2.100:7600-cmd:socat STDIO TCP4:127.0.0.1:40000'), netdev)

    def test_nothing_listens_but_unix_sockets(self):
        for option in ('-qmp', '-chardev', '-serial', '-monitor', '-vnc'):
            for value in values(build(), option):
                self.assertNotIn('host=', value)
                self.assertNotIn('tcp', value)

    def test_the_qmp_sockets(self):
        self.assertEqual(values(build(), '-qmp'), ['unix:/rack/host-a/qmp,server=on,wait=off',
                                                   'unix:/rack/host-a/qmp.evict,server=on,wait=off',
                                                   'unix:/rack/host-a/qmp-ops,server=on,wait=off'])

    def test_a_comma_in_a_path_is_doubled(self):
        self.assertIn('unix:/a,,b/qmp,server=on,wait=off', values(build('/a,b'), '-qmp'))

    def test_memory_and_processors(self):
        arguments = build(memory='1536 MiB', cpus=3)
        self.assertEqual((values(arguments, '-m'), values(arguments, '-smp')), (['1536M'], ['3']))

    def test_the_host_learns_its_name(self):
        self.assertIn('cxlpool.host=host-a', values(build(), '-append')[0].split())
        self.assertEqual(values(build(kernel='quiet splash'), '-append')[0].split()[-2:], ['quiet', 'splash'])
        self.assertIn('audit=0', values(build(), '-append')[0].split())
        self.assertNotIn('audit=0', values(build(kernel='audit=1'), '-append')[0].split())


if __name__ == '__main__':
    unittest.main()
