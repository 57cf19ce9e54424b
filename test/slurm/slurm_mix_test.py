"""A mix of jobs and of what goes wrong, by a seed: after each round nothing of the pool is held.

CXLPOOL_SEED is the first round's seed, else one that no other day has; each round of it can be run alone. CXLPOOL_ROUNDS: how many.
"""

import os
import random
import time
import unittest

from cluster import USE, Cluster
from testbed.process import wait_until
from testbed.testing import main

ROUNDS = int(os.environ.get('CXLPOOL_ROUNDS', 20))
SEED = int(os.environ.get('CXLPOOL_SEED', int(time.time()) // 86400 * 1000 + 1))
JOBS = 4


class SlurmMixTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(nodes=2, wait='20s', lease='5m')
        cls.addClassCleanup(cls.cluster.stop)
        cls.cluster.start()
        cls.head = cls.cluster.head

    def any_job(self, draw):
        directive = f'pool=cxl capacity={draw.choice([16, 64, 320, 640])}MiB'
        nodes = draw.choice([1, 1, 2])
        if nodes == 2 and draw.random() < 0.5:
            directive += ' per=node'
        return self.cluster.submit(directive, f'echo $$; {USE}; sleep {draw.randint(0, 6)}', nodes=nodes)

    def signal(self, name, unit, machine=None):
        """To what the unit runs; after a kill systemd may only be about to start it again."""
        on = machine or self.head
        wait_until(lambda: on.run(f'systemctl kill -s {name} --kill-who=main {unit}', check=False).returncode == 0, 30, f'{unit} runs')

    # What goes wrong. Each is over when it returns, but for what it did to jobs.

    def cancel(self, draw, jobs):
        self.head.run(f'scancel {draw.choice(jobs)}', check=False)

    def kill_a_job(self, draw, jobs):
        job = draw.choice(jobs)
        if self.cluster.job(job)[0] == 'RUNNING' and self.cluster.printed(job):
            node = self.head.run(f'squeue -h -j {job} -o %B', check=False).stdout.strip()
            if node in self.cluster.machines:
                self.cluster.machines[node].run(f'kill -KILL {self.cluster.printed(job).split()[0]}', check=False)

    def kill_slurmctld(self, draw, _jobs):
        self.head.run('systemctl kill -s KILL slurmctld')
        time.sleep(draw.uniform(0, 6))
        self.head.run('systemctl reset-failed slurmctld; systemctl start slurmctld')

    def kill_the_manager(self, draw, _jobs):
        self.signal('KILL', 'cxlpool-fm')
        time.sleep(draw.uniform(0, 3))

    def stop_the_manager(self, draw, _jobs):
        self.signal('STOP', 'cxlpool-fm')
        time.sleep(draw.uniform(1, 20))
        self.signal('CONT', 'cxlpool-fm')

    def kill_an_agent(self, draw, _jobs):
        self.signal('KILL', 'cxlpool-agent', draw.choice(list(self.cluster.machines.values())))

    def kill_the_hooks(self, _draw, _jobs):
        self.head.run('for at in /proc/[0-9]*; do case $(tr "\\0" " " < $at/cmdline) in "cxlpool slurm "*) kill -KILL ${at#/proc/};; esac; done',
                      check=False)

    def fail_a_prolog(self, draw, _jobs):
        self.head.run('touch /of-all/fail-prolog')
        time.sleep(draw.uniform(1, 4))
        self.head.run('rm /of-all/fail-prolog')
        self.cluster.resume_nodes()

    def take_memory(self, draw, _jobs):
        self.head.run('cxlpool region allocate kv --size 320MiB --max-extents 16 --wait', check=False)
        time.sleep(draw.uniform(0, 4))
        self.head.run('cxlpool region release kv --wait', check=False)

    def test_nothing_is_left_of_any_round(self):
        trouble = [self.cancel, self.kill_a_job, self.kill_slurmctld, self.kill_the_manager, self.stop_the_manager, self.kill_an_agent,
                   self.kill_the_hooks, self.fail_a_prolog, self.take_memory]
        used = 0
        for number in range(ROUNDS):
            draw = random.Random(SEED + number)
            with self.subTest(seed=SEED + number):
                jobs, what = [], []
                for _ in range(JOBS):
                    jobs.append(self.any_job(draw))
                    time.sleep(draw.uniform(0, 5))
                    what.append(draw.choice(trouble))
                    what[-1](draw, jobs)
                time.sleep(draw.uniform(0, 12))
                used += sum('used' in self.cluster.printed(job) for job in jobs)
                self.head.run('scancel -u alice', check=False, timeout=60)
                begun = time.monotonic()
                self.cluster.wait_regions([], timeout=90)
                took = time.monotonic() - begun
                self.cluster.resume_nodes()
                wait_until(self.cluster.is_idle, 90, 'all nodes are idle')
                self.assertEqual(self.cluster.regions(), {}, 'also afterwards')
                self.assertLess(self.cluster.slowest_hook()[0], 1)
                print(f'seed {SEED + number}: {", ".join(w.__name__ for w in what)}: nothing is left after {took:.1f} s', flush=True)
        print(f'{ROUNDS} rounds from seed {SEED}: {used} of {ROUNDS * JOBS} jobs used their memory; slurmctld waited at most '
              f'{self.cluster.slowest_hook()[0]:.2f} s', flush=True)
        self.assertGreater(used, 0)


if __name__ == '__main__':
    main()
