"""A key-value cache of two processes, of which one is killed, again and again: what the other one finds then.

    kv_cache.py [KILLS]

The cache is a Directory with a partition for each process. Both put blocks in place of older ones, and get the
other's, by the hash of the tokens that a block is for. One is killed while it puts. The other goes on meanwhile,
takes the dead one's partition over, and finds each block whole: the new one, or the old one.
"""

import hashlib
import os
import random
import select
import subprocess
import sys

import cxlpool

KEYS = [[hashlib.sha256(f'{owner}: tokens of block {i}'.encode()).hexdigest() for i in range(8)] for owner in range(2)]
PATIENCE_SECONDS = 30


def make(key, version):
    """What stands for keys and values, of 256 KiB to 1 MiB: the version, then bytes that belong to this version only."""
    line = hashlib.blake2b(f'{key} {version}'.encode()).digest()
    return version.to_bytes(8, 'little') + line * (4096 * (1 + version % 4))


def version_of(directory, key):
    """Of the block that is there now; 0: none is. A block of which a byte is another version's ends the program."""
    block = directory.get(key, None)
    if block is None:
        return 0
    version = int.from_bytes(block[:8], 'little')
    if block != make(key, version):
        sys.exit(f'half of a block: {key}')
    return version


def put_until_killed(region):
    """The process that dies. Of each put it says when it begins and when it has ended."""
    directory = cxlpool.Directory(cxlpool.open(region).map(), partition=0)
    versions = {key: version_of(directory, key) for key in KEYS[0]}
    while True:
        key = random.choice(KEYS[0])
        versions[key] += 1
        block = make(key, versions[key])
        with directory.borrow(random.choice(KEYS[1])):  # That is given back for it, too.
            os.write(1, f'begins {key} {versions[key]}\n'.encode())
            directory.put(key, block)
            os.write(1, f'ended {key} {versions[key]}\n'.encode())


class Survivor:
    """The process that lives: what it has put and found, and what the one that is killed has said."""

    def __init__(self):
        self.region = cxlpool.allocate('256MiB', f'kv-cache-{os.getpid()}')
        self.memory = self.region.map()
        cxlpool.Directory.create(self.memory, partitions=2, entries=64)
        self.directory = cxlpool.Directory(self.memory, partition=1)
        self.own = {key: 0 for key in KEYS[1]}
        self.said = {'begins': {key: 0 for key in KEYS[0]}, 'ended': {key: 0 for key in KEYS[0]}}  # -> version
        self.found = {key: 0 for key in KEYS[0]}
        self.puts = self.gets = self.left_old = self.left_new = 0

    def put(self, key):
        self.own[key] += 1
        self.directory.put(key, make(key, self.own[key]))
        self.puts += 1

    def get(self, directory, key):
        version = version_of(directory, key)
        if version < self.found[key]:
            sys.exit(f'an older block than before: {key}')
        self.found[key] = version
        self.gets += 1

    def listen(self, pipe):
        """Notes what the other one says, and returns what it said last; None: it has ended."""
        if not select.select([pipe], [], [], PATIENCE_SECONDS)[0]:
            sys.exit(f'the other process says nothing for {PATIENCE_SECONDS} s')
        what = None
        for line in os.read(pipe.fileno(), 1 << 16).decode().splitlines():  # Whole ones: each was one write.
            what, key, version = line.split()
            self.said[what][key] = int(version)
        return what

    def live_beside(self, other):
        """Until it has put a few blocks more, and has begun with another one."""
        enough = sum(self.said['ended'].values()) + random.randrange(1, 30)
        while True:
            said = self.listen(other.stdout)
            if said is None:
                sys.exit('the other process ended by itself')
            if said == 'begins' and sum(self.said['ended'].values()) >= enough:
                return
            self.put(random.choice(KEYS[1]))
            self.get(self.directory, random.choice(KEYS[0]))

    def see_one_killed(self):
        """And look at what it leaves: of each block the version that it put last, or the one that it was putting."""
        with subprocess.Popen([sys.executable, __file__, 'put', self.region.name], stdout=subprocess.PIPE) as other:
            try:
                self.live_beside(other)
            finally:
                other.kill()  # By SIGKILL: it does nothing more.
            while self.listen(other.stdout) is not None:
                pass  # What it had said before.

        with cxlpool.Directory(self.memory, partition=0) as taken_over:
            for key in KEYS[0]:
                self.get(taken_over, key)
                begun, ended = self.said['begins'][key], self.said['ended'][key]
                if not ended <= self.found[key] <= begun:
                    sys.exit(f'version {self.found[key]} of {key}, where {ended} was put and {begun} was begun')
                self.left_old += self.found[key] < begun
                self.left_new += self.found[key] == begun > ended
                self.said['begins'][key] = self.said['ended'][key] = self.found[key]


def main(kills=20):
    survivor = Survivor()
    for key in KEYS[1]:
        survivor.put(key)
    for _ in range(int(kills)):
        survivor.see_one_killed()
    with cxlpool.Directory(survivor.memory, partition=0) as heir:
        for key in filter(survivor.found.get, KEYS[0]):
            heir.remove(key)
        for key in KEYS[1]:
            survivor.put(key)
        waste = sum(d.describe()['removed_objects'] for d in (heir, survivor.directory))
    print(f'{kills} kills, {survivor.left_old + survivor.left_new} in the middle of a put: '
          f'{survivor.left_old} left the old block, {survivor.left_new} the new one')
    print(f'{sum(survivor.found.values())} blocks put by those that were killed, {survivor.puts} by the one that was not')
    print(f'{survivor.gets} gets, none of half a block; {waste} are still borrowed')


if __name__ == '__main__':
    put_until_killed(sys.argv[2]) if sys.argv[1:2] == ['put'] else main(*sys.argv[1:])
