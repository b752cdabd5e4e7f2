/*
 * slicepool for C++17: owners, exceptions, devices from objects, caches per thread. Header only, over slicepool.h.
 *
 *     slicepool::Allocator allocator(slicepool::host_memory{});
 *     slicepool::Slice slice = allocator.allocate(100000, 4096);
 *     std::fill(slice.bytes().begin(), slice.bytes().end(), std::byte{0});
 *     // freed at the end of the scope; slice.free_after({slicepool::point(0, frame)}) waits for the device
 *
 * What a call means, costs and refuses stands in slicepool.h; here is what C++ adds.
 *
 * ERRORS. Each function that can fail has a form that begins with try_ and answers a slicepool::result, and one without
 * that throws slicepool::error. Without exceptions (-fno-exceptions, or SLICEPOOL_NO_EXCEPTIONS defined before the
 * include) there are the try_ forms only. Units of one program that are compiled either way do not share these types:
 * handing one over does not link. Host memory that containers of the standard library want (std::vector, std::string)
 * throws std::bad_alloc in both forms, or ends the process where there are no exceptions.
 *
 * OWNERS can be moved and not copied; one that was moved from is empty. An empty owner refuses its calls with
 * SLICEPOOL_ERROR_INVALID_ARGUMENT, and destroying it does nothing. The destructor of an Allocator or BufferPool ends
 * everything: the device has its memory back, live slices, buffers and caches of it lose theirs, and the failure handler
 * hears of them. A Slice, Buffer or BufferCache that is destroyed later does nothing, and refuses its calls with
 * SLICEPOOL_ERROR_STALE_HANDLE.
 *
 * DEVICES are objects with allocate() and deallocate(), and more if they have more to say: see "Devices". An owner keeps
 * a device that is handed over (std::move) or shared (std::shared_ptr), and borrows one that is passed by std::ref, which
 * has to live longer.
 *
 * THREADS. As in slicepool.h: any thread may call anything at any time, but for constructing, moving and destroying an
 * owner, which nobody else may be racing with. One thread at a time per Slice, Buffer, BufferCache and Space object.
 * A buffer pool gives each thread a cache of its own, which goes back when the thread ends, whether that is before or
 * after the pool is destroyed.
 *
 * FORKS. A forked child that goes on, or ends by exit(), first calls try_abandon(SLICEPOOL_ABANDON_FORKED) of every
 * Allocator and BufferPool of its parent's; otherwise it ends by _exit(). What is abandoned takes its caches, slices and
 * buffers with it.
 *
 * EXCEPTIONS OF A DEVICE end at its callback, which answers SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY for std::bad_alloc and
 * SLICEPOOL_ERROR_DEVICE_FAILED for all others. If the call of this header that needed the callback then fails with
 * that, it throws the exception itself again; a try_ form holds it in failure::exception(). Callbacks run on the thread
 * of the call, so no other call ever gets it. It is lost where the call succeeds all the same, where it fails for another
 * reason, in destructors, and in calls of the functions in slicepool.h.
 */
#ifndef SLICEPOOL_HPP
#define SLICEPOOL_HPP

#include "slicepool/allocator.hpp"
#include "slicepool/buffer_pool.hpp"
#include "slicepool/memory_resource.hpp"
#include "slicepool/space.hpp"

#endif
