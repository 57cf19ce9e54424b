"""Copies between a Map and memory of the program's own that asyncio awaits: put_async and get_async.

A thread beside each event loop carries them out (the first copy in a loop starts it, and it ends with the loop), and
says by an eventfd that one has ended. No Python thread takes part, and no lock of Python is held.
"""

import asyncio
import os
import weakref

from ._cxlpool import MAX_WAITING_COPIES, Copier


class _Background:
    """The Copier of an event loop, and the copies that somebody waits for."""

    def __init__(self, loop):
        self.copier = Copier()
        self.room = asyncio.Semaphore(MAX_WAITING_COPIES)
        self.waited_for = {}  # Copy -> the future that gets its end.
        loop.add_reader(self.copier.fileno(), self._tell)

    def _tell(self):
        try:
            os.eventfd_read(self.copier.fileno())
        except BlockingIOError:
            pass
        for copy in [copy for copy in self.waited_for if copy.done()]:
            ended = self.waited_for.pop(copy)
            if not ended.done():
                ended.set_result(None)


# By event loop. It is the loop, by its reader, that keeps a _Background: both go together.
_backgrounds = weakref.WeakKeyDictionary()


def _background_of(loop):
    background = _backgrounds.get(loop, lambda: None)()
    if background is None:
        background = _Background(loop)
        _backgrounds[loop] = weakref.ref(background)
    return background


async def put_async(map, offset, buffer):
    """Copies the bytes of buffer into the Map, from offset on, and publishes them (Map.publish).

    offset: bytes, or as '4KiB'. The buffer is not to be changed meanwhile, and is held until the copy has ended.
    Copies have no order. Of one loop 1,024 are under way at once; more wait for these.

    When the one who awaits it is cancelled, so is the copy: some of the bytes may have been copied by then. The
    cancellation arrives when the copy has ended and the buffer is touched no more: it is at most a MiB away.

    Error: MAP_READ_ONLY, DATA_LOST, BAD_ARGUMENT where it is not all in the map.
    """
    await _copy(Copier.put, map, offset, buffer)


async def get_async(map, offset, buffer):
    """Fills the writable buffer with the Map's bytes from offset on, as other hosts published them (Map.refresh).

    What put_async says holds here.
    """
    await _copy(Copier.get, map, offset, buffer)


async def _copy(start, map, offset, buffer):
    """However this ends, the buffer is touched no more then: the end of the `with` waits for that, where nothing else could."""
    loop = asyncio.get_running_loop()
    background = _background_of(loop)
    async with background.room:
        with start(background.copier, map, offset, buffer) as copy:
            cancelled = None
            try:
                while not copy.done():
                    ended = background.waited_for[copy] = loop.create_future()
                    try:
                        await ended
                    except asyncio.CancelledError as error:
                        copy.cancel()
                        cancelled = error
            finally:
                background.waited_for.pop(copy, None)
            if cancelled is not None:
                raise cancelled
            copy.result()
