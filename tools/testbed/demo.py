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
from .process import TestbedError

SIZE = 512 * MiB
SEED = '0xc0ffee'


class Demo:
    def __init__(self, pool, emulated):
        self.pool, self.emulated = pool, emulated
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

    def hold(self, test):
        """Every step, on a pool that is up, each a sub-test of `test`."""
        for step in (self.topology, self.allocate, self.write, self.attach_read_only, self.verify, self.try_write, self.release,
                     self.reallocate, self.system_ram, self.use_node, self.release_ram, self.capacity):
            with test.subTest(step.__name__):
                step()

    def all(self):
        where = {'emulated': 'the emulated fabric', 'qemu': 'QEMU\'s emulated CXL switches',
                 'shared': 'devices that both see whole: ' + ('files' if self.emulated else 'nothing is plugged')}[self.pool.driver]
        self.step(f'two hosts and a pool of two devices on {where}', lambda: self.pool.start() and '')
        self.step('1. topology', self.topology)
        self.step('2. allocate 512 MiB to host-a: its DAX device', self.allocate)
        self.step('3. an application on host-a maps it and writes a pattern', self.write)
        self.step('4. attach it read-only to host-b', self.attach_read_only)
        self.step('   an application there, not root, verifies every byte', self.verify)
        self.step('   and is refused a writable map', self.try_write)
        self.step('5. release: detach, prove, scrub', self.release)
        self.step('   the same bytes to host-b: all zero', self.reallocate)
        self.step('6. allocate as system-ram: a NUMA node on host-a', self.system_ram)
        self.step('   a program allocates on it', self.use_node)
        self.step('   release takes it away', self.release_ram)
        self.step('7. capacity is what it was', self.capacity)


def check(condition, message):
    if not condition:
        raise TestbedError(message)


def how_to_talk(pool, emulated):
    cli = ' '.join(pool.cli_command('topology'))
    print(f'\nIt is up. The operator:\n  {cli}\nLogs and sockets: {pool.directory}')
    if emulated:
        for name, host in pool.hosts.items():
            print(f'On {name}:  CXLPOOL_SOCKET={host.socket} {pool.build}/bin/pool-write --region NAME')
        pids = [pool.manager.process.pid, *(h.agent.process.pid for h in pool.hosts.values())]
        print(f'End it:  kill {" ".join(map(str, pids))}; rm -r {pool.directory}')
    else:
        print(f'On a host:  qemu-cxl/rack exec --dir {pool.directory}/rack host-a -- cxl list')
        print(f'End it:  kill {pool.manager.process.pid}; qemu-cxl/rack down --dir {pool.directory}/rack; rm -r {pool.directory}')


def main():
    parser = argparse.ArgumentParser(prog='tools/demo')
    parser.add_argument('--build', type=Path, required=True)
    parser.add_argument('--emulated', action='store_true')
    parser.add_argument('--shared', action='store_true')
    parser.add_argument('--keep', action='store_true')
    parser.add_argument('--json', type=Path)
    arguments = parser.parse_args()

    directory = Path(tempfile.mkdtemp(prefix='cxlpool-demo-'))
    directory.chmod(0o755)
    if arguments.emulated:
        pool = (SharedPool if arguments.shared else EmulatedPool)(arguments.build, directory)
    else:
        from .rack import RackPool, SharedRackPool
        pool = (SharedRackPool if arguments.shared else RackPool)(arguments.build, directory)
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
            'driver': pool.driver, 'ok': not failed,
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
