"""Time to memory, and back: the whole chain on QEMU's emulated switches, beside an expert's script.

python3 tools/benches/chain.py [--dir DIR] [--json FILE] [--rounds N] [--build DIR]

Ours: `region allocate --wait`, and a store by the DAX device that it names; then `region release --wait`. The peer: the same
steps by hand, over QMP and sysfs, with nothing checked and nobody asked. A round is ours, peer, peer, ours. Exits 4,
and says why, where the rack cannot be had. $CXLPOOL_RACK_KERNEL chooses the kernel. docs/performance.md has the rest.
"""

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path[:0] = [str(REPOSITORY / 'qemu-cxl'), str(REPOSITORY / 'tools')]

from cxlrack.errors import RackError  # noqa: E402
from testbed.pool import MiB  # noqa: E402
from testbed.process import wait_until  # noqa: E402
from testbed.rack import RackPool  # noqa: E402

BYTES, STORED = 256 * MiB, 2 * MiB
TOPOLOGY = {'device': [{'name': 'cmm-0', 'size': '1 GiB'}], 'host': [{'name': 'host-a', 'bridges': 2, 'ports': 1}]}
TARGET, LEAST_ROUNDS, QUIET = 1.1, 9, (0.95, 1.05)
NOT_HERE = 4


class Ours:
    def __init__(self, pool):
        self.pool, self.host, self.made = pool, pool.hosts['host-a'], 0

    def up(self):
        self.made += 1
        region = self.pool.allocate(f'r{self.made}', '256MiB', 'host-a')
        dax = region['attachments'][0]['segments'][0]['dax_device']
        self.host.run(f'dax-pattern store /dev/{dax} {STORED} {self.made}', check=True)

    def down(self):
        self.pool.release(f'r{self.made}')


class ByHand:
    """On the other bridge, at the other end of the device."""

    def __init__(self, pool):
        self.pool, self.host, self.made = pool, pool.hosts['host-a'], 0
        self.slot = self.host.spec.slot(1, 0)
        self.path = pool.rack.device_path('cmm-0')

    def up(self):
        self.made += 1
        serial = 0x7000 + self.made
        with self.host.qmp_session() as qmp:
            qmp.execute('object-add', {'qom-type': 'memory-backend-file', 'id': f'memory{self.made}', 'share': True,
                                       'size': BYTES, 'mem-path': str(self.path), 'offset': 3 * BYTES})
            qmp.execute('device_add', {'driver': 'cxl-type3', 'bus': self.host.spec.port_id(1, 0), 'id': f'ld{self.made}',
                                       'sn': serial, 'volatile-memdev': f'memory{self.made}'})
        self.host.run(f'slot-power {self.slot} on && memdev-wait {serial:#x} 60 && '
                      f'agent_by_hand up devdax decoder0.1 {serial:#x} {BYTES}', timeout=90, check=True)
        self.host.run(f'dax-pattern store $(ls -t /dev/dax* | head -n 1) {STORED} {self.made}', check=True)

    def down(self):
        serial = 0x7000 + self.made
        with self.host.qmp_session() as qmp:
            qmp.execute('device_del', {'id': f'ld{self.made}'})
            self.host.run(f'agent_by_hand down devdax decoder0.1 {serial:#x} {BYTES} && slot-power {self.slot} off',
                          timeout=90, check=True)
            qmp.wait_event('DEVICE_DELETED', 20, device=f'ld{self.made}')
        subprocess.run(['fallocate', '--punch-hole', '--offset', str(3 * BYTES), '--length', str(BYTES), self.path], check=True)


def timed(call):
    began = time.monotonic()
    call()
    return time.monotonic() - began


def interval(values):
    """95 % of the median, by bootstrap; the same numbers, the same answer."""
    seeded = random.Random(21)
    medians = sorted(statistics.median(seeded.choices(values, k=len(values))) for _ in range(10_000))
    return [medians[250], medians[9750]]


def row(name, rounds):
    """`rounds`: of ours, peer, peer, ours in seconds."""
    ratios = [(a + d) / (b + c) for a, b, c, d in rounds]
    control = interval([d / a for a, b, c, d in rounds])
    ratio = statistics.median(ratios)
    quiet = QUIET[0] <= control[0] and control[1] <= QUIET[1] and len(rounds) >= LEAST_ROUNDS
    met = ratio <= TARGET
    return {'row': 21, 'name': name, 'unit': 's', 'ours': statistics.median(t for r in rounds for t in (r[0], r[3])),
            'peer': statistics.median(t for r in rounds for t in r[1:3]), 'ratio': ratio, 'ci': interval(ratios), 'aa': control,
            'target': TARGET, 'aim': 'at most', 'met': met and quiet,
            'verdict': 'inconclusive' if not quiet else 'met' if met else 'missed'}


def measure(pool, count):
    ours, by_hand = Ours(pool), ByHand(pool)
    ups, downs = [], []
    for number in range(-1, count):  # The first warms up.
        up, down = zip(*[(timed(side.up), timed(side.down)) for side in (ours, by_hand, by_hand, ours)])
        print(f'round {number + 1} of {count}: up', *(f'{t:.3f}' for t in up), ' back', *(f'{t:.3f}' for t in down), flush=True)
        if number >= 0:
            ups.append(up)
            downs.append(down)
    wait_until(lambda: not pool.regions(), 20, 'nothing is left')
    return [row('allocate until the first store, on the rack', ups), row('release until the bytes are free, on the rack', downs)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--build', type=Path, default=REPOSITORY / 'build/bench')
    parser.add_argument('--dir', type=Path, help='where the rack lies meanwhile')
    parser.add_argument('--json', type=Path, help='write the figures there')
    parser.add_argument('--rounds', type=int, default=9)
    parser.add_argument('--seconds', type=float, help='has no meaning here')
    options = parser.parse_args()
    done = subprocess.run([REPOSITORY / 'qemu-cxl/fetch', '--check'], capture_output=True, text=True)
    if done.returncode != 0:
        print(f'chain: not measured: {(done.stderr or done.stdout).strip()}', file=sys.stderr)
        return NOT_HERE
    directory = Path(tempfile.mkdtemp(prefix='chain.', dir=options.dir))
    try:
        image, store = directory / 'image', directory / 'dax-pattern'
        subprocess.run(['c++', '-std=c++20', '-O2', '-static', '-o', store, REPOSITORY / 'qemu-cxl/guest/dax_pattern.cc'], check=True)
        subprocess.run([REPOSITORY / 'qemu-cxl/mkimage', '--build', options.build, '--out', image,
                        '--bin', f'{HERE}/agent_by_hand=/usr/local/bin/agent_by_hand',
                        '--bin', f'{store}=/usr/local/bin/dax-pattern'], check=True, stdout=subprocess.DEVNULL)
        with RackPool(options.build, directory / 'pool', TOPOLOGY, image=image) as pool:
            rows = measure(pool, options.rounds)
    except RackError as error:
        print(f'chain: {error}', file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if options.json:
        options.json.write_text(json.dumps({'rows': rows}) + '\n')
    for line in rows:
        print(f'row 21, {line["name"]}: ours {line["ours"]:.3f} s, peer {line["peer"]:.3f} s: ratio {line["ratio"]:.3f}, '
              f'95 % {line["ci"]}, control {line["aa"]}: {line["verdict"]}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
