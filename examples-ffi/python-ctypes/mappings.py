"""A device written in Python: its pages are anonymous mappings of the operating system."""

import ctypes
import mmap
import threading

from slicepool import Page


class Mappings:
    def __init__(self):
        self._lock = threading.Lock()
        self.pages = {}
        self.taken = 0
        self.returned = 0
        # Checks replace these, to fail instead.
        self.before_allocate = lambda: None
        self.before_deallocate = lambda: None

    def allocate(self, size, alignment):
        self.before_allocate()
        if alignment > mmap.PAGESIZE:
            raise ValueError(f"mappings cannot be aligned to {alignment} bytes")
        try:
            mapping = mmap.mmap(-1, size)
        except OSError as error:
            raise MemoryError from error
        with self._lock:
            self.taken += 1
            handle = self.taken
            self.pages[handle] = mapping
        return Page(handle, size, ctypes.addressof(ctypes.c_char.from_buffer(mapping)))

    def deallocate(self, page):
        self.before_deallocate()
        with self._lock:
            mapping = self.pages.get(page.handle)
            if mapping is None or len(mapping) != page.size:
                raise KeyError(f"page {page.handle} of {page.size} bytes was never given out")
            mapping.close()
            del self.pages[page.handle]
            self.returned += 1
