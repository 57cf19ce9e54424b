"""Allocations and releases in random order on one host of many bridges and one of few: none is refused that some host
bridge could take, and afterwards nothing is left of them.

CXLPOOL_MIXED says how many each host gets (12; 100 is the long run), CXLPOOL_MIXED_SEED which."""

import os
import random
import threading
import time

from testbed.process import wait_until
from testbed.rack_trials import RackTrials
from testbed.testing import main

OPERATIONS = int(os.environ.get('CXLPOOL_MIXED', 12))
SEED = int(os.environ.get('CXLPOOL_MIXED_SEED', 1))
# What QEMU's host bridges have: as many host regions at once, made and given back like a stack's.
DEPTH = 4
MODES = (('--mode', 'devdax'), ('--mode', 'system-ram'))
STRIPED = ('--policy', 'bandwidth', '--interleave-ways', '2')


class Bridges:
    """Which host bridge can take one more, by the order of what was made and given back alone."""

    def __init__(self, spec):
        self._spec = spec
        self._stacks = [[] for _ in range(spec.bridges)]  # Oldest first; None: given back under a live one.
        self._ports = [spec.ports] * spec.bridges
        self._where = {}  # Region -> (bridge, ports)

    def can_take(self, ways):
        return any(None not in stack and len(stack) < DEPTH and ports >= ways
                   for stack, ports in zip(self._stacks, self._ports))

    def took(self, name, slots):
        [bridge] = {next(b for b in range(self._spec.bridges) for p in range(self._spec.ports)
                         if self._spec.slot(b, p) == slot) for slot in slots}
        self._stacks[bridge].append(name)
        self._ports[bridge] -= len(slots)
        self._where[name] = (bridge, len(slots))

    def gave_back(self, name):
        bridge, ports = self._where.pop(name)
        stack = self._stacks[bridge]
        stack[stack.index(name)] = None
        while stack and stack[-1] is None:
            stack.pop()
        self._ports[bridge] += ports

    def names(self):
        return sorted(self._where)


class RackMixedTest(RackTrials):
    topology = {'device': [{'name': f'cmm-{i}', 'size': '8 GiB'} for i in range(2)],
                'host': [{'name': 'many', 'bridges': 8, 'ports': 2}, {'name': 'few', 'bridges': 2, 'ports': 8}]}
    programs = ()
    maxDiff = None

    def allocate(self, random_, host, bridges, name):
        """One of a random kind; False if no bridge can take any."""
        ways = [ways for ways in (1, 2) if bridges.can_take(ways)]
        if not ways:
            return False
        striped = random_.choice(ways) == 2
        size = '512MiB' if striped else random_.choice(('256MiB', '512MiB'))
        self.pool.allocate(name, size, host, *random_.choice(MODES), *(STRIPED if striped else ()))
        bridges.took(name, [segment['slot'] for segment in self.pool.attachment(name, host)['segments']])
        return True

    def mix(self, host):
        random_ = random.Random(f'{SEED} {host}')
        bridges = Bridges(self.pool.hosts[host].spec)
        done, most = {'allocated': 0, 'released': 0}, 0
        for i in range(OPERATIONS):
            live = bridges.names()
            # Waves: it fills up, then empties again.
            if live and random_.random() < (0.35 if i // 25 % 2 == 0 else 0.65) \
                    or not self.allocate(random_, host, bridges, f'{host}-{i}'):
                name = random_.choice(live)
                self.pool.release(name)
                bridges.gave_back(name)
                done['released'] += 1
            else:
                done['allocated'] += 1
            most = max(most, len(bridges.names()))
        for name in random_.sample(bridges.names(), len(bridges.names())):
            self.pool.release(name)
            bridges.gave_back(name)
        print(f'{host}: {done["allocated"]} allocations, {done["released"]} releases in random order, {most} at once')

    def inventory(self, host):
        """What the kernel and QEMU have of ports, decoders, regions, DAX devices, memory blocks and LDs."""
        guest = self.pool.hosts[host]
        # Not a free decoder's size: 6.12 leaves there what it last had.
        kernel = guest.output('ls /sys/bus/cxl/devices /sys/bus/dax/devices /sys/devices/system/memory; '
                              'for d in /sys/bus/cxl/devices/decoder*; do echo $(basename $d) $(cat $d/region 2>/dev/null); done; '
                              'cat /sys/devices/system/node/has_memory; ls /dev | grep dax; true')
        regions = guest.output('cxl list -Ri').splitlines() + guest.output('cxl list -Mi').splitlines()
        lds = sorted(p['name'] for p in guest.qmp('qom-list', {'path': '/machine/peripheral'}))
        free = [(b['max_regions'], b['live_regions'], b['blocked'], b['free_window_bytes'])
                for b in self.host_state(host)['bridges']]
        return kernel.splitlines() + regions + lds + free

    def warm_up(self, host):
        """What is made once and stays: with the first Region of the host; 7.x makes a bridge's decoders with its first."""
        guest = self.pool.hosts[host]
        each = not guest.output('uname -r').startswith('6.')
        first = []
        while not first or each and not all(b['live_regions'] for b in self.host_state(host)['bridges']):
            self.assertLess(len(first), DEPTH * guest.spec.bridges)
            first.append(f'first-{len(first)}')
            self.pool.allocate(first[-1], '256MiB', host)
        for name in first:
            self.pool.release(name)

    def test_mixed(self):
        hosts = list(self.pool.hosts)
        for host in hosts:
            self.warm_up(host)
        before = {host: self.inventory(host) for host in hosts}
        bridges = {host: self.host_state(host)['bridges'] for host in hosts}
        errors = []

        def mix(host):
            began = time.monotonic()
            try:
                self.mix(host)
            except BaseException as e:  # noqa: BLE001 - raised again below
                errors.append(e)
            print(f'{host}: {time.monotonic() - began:.1f} s, seed {SEED}')
        threads = [threading.Thread(target=mix, args=(host,)) for host in hosts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        for host in hosts:
            wait_until(lambda h=host: self.host_state(h)['bridges'] == bridges[h], 30, f'the bridges of {host} are free')
            self.assertEqual(self.inventory(host), before[host], host)
        self.assert_sound()


if __name__ == '__main__':
    main()
