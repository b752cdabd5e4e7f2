"""Buffers of host memory, which are handed out again and again."""

import contextlib
import ctypes
import warnings

from . import native
from .errors import call


class Buffer:
    """At least as many bytes as were asked for, as a `view`, until it is released; usable by `with`."""

    def __init__(self, pool, found):
        self.pool = pool
        self.id = found.id
        # An empty buffer lies nowhere.
        self.view = native.memory_at(found.mapped, found.size) if found.mapped else memoryview(b"")

    def release(self):
        """Gives it back. Raises BufferError while something is using the view, Error with STALE_HANDLE a second time."""
        self.view.release()
        call(native.library.slicepool_buffer_release, self.pool._pointer, None, self.id)

    def __enter__(self):
        return self

    def __exit__(self, kind, exception, trace):
        self.release()


class BufferPool:
    """Buffers of 1 KiB to 128 KiB, at most `limit` of each class (0: as many as suit a network). Any thread may use it at
    any time, except for `close`."""

    def __init__(self, limit=0):
        self._pointer = ctypes.c_void_p()
        failure = native.new(native.Failure)
        config = native.new(native.BufferPoolConfig)
        config.failure = ctypes.pointer(failure)
        call(native.library.slicepool_buffer_pool_config_for_network, config, failure=failure)
        if limit:
            for power in range(10, 18):
                config.limits[power] = limit
        create = native.library.slicepool_buffer_pool_create
        call(create, None, config, ctypes.byref(self._pointer), failure=failure)

    def acquire(self, size):
        """A buffer of at least so many bytes, whatever they are."""
        failure = native.new(native.Failure)
        found = native.new(native.Buffer)
        acquire = native.library.slicepool_buffer_acquire
        call(acquire, self._pointer, None, size, 0, found, failure, failure=failure)
        return Buffer(self, found)

    def close(self):
        """Frees the memory. Raises Error with BUSY while buffers are out. Closing again does nothing."""
        if not self._pointer:
            return
        failure = native.new(native.Failure)
        call(native.library.slicepool_buffer_pool_destroy, self._pointer, 0, failure, failure=failure)
        self._pointer = ctypes.c_void_p()

    def __enter__(self):
        return self

    def __exit__(self, kind, exception, trace):
        if exception is None:
            self.close()
        else:
            # It may have left buffers behind; that closing fails then must not hide it.
            with contextlib.suppress(Exception):
                self.close()

    def __del__(self):
        if self._pointer:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self)
