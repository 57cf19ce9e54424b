"""put_async and get_async of the Python package on an emulated pool: copies that asyncio awaits."""

import asyncio
import gc
import os
import re
import subprocess
import sys

from testbed.emulated import pool_of_driver
from testbed.testing import BUILD, REPOSITORY, PoolTest, import_cxlpool, main

cxlpool = import_cxlpool()
get_async, put_async = cxlpool.get_async, cxlpool.put_async
MiB = 1 << 20
WHOLE = 256 * MiB  # A copy of the whole map is under way for long enough to be met: 0.1 s and more.


class AsyncTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return pool_of_driver(BUILD, directory, hosts={'host-a': [[1, 2, 3]]})

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.environ['CXLPOOL_SOCKET'] = str(cls.pool.hosts['host-a'].socket)
        cls.addClassCleanup(os.environ.pop, 'CXLPOOL_SOCKET')
        cls.memory = cxlpool.allocate(WHOLE, 'copies', persistent=True).map()

    def store(self, offset, data):
        with memoryview(self.memory) as view:
            view[offset:offset + len(data)] = data

    def stored(self, offset, size):
        with memoryview(self.memory) as view:
            return bytes(view[offset:offset + size])

    def test_what_was_put_is_got(self):
        async def copy():
            data = os.urandom(3 * MiB + 5)
            self.assertIsNone(await put_async(self.memory, '4KiB', data))
            self.assertEqual(self.stored(4096, len(data)), data)
            into = bytearray(len(data) + 2)
            with memoryview(into) as view:
                self.assertIsNone(await get_async(self.memory, offset=4097, buffer=view[1:-1]))
            self.assertEqual(into[:-2], b'\0' + data[1:] + into[len(data):-2])
            self.assertEqual((into[0], into[-1]), (0, 0))
            await put_async(self.memory, WHOLE, b'')

        asyncio.run(copy())

    def test_more_copies_than_may_wait(self):
        blocks = [i.to_bytes(8, 'little') * 8 for i in range(3000)]

        async def copy():
            into = [bytearray(64) for _ in blocks]
            await asyncio.gather(*(put_async(self.memory, 64 * i, block) for i, block in enumerate(blocks)))
            await asyncio.gather(*(get_async(self.memory, 64 * i, buffer) for i, buffer in enumerate(into)))
            self.assertEqual(into, blocks)

        asyncio.run(copy())

    def test_what_cannot_be_is_refused(self):
        read_only = cxlpool.open('copies', 'ro').map()
        closed = cxlpool.open('copies').map()
        closed.close()

        held = bytearray(2)

        async def copy():
            for error, why, call in ((cxlpool.Error, 'BAD_ARGUMENT', put_async(self.memory, WHOLE - 1, held)),
                                     (cxlpool.Error, 'BAD_ARGUMENT', get_async(self.memory, (1 << 64) - 1, held)),
                                     (cxlpool.Error, 'MAP_READ_ONLY', put_async(read_only, 0, b'1')),
                                     (ValueError, 'the map is closed', put_async(closed, 0, held)),
                                     (OverflowError, '', put_async(self.memory, -1, b'1')),
                                     (TypeError, 'read-write', get_async(self.memory, 0, b'1')),
                                     (TypeError, 'cxlpool.Map', get_async(b'1', 0, bytearray(1))),
                                     (TypeError, 'bytes-like', put_async(self.memory, 0, 'text'))):
                with self.assertRaisesRegex(error, why):
                    await call
            held.append(0)
            await put_async(self.memory, 0, b'still here')

        asyncio.run(copy())
        self.assertEqual(self.stored(0, 10), b'still here')

    def test_a_copy_that_fails_says_why(self):
        """Half of the Region's file is cut off: what was there is lost. The manager may see that and take the Region away."""
        region = cxlpool.allocate(WHOLE)
        [(fd, offset, length, _)] = region.extents()

        async def copy(memory):
            with self.assertRaises(cxlpool.Error) as lost:
                await put_async(memory, 128 * MiB - 64, bytes(MiB))
            self.assertIn(lost.exception.reason, ('DATA_LOST', 'REVOKED'))
            with self.assertRaises(cxlpool.Error):
                await get_async(memory, length - 1, bytearray(1))
            try:
                await put_async(memory, 0, b'still here')
            except cxlpool.Error as error:
                self.assertEqual(error.reason, 'REVOKED')

        with region.map() as memory:
            size = os.fstat(fd).st_size
            os.ftruncate(fd, offset + 128 * MiB)
            try:
                asyncio.run(copy(memory))
            finally:
                os.ftruncate(fd, size)

    def test_a_buffer_is_held_until_its_copy_has_ended(self):
        async def copy():
            into = bytearray(WHOLE)
            task = asyncio.create_task(get_async(self.memory, 0, into))
            await asyncio.sleep(0)
            with self.assertRaises(BufferError):
                into.pop()
            await task
            into.pop()

        asyncio.run(copy())

    def test_who_is_cancelled_has_the_buffer_back(self):
        """One copy is being carried out, and one waits for it."""
        self.store(0, bytes(WHOLE))

        async def copy():
            into = [bytearray(WHOLE), bytearray(MiB)]
            tasks = [asyncio.create_task(get_async(self.memory, 0, buffer)) for buffer in into]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            for task, buffer in zip(tasks, into):
                with self.assertRaises(asyncio.CancelledError):
                    await task
                self.assertTrue(task.cancelled())
                buffer.append(0)
                buffer[:] = b'\xff' * len(buffer)
            # One thread copies in turn: with this one, whatever was before it has ended.
            await get_async(self.memory, 0, bytearray(MiB))
            for buffer in into:
                self.assertEqual(buffer.count(b'\xff'), len(buffer))

        asyncio.run(copy())

    def test_who_is_cancelled_again_waits_nevertheless(self):
        async def copy():
            into = bytearray(WHOLE)
            task = asyncio.create_task(get_async(self.memory, 0, into))
            for _ in range(3):
                await asyncio.sleep(0)
                if not task.done():
                    task.cancel()
                    with self.assertRaises(BufferError):
                        into.pop()
            with self.assertRaises(asyncio.CancelledError):
                await task
            into.pop()
            with self.assertRaises(TimeoutError):
                async with asyncio.timeout(0):
                    await get_async(self.memory, 0, into)
            into.pop()

        asyncio.run(copy())

    def test_who_waits_for_room_can_be_cancelled(self):
        """The copies before them would take seconds, and are cancelled last: until then none of the others has ended."""
        async def copy():
            large, block = bytearray(WHOLE), bytearray(64)
            tasks = [asyncio.create_task(get_async(self.memory, 0, buffer)) for buffer in [large] * 40 + [block] * 1100]
            await asyncio.sleep(0)
            for task in reversed(tasks):
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            self.assertEqual({type(end) for end in ended}, {asyncio.CancelledError})
            await get_async(self.memory, 0, block)

        asyncio.run(copy())

    def test_a_loop_that_ends_leaves_nothing(self):
        def count():
            gc.collect()
            return len(os.listdir('/proc/self/task')), len(os.listdir('/proc/self/fd'))

        async def copy(number):
            await asyncio.gather(*(put_async(self.memory, 64 * i, bytes(64)) for i in range(number)))

        asyncio.run(copy(1))
        before = count()
        for number in (1, 1, 1500):
            asyncio.run(copy(number))
            self.assertEqual(count(), before)
        with asyncio.Runner() as one, asyncio.Runner() as other:  # Each with a thread of its own.
            one.run(copy(2))
            other.run(copy(2))
            one.run(copy(2))
            self.assertEqual(count()[0], before[0] + 2)
        del one, other
        self.assertEqual(count(), before)

    def test_a_copy_that_nobody_waits_for_any_more_ends(self):
        """Its loop was closed: nothing is left that could tell of the end, and the buffer is let go nevertheless."""
        into = bytearray(WHOLE)
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda *_: None)  # It would say that a task was destroyed.
        task = loop.create_task(get_async(self.memory, 0, into))
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        with self.assertRaises(BufferError):
            into.pop()
        del task, loop
        gc.collect()
        into.pop()

    def test_the_map_may_be_closed_under_a_copy(self):
        async def copy():
            memory = cxlpool.open('copies').map()
            self.store(0, b'x' * 64)
            into = bytearray(WHOLE)
            task = asyncio.create_task(get_async(memory, 0, into))
            await asyncio.sleep(0)
            memory.close()
            await task
            self.assertEqual(into[:64], b'x' * 64)

        asyncio.run(copy())

    def test_the_guides_program_runs(self):
        text = (REPOSITORY / 'docs/libpool-python.md').read_text()
        [program] = [found for found in re.findall(r'^```python\n(.*?)^```$', text, re.M | re.S) if 'put_async' in found]
        done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, timeout=60,
                              env={**os.environ, 'PYTHONPATH': str(BUILD / 'libpool/python')})
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, 'True\n', ''))


if __name__ == '__main__':
    main()
