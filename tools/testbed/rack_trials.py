"""What trials on QEMU hosts share: a witness that looks at the machines themselves all the while, what must hold after
each trial, and how hosts, agents and the manager are brought into trouble."""

import re
import threading
import time

from cxlrack.errors import RackError
from cxlrack.qmp import QmpError

from .guest_programs import GuestPrograms
from .pool import CliError, MiB
from .process import wait_until
from .rack import RackPool
from .testing import BUILD, PoolTest, require_qemu

SLICE = 256 * MiB

# A short lease: it runs out in many trials. Time to attach: hosts that boot beside other racks take minutes.
SESSIONS = '[sessions]\nheartbeat = "1s"\nlease = "4s"\n[reconciler]\nattach_timeout = "5m"\n'

# An agent that has trouble with the kernel answers all the same.
ANSWERS_WITHIN_MS = 1000

_LOOK_EVERY_S = 0.2
_AGENT_RUNS = 'grep -qsE "^(cxlpool-agent|agent-superviso)$" /proc/[0-9]*/comm'  # Or who starts it again.


class Witness:
    """Reads from each QEMU which bytes of the pool its host can reach; never asks the manager.

    Every Region of a trial is EXCLUSIVE, so no byte may ever be within two hosts' reach.
    """

    def __init__(self, rack):
        self._hosts = list(rack.hosts.values())
        self._slices = {}  # (process, LD) -> (file, begin, end). The id says which Extent it is.
        self._ended = threading.Event()
        self.looks, self.found = 0, []
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self):
        self._ended.set()
        self._thread.join(30)

    def reach(self, host):
        """{LD: (file, begin, end)}; {} of a dead host; None where it cannot be read now."""
        process = host.process
        if process is None or not process.alive():
            return {}
        try:
            with host.qmp_session() as session:
                listed = session.execute('qom-list', {'path': '/machine/peripheral'})
                lds = [p['name'] for p in listed if p['type'] == 'child<cxl-type3>']
                return {ld: self._slice(session, process, ld) for ld in lds}
        except RackError:
            return None if process.alive() else {}

    def _slice(self, session, process, ld):
        if (process, ld) not in self._slices:
            def get(path, name):
                return session.execute('qom-get', {'path': path, 'property': name})
            backend = get(f'/machine/peripheral/{ld}', 'volatile-memdev')
            begin = get(backend, 'offset')
            self._slices[process, ld] = (get(backend, 'mem-path'), begin, begin + get(backend, 'size'))
        return self._slices[process, ld]

    def look(self):
        """Host by host, then the first ones again: what a host still has afterwards it had at the moment of the others."""
        first = [(host, self.reach(host)) for host in self._hosts]
        for i, (host, mine) in enumerate(first):
            for other, theirs in first[i + 1:]:
                common = self._common(mine, theirs)
                if not common:
                    continue
                still = self.reach(host)
                for ld, what in common:
                    if still and ld in still:
                        self.found.append(f'{host.name} ({ld}) and {other.name} both reach {what}')
        self.looks += 1

    @staticmethod
    def _common(mine, theirs):
        return [(ld, a) for ld, a in (mine or {}).items() for b in (theirs or {}).values()
                if a[0] == b[0] and a[1] < b[2] and b[1] < a[2]]

    def _watch(self):
        while not self._ended.wait(_LOOK_EVERY_S):
            self.look()


class RackTrials(GuestPrograms, PoolTest):
    """Trials on one rack: each test method is one, and ends with assert_sound()."""

    topology = None
    programs = ('pool-touch',)
    trials = 0

    @classmethod
    def make_pool(cls, directory):
        require_qemu()
        pool = RackPool(BUILD, directory, cls.topology, programs=cls.programs)
        pool.manager_toml = SESSIONS
        return pool

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.witness = Witness(cls.pool.rack)

    @classmethod
    def tearDownClass(cls):
        cls.witness.stop()
        print(f'{cls.__name__}: {cls.trials} trials, {cls.witness.looks} looks at what the hosts reach, '
              f'{len(cls.witness.found)} bytes with two owners')
        super().tearDownClass()

    def setUp(self):
        super().setUp()
        self.looks_before, self.began = self.witness.looks, time.monotonic()
        self.addCleanup(self.restore_hosts)

    def restore_hosts(self):
        """A trial that failed leaves the next one a pool that works."""
        if not self.pool.manager.running:
            self.pool.start_manager()
        for guest in self.pool.hosts.values():
            if guest.status() == 'paused':
                guest.resume()
            if guest.status() == 'dead':
                guest.boot()
        for host, guest in self.pool.hosts.items():
            if guest.run('[ -e /run/agent.stop ]').ok:
                self.start_agent(host)
        for name in self.pool.regions():
            try:
                self.pool.release(name)
            except CliError as e:  # One that was going by itself is gone meanwhile.
                if 'UNKNOWN_REGION' not in e.stderr:
                    raise

    # What must hold.
    def assert_accounts(self):
        """No byte is in two Regions; free + held + scrubbing + quarantined is all there is."""
        def read():
            before, regions, after = self.pool.cli('capacity'), self.pool.regions(), self.pool.cli('capacity')
            return (after, regions) if before['revision'] == after['revision'] else None
        capacity, regions = wait_until(read, 30, 'nothing changes for a moment')
        pieces = sorted((e['device'], int(e.get('dpa_bytes', 0)), int(e['length_bytes']), name)
                        for name, region in regions.items() for e in region['extents'])
        for (device, begin, length, name), (device2, begin2, _, name2) in zip(pieces, pieces[1:]):
            self.assertFalse(device == device2 and begin2 < begin + length, f'{name} and {name2} overlap on {device}')
        parts = [int(capacity[f'{part}_bytes']) for part in ('free', 'allocated', 'scrubbing', 'quarantined')]
        total = sum(device.size for device in self.pool.topology.devices)
        self.assertEqual(sum(parts), total, capacity)
        self.assertEqual(int(capacity['total_bytes']), total)
        self.assertEqual(total - parts[0], sum(length for _, _, length, _ in pieces), regions)

    def assert_sound(self):
        """The end of a trial: everything was released, all is free, no host reaches a byte, nobody crashed."""
        self.assertTrue(self.pool.manager.running, self.pool.manager.tail())
        for host, guest in self.pool.hosts.items():  # 137: SIGKILL, ours.
            ends = guest.run('grep "ended with status" /var/log/cxlpool-agent.log').out.splitlines()
            self.assertEqual([end for end in ends if not end.endswith('status 137')], [], host)
        self.pool.wait_hosts_online()
        self.assert_accounts()
        self.assert_pool_empty()
        for host in self.pool.hosts.values():
            self.assertEqual(self.witness.reach(host), {}, host.name)
        wait_until(lambda: self.witness.looks > self.looks_before, 30, 'the witness looked')
        self.assertEqual(self.witness.found, [])
        type(self).trials += 1
        print(f'{self._testMethodName}: sound after {time.monotonic() - self.began:.1f} s')

    def assert_refused(self, name, host, device, seconds):
        """All bytes of `device` are asked for, again and again for so long: never granted."""
        end, asked = time.monotonic() + seconds, 0
        while asked == 0 or time.monotonic() < end:
            with self.assertRaises(CliError) as refused:
                self.pool.allocate(name, self.size_of(device), host, '--device', device, wait=False)
            self.assertEqual(refused.exception.status, 5, refused.exception.stderr)
            self.assertRegex(refused.exception.stderr, '"reason": "POOL_(FULL|FRAGMENTED)"')
            asked += 1
        self.assert_accounts()

    # The pool.
    def restart_manager(self, online, env=None):
        """kill -9 of the manager, and a new one, which knows nothing by heart; until the host `online` has found it."""
        self.pool.restart_manager(env)
        wait_until(lambda: self.host_state(online)['state'] == 'ONLINE', 60, f'{online} has found the new manager')

    def size_of(self, device):
        return str(next(d.size for d in self.pool.topology.devices if d.name == device))

    def take(self, name, host, device, *flags):
        """Allocates all bytes of a device to a host, and waits until it is ONLINE."""
        self.pool.allocate(name, self.size_of(device), host, '--device', device, *flags)

    def state(self, name, host):
        attachment = self.pool.attachment(name, host)
        return attachment['state'] if attachment else 'gone'

    def wait_state(self, name, host, *states, timeout=60):
        return wait_until(lambda: (s := self.state(name, host)) in states and s, timeout, f'{name} is {" or ".join(states)}')

    def wait_gone(self, name, timeout=60):
        wait_until(lambda: name not in self.pool.regions(), timeout, f'{name} is gone')

    def segment(self, name, host):
        [segment] = self.pool.attachment(name, host)['segments']
        return segment

    def host_state(self, name):
        return next(h for h in self.pool.cli('host', 'list')['hosts'] if h['name'] == f'hosts/{name}')

    def wait_session_over(self, host):
        wait_until(lambda: self.host_state(host)['state'] != 'ONLINE', 60, f'the lease of {host} ran out')

    # The hosts.
    def program(self, host, *command, timeout=120):
        return self.pool.hosts[host].output([str(word) for word in command], timeout=timeout)

    def write(self, host, name, seed):
        self.program(host, 'pool-write', '--region', name, '--seed', seed)

    def verify(self, host, name, seed):
        self.program(host, 'pool-verify', '--region', name, '--seed', seed)

    def verify_zero(self, host, name):
        self.program(host, 'pool-verify', '--region', name, '--expect-zero')

    def ask(self, host, name):
        """Asks the agent from now on, as applications do; the function that ends it and sees how it answered."""
        began = time.monotonic()
        pid, log = self.hold(host, 'pool-ask', name, says='asking')

        def answered():
            self.pool.hosts[host].output(f'kill {pid}')
            self.pool.hosts[host].wait_for(f'! kill -0 {pid}')
            real_ms = 1000 * (time.monotonic() - began)
            said = self.pool.hosts[host].output(f'cat {log}').splitlines()[-1]
            self.assertRegex(said, r'^\d+ answers in \d+ ms, the slowest after \d+ ms$')
            _, guest_ms, slowest_ms = map(int, re.findall(r'\d+', said))
            # A host that booted on a busy machine may have a clock that runs several times too fast.
            slowest_ms *= min(1, real_ms / guest_ms)
            print(f'{self._testMethodName}: {said}; by this clock {slowest_ms:.0f} ms')
            self.assertLess(slowest_ms, ANSWERS_WITHIN_MS)
        return answered

    def stop_agent(self, host):
        """kill -9, and it stays dead."""
        self.pool.hosts[host].output('touch /run/agent.stop; kill -9 $(cat /run/cxlpool-agent.pid)')
        self.wait_agent_dead(host)

    def wait_agent_dead(self, host):
        self.pool.hosts[host].wait_for(f'! {_AGENT_RUNS}')

    def start_agent(self, host):
        self.wait_agent_dead(host)
        self.pool.hosts[host].output('rm -f /run/agent.stop; setsid agent-supervisor </dev/null >/dev/null 2>&1 &')
        self.pool.hosts[host].wait_for(f'[ -e /run/cxlpool-agent.pid ] && {_AGENT_RUNS}')

    def run_there(self, host, words):
        guest = self.pool.hosts[host]
        if words in self.STARTS_AGENT:
            if guest.run(_AGENT_RUNS).ok:
                self.stop_agent(host)
            self.start_agent(host)
            return ''
        return guest.output(words)

    def agent_dies_at(self, host, point):
        """The agent starts again; it will end at `point` and stay dead: see wait_agent_dead."""
        guest = self.pool.hosts[host]
        self.stop_agent(host)
        guest.put('/run/agent.env', f'CXLPOOL_CRASH_AT={point}'.encode())
        self.start_agent(host)
        guest.output('touch /run/agent.stop')
        self.pool.wait_hosts_online()

    def pull(self, host, slot):
        """Takes the LD out of a slot behind everybody's back, and waits until it is out."""
        guest = self.pool.hosts[host]
        [ld] = [ld for ld in self.witness.reach(guest) if self.slot_of(guest, ld) == slot]
        serial = self.serial_of(guest, ld)

        def asked():
            try:
                guest.qmp('device_del', {'id': ld})
                return True
            except QmpError as e:
                if 'already in the process of unplug' in str(e):
                    return True
                if 'guest is busy' in str(e):
                    return False
                raise
        wait_until(asked, 30, f'{host} takes the request to let go of {ld}')
        guest.output(f'slot-power {slot} off')
        # The manager may bind it again at once: by the same id, under another serial.
        wait_until(lambda: self.serial_of(guest, ld) != serial, 30, f'{ld} is out of {host}')

    @staticmethod
    def serial_of(guest, ld):
        """What the LD of that id shows to its host; None if there is none."""
        try:
            return guest.qmp('qom-get', {'path': f'/machine/peripheral/{ld}', 'property': 'sn'})
        except QmpError as e:
            if e.kind != 'DeviceNotFound':
                raise
            return None

    @staticmethod
    def slot_of(guest, ld):
        port = guest.qmp('qom-get', {'path': f'/machine/peripheral/{ld}', 'property': 'parent_bus'})
        bus = port.rsplit('/', 1)[-1]
        spec = guest.spec
        for bridge in range(spec.bridges):
            for n in range(spec.ports):
                if bus == spec.port_id(bridge, n):
                    return spec.slot(bridge, n)
        return None
