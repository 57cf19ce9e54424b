"""Runs bench-agent in an emulated host (qemu-cxl), with one logical device bound to it by hand.

python3 tools/benches/agent.py --program BENCH-AGENT [--dir DIR] [--json FILE] [--rounds N] [--seconds S] [--mode MODE]...

The host is one of the default rack: eight bridges with two ports. The device is plugged in over QMP before anything is
measured, and stays. Exits 4, and says why, where the rack cannot be had. $CXLPOOL_RACK_KERNEL chooses the kernel.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path.insert(0, str(REPOSITORY / 'qemu-cxl'))

from cxlrack.errors import RackError  # noqa: E402
from cxlrack.rack import Rack  # noqa: E402

MiB = 1 << 20
SERIAL, BYTES = 0x1601, 256 * MiB
TOPOLOGY = {'device': [{'name': 'cmm-0', 'size': '1 GiB'}], 'host': [{'name': 'host-a', 'bridges': 8, 'ports': 2}]}
MODES = ('devdax', 'system-ram')
NOT_HERE = 4


def why_not_here():
    """Why there can be no rack on this machine; '' if there can."""
    done = subprocess.run([REPOSITORY / 'qemu-cxl/fetch', '--check'], capture_output=True, text=True)
    return '' if done.returncode == 0 else (done.stderr or done.stdout).strip()


def bind(rack, host):
    """The slot of the device, plugged in and powered on."""
    host.qmp('object-add', {'qom-type': 'memory-backend-file', 'id': 'backend', 'share': True, 'size': BYTES,
                            'mem-path': str(rack.device_path('cmm-0')), 'offset': 0})
    host.qmp('device_add', {'driver': 'cxl-type3', 'bus': host.spec.port_id(0, 0), 'id': 'ld', 'sn': SERIAL,
                            'volatile-memdev': 'backend'})
    slot = host.spec.slot(0, 0)
    host.run(f'slot-power {slot} on', check=True)
    host.run(f'memdev-wait {SERIAL:#x} 60', timeout=90, check=True)
    return slot


def measure(host, slot, mode, options):
    """Its rows. What it prints is shown at the end of each mode: the way out of a host gives nothing before."""
    command = ['bench-agent', '--mode', mode, '--bridge', host.host_bridge(slot), '--slot', str(slot),
               '--serial', f'{SERIAL:#x}', '--bytes', str(BYTES), '--window', 'decoder0.0',
               '--by-hand', '/usr/local/bin/agent_by_hand', '--json', f'/tmp/{mode}.json',
               '--rounds', str(options.rounds), '--seconds', str(options.seconds)]
    if options.steps:
        command.append('--steps')
    # Each round is four slices, and each slice a cycle that warms up, one that is begun late, and the time itself.
    done = host.run(command, timeout=120 + options.rounds * 4 * (options.seconds + 20))
    print(done.out, end='', flush=True)
    if not done.ok:
        log = host.run('tail -n 20 /var/log/bench-agent.log; dmesg | tail -n 20').out
        sys.exit(f'{done.err[-4000:]}\nThe peer and the kernel said last:\n{log}')
    return json.loads(host.get(f'/tmp/{mode}.json'))['rows']


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--program', type=Path, required=True, help='bench-agent')
    parser.add_argument('--dir', type=Path, help='where the rack lies meanwhile')
    parser.add_argument('--json', type=Path, help='write the figures there')
    parser.add_argument('--rounds', type=int, default=9)
    parser.add_argument('--seconds', type=float, default=2)
    parser.add_argument('--mode', choices=MODES, action='append', help='one of them alone')
    parser.add_argument('--steps', action='store_true', help='print when each rung of ours begins and ends')
    options = parser.parse_args()
    reason = why_not_here()
    if reason:
        print(f'agent: not measured: {reason}', file=sys.stderr)
        return NOT_HERE
    directory = Path(tempfile.mkdtemp(prefix='agent.', dir=options.dir))
    try:
        subprocess.run([REPOSITORY / 'qemu-cxl/mkimage', '--out', directory / 'image',
                        '--bin', f'{options.program}=/usr/local/bin/bench-agent',
                        '--bin', f'{HERE}/agent_by_hand=/usr/local/bin/agent_by_hand'],
                       check=True, stdout=subprocess.DEVNULL)
        with Rack.up(TOPOLOGY, directory / 'rack', directory / 'image') as rack:
            host = rack.host('host-a')
            slot = bind(rack, host)
            rows = [row for mode in options.mode or MODES for row in measure(host, slot, mode, options)]
    except RackError as error:
        print(f'agent: {error}', file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if options.json:
        options.json.write_text(json.dumps({'rows': rows}) + '\n')
    return 0


if __name__ == '__main__':
    sys.exit(main())
