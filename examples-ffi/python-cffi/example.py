"""What a program does with the binding. Prints a line for each check, and fails if one does not hold.

With the argument "refused" the device fails on purpose, and the program ends with its exception; with "forget" it ends
with a slice that is live and an allocator that is not closed."""

import struct
import sys
import threading

from slicepool import CONSTANTS, Allocator, Error, differing_structs, ffi


class Lost(Exception):
    """What the device raises when it fails on purpose."""


class Arrays:
    """A device whose pages are arrays of C, which cffi frees once nothing refers to them."""

    def __init__(self):
        self._lock = threading.Lock()
        self.pages = {}
        self.taken = 0
        self.error = None
        self.callers = set()

    def allocate(self, size, alignment):
        self.callers.add(threading.get_ident())
        if self.error is not None:
            raise self.error
        array = ffi.new("char[]", size + alignment)
        address = int(ffi.cast("uintptr_t", array))
        with self._lock:
            self.taken += 1
            handle = self.taken
            self.pages[handle] = (array, size)
        return handle, array + -address % alignment

    def deallocate(self, handle, size):
        if self.error is not None:
            raise self.error
        with self._lock:
            if self.pages.pop(handle)[1] != size:
                raise ValueError(f"page {handle} has not {size} bytes")


def expect(holds, *said):
    # Not `assert`, which `python -O` leaves out.
    if not holds:
        raise SystemExit(f"failed: {' '.join(map(str, said))}")


def raised(kind, function, *arguments):
    """The exception of this kind that a call raises."""
    try:
        function(*arguments)
    except kind as exception:
        return exception
    raise SystemExit(f"failed: {function} raised nothing")


def structs_are_those_of_the_library():
    expect(differing_structs() == [], differing_structs())


def slices_are_memory():
    device = Arrays()
    allocator = Allocator(device)
    slice = allocator.allocate(1000, 256)
    expect(slice.size >= 1000 and slice.offset % 256 == 0, slice.size, slice.offset)
    slice.view[:5] = b"slice"
    array, size = device.pages[slice.memory]
    expect(b"slice" in bytes(ffi.buffer(array, size)), "it lies elsewhere")
    slice.free()
    raised(ValueError, slice.view.tobytes)
    allocator.close()
    allocator.close()
    expect(device.taken == 1 and not device.pages, device.taken)


def errors_carry_code_and_details():
    allocator, other = Allocator(Arrays(), max_bytes=1 << 20), Allocator(Arrays())
    large = raised(Error, allocator.allocate, 2 << 20)
    expect(large.code == CONSTANTS["ERROR_BUDGET_EXCEEDED"] and large.details["limit"] == 1 << 20, large)
    odd = raised(Error, allocator.allocate, 4096, 3)
    expect(odd.code == CONSTANTS["ERROR_INVALID_ARGUMENT"], odd)
    expect(odd.details["field"] == "alignment" and odd.details["value"] == 3, odd)
    slice = allocator.allocate(4096)
    busy = raised(Error, allocator.close)
    expect(busy.code == CONSTANTS["ERROR_BUSY"] and busy.details["live"] == 1, busy)
    expect(raised(Error, other.free, slice.id).code == CONSTANTS["ERROR_FOREIGN_HANDLE"], "freed elsewhere")
    slice.free()
    expect(raised(Error, allocator.free, slice.id).code == CONSTANTS["ERROR_STALE_HANDLE"], "freed twice")
    allocator.close()
    other.close()
    expect(raised(Error, allocator.allocate, 1).code == CONSTANTS["ERROR_INVALID_ARGUMENT"], "allocated after the end")


def an_exception_of_the_device_reaches_the_caller():
    device = Arrays()
    allocator = Allocator(device)
    device.error = Lost("unplugged")
    lost = raised(Lost, allocator.allocate, 4096)
    expect(lost is device.error, lost)
    expect(lost.__context__.code == CONSTANTS["ERROR_DEVICE_FAILED"], lost.__context__)
    device.error = None
    allocator.allocate(4096).free()
    device.error = Lost("unplugged again")
    raised(Lost, allocator.trim)
    raised(Lost, allocator.close)
    device.error = None
    allocator.close()
    expect(not device.pages, len(device.pages), "pages are missing")
    device.error = MemoryError()
    allocator = Allocator(device)
    full = raised(Error, allocator.allocate, 4096)
    expect(full.code == CONSTANTS["ERROR_OUT_OF_DEVICE_MEMORY"] and full.__cause__ is device.error, full)
    allocator.close()


def four_threads_allocate_and_free():
    """Slices are stamped with their ids: were two to overlap, a stamp would be gone. Trimming has pages come and go, so the
    device is called by several threads at once."""
    device = Arrays()
    allocator = Allocator(device)
    failures = []
    rounds = 10
    together = threading.Barrier(4)

    def free(slice):
        stamp = struct.unpack_from("=Q", slice.view)[0]
        expect(stamp == slice.id, "slice", slice.id, "has the stamp", stamp)
        slice.free()

    def work(seed):
        for _ in range(rounds):
            # No two lie in one page, so each thread needs a page from the device.
            large = allocator.allocate(64 << 20)
            together.wait()
            live = [large]
            for _ in range(100):
                seed = (seed * 6364136223846793005 + 1442695040888963407) % (1 << 64)
                live.append(allocator.allocate(8 + (seed >> 33) % (1 << 16)))
                struct.pack_into("=Q", live[-1].view, 0, live[-1].id)
                if len(live) == 16:
                    free(live.pop(1))
            large.free()
            for slice in live[1:]:
                free(slice)
            # Nothing is left when the last thread comes here, so all pages go.
            allocator.trim()
            together.wait()

    def noted(seed):
        try:
            work(seed)
        except BaseException as exception:
            failures.append(exception)
            # Nobody waits for a thread that has failed.
            together.abort()

    threads = [threading.Thread(target=noted, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    allocator.close()
    expect(len(device.callers) > 1, "the device was called by", len(device.callers), "threads")
    expect(device.taken >= 4 * rounds, device.taken, "pages taken: trimming has done nothing")
    expect(not device.pages, len(device.pages), "pages are missing")


CHECKS = [
    structs_are_those_of_the_library,
    slices_are_memory,
    errors_carry_code_and_details,
    an_exception_of_the_device_reaches_the_caller,
    four_threads_allocate_and_free,
]


def main(arguments):
    if arguments == ["refused"]:
        device = Arrays()
        device.error = Lost("the device is lost")
        Allocator(device).allocate(4096)
    elif arguments == ["forget"]:
        allocator = Allocator(Arrays())
        slice = allocator.allocate(4096)
        print("slice", slice.id, "is live")
        # This one goes before the end.
        Allocator(Arrays()).allocate(4096)
    else:
        for check in CHECKS:
            check()
            print("ok", check.__name__.replace("_", " "))


if __name__ == "__main__":
    main(sys.argv[1:])
