"""A manager that lost has no effect on a host any more: cxlpool-claim-trials on real QEMUs, CXLPOOL_CLAIM_ROUNDS of them."""

import os
import subprocess
import unittest

from cxlrack.rack import cache_directory
from testbed.testing import BUILD, main, require_qemu


class ClaimTest(unittest.TestCase):
    def test_nothing_of_the_former_manager_comes_after_the_look_of_the_next(self):
        require_qemu()
        rounds = os.environ.get('CXLPOOL_CLAIM_ROUNDS', '40')
        done = subprocess.run([BUILD / 'bin/cxlpool-claim-trials', '--seeds', rounds], capture_output=True, text=True,
                              timeout=1100, env={**os.environ, 'CXLPOOL_RACK_QEMU': str(cache_directory() / 'qemu-system-x86_64')})
        print(done.stdout[-2000:])
        self.assertEqual(done.returncode, 0, done.stderr[-4000:])


if __name__ == '__main__':
    main()
