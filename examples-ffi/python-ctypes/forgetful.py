"""A program that ends with slices and buffers live, and closes nothing. It ends as any other does: once Python is gone
nothing calls the device any more, and the operating system has the memory back."""

from mappings import Mappings
from slicepool import Allocator, BufferPool

allocator = Allocator(Mappings())
slice = allocator.allocate(1000)
slice.view[:5] = b"slice"
pool = BufferPool()
buffer = pool.acquire(1000)

# Some go before the end.
Allocator(Mappings()).allocate(1000)
BufferPool().acquire(1000)

print("slices and buffers are live")
