"""The unit tests of the emulated rack's launcher (qemu-cxl/cxlrack/*_test.py)."""

import unittest

from testbed.testing import REPOSITORY, main


def load_tests(loader, _tests, _pattern):
    folder = REPOSITORY / 'qemu-cxl'
    return loader.discover(str(folder / 'cxlrack'), pattern='*_test.py', top_level_dir=str(folder))


if __name__ == '__main__':
    main()
