"""A Slurm cluster with an emulated pool, in containers with a real systemd: a machine with slurmctld, the fabric manager, and
the first node, and one machine for each other node. What Debian's packages and `cmake --install` bring is set up as docs/slurm.md says.
"""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from testbed.machines import EMULATED_FM_TOML, Machine, require_machines
from testbed.process import wait_until
from testbed.testing import BUILD, REPOSITORY

MIB = 1 << 20
HOME = '/home/alice'
SMALL = 'pool=cxl capacity=64MiB'
LARGE = 'pool=cxl capacity=640MiB'  # Of 1 GiB: two do not fit.

HOST_TOML = '''
[[host]]
id = "{node}"
slots = [17, 18, 19, 20, 21, 22, 23, 24]
'''

AGENT_TOML = '''
host = "{node}"
adapter = "emulated"
[manager]
address = "127.0.0.1:7600"
[tls]
ca = "/etc/cxlpool/pki/ca.pem"
cert = "/etc/cxlpool/pki/host-{node}.pem"
key = "/etc/cxlpool/pki/host-{node}.key"
[emulated]
root = "/var/lib/cxlpool/fabric"
[[emulated.bridge]]
name = "ACPI0016:00"
slots = [17, 18, 19, 20]
[[emulated.bridge]]
name = "ACPI0016:01"
slots = [21, 22, 23, 24]
'''

CLI_TOML = '''
manager = "127.0.0.1:7600"
ca = "pki/ca.pem"
cert = "pki/operator-slurm.pem"
key = "pki/operator-slurm.key"
[slurm]
granule = "16MiB"
wait = "{wait}"
lease = "{lease}"
'''

SLURM_CONF = '''
ClusterName=tiny
SlurmctldHost={head}(10.77.0.1)
AuthType=auth/munge
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/ctld
SlurmdSpoolDir=/var/lib/slurm/d
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurm/ctld.log
SlurmdLogFile=/var/log/slurm/d.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2
ReturnToService=2
MpiDefault=none
SlurmdParameters=config_overrides
BurstBufferType=burst_buffer/lua
PrologFlags=Alloc
Prolog=/etc/slurm/prolog.sh
TaskProlog=/etc/slurm/task_prolog.sh
JobSubmitPlugins=lua
SlurmctldDebug=verbose
DebugFlags=BurstBuffer
MinJobAge=20
KillWait=2
{lines}
PartitionName=p Nodes=ALL Default=YES State=UP MaxTime=10
'''


JOB = """#!/bin/bash
#SBATCH -t5 -N{nodes} --ntasks-per-node=1 -o {home}/%j.out
{directive}
{body}
"""
# What a job does with its Region, whichever node it is on.
USE = 'pool-write --region $CXLPOOL_REGION --seed $SLURM_JOB_ID && pool-verify --region $CXLPOOL_REGION --seed $SLURM_JOB_ID && echo used'
RECIPES = re.findall(r'^```\w*\n(.*?)^```$', (REPOSITORY / 'docs/slurm.md').read_text(), re.M | re.S)
# Fails while the file is there.
PROLOG = '#!/bin/sh\ntest ! -e /of-all/fail-prolog'

NODE_LINE = 'NodeName={node} NodeAddr=10.77.0.1 Port={port} CPUs=4 RealMemory=1000 State=UNKNOWN'


def until_there(name):
    """What a job does until its test creates that file in alice's home: on a slow machine it ends no sooner either."""
    return f'until [ -e {HOME}/{name} ]; do sleep 0.2; done'


class Cluster:
    """`nodes`: how many. `wait`, `lease`: as in [slurm] of cli.toml."""

    def __init__(self, nodes=1, wait='40s', lease='30s'):
        self.root = require_machines('--slurm')
        self.nodes = [f'node{number}' for number in range(nodes)]
        self.wait, self.lease = wait, lease
        self.directory = Path(tempfile.mkdtemp(prefix='cxlpool-slurm-'))
        self.machines = {}

    def start(self):
        subprocess.run(['cmake', '--install', BUILD, '--prefix', '/usr'], check=True, capture_output=True, timeout=120,
                       env={**os.environ, 'DESTDIR': str(self.directory / 'tree')})
        # The devices are files of the manager's, which all agents open.
        shares = {'/tree': self.directory / 'tree', '/of-all': self.directory / 'of-all', '/var/lib/cxlpool': self.directory / 'pool',
                  HOME: self.directory / 'home'}
        for directory in shares.values():
            directory.mkdir(exist_ok=True)
        for node in self.nodes:
            self.boot(node, shares)
        self.set_up_pool()
        self.set_up_slurm()
        wait_until(self.is_idle, 60, 'all nodes are idle')
        return self

    def boot(self, node, shares):
        machine = Machine(node, self.root, self.directory / f'{node}.log', shares=shares,
                          network_of=self.machines[self.nodes[0]] if self.machines else None)
        self.machines[node] = machine
        machine.start()
        if len(self.machines) == 1:
            self.head = machine
            # With the loopback alone Slurm looks up no name.
            machine.run('ip link add v0 type veth peer name v1; ip addr add 10.77.0.1/24 dev v0; ip link set v0 up; ip link set v1 up')
        machine.run(f"""
            cp -a /tree/usr/. /usr/
            systemd-sysusers
            systemctl daemon-reload
            useradd -d {HOME} -u 2000 alice
            useradd -u 2001 bob
            chown alice: {HOME}
            mkdir -p /etc/cxlpool
            echo '10.77.0.1 {' '.join(self.nodes)}' >> /etc/hosts
            """)

    def set_up_pool(self):
        self.head.run("""
            cxlpool pki init --dir /of-all/pki
            cxlpool pki issue manager fm --dir /of-all/pki
            cxlpool pki issue operator slurm --dir /of-all/pki
            """)
        self.head.write('/etc/cxlpool/fm.toml', EMULATED_FM_TOML + ''.join(HOST_TOML.format(node=node) for node in self.nodes))
        self.head.write('/etc/cxlpool/cli.toml', CLI_TOML.format(wait=self.wait, lease=self.lease))
        for node in self.nodes:
            self.head.run(f'cxlpool pki issue host {node} --dir /of-all/pki')
        self.head.run("""
            cp -a /of-all/pki /etc/cxlpool/
            chmod 755 /etc/cxlpool/pki
            chown cxlpool: /etc/cxlpool/pki/manager-fm.key
            chown slurm: /etc/cxlpool/pki/operator-slurm.key
            systemctl start cxlpool-fm
            """)
        for node, machine in self.machines.items():
            self.head.run(f'cxlpool host enrol {node}')
            machine.write('/etc/cxlpool/agent.toml', AGENT_TOML.format(node=node))
            machine.run("""
                mkdir -p /etc/systemd/system/cxlpool-agent.service.d
                cp /usr/share/doc/cxlpool/examples/cxlpool-agent-emulated.conf /etc/systemd/system/cxlpool-agent.service.d/
                systemctl daemon-reload
                mkdir -p /etc/cxlpool/pki
                cp -a /of-all/pki/ca.pem /of-all/pki/host-* /etc/cxlpool/pki/
                chown cxlpool: /etc/cxlpool/pki/host-*.key
                systemctl start cxlpool-agent
                """)

    def set_up_slurm(self):
        lines = '\n'.join(NODE_LINE.format(node=node, port=6820 + number) for number, node in enumerate(self.nodes))
        for machine in self.machines.values():
            machine.write('/etc/slurm/slurm.conf', SLURM_CONF.format(head=self.nodes[0], lines=lines))
            machine.write('/etc/slurm/cgroup.conf', 'CgroupPlugin=cgroup/v1\nCgroupAutomount=no')
            machine.write('/etc/slurm/prolog.sh', PROLOG)
            # docs/slurm.md's, word for word.
            for name, begins in (('task_prolog.sh', '#!/bin/sh\n[ -z'), ('job_submit.lua', 'function slurm_job_submit')):
                machine.write(f'/etc/slurm/{name}', next(block for block in RECIPES if block.startswith(begins)))
            machine.run('chmod +x /etc/slurm/*prolog.sh; mkdir -p /var/lib/slurm/ctld /var/lib/slurm/d /var/log/slurm; chown -R slurm: /var/lib/slurm /var/log/slurm')
            if machine is not self.head:
                machine.run('cp /of-all/munge.key /etc/munge/munge.key; chown munge: /etc/munge/munge.key; chmod 400 /etc/munge/munge.key; systemctl restart munge')
            else:
                machine.run('cp /etc/munge/munge.key /of-all/')
                # As docs/slurm.md says.
                machine.run('cp /usr/share/cxlpool/burst_buffer.lua /usr/share/doc/cxlpool/examples/burst_buffer.conf /etc/slurm/')
                machine.write('/etc/systemd/system/cxlpool-slurm-sweep.timer.d/often.conf',
                              '[Timer]\nOnUnitInactiveSec=\nOnUnitInactiveSec=3s\nAccuracySec=100ms')
                # A manager that is stopped is not to be started again by systemd.
                machine.write('/etc/systemd/system/cxlpool-fm.service.d/no-watchdog.conf', '[Service]\nWatchdogSec=0')
                machine.run('systemctl daemon-reload; systemctl restart cxlpool-fm; systemctl start slurmctld; '
                            'systemctl enable --now cxlpool-slurm-sweep.service cxlpool-slurm-sweep.timer')
            machine.run('systemctl start slurmd')

    def is_idle(self):
        states = self.head.run("sinfo -h -N -o '%N %T'", check=False).stdout.split()
        return states == [word for node in self.nodes for word in (node, 'idle')]

    def submit(self, directive, body='sleep 1', nodes=1, options=''):
        """As alice. Returns the job's number; AssertionError with what sbatch says where it is refused."""
        script = JOB.format(directive=f'#CXLPOOL {directive}' if directive else '', body=body, nodes=nodes, home=HOME)
        said = self.head.output(f"runuser -u alice -- sbatch {options} -D {HOME} <<'END-OF-JOB'\n{script}\nEND-OF-JOB")
        return int(re.search(r'job (\d+)', said)[1])

    def job(self, number):
        """Its state and why: ('PENDING', 'BurstBufferResources'). ('', '') once Slurm has forgotten it."""
        line = self.head.run(f"squeue -h -t all -j {number} -o '%T|%r'", check=False).stdout.strip()
        return tuple(line.split('|', 1)) if '|' in line else ('', '')

    def wait_job(self, number, *states, timeout=60):
        wait_until(lambda: self.job(number)[0] in states, timeout, f'job {number} is {states}')

    def finish(self, number, timeout=60):
        """What it printed, once it has completed."""
        self.wait_job(number, 'COMPLETED', timeout=timeout)
        return self.printed(number)

    def printed(self, number):
        path = self.directory / 'home' / f'{number}.out'
        return path.read_text() if path.exists() else ''

    def save_jobs(self, number):
        """Returns once slurmctld has written down what it knows, as it does some seconds after any change of job `number`.
        Killed before, it would know them as jobs that wait, start them again, and have them requeued and held."""
        known = self.head.output('date +%s.%N')
        self.head.run(f'scontrol update jobid={number} comment=known')
        wait_until(lambda: float(self.head.output('stat -c %.Y /var/lib/slurm/ctld/job_state')) > float(known), 60, 'jobs are saved')

    def kill(self, number):
        """SIGKILL to the job's script, which has printed its pid first."""
        pid = wait_until(lambda: self.printed(number).split(None, 1)[:1], 30, f'job {number} says its pid')[0]
        self.machines[self.head.output(f'squeue -h -t all -j {number} -o %B')].run(f'kill -KILL {pid}')

    def resume_nodes(self):
        for node in self.nodes:
            self.head.run(f'scontrol update nodename={node} state=resume', check=False)

    def cancel_all(self):
        self.head.run('scancel -u alice', check=False)

    def regions(self):
        """All there are, by name."""
        return {region['name'].split('/')[1]: region for region in self.head.json('cxlpool -o json region list').get('regions', [])}

    def wait_regions(self, names, timeout=60):
        wait_until(lambda: sorted(self.regions()) == sorted(names), timeout, f'the Regions are {sorted(names)}')

    def slowest_hook(self):
        """In seconds, of those that slurmctld waits for."""
        log = self.head.output('cat /var/log/slurm/ctld.log')
        took = re.findall(r'(slurm_bb_(?:pools|job_process|paths)) ran for usec=(\d+)', log)
        return max((int(usec) / 1e6, hook) for hook, usec in took)

    def stop(self):
        for machine in reversed(self.machines.values()):
            machine.stop()
        shutil.rmtree(self.directory)


class SlurmCase(unittest.TestCase):
    """One cluster for all tests of a class; after each nothing of the pool is held."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(nodes=2, wait='8s', lease='10m')
        cls.addClassCleanup(cls.cluster.stop)
        cls.cluster.start()
        cls.head = cls.cluster.head

    def setUp(self):
        self.addCleanup(self.nothing_is_left)

    def nothing_is_left(self):
        self.cluster.cancel_all()
        self.cluster.wait_regions([])
        self.cluster.resume_nodes()
        wait_until(self.cluster.is_idle, 30, 'all nodes are idle')
        slowest = self.cluster.slowest_hook()
        self.assertLess(slowest[0], 1, f'slurmctld waited for {slowest[1]}')
