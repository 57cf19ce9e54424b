"""Memory of the rack's CXL pool.

    import cxlpool, numpy
    region = cxlpool.allocate("100GiB")
    tensor = numpy.frombuffer(region.map(), dtype=numpy.float32)

A Map is a buffer: what takes buffers works on the pool's memory itself, without a copy.
safetensors(map) and save_safetensors(map, tensors) read and write a file of tensors there.
A Directory holds named objects that processes and hosts share. put_async and get_async copy while
asyncio does something else.

tracemalloc shows mapped pool memory at the line that mapped it, in the domain
cxlpool.TRACE_DOMAIN. Errors are cxlpool.Error: code, reason, message, remedy, errno.
"""

from ._async import get_async, put_async
from ._cxlpool import TRACE_DOMAIN, Directory, Error, Map, Object, Pool, Region, __version__, allocate, open
from ._safetensors import Tensor, Tensors, safetensors, save_safetensors

__all__ = ['TRACE_DOMAIN', 'Directory', 'Error', 'Map', 'Object', 'Pool', 'Region', 'Tensor', 'Tensors', '__version__',
           'allocate', 'get_async', 'open', 'put_async', 'safetensors', 'save_safetensors']
