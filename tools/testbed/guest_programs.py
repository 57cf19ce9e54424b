"""Programs in a QEMU host that go on beside a test, and those that an ordinary user runs there."""

import shutil
import time

SETPRIV = '/usr/local/bin/setpriv'  # Busybox's knows less.
SETPRIV_PROGRAM = f'{shutil.which("setpriv")}={SETPRIV}'  # For `programs` of a pool.
AS_USER = (SETPRIV, '--reuid', 1000, '--regid', 1000, '--clear-groups')
# Of uid 1000, with the one capability that it takes to poison memory of one's own.
AS_POISONER = (*AS_USER, '--inh-caps', '-all,+sys_admin', '--ambient-caps', '-all,+sys_admin')
# What pool-path tries with a device that it may write.
ALL_WAYS = dict.fromkeys(('open-r', 'map-r', 'map-rw', 'reopen', 'open-rw', 'store'), 'ok') | {'map-rw': 'EACCES'}
READ_ONLY_WAYS = {'open-r': 'ok', 'map-r': 'ok', 'map-rw': 'EACCES', 'reopen': 'EACCES', 'open-rw': 'EACCES'}


class GuestPrograms:
    """Of a test that has `pool.hosts`."""

    def hold(self, host, *command, says):
        """Starts a program that goes on; (pid, log) once it said `says`."""
        log = f'/tmp/hold-{time.monotonic_ns()}'
        pid = self.pool.hosts[host].output(f'{" ".join(map(str, command))} >{log} 2>&1 & echo $!')
        self.pool.hosts[host].wait_for(f'grep -q "{says}" {log}', timeout=60)
        return int(pid), log

    def run_path(self, host, *words):
        """pool-path as uid 1000 by `cxlpool run --as-file`: (its pid, the device's path, what it said of each way)."""
        guest = self.pool.hosts[host]
        pid, log = self.hold(host, 'sleep 600 |', *AS_USER, 'cxlpool', 'run', '--as-file', *words, '--', 'pool-path', "'{}'",
                             says='held')
        self.addCleanup(guest.run, f'kill -9 {pid}')
        said = dict(line.split(': ') for line in guest.output(f'cat {log}').splitlines() if ': ' in line)
        path = guest.output(f'tr "\\\\0" "\\\\n" </proc/{pid}/environ | sed -n s/^CXLPOOL_PATH=//p')
        self.assertRegex(path, r'^/dev/cxlpool/[a-z]+/dax\d+\.\d+$')
        return pid, path, said

    def poison(self, host, name, other):
        """What pool-poison says of lost bytes in each thing that libpool does, as uid 1000: they are units 1, 2, 3 and 6."""
        done = self.pool.hosts[host].run(' '.join(map(str, (*AS_POISONER, 'pool-poison', name, other))), timeout=120)
        self.assertTrue(done.ok, f'{done.status}: {done.err}')
        unit = 2 << 20  # A page of a DAX device.
        lost = dict(get=1, put=2, guard=3)
        mce, adrerr = 4, 2
        self.assertEqual(done.out.splitlines(), [
            'fill ok', 'fill ok', *(f'{step} DATA_LOST {at * unit} {unit}' for step, at in lost.items()),
            'next-get ok', 'next-put ok', 'other-get ok', 'own-handler 0 calls, code 0',
            'other-meanwhile ok', f'own-handler-lost 1 calls, code {mce}', f'own-handler-truncated 2 calls, code {adrerr}'])
        return [at * unit for at in (*lost.values(), 6)]
