"""What a program does with the binding. Prints a line for each check, and fails if one does not hold.

With the argument "refused" the device fails on purpose, and the program ends with its exception; with "layout" it prints
where the fields of the structs lie."""

import os
import struct
import sys
import threading

from mappings import Mappings
from slicepool import Allocator, BufferPool, Error, native


class Lost(Exception):
    """What the device raises when it fails on purpose."""


def fail(exception):
    """A function that raises."""

    def raise_it():
        raise exception

    return raise_it


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
    expect(native.differing_structs() == [], native.differing_structs())


def slices_are_memory():
    device = Mappings()
    with Allocator(device) as allocator:
        one = allocator.allocate(1000, 256)
        expect(one.size >= 1000 and one.offset % 256 == 0, one.size, one.offset)
        one.view[:5] = b"slice"
        expect(bytes(allocator.slice(one.id).view[:5]) == b"slice", "the same slice has other bytes")
        page = device.pages[one.memory]
        expect(page[one.offset : one.offset + 5] == b"slice", "it lies elsewhere in its page")
        one.free()
        raised(ValueError, one.view.tobytes)
    allocator.close()
    expect(device.taken == device.returned == 1, device.taken, device.returned)


def errors_carry_code_and_details():
    with Allocator(Mappings(), max_bytes=1 << 20) as allocator, Allocator(Mappings()) as other:
        large = raised(Error, allocator.allocate, 2 << 20)
        expect(large.code == native.BUDGET_EXCEEDED and large.details["limit"] == 1 << 20, large)
        odd = raised(Error, allocator.allocate, 4096, 3)
        expect(odd.code == native.INVALID_ARGUMENT, odd)
        expect(odd.details["field"] == "alignment" and odd.details["value"] == 3, odd)
        expect(odd.text in str(odd) and "alignment" in str(odd), odd)
        slice = allocator.allocate(4096)
        busy = raised(Error, allocator.close)
        expect(busy.code == native.BUSY and busy.details["live"] == 1, busy)
        expect(raised(Error, other.free, slice.id).code == native.FOREIGN_HANDLE, "freed elsewhere")
        slice.free()
        expect(raised(Error, allocator.free, slice.id).code == native.STALE_HANDLE, "freed twice")
    expect(raised(Error, allocator.allocate, 1).code == native.INVALID_ARGUMENT, "allocated after the end")


def an_exception_of_the_device_reaches_the_caller():
    device = Mappings()
    with Allocator(device) as allocator:
        exception = Lost("unplugged")
        device.before_allocate = fail(exception)
        lost = raised(Lost, allocator.allocate, 4096)
        expect(lost is exception, lost)
        expect(isinstance(lost.__context__, Error) and lost.__context__.code == native.DEVICE_FAILED, lost.__context__)
        device.before_allocate = fail(KeyboardInterrupt())
        raised(KeyboardInterrupt, allocator.allocate, 4096)
        device.before_allocate = lambda: None
        allocator.allocate(4096).free()
    device.before_allocate = fail(MemoryError("full"))
    with Allocator(device) as allocator:
        full = raised(Error, allocator.allocate, 4096)
        expect(full.code == native.OUT_OF_DEVICE_MEMORY and isinstance(full.__cause__, MemoryError), full)


def a_page_that_is_refused_can_be_given_back_later():
    device = Mappings()
    allocator = Allocator(device)
    allocator.allocate(4096).free()
    device.before_deallocate = fail(Lost())
    raised(Lost, allocator.trim)
    raised(Lost, allocator.close)
    device.before_deallocate = lambda: None
    allocator.close()
    expect(device.taken == device.returned == 1, device.taken, device.returned)


def a_device_may_use_its_allocator():
    device = Mappings()
    with Allocator(device) as allocator:
        inner = []

        def allocate_within():
            # The allocation from within asks for a page as well.
            device.before_allocate = fail(Lost("inner"))
            inner.append(raised(Lost, allocator.allocate, 4096))
            inner.append(raised(Error, allocator.close))
            # Whoever is refused may ask again.
            device.before_allocate = allocate_within
            raise Lost("outer")

        device.before_allocate = allocate_within
        outer = raised(Lost, allocator.allocate, 4096)
        expect(str(outer) == "outer" and str(inner[0]) == "inner", outer, inner)
        expect(inner[1].code == native.BUSY, "closed from within:", inner[1])
    calls_within_forget_nothing()


def calls_within_forget_nothing():
    """A call from within a callback fails after an earlier callback has, whose exception must stay."""
    device = Mappings()
    with Allocator(device) as allocator:
        # No two lie in one page.
        for slice in [allocator.allocate(64 << 20) for _ in range(2)]:
            slice.free()
        closed = []

        def deallocate():
            device.before_deallocate = lambda: closed.append(raised(Error, allocator.close))
            raise Lost("first")

        device.before_deallocate = deallocate
        raised(Lost, allocator.trim)
        expect(closed and closed[0].code == native.BUSY, "closed from within:", closed)
        device.before_deallocate = lambda: None
    expect(device.taken == device.returned, device.taken, device.returned)


def four_threads_allocate_and_free():
    """Slices are stamped with their ids: were two to overlap, a stamp would be gone. Trimming has pages come and go, so the
    device is called by several threads at once."""
    device = Mappings()
    allocator = Allocator(device)
    callers = set()
    device.before_allocate = lambda: callers.add(threading.get_ident())
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
    expect(len(callers) > 1, "the device was called by", len(callers), "threads")
    expect(device.taken >= 4 * rounds, device.taken, "pages taken: trimming has done nothing")
    expect(device.taken == device.returned and not device.pages, device.taken, device.returned)


def buffers_are_memory_that_is_used_again():
    reader, writer = os.pipe()
    with BufferPool(limit=2) as pool, open(reader, "rb", 0) as source, open(writer, "wb", 0) as sink:
        sink.write(b"packet")
        with pool.acquire(1500) as packet:
            expect(len(packet.view) == 2048, len(packet.view))
            # Read from the system straight into the buffer.
            count = source.readinto(packet.view)
            expect(bytes(packet.view[:count]) == b"packet", bytes(packet.view[:count]))
            busy = raised(Error, pool.close)
            expect(busy.code == native.BUSY and busy.details["live"] == 1, busy)
        raised(ValueError, packet.view.tobytes)
        expect(raised(Error, pool.acquire, 1 << 20).code == native.OVERSIZED, "a megabyte")
        with pool.acquire(1500), pool.acquire(1500):
            exhausted = raised(Error, pool.acquire, 1500)
            expect(exhausted.code == native.EXHAUSTED and exhausted.details["limit"] == 2, exhausted)
        with pool.acquire(0) as empty:
            expect(len(empty.view) == 0, "an empty buffer has bytes")


CHECKS = [
    structs_are_those_of_the_library,
    slices_are_memory,
    errors_carry_code_and_details,
    an_exception_of_the_device_reaches_the_caller,
    a_page_that_is_refused_can_be_given_back_later,
    a_device_may_use_its_allocator,
    four_threads_allocate_and_free,
    buffers_are_memory_that_is_used_again,
]


def main(arguments):
    if arguments == ["refused"]:
        device = Mappings()
        device.before_allocate = fail(Lost("the device is lost"))
        with Allocator(device) as allocator:
            allocator.allocate(4096)
    elif arguments == ["layout"]:
        print("\n".join(native.layout()))
    else:
        for check in CHECKS:
            check()
            print("ok", check.__name__.replace("_", " "))


if __name__ == "__main__":
    main(sys.argv[1:])
