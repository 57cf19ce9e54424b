"""A seed of the simulator gives the same trace in every process. What is in a hash table is in another order in each, so this is
what tells where the manager, or an agent, decides by such an order."""

import subprocess
import unittest

from testbed.testing import BUILD, main

# In the first of them two devices that were equal stood in another order for the manager that took over.
SEEDS = [321] * 5 + list(range(1, 31))


def trace(seed):
    """What the simulator says of a seed, but for how fast it was."""
    done = subprocess.run([BUILD / 'bin/cxlpool-sim', '--seed', str(seed), '--trace'], capture_output=True, text=True, timeout=60)
    return [line for line in done.stdout.splitlines() if 'seeds/s' not in line]


class SameSeedTest(unittest.TestCase):
    def test_each_process_gives_the_same_trace(self):
        for seed in SEEDS:
            with self.subTest(seed=seed):
                first = trace(seed)
                self.assertGreater(len(first), 100)
                self.assertEqual(first, trace(seed))


if __name__ == '__main__':
    main()
