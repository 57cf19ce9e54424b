"""The Directory of the Python package, and LMCache's connector over it, on an emulated pool."""

import gc
import os
import re
import select
import subprocess
import sys
import tempfile
import threading
import time

from testbed.emulated import pool_of_driver
from testbed.process import wait_until
from testbed.testing import BUILD, REPOSITORY, PoolTest, import_cxlpool, main

cxlpool = import_cxlpool()
sys.path.insert(0, str(REPOSITORY / 'libpool/examples/python'))
from lmcache_connector import DirectoryConnector  # noqa: E402

Directory = cxlpool.Directory
MiB = 1 << 20


class DirectoryPool(PoolTest):
    """One Region for all tests: each makes a new Directory in it."""

    @classmethod
    def make_pool(cls, directory):
        return pool_of_driver(BUILD, directory, hosts={'host-a': [[1, 2, 3, 4]], 'host-b': [[1, 2]]})

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.environ['CXLPOOL_SOCKET'] = str(cls.pool.hosts['host-a'].socket)
        cls.addClassCleanup(os.environ.pop, 'CXLPOOL_SOCKET')
        cls.memory = cxlpool.allocate('256MiB', 'objects', sharing='single-writer', persistent=True).map()

    def setUp(self):
        super().setUp()
        gc.collect()  # What tests before have left open, in the traces of what they had refused, has partitions.

    def make(self, partition=0, **options):
        """A new Directory, open with that partition."""
        Directory.create(self.memory, replace=True, **{'partitions': 2, 'entries': 64, **options})
        return Directory(self.memory, partition)

    def assert_refused(self, reason, call, *arguments):
        with self.assertRaises(cxlpool.Error) as refused:
            call(*arguments)
        self.assertEqual(refused.exception.reason, reason)
        return refused.exception

    def run_beside(self, program, *words):
        """A Python program of another process, which is ended at the test's end."""
        process = subprocess.Popen([sys.executable, '-c', program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True, env={**os.environ, 'PYTHONPATH': str(BUILD / 'libpool/python')})

        def end():
            process.kill()
            process.communicate()

        self.addCleanup(end)
        return process


class DirectoryTest(DirectoryPool):
    def test_what_was_put_is_found(self):
        with self.make() as directory:
            directory.put('a', b'first')
            directory.put(name='b', buffer=memoryview(bytearray(range(200))).cast('I'))
            directory.put('empty', b'')
            self.assertEqual((directory.get('a'), directory.get('b'), directory.get('empty')),
                             (b'first', bytes(range(200)), b''))
            found = directory.find('b')
            self.assertEqual((found['size'], found['partition']), (200, 0))
            self.assertGreater(found['generation'], directory.find('a')['generation'])
            self.assertIn('a', directory)
            into = bytearray(b'.' * 8)
            self.assertEqual(directory.get_into('a', into), 5)
            self.assertEqual(into, b'first...')
            self.assertEqual(self.assert_refused('OBJECT_TOO_LARGE', directory.get_into, 'b', into).code, 11)
            directory.put('a', b'second, and longer')
            self.assertEqual(directory.get('a'), b'second, and longer')
            directory.remove('a')
            self.assertNotIn('a', directory)
            said = directory.describe()
            self.assertEqual((said['partitions'], said['entries'], said['partition'], said['objects'], said['keeps_objects']),
                             (2, 64, 0, 2, False))
            directory.check()

    def test_an_object_that_is_not_there(self):
        directory = self.make()
        for call in (directory.get, directory.borrow, directory.find, directory.remove):
            self.assertEqual(self.assert_refused('OBJECT_UNKNOWN', call, 'no').code, 5)
        self.assert_refused('OBJECT_UNKNOWN', directory.get_into, 'no', bytearray(1))
        self.assertIsNone(directory.get('no', None))
        self.assertEqual(directory.get('no', default=b'x'), b'x')
        # The default is for what is not there, and for nothing else.
        self.assert_refused('BAD_ARGUMENT', directory.get, '', b'x')

    def test_what_cannot_be_is_refused(self):
        directory = self.make()
        for call in (directory.get, directory.borrow, directory.find, directory.remove, directory.__contains__,
                     lambda name: directory.put(name, b''), lambda name: directory.create_object(name, 1)):
            for name, error in ((b'a', TypeError), (None, TypeError), ('a\0b', ValueError), ('\ud800', UnicodeEncodeError),
                                ('', cxlpool.Error), ('x' * 1024, cxlpool.Error)):
                with self.assertRaises(error, msg=name):
                    call(name)
        for arguments in ((None,), (self.memory, 'x'), (self.memory, 1.5)):
            with self.assertRaises(TypeError):
                Directory(*arguments)
        for number in (-1, 1 << 31):
            with self.assertRaisesRegex(ValueError, 'is not from 0 to'):
                Directory(self.memory, number)
            with self.assertRaisesRegex(ValueError, 'is not from 0 to'):
                Directory.create(self.memory, entries=number)
        self.assert_refused('BAD_ARGUMENT', Directory, self.memory, 2)
        self.assert_refused('DIRECTORY_EXISTS', Directory.create, self.memory)
        with self.assertRaises(TypeError):
            directory.put('a', 'text')
        with self.assertRaises(TypeError):
            directory.get_into('a', b'read-only')
        self.assert_refused('DIRECTORY_FULL', directory.create_object, 'a', '1GiB')
        with self.assertRaises(TypeError):
            cxlpool.Object()
        closed = cxlpool.open('objects').map()
        closed.close()
        for call in (Directory, Directory.create):
            with self.assertRaisesRegex(ValueError, 'the map is closed'):
                call(closed)

    def test_what_is_borrowed_stays(self):
        directory = self.make()
        directory.put('a', b'one')
        with directory.borrow('a') as one:
            self.assertEqual((len(one), one.sealed), (3, True))
            view = memoryview(one)
            self.assertTrue(view.readonly)
            self.assertEqual(directory.describe()['borrowed_objects'], 1)
            directory.put('a', b'two')
            directory.remove('a')
            self.assertEqual(directory.describe()['removed_objects'], 1)
            self.assertEqual(bytes(view), b'one')
            self.assert_refused('OBJECT_SEALED', one.seal)
            with self.assertRaisesRegex(BufferError, '1 view of the object is still there'):
                one.close()
            view.release()
        self.assertTrue(one.closed)
        one.close()
        for use in (lambda: memoryview(one), lambda: len(one), one.seal):
            with self.assertRaisesRegex(ValueError, 'the object is closed'):
                use()
        self.assertEqual(directory.describe()['borrowed_objects'], 0)

    def test_objects_go_in_any_order(self):
        """A view keeps its object, that its Directory with the partition, and that the map."""
        Directory.create(self.memory, partitions=2, entries=64, replace=True)
        memory = cxlpool.open('objects').map()
        directory = Directory(memory, 0)
        directory.put('a', b'abc')
        view = memoryview(directory.borrow('a'))
        directory.close()
        memory.close()
        self.assert_refused('PARTITION_TAKEN', Directory, self.memory, 0)
        self.assertEqual(bytes(view), b'abc')
        del view
        with Directory(self.memory, 0) as again:
            self.assertEqual(again.get('a'), b'abc')

    def test_room_is_filled_and_then_sealed(self):
        directory = self.make()
        room = directory.create_object('a', '4KiB')
        with tempfile.TemporaryFile() as file:
            file.write(bytes(range(256)) * 16)
            file.seek(0)
            with memoryview(room) as view:
                self.assertFalse(view.readonly)
                self.assertEqual(file.readinto(view), 4096)
                with self.assertRaisesRegex(BufferError, '1 view of the object is still there'):
                    room.seal()
        self.assertNotIn('a', directory)
        self.assertFalse(room.sealed)
        room.seal()
        self.assertTrue(room.sealed)
        self.assertEqual(directory.get('a'), bytes(range(256)) * 16)
        self.assert_refused('OBJECT_SEALED', room.seal)
        # From now on its bytes are the Directory's, and may be used again.
        with self.assertRaisesRegex(BufferError, 'sealed: borrow it'):
            memoryview(room)
        with directory.create_object('never', 64) as room:
            memoryview(room)[:] = bytes(64)
        self.assertNotIn('never', directory)
        self.assertEqual(directory.describe()['objects'], 1)

    def test_a_directory_that_is_closed(self):
        directory = self.make()
        directory.close()
        directory.close()
        self.assertTrue(directory.closed)
        for use in (lambda: directory.put('a', b''), lambda: directory.get('a'), lambda: directory.get('a', None),
                    lambda: directory.get_into('a', bytearray(1)), lambda: directory.borrow('a'), lambda: 'a' in directory,
                    lambda: directory.create_object('a', 1), lambda: directory.remove('a'), lambda: directory.find('a'),
                    directory.describe, directory.check):
            with self.assertRaisesRegex(ValueError, 'the Directory is closed'):
                use()

    def test_a_partition_has_one_process(self):
        Directory.create(self.memory, partitions=2, entries=64, replace=True)
        other = self.run_beside('import cxlpool, sys\n'
                                'directory = cxlpool.Directory(cxlpool.open("objects").map(), 0)\n'
                                'directory.put("theirs", b"here")\n'
                                'room = directory.create_object("half", 64)\n'
                                'print("open", flush=True)\n'
                                'sys.stdin.read()\n')
        self.assertEqual(other.stdout.readline(), 'open\n')
        self.assertIn(f'process {other.pid}', self.assert_refused('PARTITION_TAKEN', Directory, self.memory, 0).message)
        with Directory(self.memory, 1) as mine, mine.borrow('theirs') as theirs:
            self.assertEqual(mine.get('theirs'), b'here')
            self.assert_refused('NOT_OWNER', mine.remove, 'theirs')
            other.kill()
            other.wait()
            with Directory(self.memory, 0) as taken:
                self.assertNotIn('half', taken)
                taken.remove('theirs')
                self.assertEqual(taken.describe()['removed_objects'], 1)
            self.assertEqual(bytes(memoryview(theirs)), b'here')

    def test_another_host_reads_and_borrows_where_objects_are_kept(self):
        with cxlpool.allocate('256MiB', 'kept', sharing='single-writer', persistent=True).map() as memory:
            Directory.create(memory, entries=64, keeps_objects=True)
            with Directory(memory, 0) as directory:
                directory.put('weights', b'w' * 1000)
                self.assert_refused('OBJECTS_STAY', directory.remove, 'weights')
        wait_until(lambda: self.pool.regions()['kept']['state'] == 'ALLOCATED', 20, 'the manager has heard of it')
        self.pool.cli('region', 'attach', 'kept', '--host', 'host-b', '--access', 'ro', '--wait')
        with cxlpool.Pool(str(self.pool.hosts['host-b'].socket)).open('kept', 'ro').map() as memory:
            with Directory(memory) as reader:
                self.assertEqual(reader.get('weights'), b'w' * 1000)
                self.assertIsNone(reader.describe()['partition'])
                self.assert_refused('NO_PARTITION', reader.put, 'a', b'')
                with reader.borrow('weights') as weights:
                    self.assertEqual(bytes(memoryview(weights)), b'w' * 1000)
        self.pool.cli('region', 'detach', 'kept', '--host', 'host-b', '--wait')

    def test_who_only_reads_borrows_nothing_that_may_be_removed(self):
        self.make().put('a', b'here')
        reader = Directory(self.memory)
        self.assertEqual(reader.get('a'), b'here')
        self.assert_refused('NO_PARTITION', reader.borrow, 'a')

    def test_calls_let_other_threads_run(self):
        directory = self.make()
        large = bytes(4 * MiB)
        into = bytearray(large)
        directory.put('a', large)

        def seal():
            with directory.create_object('b', 4 * MiB) as room:
                room.seal()

        interval = sys.getswitchinterval()
        self.addCleanup(sys.setswitchinterval, interval)
        for call in (lambda: directory.put('a', large), lambda: directory.get('a'), lambda: directory.get_into('a', into),
                     lambda: directory.borrow('a'), lambda: directory.find('a'), lambda: 'a' in directory, seal):
            gate, ran = threading.Lock(), []

            def run():
                with gate:
                    ran.append(True)

            gate.acquire()
            thread = threading.Thread(target=run)
            thread.start()
            sys.setswitchinterval(100)  # From here on a thread runs only while another lets it.
            gate.release()
            until = time.monotonic() + 20
            while not ran and time.monotonic() < until:
                call()
            sys.setswitchinterval(interval)
            self.assertTrue(ran)
            thread.join()

    def test_what_was_used_many_times_leaves_nothing(self):
        directory = self.make()

        def use(times):
            block, into = bytearray(b'block'), bytearray(5)
            for _ in range(times):
                directory.put('a', block)
                directory.get('a')
                directory.get_into('a', into)
                with directory.borrow('a') as object, memoryview(object):
                    pass
                directory.create_object('room', 64)
                directory.find('a')
                directory.describe()
                for call in (lambda: directory.put('', block), lambda: directory.get_into('no', into), lambda: directory.get('no'),
                             lambda: directory.put('a', block, 1), lambda: Directory(self.memory, 0), lambda: Directory(block)):
                    with self.assertRaises((cxlpool.Error, TypeError)):
                        call()
                Directory(self.memory).close()
            block.append(0)
            into.append(0)
            gc.collect()
            return sys.getallocatedblocks()

        use(10)
        self.assertLess(abs(use(10) - use(300)), 100)

    def test_who_gets_what_is_being_replaced_has_one_or_the_other(self):
        """It may have become smaller, or larger, since its size was looked at."""
        directory = self.make()
        blocks, wrong, ended = [b'1' * 10, b'2' * 5000], [], threading.Event()
        directory.put('a', blocks[0])

        def write():
            while not ended.is_set():
                for block in blocks:
                    directory.put('a', block)

        threads = [threading.Thread(target=write) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(4000):
            try:
                if directory.get('a') not in blocks:
                    wrong.append('neither')
            except cxlpool.Error as error:
                if error.reason != 'OBJECT_CHANGES' or 'by a larger one' in str(error):  # There is none that is still larger.
                    wrong.append(error)
        ended.set()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_calls_end_when_it_is_closed(self):
        """The last one frees what they use. Memory that was freed is overwritten in that process."""
        Directory.create(self.memory, partitions=2, entries=64, replace=True)
        os.environ['MALLOC_PERTURB_'] = '85'
        self.addCleanup(os.environ.pop, 'MALLOC_PERTURB_')
        other = self.run_beside("""
import threading

import cxlpool

memory = cxlpool.open('objects').map()
directory = cxlpool.Directory(memory, 0)
block = b'x' * (16 << 20)
directory.put('a', block)
calling = threading.Barrier(5)


def use(call, name, buffer):
    call(name, buffer)
    calling.wait()
    try:
        while True:
            call(name, buffer)
    except ValueError as error:
        print(f'{error}\\n', end='', flush=True)


threads = [threading.Thread(target=use, args=arguments)
           for arguments in [(directory.put, 'b', block)] + [(directory.get_into, 'a', bytearray(block)) for _ in range(3)]]
for thread in threads:
    thread.start()
calling.wait()
for _ in range(10):
    directory.find('a')
directory.close()
for thread in threads:
    thread.join()
directory = cxlpool.Directory(memory, 0)  # The last call gave the partition back.
print(directory.get('b') == block, directory.describe()['objects'])
""")
        said, _ = other.communicate(timeout=60)
        self.assertEqual((other.returncode, said), (0, 'the Directory is closed\n' * 4 + 'True 2\n'))

    def test_the_guides_program_runs(self):
        text = (REPOSITORY / 'docs/libpool-python.md').read_text()
        [program] = [found for found in re.findall(r'^```python\n(.*?)^```$', text, re.M | re.S) if 'Directory' in found]
        other = self.run_beside(program)
        said, _ = other.communicate(timeout=60)
        self.assertEqual((other.returncode, said), (0, 'True 2 None\n'))


class StubDriver:
    """What LMCache's documents say of the side that calls a connector: a thread that polls, drains and sorts by id."""

    def __init__(self, connector):
        self.connector = connector
        self.completions = {}
        self.changed = threading.Condition()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        poller = select.poll()
        poller.register(self.connector.event_fd(), select.POLLIN)
        while not self.stop.is_set():
            if not poller.poll(50):
                continue
            completions = self.connector.drain_completions()
            with self.changed:
                for future_id, ok, error, results in completions:
                    assert future_id not in self.completions, 'told of twice'
                    self.completions[future_id] = (ok, error, results)
                self.changed.notify_all()

    def wait(self, future_id):
        with self.changed:
            assert self.changed.wait_for(lambda: future_id in self.completions, 20), 'not told of'
            return self.completions.pop(future_id)

    def close(self):
        self.stop.set()
        self.thread.join()
        self.connector.close()


class LmcacheTest(DirectoryPool):
    def setUp(self):
        super().setUp()
        Directory.create(self.memory, partitions=2, entries=256, replace=True)

    def connect(self, partition=0, **options):
        connector = DirectoryConnector(region='objects', partition=partition, **options)
        self.addCleanup(connector.close)
        return connector

    def test_blocks_are_stored_looked_up_and_loaded(self):
        driver = StubDriver(self.connect(0))
        self.addCleanup(driver.close)
        connector = driver.connector
        blocks = {f'llama@000000ff@0@{i:08x}': bytes([i]) * 4096 for i in range(16)}
        keys = list(blocks)
        views = [memoryview(bytearray(block)) for block in blocks.values()]
        self.assertEqual(driver.wait(connector.submit_batch_set(keys, views)), (True, '', [True] * 16))
        self.assertEqual(driver.wait(connector.submit_batch_exists(['no', *keys])), (True, '', [False] + [True] * 16))
        loaded = [bytearray(4096) for _ in keys]
        self.assertEqual(driver.wait(connector.submit_batch_get(keys, [memoryview(buffer) for buffer in loaded])),
                         (True, '', [True] * 16))
        self.assertEqual([bytes(buffer) for buffer in loaded], list(blocks.values()))
        # Keys of a batch are done one by one: what is not there, or has another size, spoils no other.
        ok, error, results = driver.wait(connector.submit_batch_get(
            [keys[3], 'no', keys[4], keys[5], keys[6]], [bytearray(4096), bytearray(4096), bytearray(4095), bytearray(4097), loaded[0]]))
        self.assertEqual((ok, results), (False, [True, False, False, False, True]))
        self.assertIn('no: ', error)
        self.assertEqual(bytes(loaded[0]), blocks[keys[6]])
        self.assertEqual(driver.wait(connector.submit_batch_delete(['no', keys[0]]))[2], [False, True])
        self.assertEqual(driver.wait(connector.submit_batch_exists(keys[:2])), (True, '', [False, True]))

    def test_another_process_loads_what_was_stored(self):
        driver = StubDriver(self.connect(1))
        self.addCleanup(driver.close)
        self.assertTrue(driver.wait(driver.connector.submit_batch_set(['k'], [b'stored'])))
        other = self.run_beside('import select, sys\n'
                                f'sys.path.insert(0, {str(REPOSITORY / "libpool/examples/python")!r})\n'
                                'from lmcache_connector import DirectoryConnector\n'
                                'connector, into = DirectoryConnector("objects", 0), bytearray(6)\n'
                                'connector.submit_batch_get(["k"], [into])\n'
                                'select.select([connector.event_fd()], [], [], 20)\n'
                                'print(connector.drain_completions(), into)\n')
        self.assertEqual(other.communicate(timeout=60)[0], "[(1, True, '', [True])] bytearray(b'stored')\n")

    def test_many_batches_of_many_threads(self):
        driver = StubDriver(self.connect())
        self.addCleanup(driver.close)
        wrong = []

        def work(own):
            for i in range(50):
                block, into = bytes([own, i]) * 512, bytearray(1024)
                stored = driver.wait(driver.connector.submit_batch_set([f'{own}'], [block]))
                loaded = driver.wait(driver.connector.submit_batch_get([f'{own}'], [into]))
                if not stored[0] or not loaded[0] or into != block:
                    wrong.append((stored, loaded))

        threads = [threading.Thread(target=work, args=[own]) for own in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_more_batches_than_there_may_be(self):
        connector = self.connect(max_batches=2)
        ids = [connector.submit_batch_exists(['a']) for _ in range(4)]
        with self.assertRaisesRegex(RuntimeError, '4 batches are not drained'):
            connector.submit_batch_exists(['a'])
        ended = {}
        wait_until(lambda: ended.update({done[0]: done[1:] for done in connector.drain_completions()}) or len(ended) == 4, 20, 'all')
        self.assertEqual([ended[id] for id in ids],
                         [(True, '', [False])] * 2 + [(False, 'more than 2 batches are under way', [False])] * 2)
        self.assertEqual(connector.drain_completions(), [])
        connector.submit_batch_exists(['a'])

    def test_what_cannot_be_is_refused(self):
        connector = self.connect()
        for keys, buffers in (([], []), (['a'], []), (['a'], [bytearray(1), bytearray(1)])):
            with self.assertRaises(ValueError):
                connector.submit_batch_get(keys, buffers)
        self.assert_refused('PARTITION_TAKEN', DirectoryConnector, 'objects', 0)
        connector.close()
        connector.close()
        self.assertEqual(connector.drain_completions(), [])
        # A thread that submitted one too many, and comes to tell of it only now: the eventfd is closed.
        connector._tell(7, False, 'too many', [False])
        with self.assertRaisesRegex(RuntimeError, 'closed'):
            connector.submit_batch_exists(['a'])
        with Directory(self.memory, 0):
            pass
        with self.assertRaises(ValueError):
            DirectoryConnector('objects', 0, threads=0)


class ExampleTest(DirectoryPool):
    KILLS = 20

    def test_a_cache_whose_writer_is_killed(self):
        """The program looks at each block by itself, and fails where one is half, missing or too old."""
        program = REPOSITORY / 'libpool/examples/python/kv_cache.py'
        done = subprocess.run([sys.executable, program, str(self.KILLS)], capture_output=True, text=True, timeout=100,
                              env={**os.environ, 'PYTHONPATH': str(BUILD / 'libpool/python')})
        self.assertEqual((done.returncode, done.stderr), (0, ''), done.stdout)
        kills, puts, gets = done.stdout.splitlines()
        [(middle, old, new)] = re.findall(rf'^{self.KILLS} kills, (\d+) in the middle of a put: (\d+) left the old block, (\d+) the new one$', kills)
        self.assertGreaterEqual(int(middle), self.KILLS // 2)
        self.assertEqual(int(middle), int(old) + int(new))
        self.assertRegex(puts, r'^\d+ blocks put by those that were killed, \d+ by the one that was not$')
        self.assertRegex(gets, r'^\d+ gets, none of half a block; 0 are still borrowed$')
        wait_until(lambda: not [name for name in self.pool.regions() if 'kv-cache' in name], 20, 'the Region is gone')


if __name__ == '__main__':
    main()
