"""A pool to try things on: a manager, its hosts and the operator's CLI, emulated or on QEMU.

Used by tools/demo and by the tests that cross process boundaries. Standard library alone.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / 'qemu-cxl'))
