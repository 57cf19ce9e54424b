"""What the API says of a Region's bytes, compared with the files that are the pool's devices."""

import subprocess

from .testing import BUILD

_CHUNK = 16 << 20


def extents(pool, name):
    """(device, offset, length) of each extent, in Region order."""
    return [(e['device'].removeprefix('devices/'), int(e.get('dpa_bytes', 0)), int(e['length_bytes']))
            for e in pool.regions()[name]['extents']]


def check_pattern(test, pieces, seed, ways=1, granularity=256):
    """Every word that pool-write wrote with `seed` is in its place. `pieces`: (file, offset, length)."""
    done = subprocess.run([BUILD / 'bin/pool-bytes', str(seed), str(ways), str(granularity),
                           *(f'{file}:{offset}:{length}' for file, offset, length in pieces)],
                          capture_output=True, text=True, timeout=120)
    test.assertEqual(done.returncode, 0, done.stderr)
    test.assertIn(f'{sum(length for _, _, length in pieces)} bytes lie where they should', done.stdout)


def check_zero(test, file):
    """Not a byte is left in a pool file."""
    with open(file, 'rb') as f:
        while chunk := f.read(_CHUNK):
            test.assertEqual(chunk.count(0), len(chunk), f'{file} before {f.tell()}')
