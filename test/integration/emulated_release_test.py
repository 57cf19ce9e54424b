"""Memory that is taken from those who hold it: by the operator's drain hook, and by force."""

import subprocess

from testbed.emulated import EmulatedPool
from testbed.pool import CliError
from testbed.process import wait_until
from testbed.testing import BUILD, PoolTest, main

HOOK = '''#!/bin/sh
echo "$CXLPOOL_REASON $CXLPOOL_REGION of $CXLPOOL_MODE: $CXLPOOL_PIDS"
[ -z "$CXLPOOL_PIDS" ] || kill -KILL $CXLPOOL_PIDS
'''


class EmulatedReleaseTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return EmulatedPool(BUILD, directory, hosts={'host-a': [[1, 2]], 'host-b': [[1, 2]]})

    def hold(self, region):
        holder = self.pool.hosts['host-a'].hold(region)
        self.addCleanup(holder.communicate)
        self.addCleanup(holder.kill)
        return holder

    def test_1_force_on_a_host_that_is_there_needs_a_fence(self):
        self.pool.allocate('held', '256MiB', 'host-a')
        self.hold('held')
        with self.assertRaisesRegex(CliError, 'FENCE_REQUIRED(.|\n)*attached to host-a'):
            self.pool.cli('region', 'release', 'held', '--force', '--reason', 'it hangs', '--yes')
        self.assertEqual(self.pool.attachment('held', 'host-a')['state'], 'ONLINE')
        self.pool.cli('region', 'release', 'held', '--force', '--fence', '--reason', 'it hangs', '--yes')
        wait_until(lambda: not self.pool.regions(), 30, 'it is gone, no matter who holds it')
        self.pool.wait_hosts_online()

    def test_2_the_drain_hook_ends_the_holder(self):
        host = self.pool.hosts['host-a']
        hook = host.directory / 'drain'
        hook.write_text(HOOK)
        hook.chmod(0o777)
        host.agent.kill()
        host.config.write_text(host.config.read_text() + f'[release]\ndrain_hook = "{hook}"\ndrain_timeout = "20s"\n')
        check = subprocess.run([BUILD / 'bin/cxlpool-agent', '--check-config', '--config', host.config],
                               capture_output=True, text=True, check=False)
        self.assertEqual(check.returncode, 2)
        self.assertIn('can be written by its group or others', check.stderr)
        hook.chmod(0o755)
        host.agent.start()
        self.pool.wait_hosts_online()
        self.pool.allocate('held', '256MiB', 'host-a')
        holder = self.hold('held')
        self.pool.release('held')
        self.assertEqual(holder.wait(20), -9)
        self.assertIn(f'RELEASE held of devdax: {holder.pid}', host.agent.log.read_text())
        self.assert_pool_empty()


if __name__ == '__main__':
    main()
