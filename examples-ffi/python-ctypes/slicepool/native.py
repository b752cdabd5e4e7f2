"""The part of slicepool.h that this binding uses, as ctypes declares it."""

import ctypes
import os
from ctypes import POINTER, c_char_p, c_int32, c_uint32, c_uint64, c_void_p

VERSION = (0, 1)  # major and minor of the header that this file was written from

OK = 0
INVALID_ARGUMENT = -1
STALE_HANDLE = -2
FOREIGN_HANDLE = -3
TOO_LARGE = -4
BUDGET_EXCEEDED = -6
OUT_OF_DEVICE_MEMORY = -8
DEVICE_FAILED = -9
BUSY = -11
EXHAUSTED = -17
OVERSIZED = -18
CLOSED = -19


class Failure(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("result", c_int32),
        ("size", c_uint64),
        ("limit", c_uint64),
        ("in_use", c_uint64),
        ("pending", c_uint64),
        ("largest_free", c_uint64),
        ("value", c_uint64),
        ("memory", c_uint64),
        ("live", c_uint64),
        ("in_flight", c_uint32),
        ("index", c_uint32),
        ("device_code", c_int32),
        ("device_fault", c_uint32),
        ("type_results", c_int32 * 32),
        ("field", c_char_p),
        ("reserved", c_void_p),
    ]


class PageRequest(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("pool", c_uint32),
        ("size", c_uint64),
        ("alignment", c_uint64),
        ("memory_type", c_uint32),
        ("flags", c_uint32),
        ("device_data", c_void_p),
        ("reserved", c_void_p),
    ]


class DeviceMemory(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("device_code", c_int32),
        ("handle", c_uint64),
        ("address", c_uint64),
        ("size", c_uint64),
        ("mapped", c_void_p),
        ("context", c_void_p),
    ]


ALLOCATE = ctypes.CFUNCTYPE(c_int32, c_void_p, POINTER(PageRequest), POINTER(DeviceMemory))
DEALLOCATE = ctypes.CFUNCTYPE(c_int32, c_void_p, POINTER(DeviceMemory))


class Device(ctypes.Structure):
    # The callbacks that are not used here are plain pointers, which are NULL.
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("user_data", c_void_p),
        ("allocate", ALLOCATE),
        ("deallocate", DEALLOCATE),
        ("completed", c_void_p),
        ("out_of_memory", c_void_p),
        ("fill", c_void_p),
        ("heap_budget", c_void_p),
        ("map", c_void_p),
        ("unmap", c_void_p),
        ("flush", c_void_p),
        ("invalidate", c_void_p),
        ("event", c_void_p),
    ]


class AllocatorConfig(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("max_page", c_uint64),
        ("page_alignment", c_uint64),
        ("heap_size", c_uint64),
        ("max_bytes", c_uint64),
        ("persistent_granule", c_uint64),
        ("debug_margin", c_uint64),
        ("dedicated_period", c_uint64),
        ("pool_count", c_uint32),
        ("growth_wait_steps", c_uint32),
        ("max_pages", c_uint32),
        ("memory_type_count", c_uint32),
        ("heap_count", c_uint32),
        ("reserved", c_uint32),
        ("memory_types", c_void_p),
        ("heaps", c_void_p),
        ("blocks", c_void_p),
        ("pools", c_void_p),
        ("host", c_void_p),
        ("budget", c_void_p),
        ("failure", POINTER(Failure)),
        ("name", c_char_p),
        ("user_data", c_void_p),
        ("reserved_pointer", c_void_p),
    ]


class Request(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("size", c_uint64),
        ("alignment", c_uint64),
        ("pool", c_uint32),
        ("search_depth", c_uint32),
        ("memory_types", c_uint32),
        ("required", c_uint32),
        ("preferred", c_uint32),
        ("forbidden", c_uint32),
        ("device_data", c_void_p),
        ("name", c_char_p),
        ("user_data", c_void_p),
        ("failure", POINTER(Failure)),
    ]


class Slice(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("id", c_uint64),
        ("memory", c_uint64),
        ("offset", c_uint64),
        ("size", c_uint64),
        ("address", c_uint64),
        ("mapped", c_void_p),
        ("user_data", c_void_p),
    ]


class BufferPoolConfig(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("pool_min_size", c_uint64),
        ("alignment", c_uint64),
        ("parallelism", c_uint64),
        ("max_thread_cache_capacity", c_uint64),
        ("max_page", c_uint64),
        ("page_alignment", c_uint64),
        ("max_bytes", c_uint64),
        ("memory_bytes", c_uint64),
        ("limits", c_uint32 * 64),
        ("max_pages", c_uint32),
        ("growth_wait_steps", c_uint32),
        ("memory", c_void_p),
        ("host", c_void_p),
        ("budget", c_void_p),
        ("failure", POINTER(Failure)),
        ("name", c_char_p),
        ("user_data", c_void_p),
    ]


class Buffer(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("id", c_uint64),
        ("memory", c_uint64),
        ("offset", c_uint64),
        ("size", c_uint64),
        ("address", c_uint64),
        ("mapped", c_void_p),
        ("reserved_pointer", c_void_p),
    ]


# By the part of their C names that follows slicepool_.
STRUCTS = {
    "failure": Failure,
    "page_request": PageRequest,
    "device_memory": DeviceMemory,
    "device": Device,
    "allocator_config": AllocatorConfig,
    "request": Request,
    "slice": Slice,
    "buffer_pool_config": BufferPoolConfig,
    "buffer": Buffer,
}

# Result and arguments. Without them ctypes takes every argument for an int, which cuts pointers and sizes.
FUNCTIONS = {
    "version": (c_uint32, []),
    "result_string": (c_char_p, [c_int32]),
    "struct_default": (c_int32, [c_void_p, c_uint32]),
    "allocator_create": (c_int32, [POINTER(Device), POINTER(AllocatorConfig), POINTER(c_void_p)]),
    "allocator_destroy": (c_int32, [c_void_p, c_uint32, POINTER(Failure)]),
    "allocate": (c_int32, [c_void_p, POINTER(Request), POINTER(Slice)]),
    "free": (c_int32, [c_void_p, c_uint64]),
    "slice_get": (c_int32, [c_void_p, c_uint64, POINTER(Slice)]),
    "trim": (c_int32, [c_void_p, c_uint64, POINTER(Failure)]),
    "buffer_pool_config_for_network": (c_int32, [POINTER(BufferPoolConfig)]),
    "buffer_pool_create": (c_int32, [POINTER(Device), POINTER(BufferPoolConfig), POINTER(c_void_p)]),
    "buffer_pool_destroy": (c_int32, [c_void_p, c_uint32, POINTER(Failure)]),
    "buffer_acquire": (c_int32, [c_void_p, c_void_p, c_uint64, c_uint32, POINTER(Buffer), POINTER(Failure)]),
    "buffer_release": (c_int32, [c_void_p, c_void_p, c_uint64]),
}


def _load():
    # Not PyDLL, which keeps the GIL: a callback of another thread would wait for it for ever.
    found = ctypes.CDLL(os.environ.get("SLICEPOOL_LIBRARY") or f"libslicepool.so.{VERSION[0]}.{VERSION[1]}")
    signatures = dict(FUNCTIONS)
    signatures.update({f"sizeof_{name}": (c_uint32, []) for name in STRUCTS})
    for name, (result, arguments) in signatures.items():
        function = getattr(found, f"slicepool_{name}")
        function.restype, function.argtypes = result, arguments
    number = found.slicepool_version()
    version = (number // 1000000, number // 1000 % 1000)
    if version != VERSION:
        raise ImportError(f"slicepool is version {version[0]}.{version[1]}, not {VERSION[0]}.{VERSION[1]}")
    return found


library = _load()


def new(struct):
    """A struct with its defaults."""
    value = struct()
    if library.slicepool_struct_default(ctypes.byref(value), ctypes.sizeof(struct)) != OK:
        raise TypeError(f"{struct.__name__} is no struct of slicepool's")
    return value


def differing_structs():
    """Structs whose size here is not the library's: name, size here, size there. There should be none."""
    sizes = [
        (name, ctypes.sizeof(struct), getattr(library, f"slicepool_sizeof_{name}")())
        for name, struct in STRUCTS.items()
    ]
    return [entry for entry in sizes if entry[1] != entry[2]]


def layout():
    """A line for each field: name, offset, size; and one for each struct: name, size."""
    for name, struct in STRUCTS.items():
        for field, _ in struct._fields_:
            place = getattr(struct, field)
            yield f"slicepool_{name}.{field} {place.offset} {place.size}"
        yield f"slicepool_{name} {ctypes.sizeof(struct)}"


def memory_at(address, size):
    """Bytes at an address, which own nothing: they must not be used once the memory belongs to somebody else."""
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")
