"""Many Regions on devices that every host sees whole, in any order: the same tests for a pool of files and for real kernels."""

import random
from concurrent.futures import ThreadPoolExecutor

from .pool import MiB
from .testing import EVERY_CASE


class ManyRegions:
    """Beside a PoolTest with assert_nothing_left(), and assert_many_online(count), which looks at `count` Regions on host-a."""

    def test_1_two_hundred_at_once_on_one_host(self):
        names = [f'n{i}' for i in range(200)]
        with ThreadPoolExecutor(4) as workers:
            list(workers.map(lambda name: self.pool.allocate(name, '4MiB', 'host-a'), names))
        self.assertEqual(sorted(self.pool.regions()), sorted(names))
        self.assert_many_online(len(names))
        with ThreadPoolExecutor(4) as workers:
            list(workers.map(self.pool.release, names))
        self.assert_nothing_left()

    def test_2_allocations_and_releases_in_random_order(self):
        """Every request that there is room for is granted: no order of Regions blocks another. A thousand of them, 250 each day."""
        requests = 1000 if EVERY_CASE else 250
        random_ = random.Random(20260)
        total = int(self.pool.cli('capacity')['total_bytes'])
        live, done, free = {}, 0, total
        with ThreadPoolExecutor(4) as workers:
            while done < requests:
                begun = []
                for _ in range(min(8, requests - done)):
                    size = random_.choice((2, 4, 6, 16, 64)) * MiB
                    if free < size:
                        break
                    host, name = random_.choice(('host-a', 'host-b')), f'r{done}'
                    flags = ('--max-extents', '8')
                    begun.append(workers.submit(self.pool.allocate, name, size, host, *flags))
                    live[name], free, done = size, free - size, done + 1
                for each in begun:
                    each.result()
                gone = random_.sample(sorted(live), random_.randrange(len(live) + 1) if free > 64 * MiB else len(live) // 2)
                list(workers.map(self.pool.release, gone))
                free += sum(live.pop(name) for name in gone)
            list(workers.map(self.pool.release, live))
        self.assertEqual(int(self.pool.cli('capacity')['total_bytes']), total)
        self.assert_nothing_left()
