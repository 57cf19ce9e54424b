"""Row 19: runs bench-scrub here, and bench-carve in an emulated host (qemu-cxl) that was booted with a device.

python3 tools/benches/scrub.py --programs DIR [--dir DIR] [--json FILE] [--rounds N] [--seconds S]

Where the rack cannot be had carving is left out, and why is said. $CXLPOOL_RACK_KERNEL chooses the kernel.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from agent import REPOSITORY, why_not_here
from cxlrack.errors import RackError
from cxlrack.rack import Rack

TOPOLOGY = {'device': [{'name': 'cmm-0', 'size': '1 GiB'}],
            'host': [{'name': 'host-a', 'bridges': 1, 'ports': 1, 'whole': ['cmm-0']}]}


def carve(program, directory, options):
    """Its rows, and what it prints."""
    subprocess.run([REPOSITORY / 'qemu-cxl/mkimage', '--out', directory / 'image', '--bin',
                    f'{program}=/usr/local/bin/bench-carve'], check=True, stdout=subprocess.DEVNULL)
    with Rack.up(TOPOLOGY, directory / 'rack', directory / 'image') as rack:
        host = rack.host('host-a')
        done = host.run(['bench-carve', '--json', '/tmp/carve.json', *options], timeout=600)
        print(done.out, end='', flush=True)
        if not done.ok:
            raise SystemExit(f'{done.err[-4000:]}{host.run("tail -n 20 /var/log/bench-carve.log").out}')
        return json.loads(host.get('/tmp/carve.json'))['rows']


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--programs', type=Path, required=True, help='where bench-scrub and bench-carve are')
    parser.add_argument('--dir', type=Path, help='where the rack lies meanwhile')
    parser.add_argument('--json', type=Path, help='write the figures there')
    parser.add_argument('--rounds', type=int, default=9)
    parser.add_argument('--seconds', type=float, default=1)
    options = parser.parse_args()
    words = ['--rounds', str(options.rounds), '--seconds', str(options.seconds)]
    directory = Path(tempfile.mkdtemp(prefix='scrub.', dir=options.dir))
    try:
        figures = directory / 'scrub.json'
        subprocess.run([options.programs / 'bench-scrub', '--json', figures, *words], check=True)
        rows = json.loads(figures.read_text())['rows']
        reason = why_not_here()
        if reason:
            print(f'scrub: carving is not measured: {reason}', file=sys.stderr)
        else:
            rows += carve(options.programs / 'bench-carve', directory, words)
    except (RackError, subprocess.CalledProcessError) as error:
        print(f'scrub: {error}', file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if options.json:
        options.json.write_text(json.dumps({'rows': rows}) + '\n')
    return 0


if __name__ == '__main__':
    sys.exit(main())
