"""The Python package on an emulated pool: what docs/libpool-python.md says of it, and its objects' lives."""

import gc
import io
import mmap
import os
import struct
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

from testbed.emulated import pool_of_driver
from testbed.pool import region_id
from testbed.process import wait_until
from testbed.testing import BUILD, REPOSITORY, PoolTest, import_cxlpool, main

cxlpool = import_cxlpool()
LEAK = REPOSITORY / 'libpool/examples/python/find_leak.py'
MiB = 1 << 20


def memory_of(size):
    """So many bytes that are never touched."""
    return mmap.mmap(-1, size)


class PythonTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return pool_of_driver(BUILD, directory, hosts={'host-a': [[1, 2, 3, 4]], 'host-b': [[1, 2]]})

    def setUp(self):
        super().setUp()
        os.environ['CXLPOOL_SOCKET'] = str(self.pool.hosts['host-a'].socket)
        self.addCleanup(os.environ.pop, 'CXLPOOL_SOCKET')

    def allocate(self, size='256MiB', name='py', **more):
        """A persistent Region: this process outlives the test."""
        region = cxlpool.Pool().allocate(size, name, persistent=True, **more)
        self.addCleanup(self.release, name)
        return region

    def grow(self):
        # The program has the Region before the manager has recorded that its host has.
        wait_until(lambda: self.pool.regions()['py']['state'] == 'ALLOCATED', 20, 'the manager has heard of it')
        self.pool.cli('region', 'resize', 'py', '512MiB', '--wait')

    def release(self, name):
        gc.collect()
        cxlpool.Pool().release(name)
        wait_until(lambda: region_id(name) not in self.pool.regions(), 20, f'{name} is gone')

    def test_bytes_are_the_regions(self):
        region = self.allocate()
        self.assertEqual((region.name, region.size, region.access, region.mode, region.numa_node),
                         ('regions/py', 256 * MiB, 'rw', 'devdax', None))
        with region.map() as memory:
            self.assertTrue(memory.writable)
            self.assertEqual(len(memory), 256 * MiB)
            with memoryview(memory) as view:
                struct.pack_into('<Q', view, 128 * MiB, 0x1122334455667788)
                # A file read straight into it.
                self.assertEqual(io.BytesIO(b'weights').readinto(view[4096:4103]), 7)
        again = cxlpool.open('py', 'ro')
        self.assertEqual(again.tag, region.tag)
        part = again.map(offset='128MiB', length=2 * MiB)
        self.assertEqual(struct.unpack_from('<Q', part), (0x1122334455667788,))
        self.assertEqual(bytes(memoryview(again.map())[4096:4103]), b'weights')
        [(fd, offset, length, at)] = again.extents()
        self.assertEqual((length, at), (256 * MiB, 0))
        self.assertEqual(os.pread(fd, 7, offset + 4096), b'weights')

    def test_a_read_only_map_is_read_only(self):
        self.allocate()
        memory = cxlpool.open('py', 'ro').map(populate=True)
        self.assertFalse(memory.writable)
        view = memoryview(memory)
        self.assertTrue(view.readonly)
        with self.assertRaises(TypeError):
            view[0] = 1
        with self.assertRaises(cxlpool.Error) as refused:
            cxlpool.open('py', 'ro').map(writable=True)
        self.assertEqual(refused.exception.reason, 'MAP_FAILED')
        self.assertEqual(refused.exception.errno, 13)

    def test_closing_with_live_views_is_refused(self):
        memory = self.allocate().map()
        first, second = memoryview(memory), memoryview(memory)[:4096]
        with self.assertRaisesRegex(BufferError, '2 views of the map are still there'):
            memory.close()
        first.release()
        with self.assertRaisesRegex(BufferError, '1 view of the map is still there'):
            memory.close()
        self.assertFalse(memory.closed)
        second[0] = 7
        second.release()
        memory.close()
        self.assertTrue(memory.closed)
        memory.close()
        for use in (lambda: memoryview(memory), lambda: len(memory), lambda: memory.address):
            with self.assertRaisesRegex(ValueError, 'closed'):
                use()

    def test_objects_go_in_any_order(self):
        pool = cxlpool.Pool()
        region = pool.allocate('256MiB', 'order', persistent=True)
        view = memoryview(region.map())
        opens = lambda: {line['name']: line['opens'] for line in cxlpool.Pool().list()}
        del pool
        region.close()
        with self.assertRaisesRegex(ValueError, 'closed'):
            region.map()
        view[0] = 1
        self.assertEqual(opens()['regions/order'], 1)
        del view
        gc.collect()
        self.assertEqual(opens()['regions/order'], 0)
        self.release('order')

    def test_what_was_mapped_many_times_leaves_nothing(self):
        region = self.allocate()
        count = lambda: (len(Path('/proc/self/maps').read_text().splitlines()), len(os.listdir('/proc/self/fd')))
        region.map().close()
        before = count()
        for _ in range(1000):
            memory = region.map(length=2 * MiB)
            memoryview(memory)[0] = 1
            del memory
        after = count()
        self.assertEqual(before[1], after[1])
        self.assertLess(abs(before[0] - after[0]), 5)

    def test_growth_is_mapped_behind(self):
        region = self.allocate()
        memory = region.map(reserve='1GiB')
        memoryview(memory)[0] = 9
        self.grow()
        grown = cxlpool.open('py')
        self.assertEqual(grown.size, 512 * MiB)
        memory.extend(grown)
        self.assertEqual(len(memory), 512 * MiB)
        view = memoryview(memory)
        view[-1] = 5
        self.assertEqual(view[0], 9)
        view.release()

    def test_tracemalloc_names_the_line_of_a_leak(self):
        """The guide's program as it is: a model is loaded three times, and what was mapped before is kept."""
        with self.allocate(name='model').map() as memory:
            cxlpool.save_safetensors(memory, {'w': bytes(1 << 20)})
        text = LEAK.read_text()
        self.assertTrue(text.split('"""\n\n', 1)[1] in (REPOSITORY / 'docs/libpool-python.md').read_text(), 'the guide has another text')
        done = subprocess.run([sys.executable, LEAK], capture_output=True, text=True, timeout=60,
                              env={**os.environ, 'PYTHONPATH': str(BUILD / 'libpool/python')})
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        [line] = [number for number, line in enumerate(text.splitlines(), 1) if '.map()' in line]
        first = done.stdout.splitlines()[0]
        self.assertEqual(first, f'{LEAK}:{line}: size=768 MiB, count=6, average=128 MiB')

    def test_tracemalloc_counts_what_is_mapped(self):
        only = tracemalloc.DomainFilter(True, cxlpool.TRACE_DOMAIN)
        mapped = lambda: [trace.size for trace in tracemalloc.take_snapshot().filter_traces([only]).traces]
        region = self.allocate()
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        whole, part = region.map(reserve='1GiB'), region.map(offset='128MiB', length=2 * MiB)
        self.assertEqual(sorted(mapped()), [2 * MiB, 256 * MiB])
        del part
        self.assertEqual(mapped(), [256 * MiB])
        self.grow()
        whole.extend(cxlpool.open('py'))
        self.assertEqual(mapped(), [512 * MiB])
        whole.close()
        self.assertEqual(mapped(), [])

    def test_publish_and_refresh_take_parts_of_the_map(self):
        memory = self.allocate().map()
        for call in (memory.publish, memory.refresh):
            call()
            call(4096)
            call(offset='4KiB', length=64)
            call(offset='4 KiB', length='7 ')  # Blanks as in the CLI: a unit they are not.
            call(256 * MiB)
            call(256 * MiB - 1, 1)
            for bad in ((256 * MiB + 1,), (256 * MiB, 1), (1, 256 * MiB), ((1 << 64) - 1,), (1, (1 << 64) - 1)):
                with self.assertRaisesRegex(ValueError, 'are not all in the map'):
                    call(*bad)
        memory.close()
        for call in (memory.publish, memory.refresh):
            with self.assertRaisesRegex(ValueError, 'closed'):
                call()

    def test_tensors_are_read_where_another_host_wrote_them(self):
        with self.allocate(sharing='single-writer').map() as memory:
            with self.assertRaisesRegex(ValueError, 'nothing was written here'):
                cxlpool.safetensors(memory)
            size = cxlpool.save_safetensors(memory, {'w': (b'abcdefgh', 'F32', (2, 1)), 'none': (b'', 'U8', (0,))}, {'a': 'b'})
            with self.assertRaisesRegex(ValueError, 'the file has [0-9]+ bytes, and there are 268435456'):
                cxlpool.save_safetensors(memory, {'w': memory_of(256 * MiB)})
        self.pool.cli('region', 'attach', 'py', '--host', 'host-b', '--access', 'ro', '--wait')
        memory = cxlpool.Pool(str(self.pool.hosts['host-b'].socket)).open('py', 'ro').map()
        read = cxlpool.safetensors(memory)
        self.assertEqual((read.metadata, read.size), ({'a': 'b'}, size))
        w = read['w']
        self.assertEqual((w.dtype, w.shape, bytes(w.buffer), w.buffer.readonly), ('F32', (2, 1), b'abcdefgh', True))
        self.assertEqual(bytes(memoryview(memory)[size - 8:size]), b'abcdefgh')
        with self.assertRaisesRegex(ValueError, 'read-only'):
            cxlpool.save_safetensors(memory, {})
        with self.assertRaisesRegex(BufferError, '1 view of the map'):
            memory.close()
        del read, w
        memory.close()
        self.pool.cli('region', 'detach', 'py', '--host', 'host-b', '--wait')

    def test_a_file_that_is_refused_leaves_no_view(self):
        memory = self.allocate().map()
        memoryview(memory)[:8] = b'\xff' * 8
        with self.assertRaisesRegex(ValueError, 'longer than') as refused:
            cxlpool.safetensors(memory)
        memory.close()
        self.assertIsNotNone(refused.exception)

    def test_sizes_are_read_as_the_cli_reads_them(self):
        with self.allocate(max_extents=1).map() as memory:
            for text, offset in (('1.3GiB', 1395864372), (' 4 gb ', 4 << 30), ('1g', 1 << 30), ('0.5g', 512 << 20), ('1.G', 1 << 30),
                                 ('.5GiB', 512 << 20), ('268435457', (256 << 20) + 1), ('268435458 b', (256 << 20) + 2)):
                with self.assertRaisesRegex(ValueError, f'^0 bytes from {offset} on are not all in the map'):
                    memory.publish(text)

    def test_a_size_may_be_of_any_type_that_is_a_whole_number(self):
        class Whole:  # As numpy's integers are.
            def __init__(self, number):
                self.number = number

            def __index__(self):
                return self.number() if callable(self.number) else self.number

        region = self.allocate(Whole(256 * MiB), max_extents=1)
        with region.map(offset=Whole(0), length=Whole(256 * MiB)) as memory:
            memory.publish(Whole(4096), Whole(4096))
            for bad, error in ((-1, OverflowError), (1 << 64, OverflowError), (1.5, TypeError), ('1', TypeError)):
                with self.assertRaises(error, msg=bad):
                    memory.publish(Whole(bad))
        memory = region.map()
        with self.assertRaisesRegex(ValueError, 'the map is closed'):
            memory.publish(Whole(lambda: memory.close() or 0))

    def test_what_cannot_be_is_refused(self):
        pool = cxlpool.Pool()
        for bad, error in (('x', ValueError), ('1Q', ValueError), ('-1', ValueError), ('1GiBs', ValueError), ('', ValueError),
                           ('1e3', ValueError), ('1.5', ValueError), ('1.5B', ValueError), ('1.5e3K', ValueError), ('1.2.3G', ValueError),
                           ('.', ValueError), ('.G', ValueError), ('G', ValueError), ('0x10', ValueError), ('1Gi', ValueError), ('1KiBB', ValueError),
                           ('1G\0', ValueError), ('16777216T', ValueError), ('1' * 400 + '.5G', ValueError),
                           (-1, OverflowError), (1.5, TypeError), (None, TypeError), (1 << 64, OverflowError)):
            with self.assertRaises(error, msg=bad):
                pool.allocate(bad)
        for more in ({'mode': 'ram'}, {'sharing': 1}, {'wait': -1}, {'wait': float('nan')}, {'open_to': 'root'}):
            with self.assertRaises(ValueError, msg=more):
                pool.allocate('1GiB', **more)
        for extents, error in ((-1, OverflowError), (1 << 32, OverflowError), (1 << 64, OverflowError), (1.0, TypeError), ('1', TypeError)):
            with self.assertRaises(error, msg=extents):
                pool.allocate('1GiB', max_extents=extents)
        self.allocate(name='kept')
        for bad, error in (('kept\0', ValueError), (b'kept', TypeError), (None, TypeError)):
            for call in (pool.open, pool.release):
                with self.assertRaises(error, msg=bad):
                    call(bad)
        self.assertIn('regions/kept', [line['name'] for line in pool.list() if not line['detaching']])
        with self.assertRaises(cxlpool.Error) as refused:
            pool.open('nothing')
        self.assertEqual((refused.exception.reason, refused.exception.code), ('NOT_ATTACHED', 5))
        self.assertIn(refused.exception.remedy, str(refused.exception))
        with self.assertRaises(cxlpool.Error) as refused:
            cxlpool.Pool('/nowhere/agent.sock')
        self.assertEqual(refused.exception.reason, 'AGENT_NOT_RUNNING')
        for type_ in (cxlpool.Region, cxlpool.Map):
            with self.assertRaises(TypeError):
                type_()

    def test_a_call_that_waits_lets_other_threads_run(self):
        pool = cxlpool.Pool()
        seen = []

        def wait():
            try:
                pool.allocate('100GiB', 'never', wait=1)
            except cxlpool.Error as error:
                seen.append(error.reason)

        threads = [threading.Thread(target=wait) for _ in range(3)]
        for thread in threads:
            thread.start()
        self.assertEqual(pool.list(), [])
        for thread in threads:
            thread.join()
        self.assertEqual(len(seen), 3)

    def meanwhile(self, work):
        """A thread that does its work as soon as it may run, and how that came out. It may when a call lets it, and at no other
        time."""
        self.addCleanup(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(1000)
        go, came_out = threading.Event(), []

        def run():
            go.wait()
            try:
                came_out.append(work())
            except (BufferError, ValueError) as error:
                came_out.append(type(error))

        thread = threading.Thread(target=run)
        thread.start()
        self.addCleanup(thread.join)
        go.set()
        return came_out

    def test_a_map_that_grows_lets_other_threads_run_and_is_not_closed_by_them(self):
        memory = self.allocate().map(reserve='1GiB', populate=True)
        self.grow()
        grown = cxlpool.open('py')
        came_out = self.meanwhile(lambda: (grown.close(), memory.close()))
        memory.extend(grown)
        self.assertEqual(came_out, [BufferError])
        self.assertEqual(len(memory), 512 * MiB)
        with self.assertRaisesRegex(ValueError, 'closed'):
            grown.map()

    def test_a_region_that_is_closed_while_it_is_mapped_is_mapped(self):
        region = self.allocate()
        came_out = self.meanwhile(region.close)
        memory = region.map(populate=True)
        self.assertEqual(came_out, [None])
        self.assertEqual(repr(region), '<cxlpool.Region regions/py, 268435456 bytes, closed>')
        self.assertEqual(memoryview(memory)[-1], 0)
        memory.close()


if __name__ == '__main__':
    main()
