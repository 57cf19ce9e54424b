"""The demo: one Region's whole life on two hosts, every step checked and timed."""

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from .emulated import EmulatedPool, SharedPool
from .pool import CliError, MiB
from .process import TestbedError, wait_until
from .replicated import ReplicatedManagers, etcd_program, replicated

SIZE = 512 * MiB
SEED = '0xc0ffee'


class Demo:
    def __init__(self, pool, emulated):
        self.pool, self.emulated = pool, emulated
        self.replicated = isinstance(pool, ReplicatedManagers)
        self.steps = []

    def step(self, what, function):
        """Runs one step; prints it with its time and what it showed. Raises what the step raised."""
        start, error, shown = time.monotonic(), None, ''
        try:
            shown = function() or ''
        except Exception as e:  # noqa: BLE001 - every failure is a result, shown and recorded
            error = e
        seconds = time.monotonic() - start
        self.steps.append({'step': what, 'seconds': round(seconds, 3), 'ok': error is None,
                           'shown': shown if error is None else str(error)})
        print(f'{"ok " if error is None else "BAD"} {seconds:7.2f} s  {what}', flush=True)
        for line in (shown if error is None else str(error)).splitlines():
            print(f'               {line}', flush=True)
        if error is not None:
            raise error

    def run(self, host, *command, user='root', expect=0):
        """One of our programs on a host; its output."""
        result = self.pool.hosts[host].run([str(c) for c in command], user=user)
        text = (result.out + result.err).strip()
        check(result.status == expect, f'{command[0]} on {host}: exit {result.status}, expected {expect}: {text}')
        return text

    # The steps, in the order of a Region's life.
    def topology(self):
        self.before = self.pool.cli('capacity')
        return self.pool.run_cli('topology')

    def allocate(self):
        self.pool.allocate('demo', '512MiB', 'host-a', '--sharing', 'single-writer', '--open-to', 'everybody')
        attachment = self.pool.attachment('demo', 'host-a')
        check(attachment['state'] == 'ONLINE', f'host-a is {attachment["state"]}')
        segment = attachment['segments'][0]
        if not self.emulated:
            listed = json.loads(self.pool.hosts['host-a'].output(['daxctl', 'list', '-d', segment['dax_device']]))
            check(listed[0]['mode'] == 'devdax' and int(listed[0]['size']) == SIZE, f'daxctl sees {listed}')
        return f'{segment["dax_device"]} on {segment["host_region"]}, slot {segment["slot"]}, {segment["memdev"]}'

    def write(self):
        return self.run('host-a', 'pool-write', '--region', 'demo', '--seed', SEED)

    def take_over(self):
        """kill -9 of the manager that leads; a command that is given then waits by itself for the next one."""
        self.killed = self.pool.wait_leader()
        self.pool.managers[self.killed].kill()
        begun = time.monotonic()
        command = self.pool.spawn_cli('capacity')
        leader = self.pool.wait_leader()
        took = [time.monotonic() - begun]
        self.pool.wait_hosts_online()
        took.append(time.monotonic() - begun)
        self.pool.finish_cli(command)
        took.append(time.monotonic() - begun)
        check(leader != self.killed, f'manager {leader} leads, which was killed')
        return ('manager {} was killed; after {:.1f} s at most manager {} led, after {:.1f} s both hosts had turned to it, after {:.1f} s '
                'a command that waited was answered\n'.format(self.killed, took[0], leader, *took[1:]) + self.pool.run_cli('status'))

    def stand_by(self):
        self.pool.managers[self.killed].start()
        wait_until(lambda: sorted(row['role'] for row in self.pool.cli('status')['managers']) == ['leader', 'standby'], 30,
                   'one leads, the other stands by')
        check(self.pool.leader() != self.killed, f'manager {self.killed} leads again')
        return self.pool.run_cli('status')

    def attach_read_only(self):
        self.pool.cli('region', 'attach', 'demo', '--host', 'host-b', '--access', 'ro', '--wait', '--wait-timeout', '90s')
        check(self.pool.attachment('demo', 'host-b')['state'] == 'ONLINE', 'host-b is not online')

    def verify(self):
        return self.run('host-b', 'pool-verify', '--region', 'demo', '--seed', SEED, user='app')

    def try_write(self):
        return self.run('host-b', 'pool-verify', '--region', 'demo', '--try-write', user='app')

    def extents(self, name):
        return [(e['device'], int(e.get('dpa_bytes', 0)), int(e['length_bytes'])) for e in self.pool.regions()[name]['extents']]

    def release(self):
        self.where = self.extents('demo')
        self.pool.release('demo')
        check('demo' not in self.pool.regions(), 'it is still there')

    def reallocate(self):
        device = self.where[0][0].removeprefix('devices/')
        self.pool.allocate('again', '512MiB', 'host-b', '--device', device, '--open-to', 'everybody')
        check(self.extents('again') == self.where, f'other bytes: {self.extents("again")}, not {self.where}')
        text = self.run('host-b', 'pool-verify', '--region', 'again', '--expect-zero', user='app')
        self.pool.release('again')
        return text

    def system_ram(self):
        nodes_before = self.nodes()
        self.pool.allocate('ram', '512MiB', 'host-a', '--mode', 'system-ram')
        segment = self.pool.attachment('ram', 'host-a')['segments'][0]
        self.node = int(segment['numa_node'])
        check(segment['online_blocks'] == segment['total_blocks'] > 0, f'blocks: {segment}')
        if not self.emulated:
            check(self.node in self.nodes() and self.node not in nodes_before,
                  f'nodes with memory: {nodes_before} before, {self.nodes()} now')
        return f'node {self.node}: {segment["online_blocks"]} of {segment["total_blocks"]} blocks online'

    def nodes(self):
        if self.emulated:
            return []
        text = self.pool.hosts['host-a'].output('cat /sys/devices/system/node/has_memory').strip()
        nodes = []
        for part in text.split(','):
            first, _, last = part.partition('-')
            nodes += range(int(first), int(last or first) + 1)
        return nodes

    def use_node(self):
        return self.run('host-a', 'pool-verify', '--region', 'ram', '--node', '--bytes', '64MiB')

    def release_ram(self):
        self.pool.release('ram')
        if not self.emulated:
            check(self.node not in self.nodes(), f'node {self.node} still has memory')

    def capacity(self):
        after = self.pool.cli('capacity')
        for capacity in (self.before, after):
            capacity.pop('revision', None)
        check(after == self.before, f'{after}, before it was {self.before}')
        return self.pool.run_cli('capacity')

    def story(self):
        """(what is shown, the step), in order."""
        yield '1. topology', self.topology
        yield '2. allocate 512 MiB to host-a: its DAX device', self.allocate
        yield '3. an application on host-a maps it and writes a pattern', self.write
        if self.replicated:
            yield '   the manager that leads is killed: the other takes over', self.take_over
        yield '4. attach it read-only to host-b', self.attach_read_only
        yield '   an application there, not root, verifies every byte', self.verify
        yield '   and is refused a writable map', self.try_write
        yield '5. release: detach, prove, scrub', self.release
        yield '   the same bytes to host-b: all zero', self.reallocate
        if self.replicated:
            yield '   the manager that was killed starts again: it stands by', self.stand_by
        yield '6. allocate as system-ram: a NUMA node on host-a', self.system_ram
        yield '   a program allocates on it', self.use_node
        yield '   release takes it away', self.release_ram
        yield '7. capacity is what it was', self.capacity

    def hold(self, test):
        """Every step, on a pool that is up, each a sub-test of `test`."""
        for _, step in self.story():
            with test.subTest(step.__name__):
                step()

    def all(self):
        where = {'emulated': 'the emulated fabric', 'qemu': 'QEMU\'s emulated CXL switches',
                 'shared': 'devices that both see whole: ' + ('files' if self.emulated else 'nothing is plugged')}[self.pool.driver]
        managers = ', three members of etcd and two managers' if self.replicated else ''
        self.step(f'two hosts and a pool of two devices on {where}{managers}', lambda: self.pool.start() and '')
        for what, step in self.story():
            self.step(what, step)


def check(condition, message):
    if not condition:
        raise TestbedError(message)


def how_to_talk(pool, emulated):
    cli = ' '.join(pool.cli_command('topology'))
    pids = ' '.join(str(daemon.process.pid) for daemon in pool.daemons() if daemon.running)
    print(f'\nIt is up. The operator:\n  {cli}\nLogs and sockets: {pool.directory}')
    if emulated:
        for name, host in pool.hosts.items():
            print(f'On {name}:  CXLPOOL_SOCKET={host.socket} {pool.build}/bin/pool-write --region NAME')
        pids = f'{pids} {" ".join(str(h.agent.process.pid) for h in pool.hosts.values())}'
        print(f'End it:  kill {pids}; rm -r {pool.directory}')
    else:
        print(f'On a host:  qemu-cxl/rack exec --dir {pool.directory}/rack host-a -- cxl list')
        print(f'End it:  kill {pids}; qemu-cxl/rack down --dir {pool.directory}/rack; rm -r {pool.directory}')


def main():
    parser = argparse.ArgumentParser(prog='tools/demo')
    parser.add_argument('--build', type=Path, required=True)
    parser.add_argument('--emulated', action='store_true')
    parser.add_argument('--shared', action='store_true')
    parser.add_argument('--replicated', action='store_true')
    parser.add_argument('--keep', action='store_true')
    parser.add_argument('--json', type=Path)
    arguments = parser.parse_args()
    if arguments.replicated and not etcd_program():
        parser.error('there is no etcd here; it comes with qemu-cxl/fetch --with etcd')

    directory = Path(tempfile.mkdtemp(prefix='cxlpool-demo-'))
    directory.chmod(0o755)
    if arguments.emulated:
        kind = SharedPool if arguments.shared else EmulatedPool
    else:
        from .rack import RackPool, SharedRackPool
        kind = SharedRackPool if arguments.shared else RackPool
    pool = (replicated(kind) if arguments.replicated else kind)(arguments.build, directory)
    demo = Demo(pool, arguments.emulated)
    start, failed = time.monotonic(), False
    try:
        demo.all()
    except KeyboardInterrupt:
        failed = True
        print('interrupted')
    except Exception as e:  # noqa: BLE001 - shown by step(); the exit status says it failed
        failed = True
        if not isinstance(e, (TestbedError, CliError)):
            print(f'{type(e).__name__}: {e}')
    seconds = time.monotonic() - start
    print(f'{"FAILED" if failed else "All held"} in {seconds:.1f} s')
    if arguments.json:
        arguments.json.write_text(json.dumps({
            'driver': pool.driver, 'replicated': demo.replicated, 'ok': not failed,
            'seconds': round(seconds, 3), 'steps': demo.steps}, indent=2) + '\n')
    if arguments.keep:
        how_to_talk(pool, arguments.emulated)
    else:
        pool.close()
        if failed:
            print(f'Logs: {directory}')
        else:
            shutil.rmtree(directory, ignore_errors=True)
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()
