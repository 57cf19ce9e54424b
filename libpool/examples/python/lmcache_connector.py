"""LMCache's blocks in a Region: a connector for its native_plugin, over a Directory. NOT TRIED WITH LMCACHE.

It is written from the description of native_plugin in LMCache's design documents (docs/design, plugin.md), and tested
with a stub of the driver that is described there. LMCache itself has never called it.

    {"type": "native_plugin", "module_path": "lmcache_connector", "class_name": "DirectoryConnector",
     "adapter_params": {"region": "kv", "partition": 0}}

The Region is shared, and each process that uses the connector has a partition of its own: every one reads what all
have stored. One of them, or somebody before them, makes the Directory: cxlpool.Directory.create(map, partitions=8).

A batch is carried out by one thread, key after key, and its end is reported by an eventfd. A key that is refused is a block that
is not there (lookup, load) or was not stored; the batch's error says why. Eviction is LMCache's: it deletes what
this process has stored, where the version at hand knows submit_batch_delete.
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import cxlpool


class DirectoryConnector:
    """Any number of threads may call it.

    region, socket: what cxlpool.Pool(socket).open(region) opens. partition: of this process only. threads: how many
    batches are carried out at once. max_batches: how many may be under way or not yet drained; one more fails at
    once, as a batch of which no key was there or was stored. With twice as many submit_... raises a RuntimeError.
    """

    def __init__(self, region, partition, socket=None, threads=4, max_batches=1024):
        if threads < 1 or max_batches < 1:
            raise ValueError('threads and max_batches are 1 or more')
        self._map = cxlpool.Pool(socket).open(region).map()
        self._directory = cxlpool.Directory(self._map, int(partition))
        self._eventfd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._threads = ThreadPoolExecutor(threads, 'cxlpool-lmcache')
        self._max_batches = max_batches
        self._lock = threading.Lock()
        self._next_id = 1
        self._batches = 0  # Submitted, and not drained.
        self._completions = []
        self._closed = False

    def event_fd(self):
        """Readable when a batch has ended since the last drain_completions."""
        return self._eventfd

    def submit_batch_get(self, keys, buffers):
        """Fills each buffer with the block of its key, which has exactly its size. Returns the batch's id."""
        return self._submit(self._get, keys, buffers)

    def submit_batch_set(self, keys, buffers):
        """Stores each buffer under its key, in place of what this process had stored under it."""
        return self._submit(self._set, keys, buffers)

    def submit_batch_exists(self, keys):
        """Whether each key is there."""
        return self._submit(self._exists, keys)

    def submit_batch_delete(self, keys):
        """Removes those that this process has stored."""
        return self._submit(self._delete, keys)

    def drain_completions(self):
        """The batches that have ended: (id, ok, error, whether each key was there or done).

        ok: all of them were, or it is a lookup, that could be carried out.
        """
        with self._lock:
            if self._closed:
                return []
            try:
                os.eventfd_read(self._eventfd)
            except BlockingIOError:
                pass
            ended, self._completions = self._completions, []
            self._batches -= len(ended)
        return ended

    def close(self):
        """Waits for the batches that are being carried out. Those that have not begun are dropped, and not reported."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._threads.shutdown(cancel_futures=True)
        self._directory.close()
        self._map.close()
        os.close(self._eventfd)

    # What is done with one key. True: done, or there. Else an Error, or False.

    def _get(self, key, buffer):
        size = self._directory.get_into(key, buffer)
        if size != memoryview(buffer).nbytes:
            raise ValueError(f'the block has {size} bytes, and the buffer {memoryview(buffer).nbytes}')
        return True

    def _set(self, key, buffer):
        self._directory.put(key, buffer)
        return True

    def _exists(self, key):
        return key in self._directory

    def _delete(self, key):
        self._directory.remove(key)
        return True

    def _submit(self, act, keys, *columns):
        keys, columns = list(keys), [list(column) for column in columns]
        if not keys:
            raise ValueError('a batch has one key or more')
        if any(len(column) != len(keys) for column in columns):
            raise ValueError(f'there are {len(keys)} keys, and not as many buffers')
        with self._lock:
            if self._closed:
                raise RuntimeError('the connector is closed')
            if self._batches >= 2 * self._max_batches:
                raise RuntimeError(f'{self._batches} batches are not drained: call drain_completions')
            batch, self._next_id = self._next_id, self._next_id + 1
            self._batches += 1
            if self._batches <= self._max_batches:
                self._threads.submit(self._carry_out, batch, act, list(zip(keys, *columns)))
                return batch
        self._tell(batch, False, f'more than {self._max_batches} batches are under way', [False] * len(keys))
        return batch

    def _carry_out(self, batch, act, items):
        """Whatever happens to a key, the others are tried, and the batch is reported."""
        done, why = [], ''
        for item in items:
            try:
                done.append(act(*item))
            except Exception as error:
                done.append(False)
                why = why or f'{item[0]}: {error}'
        self._tell(batch, not why, why, done)

    def _tell(self, batch, ok, why, done):
        with self._lock:
            if self._closed:
                return  # Nobody drains it, and the eventfd's number may be another file's by now.
            self._completions.append((batch, ok, why, done))
            os.eventfd_write(self._eventfd, 1)
