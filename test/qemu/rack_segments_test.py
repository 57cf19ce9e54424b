"""The agent on a real kernel, with a manager that says what the test says: a Region that is striped, grows, is renamed and
shrinks under an application that has it open. The test plays the fabric too, by QMP."""

import json
import queue
import shutil
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

from cxlrack import topology as topologies
from cxlrack.rack import Rack
from testbed.pool_bytes import check_pattern
from testbed.process import TestbedError, wait_until
from testbed.rack import RackPool, make_image
from testbed.testing import BUILD, EVERY_CASE, main, require_qemu

MiB = 1 << 20
SLICE = 256 * MiB
# How much is written to a striped Region of two slices: QEMU does 10 MB/s there.
WRITTEN = 2 * SLICE if EVERY_CASE else 32 * MiB
TAG = '6f1f7d52-6a39-4c04-9a8e-0a3c1b6f7e10'
TOPOLOGY = {'device': [{'name': f'cmm-{i}', 'size': '256 MiB'} for i in range(4)],
            'host': [{'name': 'host-a', 'bridges': 4, 'ports': 4}]}


class Manager:
    """scripted-manager, and the last report of each segment."""

    def __init__(self, pki):
        self.process = subprocess.Popen([BUILD / 'bin/scripted-manager', pki / 'ca.pem', pki / 'manager-fm.pem',
                                         pki / 'manager-fm.key'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())
        self.last = {}
        self.seen = []
        self._lines = queue.Queue()
        threading.Thread(target=lambda: [self._lines.put(line) for line in self.process.stdout], daemon=True).start()

    def offer(self, offer):
        self.process.stdin.write(json.dumps(offer) + '\n')
        self.process.stdin.flush()

    def wait(self, serial, condition, what, timeout=60):
        """Until the newest report of `serial` is as `condition` says; that report."""
        end = time.monotonic() + timeout
        while True:
            report = self.last.get(serial, {})
            if condition(report):
                return report
            try:
                line = self._lines.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise TestbedError(f'{what}: not within {timeout} s; last of {serial:#x}: {report}') from None
            said = json.loads(line)
            self.last[int(said.get('serial', 0))] = said
            self.seen.append((int(said.get('serial', 0)), said.get('state')))

    def wait_state(self, serial, state):
        return self.wait(serial, lambda r: r.get('state') == state, state)

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class RackSegmentsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        require_qemu()
        cls.directory = Path(tempfile.mkdtemp(prefix='cxlpool-segments-'))
        cls.addClassCleanup(shutil.rmtree, cls.directory, ignore_errors=True)
        pool = RackPool(BUILD, cls.directory)  # For its certificates and the agent's configuration.
        pool.topology = topologies.parse(TOPOLOGY)
        pool.make_pki()
        cls.manager = Manager(pool.pki)
        cls.addClassCleanup(cls.manager.close)
        image = make_image(BUILD, cls.directory / 'image')
        cls.rack = Rack.up(TOPOLOGY, cls.directory / 'rack', image, {'host-a': pool.overlay('host-a')},
                           manager_port=cls.manager.port)
        cls.addClassCleanup(cls.rack.down)
        cls.host = cls.rack.host('host-a')
        cls.plugged = 0

    # The fabric.
    def plug(self, device, bridge, port):
        """A LD of all of `device`; (serial, slot)."""
        number = type(self).plugged
        type(self).plugged += 1
        self.host.qmp('object-add', {'qom-type': 'memory-backend-file', 'id': f'backend-{number}', 'share': True,
                                     'mem-path': str(self.rack.device_path(f'cmm-{device}')), 'size': SLICE})
        self.host.qmp('device_add', {'driver': 'cxl-type3', 'bus': self.host.spec.port_id(bridge, port), 'id': f'ld-{number}',
                                     'sn': 0x700 + number, 'volatile-memdev': f'backend-{number}'})
        return 0x700 + number, self.host.spec.slot(bridge, port)

    def unplug(self, *serials):
        for serial in serials:
            self.host.qmp('device_del', {'id': f'ld-{serial - 0x700}'})

    def wait_unplugged(self, *serials):
        def present():
            return {p['name'] for p in self.host.qmp('qom-list', {'path': '/machine/peripheral'})}
        wait_until(lambda: not present() & {f'ld-{serial - 0x700}' for serial in serials}, 30, 'DEVICE_DELETED')

    # The manager.
    def segment(self, index, *targets, granularity=0, want='WANT_UNSPECIFIED'):
        return {'extent_index': index, 'length_bytes': str(SLICE * len(targets)), 'want': want,
                'host_bridge': self.host.host_bridge(targets[0][1]), 'interleave_granularity_bytes': granularity,
                'targets': [{'serial': str(serial), 'slot': slot} for serial, slot in targets]}

    def offer(self, generation, segments, want='WANT_ONLINE', name='kv'):
        self.manager.offer({'region_tag': TAG, 'region_name': f'regions/{name}', 'attachment_generation': str(generation),
                            'want': want, 'mode': 'DEVDAX', 'access': 'READ_WRITE', 'sharing': 'EXCLUSIVE',
                            'segments': segments})

    # Applications.
    def hold(self, *command):
        """A program of ours that goes on holding what it opened; its pid in the host."""
        log = f'/tmp/hold-{time.monotonic_ns()}'
        text = ' '.join(command)
        pid = self.host.output(f'{text} --hold 600 >{log} 2>&1 & echo $!')
        wait_until(lambda: self.host.run(f'grep -q bytes {log}').ok, 60, f'{text}: {log}')
        return int(pid)

    def verify(self, name, seed, expected=0):
        done = self.host.run(['pool-verify', '--region', name, '--seed', str(seed), '--wait', '0'], timeout=300)
        self.assertEqual(done.status, expected, done.out + done.err)
        return done.out + done.err

    def file(self, device, length=SLICE):
        return (self.rack.device_path(f'cmm-{device}'), 0, length)

    def test_a_region_grows_and_shrinks_under_its_users(self):
        first, second = self.plug(0, 0, 0), self.plug(1, 1, 0)
        base = self.segment(0, first)
        self.offer(1, [base])
        self.manager.wait_state(first[0], 'SEGMENT_ONLINE')
        early = self.hold('pool-write', '--region', 'kv', '--seed', '1')
        self.manager.wait(first[0], lambda r: r.get('opens') == 1, 'it is open')

        # Grown by a second host region, under another host bridge.
        marker = len(self.manager.seen)
        self.offer(1, [base, self.segment(1, second)])
        report = self.manager.wait_state(second[0], 'SEGMENT_ONLINE')
        self.assertEqual(report.get('opens', 0), 0)
        self.assertEqual([s for s in self.manager.seen[marker:] if s[0] == first[0] and s[1] != 'SEGMENT_ONLINE'], [])
        self.host.run(['pool-write', '--region', 'kv', '--seed', '2'], check=True, timeout=120)
        check_pattern(self, [self.file(0), self.file(1)], 2)

        # Another name; what is open stays open.
        self.offer(1, [base, self.segment(1, second)], name='kw')
        wait_until(lambda: self.host.run('pool-verify --region kw --seed 2 --wait 0').ok, 30, 'it has its new name')
        self.assertIn('is not attached to this host', self.verify('kv', 2, expected=3))
        self.assertEqual(self.manager.last[first[0]]['opens'], 1)

        # Shrinks once nobody has the last part open; who opened it before it grew is not in the way.
        late = self.hold('pool-verify', '--region', 'kw', '--seed', '2')
        self.manager.wait(second[0], lambda r: r.get('opens') == 1, 'the second part is open')
        self.offer(1, [base, self.segment(1, second, want='WANT_OFFLINE')], name='kw')
        held = self.manager.wait(second[0], lambda r: 'error' in r, 'it is held')
        self.assertEqual((held['error']['reason'], held['error']['holder_pids']), ('HOLDERS', [late]))
        self.host.run(f'kill {late}', check=True)
        self.manager.wait_state(second[0], 'SEGMENT_PRESENT')
        self.unplug(second[0])
        self.offer(1, [base, self.segment(1, second, want='WANT_EJECTED')], name='kw')
        self.manager.wait_state(second[0], 'SEGMENT_ABSENT')
        self.wait_unplugged(second[0])
        self.offer(1, [base], name='kw')
        self.assertIn(f'{SLICE} bytes', self.verify('kw', 2))
        self.host.run(f'kill -0 {early}', check=True)

        # The rest of it.
        self.host.run(f'kill {early}', check=True)
        self.offer(1, [base], want='WANT_OFFLINE', name='kw')
        self.manager.wait_state(first[0], 'SEGMENT_PRESENT')
        self.unplug(first[0])
        self.offer(1, [base], want='WANT_EJECTED', name='kw')
        self.manager.wait_state(first[0], 'SEGMENT_ABSENT')
        self.wait_unplugged(first[0])

    def test_an_interleaved_region_comes_up_and_goes(self):
        targets = [self.plug(3, 2, 1), self.plug(2, 2, 0)]  # The files' order is not the targets'.
        segment = self.segment(0, *targets, granularity=256)
        self.offer(2, [segment], name='striped')
        online = self.manager.wait_state(targets[0][0], 'SEGMENT_ONLINE')
        created = self.host.output('cat /var/log/cxlpool-agent.log').count('CreateHostRegion: ')
        # One segment, one report: the second memdev at most was found before it was offered.
        self.assertNotIn('region_tag', self.manager.last.get(targets[1][0], {}))
        region = json.loads(self.host.output(f'cxl list -R -r {online["segment"]["host_region"]}'))[0]
        self.assertEqual((int(region['size']), region['interleave_ways'], region['interleave_granularity']),
                         (2 * SLICE, 2, 256))
        words = f'--region striped --seed 9 --bytes {WRITTEN}'
        self.host.run(f'pool-write {words}', check=True, timeout=400)
        check_pattern(self, [self.file(3, WRITTEN // 2), self.file(2, WRITTEN // 2)], 9, ways=2, granularity=256)

        # A new agent takes it as it stands.
        old = self.host.output('cat /run/cxlpool-agent.pid')
        self.host.run(f'kill -9 {old}', check=True)
        self.host.wait_for(f'pool-verify {words}', timeout=400)
        self.assertNotEqual(self.host.output('cat /run/cxlpool-agent.pid'), old)
        log = self.host.output('cat /var/log/cxlpool-agent.log')
        self.assertEqual(log.count('CreateHostRegion: '), created, log)

        self.offer(2, [segment], want='WANT_OFFLINE', name='striped')
        self.manager.wait_state(targets[0][0], 'SEGMENT_PRESENT')
        self.unplug(*(serial for serial, _ in targets))
        self.offer(2, [segment], want='WANT_EJECTED', name='striped')
        self.manager.wait_state(targets[0][0], 'SEGMENT_ABSENT')
        self.wait_unplugged(*(serial for serial, _ in targets))


if __name__ == '__main__':
    main()
