"""Tests of topology.py."""
import unittest
from pathlib import Path

from cxlrack import topology
from cxlrack.topology import GIB, MIB, TopologyError

SHIPPED = Path(__file__).resolve().parent.parent / 'topologies'


def table(**host) -> dict:
    return {'device': [{'name': 'cmm-0', 'size': '2 GiB'}],
            'host': [{'name': 'host-a', 'bridges': 2, 'ports': 2} | host]}


class TopologyTest(unittest.TestCase):
    def assert_refused(self, bad: dict, *words: str) -> None:
        with self.assertRaises(TopologyError) as caught:
            topology.parse(bad)
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_every_shipped_file_is_valid(self):
        files = list(SHIPPED.glob('*.toml'))
        self.assertGreaterEqual(len(files), 3)
        for file in files:
            topology.parse(topology.load(file))

    def test_default_has_two_hosts_of_eight_bridges(self):
        parsed = topology.parse(topology.load('two-hosts'))
        self.assertEqual([(h.name, h.bridges, h.ports) for h in parsed.hosts], [('host-a', 8, 2), ('host-b', 8, 2)])
        self.assertEqual([(d.name, d.size) for d in parsed.devices], [('cmm-0', 2 * GIB), ('cmm-1', 2 * GIB)])

    def test_defaults(self):
        host = topology.parse(table()).hosts[0]
        self.assertEqual((host.memory, host.cpus), (GIB, 1))
        self.assertEqual([(w.bridges, w.size) for w in host.windows], [((0,), 8 * GIB), ((1,), 8 * GIB)])

    def test_slots_and_buses_are_unique_in_the_largest_host(self):
        for bridges, ports in ((topology.MAX_BRIDGES, 1), (10, topology.MAX_PORTS)):
            host = topology.parse(table(bridges=bridges, ports=ports, cpus=2)).hosts[0]
            slots = [host.root_port_slot(b) for b in range(bridges)]
            slots += [host.slot(b, p) for b in range(bridges) for p in range(ports)]
            self.assertEqual(len(slots), len(set(slots)))
            self.assertLess(max(slots), 1 << 13)  # the Physical Slot Number field
            spacing = {host.bus_number(b + 1) - host.bus_number(b) for b in range(bridges - 1)}
            self.assertEqual(spacing, {ports + 3})
            self.assertLessEqual(host.bus_number(bridges - 1) + ports + 2, 255)

    def test_interleave_windows_follow_the_bridges_own(self):
        interleave = {'bridges': [1, 0], 'size': '1 GiB', 'granularity': 1024}
        windows = topology.parse(table(interleave=[interleave])).hosts[0].windows
        self.assertEqual(windows[2], topology.Window((1, 0), GIB, 1024))

    def test_whole_devices_take_a_port_of_each_bridge_first(self):
        shared = topology.parse(topology.load('shared'))
        a, b = shared.hosts
        self.assertEqual([d.name for d in a.whole], ['cmm-0', 'cmm-1'])
        self.assertEqual([d.name for d in b.whole], ['cmm-1', 'cmm-0'])
        self.assertEqual([a.whole_port(i) for i in range(2)], [(0, 0), (1, 0)])
        self.assertEqual([topology.parse(table()).hosts[0].whole_port(i) for i in range(4)], [(0, 0), (1, 0), (0, 1), (1, 1)])
        self.assertEqual([shared.serial(d) for d in shared.devices], [0x77, 0x78])

    def test_whole_devices_that_are_not_there_or_do_not_fit(self):
        self.assert_refused(table(whole=['cmm-1']), 'host-a', 'whole', 'cmm-1')
        self.assert_refused(table(whole='cmm-0'), 'whole')
        self.assert_refused(table(whole=['cmm-0', 'cmm-0']), 'twice')
        many = table(whole=['cmm-0', 'cmm-1'], bridges=1, ports=1)
        many['device'].append({'name': 'cmm-1', 'size': '1 GiB'})
        self.assert_refused(many, '2 whole devices', 'it has 1')

    def test_words_for_the_kernel(self):
        self.assertEqual(topology.parse(table(kernel='quiet nokaslr')).hosts[0].kernel, 'quiet nokaslr')
        for bad in (1, 'two\nlines'):
            self.assert_refused(table(kernel=bad), 'host-a', 'kernel')

    def test_sizes(self):
        self.assertEqual(topology.parse_size('512 MiB', ''), 512 * MIB)
        self.assertEqual(topology.parse_size('2GiB', ''), 2 * GIB)
        for bad in ('2', '2 GB', '0 MiB', '-1 GiB', '1.5 GiB', '', 2, None):
            with self.assertRaises(TopologyError):
                topology.parse_size(bad, 'here')

    def test_a_misspelt_field_is_named(self):
        self.assert_refused(table(prots=2), 'host-a', 'prots')
        self.assert_refused(table() | {'hosts': []}, 'hosts')

    def test_out_of_range_is_named_with_its_range(self):
        self.assert_refused(table(bridges=17), 'bridges', '17', '1 to 16')
        self.assert_refused(table(ports=0), 'ports')
        self.assert_refused(table(ports=True), 'ports')
        self.assert_refused(table(memory='1000 KiB'), 'memory')
        self.assert_refused(table(window='100 MiB'), 'window', '256 MiB')

    def test_more_than_the_machine_takes_is_refused(self):
        self.assert_refused(table(bridges=16, ports=20, cpus=4), 'PCI buses')
        self.assert_refused(table(bridges=10, ports=20), '2 cpus')

    def test_a_bad_interleave_is_refused(self):
        self.assert_refused(table(interleave=[{'bridges': [0]}]), 'bridges')
        self.assert_refused(table(interleave=[{'bridges': [0, 2]}]), '0 to 1')
        self.assert_refused(table(interleave=[{'bridges': [0, 0]}]), 'twice')
        self.assert_refused(table(interleave=[{'bridges': [0, 1], 'granularity': 100}]), 'granularity')
        self.assert_refused(table(interleave=[{'bridges': [0, 1], 'size': '256 MiB'}]), '512 MiB')

    def test_two_of_one_name_are_refused(self):
        twice = table()
        twice['host'] *= 2
        self.assert_refused(twice, 'two hosts', 'host-a')

    def test_names_are_plain(self):
        for bad in ('', 'Host', 'a/b', '..', 'a' * 33, 'a,b', 7):
            self.assert_refused(table(name=bad), 'name')

    def test_no_host_is_refused(self):
        self.assert_refused({}, '[[host]]')
        self.assert_refused({'host': {}}, '[[host]]')

    def test_an_unknown_name_lists_the_known(self):
        with self.assertRaises(TopologyError) as caught:
            topology.load('no-such')
        self.assertIn('two-hosts', str(caught.exception))


if __name__ == '__main__':
    unittest.main()
