"""A small binding of slicepool by cffi, without a compiled module: a device is an object, results are exceptions."""

import os
import threading

from cffi import FFI

import header

CONSTANTS = header.constants()

ffi = FFI()
ffi.cdef(header.declarations())
_soname = f"libslicepool.so.{CONSTANTS['VERSION_MAJOR']}.{CONSTANTS['VERSION_MINOR']}"
library = ffi.dlopen(os.environ.get("SLICEPOOL_LIBRARY") or _soname)
# What is laid out by one header must not be read by the code of another: before 1.0 a new minor version may break it.
if library.slicepool_version() // 1000 != CONSTANTS["VERSION_NUMBER"] // 1000:
    raise ImportError(f"slicepool.h is {CONSTANTS['VERSION_NUMBER']}, the library {library.slicepool_version()}")

_OK = CONSTANTS["OK"]
_DEVICE_FAILED = CONSTANTS["ERROR_DEVICE_FAILED"]


class Error(Exception):
    """A call that failed: `code`, one of CONSTANTS; its `text`; `details`, the fields that the library filled in."""

    def __init__(self, code, failure=None):
        self.code = code
        self.text = ffi.string(library.slicepool_result_string(code)).decode()
        self.details = {}
        # One that the library has not written to says nothing about this call.
        if failure is not None and failure.result == code:
            for name, field in ffi.typeof("slicepool_failure").fields:
                value = getattr(failure, name)
                if field.type.kind == "primitive" and value and name not in ("struct_size", "result"):
                    self.details[name] = value
            if failure.field:
                self.details["field"] = ffi.string(failure.field).decode()
        details = ", ".join(f"{name} {value}" for name, value in self.details.items())
        super().__init__(f"{self.text} ({code})" + (f": {details}" if details else ""))


class _Caught(threading.local):
    """What a callback raised during the call that this thread is in: callbacks run on the thread of their call."""

    exception = None


_caught = _Caught()


def _call(function, *arguments, failure=None):
    """Raises what a callback raised, if the device has failed by that, with the Error as its context; otherwise Error if the
    call failed, with what a callback raised as its cause. Of several callbacks it is the last one."""
    # A callback may make calls of its own: what its call has caught so far is put aside.
    outer, _caught.exception = _caught.exception, None
    try:
        code = function(*arguments)
        caught = _caught.exception
    finally:
        _caught.exception = outer
    if code == _OK:
        return
    error = Error(code, failure)
    if caught is None or code != _DEVICE_FAILED:
        raise error from caught
    try:
        raise error
    except Error:
        raise caught


def _remember(kind, exception, trace):
    """What cffi does with an exception of a callback: it waits for the end of the call. C gets the answer."""
    _caught.exception = exception.with_traceback(trace)
    return CONSTANTS["ERROR_OUT_OF_DEVICE_MEMORY"] if isinstance(exception, MemoryError) else _DEVICE_FAILED


# Made once, for all devices: which of them is meant is in user_data. C calls these for as long as the module is there.
@ffi.callback("slicepool_device_allocate_fn", error=_DEVICE_FAILED, onerror=_remember)
def _allocate(user_data, request, memory):
    handle, mapped = ffi.from_handle(user_data).allocate(request.size, request.alignment)
    memory.handle = handle
    memory.mapped = mapped
    return _OK


@ffi.callback("slicepool_device_deallocate_fn", error=_DEVICE_FAILED, onerror=_remember)
def _deallocate(user_data, memory):
    ffi.from_handle(user_data).deallocate(memory.handle, memory.size)
    return _OK


def new(name):
    """A struct with its defaults."""
    value = ffi.new(f"slicepool_{name} *")
    _call(library.slicepool_struct_default, value, ffi.sizeof(f"slicepool_{name}"))
    return value


def differing_structs():
    """Structs whose size by the header is not the library's: there should be none."""
    names = [name[len("slicepool_sizeof_") :] for name in dir(library) if name.startswith("slicepool_sizeof_")]
    if not names:
        raise ImportError("the header declares no sizes")
    sizes = [(n, ffi.sizeof(f"slicepool_{n}"), getattr(library, f"slicepool_sizeof_{n}")()) for n in names]
    return [entry for entry in sizes if entry[1] != entry[2]]


class Slice:
    """A part of a page. It keeps its allocator alive, but not its memory: that is the next one's after `free`."""

    def __init__(self, allocator, found):
        self.allocator = allocator
        self.id = found.id
        self.memory = found.memory
        self.offset = found.offset
        self.size = found.size
        # Bytes, if the CPU sees them. Ends with `free`; but parts that were taken of it do not.
        self.view = memoryview(ffi.buffer(found.mapped, found.size)) if found.mapped else None

    def free(self):
        """Gives it back. Raises BufferError while something is using the view, Error with STALE_HANDLE a second time."""
        if self.view is not None:
            self.view.release()
        self.allocator.free(self.id)


class Allocator:
    """Hands out slices of a device's memory. Any thread may use it at any time, except for `close`.

    The device has two methods, which the library calls on the thread whose call needs them, several at once, with
    no lock held:

        allocate(size, alignment) -> (handle, pointer)     raises MemoryError if it is full
        deallocate(handle, size)                           a page that it raises for stays with the device
    """

    def __init__(self, device, max_bytes=0):
        self._pointer = ffi.NULL
        # The pointer that C has is no reference: the handle has to live as long as the allocator, and keeps the device.
        self._handle = ffi.new_handle(device)
        callbacks = new("device")
        callbacks.user_data = self._handle
        callbacks.allocate = _allocate
        callbacks.deallocate = _deallocate
        failure = new("failure")
        config = new("allocator_config")
        config.max_bytes = max_bytes
        config.failure = failure
        created = ffi.new("slicepool_allocator **")
        _call(library.slicepool_allocator_create, callbacks, config, created, failure=failure)
        self._pointer = created[0]

    def allocate(self, size, alignment=0):
        """A slice of so many bytes at a multiple of alignment, a power of two; 0: any."""
        # To store a pointer in a struct keeps nothing alive: `failure` has to be a variable.
        failure = new("failure")
        request = new("request")
        request.size, request.alignment, request.failure = size, alignment, failure
        found = new("slice")
        _call(library.slicepool_allocate, self._pointer, request, found, failure=failure)
        return Slice(self, found)

    def free(self, id):
        """Takes back the slice of an id, whichever thread has it from here."""
        _call(library.slicepool_free, self._pointer, id)

    def trim(self, min_keep_bytes=0):
        """Gives pages that hold nothing back to the device, while at least so many bytes stay reserved."""
        failure = new("failure")
        _call(library.slicepool_trim, self._pointer, min_keep_bytes, failure, failure=failure)

    def close(self):
        """Gives all pages back. With live slices it raises Error with BUSY, and what the device raises if that refuses a
        page; the allocator is as it was then. Afterwards every call raises, and closing again does nothing."""
        if self._pointer == ffi.NULL:
            return
        failure = new("failure")
        _call(library.slicepool_allocator_destroy, self._pointer, 0, failure, failure=failure)
        self._pointer = ffi.NULL
