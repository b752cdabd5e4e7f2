"""Results of C as exceptions, and exceptions of callbacks on their way through C."""

import threading

from . import native

# Fields of a failure that say nothing to a reader.
_PLUMBING = ("struct_size", "result", "type_results", "reserved")


class Error(Exception):
    """A call that failed: `code`, a constant of `native`; its `text`; `details`, the fields that the library filled in."""

    def __init__(self, code, failure=None):
        self.code = code
        self.text = native.library.slicepool_result_string(code).decode()
        self.details = {}
        # One that the library has not written to says nothing about this call.
        if failure is not None and failure.result == code:
            for name, _ in native.Failure._fields_:
                value = getattr(failure, name)
                if name not in _PLUMBING and value:
                    self.details[name] = value.decode() if isinstance(value, bytes) else value
        details = ", ".join(f"{name} {value}" for name, value in self.details.items())
        super().__init__(f"{self.text} ({code})" + (f": {details}" if details else ""))


class _Caught(threading.local):
    """What a callback raised during the call that this thread is in: callbacks run on the thread of their call."""

    exception = None


_caught = _Caught()


def guarded(callback, *arguments):
    """Runs a callback of C's and answers a result. An exception must not run through C: ctypes would print it and answer
    0, which is success. It waits for the end of the call instead."""
    try:
        callback(*arguments)
        return native.OK
    except BaseException as exception:
        _caught.exception = exception
        return native.OUT_OF_DEVICE_MEMORY if isinstance(exception, MemoryError) else native.DEVICE_FAILED


def call(function, *arguments, failure=None):
    """Calls a function of C's.

    Raises what a callback raised during it if the device has failed by that, with the Error as its context; otherwise
    Error if the call failed, with what a callback raised as its cause. Of several callbacks it is the last one."""
    # A callback may make calls of its own: what its call has caught so far is put aside.
    outer, _caught.exception = _caught.exception, None
    try:
        code = function(*arguments)
        caught = _caught.exception
    finally:
        _caught.exception = outer
    if code == native.OK:
        return
    error = Error(code, failure)
    if caught is None or code != native.DEVICE_FAILED:
        raise error from caught
    try:
        raise error
    except Error:
        raise caught
