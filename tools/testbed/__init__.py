"""A pool to try things on: a manager, its hosts and the operator's CLI, emulated or on QEMU.

Used by tools/demo and by the tests that cross process boundaries. Standard library alone.
"""
