"""Tensors in pool memory, as a safetensors file: https://huggingface.co/docs/safetensors.

A file is the header's length (8 bytes, little-endian), the header (a JSON object: tensor -> dtype, shape, and
where its bytes begin and end), and the bytes of all tensors, one behind the other. Here the file is the beginning
of a Map or of another buffer, which may go on behind it.

What is read is not trusted: everything that the format does not allow is a ValueError that says what is wrong.
"""

import json
import operator
from collections import Counter, namedtuple

from ._cxlpool import Map, overlap

# The bits of an element.
_BITS = {'F4': 4, 'F6_E2M3': 6, 'F6_E3M2': 6, 'BOOL': 8, 'U8': 8, 'I8': 8, 'F8_E4M3': 8, 'F8_E5M2': 8, 'F8_E8M0': 8,
         'F8_E4M3FNUZ': 8, 'F8_E5M2FNUZ': 8, 'U16': 16, 'I16': 16, 'F16': 16, 'BF16': 16, 'U32': 32, 'I32': 32, 'F32': 32,
         'U64': 64, 'I64': 64, 'F64': 64, 'C64': 64}
# What the buffer protocol calls those that it has.
_DTYPES = {'?': 'BOOL', 'b': 'I8', 'B': 'U8', 'h': 'I16', 'H': 'U16', 'i': 'I32', 'I': 'U32', 'l': 'I64', 'L': 'U64',
           'q': 'I64', 'Q': 'U64', 'e': 'F16', 'f': 'F32', 'd': 'F64'}
_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 100_000_000  # As the format's own library has it.
_MAX_BYTES = (1 << 63) - 1
_LINE_BYTES = 64  # The data begins at a multiple of this; one line is stored last.
_METADATA = '__metadata__'

Tensor = namedtuple('Tensor', ('buffer', 'dtype', 'shape'))
Tensor.__doc__ = """A tensor's bytes, little-endian and in C's order, its dtype as the format calls it, and its shape.

buffer is a memoryview of bytes: numpy.frombuffer and torch.frombuffer take it without a copy."""


class Tensors(dict):
    """The tensors of a file by name, in the header's order. metadata: its texts by name. size: the file's, in bytes."""

    def __init__(self, tensors, metadata, size):
        super().__init__(tensors)
        self.metadata = metadata
        self.size = size


def safetensors(map):
    """The file of tensors that `map` begins with, as Tensors: each a Tensor whose buffer is the memory itself.

    map: a Map, or any buffer. Of a Map it is what other hosts have published (Map.refresh). While a buffer of it
    is there, the map cannot be closed. The bytes may be changed by any process that has them mapped writable, this one included.

    ValueError: this is no safetensors file; it says why.
    """
    with memoryview(map) as whole, whole.cast('B') as memory:
        if isinstance(map, Map):
            map.refresh(0, min(_LENGTH_BYTES, len(memory)))
        if len(memory) < _LENGTH_BYTES:
            raise _wrong(f'{len(memory)} bytes have no room for the length of a header')
        length = int.from_bytes(memory[:_LENGTH_BYTES], 'little')
        if length == 0:
            raise _wrong('the header has no bytes: nothing was written here, or not to its end')
        if length > _MAX_HEADER_BYTES:
            raise _wrong(f'a header of {length} bytes is longer than {_MAX_HEADER_BYTES}, the most there may be')
        begin = _LENGTH_BYTES + length
        if begin > len(memory):
            raise _wrong(f'a header of {length} bytes does not fit into the {len(memory)} that there are')
        if isinstance(map, Map):
            map.refresh(0, begin)
        header = _parse(bytes(memory[_LENGTH_BYTES:begin]))  # A copy: it stays what was checked.
        metadata = _checked_metadata(header.pop(_METADATA, {}))
        entries = [(name, *_checked_entry(name, entry)) for name, entry in header.items()]
        end = _checked_layout(entries, len(memory) - begin)
        if isinstance(map, Map) and end > 0:
            map.refresh(begin, end)
        tensors = {name: Tensor(memory[begin + first:begin + last], dtype, shape)
                   for name, dtype, shape, first, last in entries}
        return Tensors(tensors, metadata, begin + end)


def save_safetensors(map, tensors, metadata=None):
    """Writes a file of tensors to the beginning of `map`, and returns its size in bytes.

    map: a writable Map, or another writable buffer. tensors: name -> a Tensor, a (buffer, dtype, shape), or an
    object whose buffer has a type and a shape, as numpy's arrays; in C's order. Their memory is not within the map.
    metadata: name -> text. The data begins at a multiple of 64 bytes, and each tensor at one of its element's size.

    The header's length is stored last, and into a Map everything is published: until then readers, of other hosts
    too, find no file, and so they do if the writer dies. No one reads what is written over.

    ValueError: what cannot be written, or does not fit; nothing was changed then.
    """
    with memoryview(map) as whole:
        if whole.readonly:
            raise ValueError('the map is read-only')
        if not whole.c_contiguous:
            raise ValueError('the map is not one range of bytes')
        tensors = _to_write(tensors, whole)
        header = _header_of(tensors, _checked_metadata({} if metadata is None else metadata))
        size = len(header) + sum(tensor.buffer.nbytes for tensor in tensors.values())
        with whole.cast('B') as memory:
            if size > len(memory):
                raise ValueError(f'the file has {size} bytes, and there are {len(memory)} to write to')
            _store(memory, header, tensors, map.publish if isinstance(map, Map) else lambda offset, length: None)
    return size


def _wrong(what):
    return ValueError(f'not a safetensors file: {what}')


def _is_count(value):
    return type(value) is int and 0 <= value <= _MAX_BYTES  # True is an int, and no count.


def _is_text(value):
    """Whether UTF-8 can say it: JSON's escapes make halves of surrogate pairs."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parse(header):
    """The object that the header is. Nothing in it has been checked but that each name is there once."""
    def once(pairs):
        found = dict(pairs)
        if len(found) != len(pairs):
            [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
            raise _wrong(f'{name!r} is in the header twice')
        return found

    def no_number(text):
        raise _wrong(f'{text} is no number of JSON')

    if header[:1] != b'{':
        raise _wrong(f'the header begins with {header[:1]!r} and not with a brace')
    try:
        return json.loads(header.decode('utf-8'), object_pairs_hook=once, parse_constant=no_number)
    except UnicodeDecodeError as error:
        raise _wrong(f'the header is not UTF-8 at byte {error.start}: {error.reason}') from None
    except json.JSONDecodeError as error:
        raise _wrong(f'the header is not JSON: {error}') from None
    except RecursionError:
        raise _wrong('the header is nested too deep') from None


def _checked_metadata(metadata):
    if not isinstance(metadata, dict) or not all(_is_text(name) and _is_text(text) for name, text in metadata.items()):
        raise ValueError('the metadata is not texts by name')
    return metadata


def _bytes_of(name, dtype, shape):
    """The bytes that such a tensor has."""
    if dtype not in _BITS:
        raise ValueError(f'tensor {name!r}: dtype {dtype!r} is not known: it is one of {", ".join(_BITS)}')
    if not all(_is_count(extent) for extent in shape):
        raise ValueError(f'tensor {name!r}: its shape is not whole numbers from 0 to {_MAX_BYTES}')
    bits = _BITS[dtype] * (0 not in shape)
    for extent in shape:
        bits *= extent
        if bits > 8 * _MAX_BYTES:
            raise ValueError(f'tensor {name!r}: its shape is of more than {_MAX_BYTES} bytes')
    if bits % 8 != 0:
        raise ValueError(f'tensor {name!r}: {bits} bits are no whole number of bytes')
    return bits // 8


def _checked_entry(name, entry):
    """An entry of the header as (dtype, shape, first byte, byte behind the last)."""
    if not _is_text(name):
        raise _wrong(f'the name {name!r} is not UTF-8')
    if not isinstance(entry, dict) or not entry.keys() >= {'dtype', 'shape', 'data_offsets'}:
        raise _wrong(f'tensor {name!r} does not have dtype, shape and data_offsets')
    dtype, shape, offsets = entry['dtype'], entry['shape'], entry['data_offsets']
    if not isinstance(dtype, str) or not isinstance(shape, list):
        raise _wrong(f'tensor {name!r}: its dtype is no text, or its shape no list')
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_count, offsets)) or offsets[0] > offsets[1]:
        raise _wrong(f'tensor {name!r}: its data_offsets are not where bytes begin and end')
    size = _bytes_of(name, dtype, shape)
    first, last = offsets
    if last - first != size:
        raise _wrong(f'tensor {name!r}: its shape is of {size} bytes, and its data_offsets are of {last - first}')
    return dtype, tuple(shape), first, last


def _checked_layout(entries, room):
    """Where the data ends: no byte of it is in two tensors, or in none."""
    end, before = 0, 'the header'
    for name, _, _, first, last in sorted(entries, key=lambda entry: entry[3:]):
        if first != end:
            raise _wrong(f'tensor {name!r} begins at byte {first} of the data, and {before} ends at {end}: they '
                         + ('overlap' if first < end else 'leave a gap'))
        end, before = last, f'tensor {name!r}'
    if end > room:
        raise _wrong(f'the data is of {end} bytes, and {room} are there behind the header')
    return end


def _to_write(tensors, whole):
    """Each as a Tensor whose buffer is a view of bytes, none of them in `whole`, and fits its shape; in the order in which they
    are written."""
    views = {}
    for name, tensor in tensors.items():
        if not _is_text(name) or name == _METADATA:
            raise ValueError(f'{name!r} cannot be the name of a tensor')
        dtype, shape = None, None
        if isinstance(tensor, tuple):
            if len(tensor) != 3:
                raise ValueError(f'tensor {name!r} is not (buffer, dtype, shape)')
            tensor, dtype, shape = tensor
        view = memoryview(tensor)
        if not view.c_contiguous:
            raise ValueError(f'tensor {name!r} is not in the order of C: make a contiguous copy of it')
        if overlap(view, whole):  # Of another object than the map, too: an array of numpy's may be a view of it.
            raise ValueError(f'tensor {name!r} is in the map that is written to')
        if dtype is None:
            if view.format not in _DTYPES:
                raise ValueError(f'tensor {name!r}: no dtype is known for elements {view.format!r}: give (buffer, dtype, shape)')
            dtype, shape = _DTYPES[view.format], view.shape
        shape = tuple(map(operator.index, shape))
        if _bytes_of(name, dtype, shape) != view.nbytes:
            raise ValueError(f'tensor {name!r}: {dtype} of shape {list(shape)} has {_bytes_of(name, dtype, shape)} bytes, '
                             f'and the buffer {view.nbytes}')
        try:
            views[name] = Tensor(view.cast('B') if view.nbytes else memoryview(b''), dtype, shape)
        except TypeError:
            raise ValueError(f'tensor {name!r}: elements {view.format!r} cannot be seen as bytes: give a buffer of bytes') from None
    # The larger elements first: then each begins at a multiple of its size, with no gap, which the format forbids.
    return dict(sorted(views.items(), key=lambda item: -_BITS[item[1].dtype]))


def _header_of(tensors, metadata):
    """Length and header, padded with spaces to whole lines."""
    entries, end = {_METADATA: metadata} if metadata else {}, 0
    for name, tensor in tensors.items():
        first, end = end, end + tensor.buffer.nbytes
        entries[name] = {'dtype': tensor.dtype, 'shape': tensor.shape, 'data_offsets': (first, end)}
    text = json.dumps(entries, ensure_ascii=False, separators=(',', ':')).encode()
    text += b' ' * (-(_LENGTH_BYTES + len(text)) % _LINE_BYTES)
    if len(text) > _MAX_HEADER_BYTES:
        raise ValueError(f'the header would have {len(text)} bytes: more than {_MAX_HEADER_BYTES}, the most there may be')
    return len(text).to_bytes(_LENGTH_BYTES, 'little') + text


def _store(memory, header, tensors, publish):
    """First no file, then all but the length, then the length: a reader that looks in between sees no file."""
    memory[:_LENGTH_BYTES] = bytes(_LENGTH_BYTES)
    publish(0, _LENGTH_BYTES)
    end = len(header)
    memory[_LENGTH_BYTES:end] = header[_LENGTH_BYTES:]
    for tensor in tensors.values():
        begin, end = end, end + tensor.buffer.nbytes
        memory[begin:end] = tensor.buffer
    publish(0, end)
    memory[:_LENGTH_BYTES] = header[:_LENGTH_BYTES]
    publish(0, _LENGTH_BYTES)
