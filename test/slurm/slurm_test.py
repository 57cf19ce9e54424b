"""Real slurmctld and slurmd give their jobs memory of a pool, and nothing of it is left, whatever happens to whom."""

import re
import time

from cluster import HOME, LARGE, MIB, SMALL, USE, SlurmCase, until_there
from testbed.process import wait_until
from testbed.testing import main


class SlurmTest(SlurmCase):
    def test_a_job_writes_and_verifies(self):
        self.head.run('runuser -u slurm -- cxlpool slurm check')
        job = self.cluster.submit(SMALL, f'{USE}; sleep 2')
        name = f'slurm-{job}'
        self.cluster.wait_job(job, 'RUNNING')
        region = self.cluster.regions()[name]
        self.assertEqual((int(region['size_bytes']), region['sharing'], region['open_to']['uids']), (64 * MIB, 'EXCLUSIVE', [2000]))
        self.assertIn(name, self.head.output('scontrol show bbstat'))
        node = region['attachments'][0]['host'].split('/')[1]
        other = self.cluster.machines[node].run(f'runuser -u bob -- pool-verify --region {name} --seed 1', check=False)
        self.assertNotEqual(other.returncode, 0, "another user's job cannot open it")
        self.assertIn('used', self.cluster.finish(job))

    def test_two_that_do_not_fit_follow_one_another(self):
        first, second = (self.cluster.submit(LARGE, f'{USE}; {until_there("first-ends")}') for _ in range(2))
        self.cluster.wait_job(first, 'RUNNING')
        self.assertEqual(self.cluster.job(second), ('PENDING', 'BurstBufferResources'))
        self.head.run(f'touch {HOME}/first-ends')
        self.assertIn('used', self.cluster.finish(first))
        self.assertIn('used', self.cluster.finish(second))

    def test_a_directive_that_is_wrong_is_refused_as_it_is_submitted(self):
        for directive, why in (('pool=cxl capcity=64MiB', 'did you mean "capacity"?'), ('pool=cxl capacity=1.5GiB', 'capacity=1.5GiB is no size')):
            with self.assertRaisesRegex(AssertionError, re.escape(why)):
                self.cluster.submit(directive)
        with self.assertRaisesRegex(AssertionError, '--bb needs the word'):
            self.cluster.submit('', options="--bb='pool=cxl capacity=64MiB'")

    def test_a_region_for_each_node_and_one_for_all(self):
        body = f"srun bash -c '{USE}'; sleep 2"
        job = self.cluster.submit(f'{SMALL} per=node', body, nodes=2)
        self.cluster.wait_job(job, 'RUNNING')
        self.assertEqual(sorted(self.cluster.regions()), [f'slurm-{job}-0', f'slurm-{job}-1'])
        self.assertIn('UsedSpace=128MiB', self.head.output('scontrol show burst'))
        self.assertEqual(self.cluster.finish(job).count('used'), 2)

        body = f'{USE}; srun pool-verify --region $CXLPOOL_REGION --seed $SLURM_JOB_ID && echo both'
        job = self.cluster.submit(SMALL, body, nodes=2)
        self.assertIn('both', self.cluster.finish(job))

    def test_cancelled(self):
        runs = self.cluster.submit(LARGE, f'{USE}; sleep 60')
        self.cluster.wait_job(runs, 'RUNNING')
        waits = self.cluster.submit(LARGE)
        self.head.run(f'scancel {waits} {runs}')
        self.cluster.wait_regions([])
        # While its setup waits: it gets memory after its teardown, and gives it back itself.
        self.head.run('cxlpool region allocate kv --size 512MiB --wait')
        in_setup = self.cluster.submit(LARGE)
        time.sleep(3)
        self.head.run(f'scancel {in_setup}; systemctl stop cxlpool-slurm-sweep.timer; cxlpool region release kv --wait')
        time.sleep(6)
        self.assertEqual(self.cluster.regions(), {})
        self.head.run('systemctl start cxlpool-slurm-sweep.timer')

    def test_a_prolog_that_fails(self):
        self.head.run('touch /of-all/fail-prolog')
        job = self.cluster.submit(SMALL, USE)
        wait_until(lambda: 'drain' in self.head.output("sinfo -h -N -o '%T'"), 30, 'a node is drained')
        self.cluster.wait_regions([])
        self.head.run('rm /of-all/fail-prolog')
        self.cluster.resume_nodes()
        self.head.run(f'scontrol release {job}; scontrol update jobid={job} starttime=now')  # Not in two minutes, as Slurm has it.
        self.assertIn('used', self.cluster.finish(job))

    def test_slurmctld_is_killed_while_a_job_has_memory(self):
        ends, lives = (self.cluster.submit(SMALL, f'{until_there(name)}; {USE}') for name in ('one', 'other'))
        both = sorted((f'slurm-{ends}', f'slurm-{lives}'))
        for job in (ends, lives):
            self.cluster.wait_job(job, 'RUNNING')
        self.cluster.save_jobs(lives)
        self.head.run('systemctl kill -s KILL slurmctld')
        self.head.run(f'touch {HOME}/one')
        time.sleep(6)
        self.assertEqual(sorted(self.cluster.regions()), both, 'silence is no end of a job')
        self.head.run('systemctl reset-failed slurmctld; systemctl start slurmctld')
        self.cluster.wait_regions([f'slurm-{lives}'])
        self.head.run(f'touch {HOME}/other')
        self.assertIn('used', self.cluster.finish(lives))

    def test_slurmctld_forgets_everything(self):
        job = self.cluster.submit(SMALL, 'sleep 60')
        self.cluster.wait_job(job, 'RUNNING')
        self.head.run('systemctl stop slurmctld; rm -r /var/lib/slurm/ctld/*; systemctl start slurmctld')
        # Its numbers begin again: nobody may get the former job's bytes.
        self.cluster.wait_regions([])
        again = self.cluster.submit(SMALL, f'pool-verify --region $CXLPOOL_REGION --seed {job} || {USE}')
        self.assertIn('used', self.cluster.finish(again, timeout=90))

    def test_a_job_is_killed(self):
        job = self.cluster.submit(SMALL, f'echo $$; {USE}; exec sleep 61')
        wait_until(lambda: 'used' in self.cluster.printed(job), 30, 'it has written')
        self.cluster.kill(job)
        self.cluster.wait_regions([])

    def test_leases_are_renewed_while_the_job_lives_and_no_longer(self):
        self.head.run("sed -i 's/lease = .*/lease = \"10s\"/' /etc/cxlpool/cli.toml")
        self.addCleanup(self.head.run, "sed -i 's/lease = .*/lease = \"10m\"/' /etc/cxlpool/cli.toml")
        job = self.cluster.submit(SMALL, f'sleep 12; {USE}')
        self.assertIn('used', self.cluster.finish(job))
        # The machine with slurmctld and the sweep is gone for good.
        job = self.cluster.submit(SMALL, 'sleep 60')
        self.cluster.wait_job(job, 'RUNNING')
        self.head.run('systemctl stop cxlpool-slurm-sweep.timer; systemctl kill -s KILL slurmctld')
        self.assertEqual(list(self.cluster.regions()), [f'slurm-{job}'])
        self.cluster.wait_regions([], timeout=30)
        self.head.run('systemctl reset-failed slurmctld; systemctl start slurmctld cxlpool-slurm-sweep.timer')


if __name__ == '__main__':
    main()
