"""A small binding of slicepool: a device is an object, results are exceptions."""

from .allocator import Allocator, Page, Slice
from .buffers import Buffer, BufferPool
from .errors import Error

__all__ = ["Allocator", "Buffer", "BufferPool", "Error", "Page", "Slice"]
