"""A pool that others use as well, that is full, or whose manager is away: what Slurm and its jobs see of that."""

import time

from cluster import LARGE, MIB, SMALL, USE, SlurmCase
from testbed.process import PATIENCE, wait_until
from testbed.testing import main

AWAY_S = 60


class SlurmPoolTest(SlurmCase):
    def pools(self):
        return self.head.json('runuser -u slurm -- cxlpool slurm pools')['pools'][0]

    def test_what_others_use_is_not_slurms(self):
        job = self.cluster.submit(SMALL, 'sleep 60')
        self.cluster.wait_job(job, 'RUNNING')
        self.assertEqual(self.pools(), {'id': 'cxl', 'quantity': 64, 'granularity': 16 * MIB})
        self.head.run('cxlpool region allocate kv --size 512MiB --wait')
        self.assertEqual(self.pools()['quantity'], 32)
        wait_until(lambda: 'TotalSpace=512MiB FreeSpace=448MiB' in self.head.output('scontrol show burst'), 35, 'slurmctld knows it, too')
        late = self.cluster.submit(LARGE)
        wait_until(lambda: self.cluster.job(late) == ('PENDING', 'BurstBufferResources'), 20, 'a job has to wait for that')
        self.head.run('cxlpool region release kv --wait')

    def test_setup_waits_and_the_reason_is_the_managers(self):
        # More than slurmctld knows of.
        self.head.run('cxlpool region allocate kv --size 512MiB --wait')
        waits = self.cluster.submit(LARGE, USE)
        time.sleep(4)
        self.assertEqual(self.cluster.job(waits)[0], 'PENDING')
        self.head.run('cxlpool region release kv --wait')
        self.assertIn('used', self.cluster.finish(waits))

        self.cluster.wait_regions([])
        self.head.run('cxlpool region allocate kv --size 512MiB --wait')
        refused = self.cluster.submit(LARGE, USE)
        words = self.head.run('cxlpool region allocate more --size 640MiB --max-extents 16', check=False).stderr
        words = words.splitlines()[0].removeprefix('cxlpool: error: ').replace('more', f'slurm-{refused}')
        reason = wait_until(lambda: 'POOL_FULL' in self.cluster.job(refused)[1] and self.cluster.job(refused)[1], 60, 'squeue says why')
        self.assertIn(words, reason)
        self.head.run(f'cxlpool region release kv --wait; scontrol release {refused}')
        self.assertIn('used', self.cluster.finish(refused, timeout=120))

    def test_a_scheduler_of_one_tenant(self):
        self.head.write('/root/admin.toml', 'manager = "unix:/run/cxlpool-fm/fm.sock"')
        admin = 'cxlpool --config /root/admin.toml'
        self.head.run(f"""
            {admin} tenant set ml --quota 512MiB
            for node in {' '.join(self.cluster.nodes)}; do {admin} host enrol $node --tenant ml; done
            {admin} access grant somebody --role admin --reason test
            {admin} access grant slurm --role scheduler --tenant ml --reason test
            {admin} region allocate ml.slurm-99 --tenant ml --size 64MiB --ttl 1d
            echo 'tenant = "ml"' >> /etc/cxlpool/cli.toml
            """)
        self.addCleanup(self.head.run, f"""
            {admin} region release ml.slurm-99 --wait
            {admin} access grant slurm --role admin --reason test
            sed -i /^tenant/d /etc/cxlpool/cli.toml
            """)
        for machine in self.cluster.machines.values():
            machine.run("printf '[applications]\\ntenant = \"ml\"\\n' >> /etc/cxlpool/agent.toml; systemctl restart cxlpool-agent")
            self.addCleanup(machine.run, "sed -i '/^.applications/,$d' /etc/cxlpool/agent.toml; systemctl restart cxlpool-agent")
        self.assertEqual(self.pools()['quantity'], 28, 'of its quota, and not of what is another\'s')
        self.head.run('runuser -u slurm -- cxlpool slurm check')
        job = self.cluster.submit(SMALL, f'echo $CXLPOOL_REGION; {USE}; sleep 1')
        self.assertRegex(self.cluster.finish(job), rf'ml\.slurm-{job}\n(.*\n)*used')
        self.cluster.wait_regions([])  # Nobody else's is seen, or swept.
        self.assertIn('ml.slurm-99', self.head.output(f'{admin} region list'))

    def test_the_manager_is_away_for_a_minute(self):
        ends, lives = self.cluster.submit(SMALL, f'{USE}; sleep 3'), self.cluster.submit(SMALL, f'sleep {AWAY_S + 5}; {USE}')
        for job in (ends, lives):
            self.cluster.wait_job(job, 'RUNNING')
        self.addCleanup(self.head.run, 'systemctl kill -s CONT --kill-who=main cxlpool-fm')
        self.head.run('systemctl kill -s STOP --kill-who=main cxlpool-fm')
        comes = self.cluster.submit('pool=cxl capacity=32MiB', USE)
        until = time.monotonic() + AWAY_S
        while time.monotonic() < until:
            begun = time.monotonic()
            self.head.run('squeue; scontrol show burst')
            self.assertLess(time.monotonic() - begun, 2 * PATIENCE, 'slurmctld answers')  # Not one that waits for the manager.
            time.sleep(1)
        self.head.run('systemctl kill -s CONT --kill-who=main cxlpool-fm')
        self.assertIn('used', self.cluster.finish(lives))
        # Its setup has given up meanwhile, and said why.
        self.assertIn('MANAGER_UNREACHABLE', self.cluster.job(comes)[1])
        self.head.run(f'scontrol release {comes}')
        self.assertIn('used', self.cluster.finish(comes))


if __name__ == '__main__':
    main()
