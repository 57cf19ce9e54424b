"""safetensors and save_safetensors of the Python package: what is written is read, and nothing else is."""

import array
import ctypes
import json
import random
import struct
import sys
import unittest

from testbed.testing import import_cxlpool, main

cxlpool = import_cxlpool()
safetensors, save_safetensors = cxlpool.safetensors, cxlpool.save_safetensors


def file_of(header, data=b''):
    """A file as the format's page has it. header: an object, or what stands in its place."""
    if not isinstance(header, bytes):
        header = json.dumps(header).encode()
    return struct.pack('<Q', len(header)) + header + data


def entry(dtype='U8', shape=(4,), begin=0, end=4):
    return {'dtype': dtype, 'shape': list(shape), 'data_offsets': [begin, end]}


def floats(*values):
    return array.array('f', values)


class ReadTest(unittest.TestCase):
    def assert_refused(self, file, why):
        with self.assertRaisesRegex(ValueError, why):
            safetensors(file)

    def test_a_file_of_somebody_elses(self):
        """Its data begins at an odd byte."""
        header = b'{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},' \
                 b'"b":{"dtype":"BF16","shape":[],"data_offsets":[8,10]}}'
        file = file_of(header, struct.pack('<ff', 1.5, -2) + b'\x80\x3f')
        self.assertEqual(len(header) % 2, 1)
        read = safetensors(file + b'what is behind it')
        self.assertEqual(list(read), ['w', 'b'])
        self.assertEqual((read.metadata, read.size), ({'format': 'pt'}, len(file)))
        self.assertEqual((read['w'].dtype, read['w'].shape), ('F32', (2, 1)))
        self.assertEqual(list(read['w'].buffer.cast('f')), [1.5, -2])
        self.assertEqual((read['b'].dtype, read['b'].shape, bytes(read['b'].buffer)), ('BF16', (), b'\x80\x3f'))

    def test_the_buffers_are_the_memory_itself(self):
        memory = bytearray(file_of({'t': entry()}, b'abcd'))
        read = safetensors(memory)
        memory[-1:] = b'D'
        self.assertEqual(bytes(read['t'].buffer), b'abcD')
        read['t'].buffer[0] = ord('A')
        self.assertEqual(memory[-4:], b'AbcD')
        self.assertTrue(safetensors(bytes(memory))['t'].buffer.readonly)

    def test_no_tensor_and_tensors_of_no_bytes(self):
        self.assertEqual((dict(safetensors(file_of({}))), safetensors(file_of({})).size), ({}, 10))
        read = safetensors(file_of({'none': entry('F64', (3, 0), 0, 0), 't': entry()}, b'abcd'))
        self.assertEqual((len(read['none'].buffer), read['none'].shape), (0, (3, 0)))

    def test_elements_of_less_than_a_byte(self):
        read = safetensors(file_of({'four': entry('F4', (2, 3), 0, 3), 'six': entry('F6_E2M3', (4,), 3, 6)}, b'123456'))
        self.assertEqual(bytes(read['six'].buffer), b'456')
        self.assert_refused(file_of({'t': entry('F4', (3,), 0, 2)}, b'12'), 'no whole number of bytes')

    def test_headers_that_are_none_or_not_all_there(self):
        file = file_of({'t': entry()}, b'abcd')
        self.assert_refused(b'', 'no room for the length')
        self.assert_refused(file[:7], 'no room for the length')
        self.assert_refused(bytes(4096), 'nothing was written here')
        for length in range(8, len(file) - 4):
            self.assert_refused(file[:length], 'does not fit into')
        for length in range(len(file) - 4, len(file)):
            self.assert_refused(file[:length], 'are there behind the header')
        self.assert_refused(b'\xff' * 64, 'longer than 100000000')
        self.assert_refused(struct.pack('<Q', 100_000_001) + b'{}', 'longer than 100000000')
        self.assert_refused(struct.pack('<Q', 100_000_000) + b'{}', 'does not fit into')

    def test_headers_that_are_not_json(self):
        for header, why in ((b'[]', 'not with a brace'), (b' {}', 'not with a brace'), (b'{', 'is not JSON'), (b'{} {}', 'is not JSON'),
                            (b'{}\0', 'is not JSON'), (b'{"t\xff":1}', 'not UTF-8 at byte 3'), (b'{"\xed\xa0\x80":1}', 'not UTF-8'),
                            (b'{"t":NaN}', 'NaN is no number'), (b'{"t":-Infinity}', 'no number'),
                            (b'{"a":' + b'[' * 200_000, 'nested too deep'), (b'{"a":' * 200_000, 'nested too deep'),
                            (b'{"t":1' + b'0' * 5000 + b'}', 'digits')):
            self.assert_refused(file_of(header), why)

    def test_what_is_there_twice(self):
        once = json.dumps(entry())
        self.assert_refused(file_of(f'{{"a":1,"t":{once},"t":{once}}}'.encode(), b'abcd'), "'t' is in the header twice")
        self.assert_refused(file_of(b'{"t":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}}'), "'dtype' .* twice")
        self.assert_refused(file_of(b'{"__metadata__":{},"__metadata__":{}}'), 'twice')
        self.assert_refused(file_of(b'{"t":1,"\\u0074":1}'), 'twice')
        many = ','.join(f'"{n}":0' for n in [*range(100_000), 99_999])
        self.assert_refused(file_of(f'{{{many}}}'.encode()), "'99999' is in the header twice")

    def test_names_and_metadata_that_are_no_text(self):
        self.assert_refused(file_of(b'{"\\ud800":' + json.dumps(entry()).encode() + b'}', b'abcd'), 'name .* is not UTF-8')
        for metadata in ([], 'x', 1, {'a': 1}, {'a': None}, {'a': {}}):
            self.assert_refused(file_of({'__metadata__': metadata}), 'not texts by name')
        self.assert_refused(file_of(b'{"__metadata__":{"a":"\\udfff"}}'), 'not texts by name')

    def test_entries_that_are_not_of_a_tensor(self):
        for wrong in (1, None, [], {}, {'dtype': 'U8', 'shape': [4]}, {'shape': [4], 'data_offsets': [0, 4]}):
            self.assert_refused(file_of({'t': wrong}, b'abcd'), "tensor 't' does not have")
        for dtype in (None, 8, ['U8'], {}):
            self.assert_refused(file_of({'t': entry(dtype)}, b'abcd'), 'its dtype is no text')
        for dtype in ('', 'u8', 'F31', 'FLOAT', 'U8 '):
            self.assert_refused(file_of({'t': entry(dtype)}, b'abcd'), 'is not known')
        for shape in (4, None, {}, '4'):
            self.assert_refused(file_of({'t': {**entry(), 'shape': shape}}, b'abcd'), 'its shape no list')
        for extent in (-4, 4.0, True, None, '4', [4], 1 << 63):
            self.assert_refused(file_of({'t': entry(shape=[extent])}, b'abcd'), 'is not whole numbers')
        for offsets in (None, 4, [], [0], [0, 4, 4], [4, 0], [-4, 0], [0, 4.0], [False, 4], ['0', '4'], [0, 1 << 63]):
            self.assert_refused(file_of({'t': {**entry(), 'data_offsets': offsets}}, b'abcd'), 'are not where bytes begin and end')

    def test_shapes_that_are_not_their_bytes(self):
        self.assert_refused(file_of({'t': entry(shape=[5])}, b'abcde'), 'shape is of 5 bytes, and its data_offsets are of 4')
        self.assert_refused(file_of({'t': entry('F32', [4])}, b'abcd'), 'shape is of 16 bytes')
        self.assert_refused(file_of({'t': entry(shape=[])}, b'abcd'), 'shape is of 1 bytes')
        self.assert_refused(file_of({'t': entry(shape=[0])}, b'abcd'), 'shape is of 0 bytes')
        # What wraps around to 4 in 64 bits, and what takes long to multiply.
        self.assert_refused(file_of({'t': entry(shape=[1 << 62, 4, 4])}, b'abcd'), 'more than 9223372036854775807 bytes')
        self.assert_refused(file_of({'t': entry(shape=[(1 << 63) - 1] * 100_000)}, b'abcd'), 'more than 9223372036854775807 bytes')
        self.assertEqual(len(safetensors(file_of({'t': entry(shape=[1 << 62, 1 << 62, 0], end=0)}))['t'].buffer), 0)

    def test_data_that_overlaps_or_has_gaps_or_ends_outside(self):
        def two(first, second, data=b'abcdefgh'):
            return file_of({'first': entry(begin=first, end=first + 4), 'second': entry(begin=second, end=second + 4)}, data)
        self.assertEqual(bytes(safetensors(two(4, 0))['first'].buffer), b'efgh')
        self.assert_refused(two(0, 0), "'second' begins at byte 0 of the data, and tensor 'first' ends at 4: they overlap")
        self.assert_refused(two(0, 3), 'overlap')
        self.assert_refused(two(0, 5, b'abcdefghi'), 'leave a gap')
        self.assert_refused(two(1, 5, b'abcdefghi'), 'the header ends at 0: they leave a gap')
        self.assert_refused(two(0, 4, b'abcdefg'), 'data is of 8 bytes, and 7 are there')

    def test_a_file_with_any_byte_changed_is_read_or_refused(self):
        file = file_of({'__metadata__': {'a': 'b'}, 'w': entry('F16', (2, 2), 0, 8), 'v': entry(begin=8, end=12)}, bytes(12))
        seed = random.randrange(1 << 32)
        chance = random.Random(seed)
        for _ in range(20_000):
            changed = bytearray(file)
            for _ in range(chance.choice((1, 1, 2, 8))):
                changed[chance.randrange(len(changed))] = chance.choice((0, 0x22, 0x2c, 0x30, 0x39, 0x5b, 0x7b, 0x7d, chance.randrange(256)))
            try:
                read = safetensors(changed)
            except ValueError:
                continue
            self.assertLessEqual(sum(len(tensor.buffer) for tensor in read.values()), len(file), f'seed {seed}: {changed}')


class CachedMap(bytearray):
    """A map on a host whose caches nothing keeps coherent: what is stored reaches `pool` when it is published, or earlier, a line
    at a time and in any order; what is loaded is what was there at the last refresh."""

    pool = None  # bytearray
    look = staticmethod(lambda: None)

    def lines(self, offset, length):
        for begin in range(offset // 64 * 64, offset + (length or len(self) - offset), 64):
            yield slice(begin, begin + 64)

    def publish(self, offset=0, length=0):
        self.look()
        for line in self.lines(offset, length):
            self.pool[line] = self[line]
        self.look()

    def refresh(self, offset=0, length=0):
        for line in self.lines(offset, length):
            self[line] = self.pool[line]

    def evicted(self, chance):
        """The pool after some lines went there by themselves."""
        some = bytearray(self.pool)
        for line in self.lines(0, 0):
            if chance.random() < 0.5:
                some[line] = self[line]
        return some


class BetweenHostsTest(unittest.TestCase):
    """On the model above. Nobody has tried it on two such hosts."""

    def setUp(self):
        self.addCleanup(setattr, cxlpool._safetensors, 'Map', cxlpool.Map)
        cxlpool._safetensors.Map = CachedMap
        self.old, self.new = {'old': bytes(range(200))}, {'new': b'n' * 150, 'another': b'a' * 250}
        self.writer = CachedMap(1024)
        self.writer.pool = bytearray(1024)
        save_safetensors(self.writer, self.old)

    def test_a_reader_finds_one_whole_file_or_none(self):
        seen = set()
        chance = random.Random(1)

        def look():
            for _ in range(10):
                try:
                    read = safetensors(self.writer.evicted(chance))
                except ValueError as error:
                    self.assertIn('nothing was written here, or not to its end', str(error))
                    seen.add('none')
                    continue
                found = {name: bytes(tensor.buffer) for name, tensor in read.items()}
                self.assertIn(found, (self.old, self.new))
                seen.add('+'.join(found))

        def trace(frame, event, _):
            if frame.f_code.co_name != '_store':
                return None
            look()
            return trace

        self.writer.look = look
        sys.settrace(trace)
        try:
            save_safetensors(self.writer, self.new)
        finally:
            sys.settrace(None)
        self.assertEqual(seen, {'old', 'none', 'new+another'})
        self.assertEqual({name: bytes(tensor.buffer) for name, tensor in safetensors(self.writer.pool).items()}, self.new)

    def test_a_reader_loads_what_was_published(self):
        reader = CachedMap(self.writer.pool)
        reader.pool = self.writer.pool
        self.assertEqual(bytes(safetensors(reader)['old'].buffer), self.old['old'])
        save_safetensors(self.writer, self.new)
        read = safetensors(reader)
        self.assertEqual({name: bytes(tensor.buffer) for name, tensor in read.items()}, self.new)


class WriteTest(unittest.TestCase):
    def test_what_is_written_is_read(self):
        memory = bytearray(b'\xaa' * 2000)
        metadata = {'format': 'pt', 'who': 'wörld'}
        size = save_safetensors(memory, {'bytes': b'abc', 'half': (b'\x80\x3f', 'BF16', ()), 'w': memoryview(floats(1, 2, 3, 4, 5, 6)).cast('B').cast('f', (3, 2)),
                                         'long': array.array('q', [-1]), 'none': (b'', 'F64', [0, 7])}, metadata)
        read = safetensors(memory)
        self.assertEqual((read.metadata, read.size), (metadata, size))
        self.assertEqual(memory[size:], b'\xaa' * (2000 - size))
        self.assertEqual({name: (tensor.dtype, tensor.shape, bytes(tensor.buffer)) for name, tensor in read.items()},
                         {'bytes': ('U8', (3,), b'abc'), 'half': ('BF16', (), b'\x80\x3f'),
                          'w': ('F32', (3, 2), struct.pack('<6f', 1, 2, 3, 4, 5, 6)), 'long': ('I64', (1,), b'\xff' * 8),
                          'none': ('F64', (0, 7), b'')})

    def test_data_begins_at_a_line_and_tensors_at_their_elements(self):
        for name in ('n' * length for length in range(1, 130)):
            memory = bytearray(2000)
            save_safetensors(memory, {name: b'abc', 'd': array.array('d', [1]), 'e': (b'ab', 'F16', [1]), 'f': floats(1)})
            [length] = struct.unpack_from('<Q', memory)
            self.assertEqual((8 + length) % 64, 0)
            header = json.loads(memory[8:8 + length])
            for tensor, size in (('d', 8), ('f', 4), ('e', 2)):
                self.assertEqual(header[tensor]['data_offsets'][0] % size, 0)

    def test_what_was_read_is_written_elsewhere(self):
        first, second = bytearray(1000), bytearray(1000)
        save_safetensors(first, {'a': floats(1), 'b': b'x'}, {'k': 'v'})
        read = safetensors(first)
        save_safetensors(second, read, read.metadata)
        self.assertEqual(first, second)

    def test_what_cannot_be_written_changes_nothing(self):
        good = {'t': b'abcd'}
        before = bytes(range(250))
        for tensors, metadata, why in (
                ({'t': (b'abcd', 'F31', [1])}, None, 'is not known'), ({'t': (b'abcd', 'F32', [2])}, None, 'has 8 bytes, and the buffer 4'),
                ({'t': (b'abcd', 'U8', [-4])}, None, 'not whole numbers'), ({'t': (b'abcd', 'U8')}, None, 'is not .buffer, dtype, shape'),
                ({'t': memoryview(b'abcdefgh')[::2]}, None, 'not in the order of C'), ({'__metadata__': b'a'}, None, 'cannot be the name'),
                ({1: b'a'}, None, 'cannot be the name'), ({'\ud800': b'a'}, None, 'cannot be the name'),
                ({'t': memoryview(b'a').cast('c')}, None, "no dtype is known for elements 'c'"),
                (good, {'a': 1}, 'not texts by name'), (good, {'a': '\ud800'}, 'not texts by name'), (good, [], 'not texts by name'),
                ({'t': bytes(123)}, None, 'the file has 251 bytes, and there are 250'), ({'t': bytes(1 << 20)}, None, 'there are 250')):
            memory = bytearray(before)
            with self.assertRaisesRegex(ValueError, why):
                save_safetensors(memory, tensors, metadata)
            self.assertEqual(memory, before)
        for bad in ({'t': 'text'}, {'t': 1}, {'t': (b'ab', 'U8', 2)}, {'t': (b'ab', 'U8', [2.0])}):
            with self.assertRaises(TypeError):
                save_safetensors(bytearray(before), bad)
        save_safetensors(bytearray(250), {'t': bytes(122)})

    def test_what_cannot_be_written_to(self):
        with self.assertRaisesRegex(ValueError, 'read-only'):
            save_safetensors(bytes(1000), {})
        with self.assertRaisesRegex(ValueError, 'not one range'):
            save_safetensors(memoryview(bytearray(1000))[::2], {})
        memory = bytearray(1000)
        save_safetensors(memory, {'t': b'abcd'})
        before = bytes(memory)
        with self.assertRaisesRegex(ValueError, "tensor 't' is in the map"):
            save_safetensors(memory, safetensors(memory))
        self.assertEqual(memory, before)
        for part in ((ctypes.c_ubyte * 4).from_buffer(memory, 996), (ctypes.c_ubyte * 1000).from_buffer(memory)):
            with self.assertRaisesRegex(ValueError, "tensor 't' is in the map"):
                save_safetensors(memory, {'t': (part, 'U8', [len(part)])})
        self.assertEqual(memory, before)
        half = memoryview(memory)[500:]  # What is beside the map is not in it.
        self.assertEqual(save_safetensors(half, {'t': memoryview(memory)[496:500]}), 68)

    def test_one_that_ends_in_the_middle_leaves_no_file(self):
        """The writer is stopped at each of its lines in turn: until something is written the old file is there, then none, and at
        the end the new one."""
        class Stopped(Exception):
            pass

        def save_until(lines):
            def trace(frame, event, _):
                nonlocal lines
                if not frame.f_code.co_filename.endswith('_safetensors.py'):
                    return None
                lines -= event == 'line'
                if lines < 0:
                    raise Stopped
                return trace
            memory = bytearray(1000)
            save_safetensors(memory, {'old': bytes(64)})
            sys.settrace(trace)
            try:
                save_safetensors(memory, {'new': b'n' * 200, 'another': floats(1, 2)})
            except Stopped:
                return memory, False
            finally:
                sys.settrace(None)
            return memory, True

        seen = []
        done, lines = False, 0
        while not done:
            memory, done = save_until(lines)
            lines += 1
            try:
                read = safetensors(memory)
            except ValueError as error:
                self.assertIn('nothing was written here, or not to its end', str(error))
                now = 'none'
            else:
                now = '+'.join(read)
                if now == 'another+new':
                    self.assertEqual(bytes(read['new'].buffer), b'n' * 200)
            if seen[-1:] != [now]:
                seen.append(now)
        self.assertEqual(seen, ['old', 'none', 'another+new'])


if __name__ == '__main__':
    main()
