"""Allocators, their slices, and what a device has to do for them."""

import contextlib
import ctypes
import warnings

from . import native
from .errors import call, guarded


class Page:
    """Memory of a device: its own name for it (any number but the largest of 64 bits), and where the CPU sees it."""

    def __init__(self, handle, size, mapped=None):
        self.handle = handle
        self.size = size
        self.mapped = mapped


class Slice:
    """A part of a page. It keeps its allocator alive, but not its memory: that is the next one's after `free`."""

    def __init__(self, allocator, found):
        self.allocator = allocator
        self.id = found.id
        self.memory = found.memory
        self.offset = found.offset
        self.size = found.size
        # Bytes, if the CPU sees them. Ends with `free`; but parts that were taken of it do not, nor arrays over them.
        self.view = native.memory_at(found.mapped, found.size) if found.mapped else None

    def free(self):
        """Gives it back. Raises BufferError while something is using the view, Error with STALE_HANDLE a second time."""
        if self.view is not None:
            self.view.release()
        self.allocator.free(self.id)


class Allocator:
    """Hands out slices of a device's memory. Any thread may use it at any time, except for `close`.

    The device has two methods, which the library calls on the thread whose call needs them, several at once, with
    no lock held:

        allocate(size, alignment) -> Page     raises MemoryError if it is full
        deallocate(page)                      a page that it raises for stays with the device, and may come again
    """

    def __init__(self, device, max_bytes=0):
        self._pointer = ctypes.c_void_p()

        def allocate(_user_data, request, memory):
            def fill_in():
                page = device.allocate(request.contents.size, request.contents.alignment)
                memory.contents.handle = page.handle
                memory.contents.mapped = page.mapped

            return guarded(fill_in)

        def deallocate(_user_data, memory):
            page = memory.contents
            return guarded(lambda: device.deallocate(Page(page.handle, page.size, page.mapped)))

        # The library copies the struct, but what it points to is code that goes with these two objects.
        self._callbacks = (native.ALLOCATE(allocate), native.DEALLOCATE(deallocate))
        callbacks = native.new(native.Device)
        callbacks.allocate, callbacks.deallocate = self._callbacks
        failure = native.new(native.Failure)
        config = native.new(native.AllocatorConfig)
        config.max_bytes = max_bytes
        config.failure = ctypes.pointer(failure)
        create = native.library.slicepool_allocator_create
        call(create, callbacks, config, ctypes.byref(self._pointer), failure=failure)

    def allocate(self, size, alignment=0):
        """A slice of so many bytes at a multiple of alignment, a power of two; 0: any."""
        failure = native.new(native.Failure)
        request = native.new(native.Request)
        request.size, request.alignment = size, alignment
        request.failure = ctypes.pointer(failure)
        found = native.new(native.Slice)
        call(native.library.slicepool_allocate, self._pointer, request, found, failure=failure)
        return Slice(self, found)

    def free(self, id):
        """Takes back the slice of an id, whichever thread has it from here."""
        call(native.library.slicepool_free, self._pointer, id)

    def slice(self, id):
        """The slice of an id."""
        found = native.new(native.Slice)
        call(native.library.slicepool_slice_get, self._pointer, id, found)
        return Slice(self, found)

    def trim(self, min_keep_bytes=0):
        """Gives pages that hold nothing back to the device, while at least so many bytes stay reserved."""
        failure = native.new(native.Failure)
        call(native.library.slicepool_trim, self._pointer, min_keep_bytes, failure, failure=failure)

    def close(self):
        """Gives all pages back. With live slices it raises Error with BUSY, and what the device raises if that refuses a
        page; the allocator is as it was then. Afterwards every call raises, and closing again does nothing."""
        if not self._pointer:
            return
        failure = native.new(native.Failure)
        call(native.library.slicepool_allocator_destroy, self._pointer, 0, failure, failure=failure)
        self._pointer = ctypes.c_void_p()

    def __enter__(self):
        return self

    def __exit__(self, kind, exception, trace):
        if exception is None:
            self.close()
        else:
            # It may have left slices behind; that closing fails then must not hide it.
            with contextlib.suppress(Exception):
                self.close()

    def __del__(self):
        # No call: objects go at any time, on any thread, and the device may be gone by then.
        if self._pointer:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self)
