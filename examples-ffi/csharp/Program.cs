// A device written in C#, and what an allocator makes of it. Prints a line for each check, and fails if one does not hold.
// With the argument "refused" the device fails on purpose, and the program ends with its exception.

using System;
using System.Collections.Generic;
using System.Runtime.InteropServices;
using System.Threading;
using Slicepool;

/// Pages of the operating system's heap, which the garbage collector leaves alone.
sealed class HeapDevice : IDevice
{
    private readonly Dictionary<ulong, IntPtr> pages = new Dictionary<ulong, IntPtr>();
    public int Taken, Returned;
    /// Checks set these: what to throw instead.
    public volatile Exception AllocateFails, DeallocateFails;
    /// Runs before a page goes back; may throw, too.
    public volatile Action BeforeDeallocate = () => {};

    public Page Allocate(ulong size, ulong alignment)
    {
        if (AllocateFails != null)
        {
            throw AllocateFails;
        }
        // That heap aligns to 16 bytes or less; the page begins at the first multiple within a longer piece.
        var piece = Marshal.AllocHGlobal(new IntPtr((long)(size + alignment)));
        var start = ((ulong)piece.ToInt64() + alignment - 1) / alignment * alignment;
        lock (pages)
        {
            pages.Add(start, piece);
            Taken++;
        }
        return new Page { Handle = start, Mapped = new IntPtr((long)start) };
    }

    public void Deallocate(Page page)
    {
        if (DeallocateFails != null)
        {
            throw DeallocateFails;
        }
        BeforeDeallocate();
        IntPtr piece;
        lock (pages)
        {
            piece = pages[page.Handle];
            pages.Remove(page.Handle);
            Returned++;
        }
        Marshal.FreeHGlobal(piece);
    }
}

static class Program
{
    static int Main(string[] arguments)
    {
        try
        {
            if (arguments.Length > 0 && arguments[0] == "refused")
            {
                FirstAllocation(new HeapDevice { AllocateFails = new Exception("the device is lost") });
            }
            Check("structs are those of the library", StructsAreEqual);
            Check("slices are memory", SlicesAreMemory);
            Check("errors carry code and details", ErrorsCarryDetails);
            Check("an exception of the device reaches the caller", DeviceThrows);
            Check("a page that is refused can be given back later", RefusedPages);
            Check("a device may use its allocator", NestedCalls);
            Check("four threads allocate and free", FourThreads);
            return 0;
        }
        catch (SlicepoolException exception)
        {
            var cause = exception.InnerException;
            Console.Error.WriteLine(exception.Message + (cause == null ? "" : ": " + cause.Message));
            return 1;
        }
        catch (InvalidOperationException exception)
        {
            Console.Error.WriteLine(exception.Message);
            return 1;
        }
    }

    static void Check(string name, Action check)
    {
        check();
        Console.WriteLine("ok " + name);
    }

    static void Expect(bool holds, string what)
    {
        if (!holds)
        {
            throw new InvalidOperationException("not so: " + what);
        }
    }

    /// The exception of a call that has to fail.
    static SlicepoolException Failing(Action call)
    {
        try
        {
            call();
        }
        catch (SlicepoolException exception)
        {
            return exception;
        }
        throw new InvalidOperationException("a call that has to fail did not");
    }

    static void FirstAllocation(IDevice device)
    {
        using (var allocator = new Allocator(device))
        {
            allocator.Free(allocator.Allocate(4096).Id);
        }
    }

    static void StructsAreEqual()
    {
        Expect(Native.SizesAreEqual(), "all structs are as long as the library's");
    }

    static void SlicesAreMemory()
    {
        var device = new HeapDevice();
        using (var allocator = new Allocator(device))
        {
            var slice = allocator.Allocate(1000, 256);
            Expect(slice.Size >= 1000 && slice.Offset % 256 == 0, "size and alignment are as asked for");
            Expect((ulong)slice.Mapped.ToInt64() == slice.Memory + slice.Offset, "the slice lies in its page");
            Marshal.WriteInt64(slice.Mapped, 992, 42);
            Expect(Marshal.ReadInt64(slice.Mapped, 992) == 42, "what was written is there");
            // Nothing but the allocator refers to the device and the delegates now.
            GC.Collect();
            GC.WaitForPendingFinalizers();
            allocator.Free(slice.Id);
        }
        Expect(device.Taken == 1 && device.Returned == 1, "one page came and went");
    }

    static void ErrorsCarryDetails()
    {
        var allocator = new Allocator(new HeapDevice());
        var other = new Allocator(new HeapDevice());
        var slice = allocator.Allocate(4096);
        var odd = Failing(() => allocator.Allocate(4096, 3));
        Expect(odd.Code == Code.InvalidArgument && odd.Field == "alignment" && odd.Value == 3, "an alignment of 3 is refused");
        var busy = Failing(allocator.Close);
        Expect(busy.Code == Code.Busy && busy.Live == 1, "one slice is live");
        Expect(Failing(() => other.Free(slice.Id)).Code == Code.ForeignHandle, "another allocator knows no such slice");
        allocator.Free(slice.Id);
        Expect(Failing(() => allocator.Free(slice.Id)).Code == Code.StaleHandle, "a second free is refused");
        allocator.Close();
        allocator.Close();
        other.Close();
        Expect(Failing(() => allocator.Allocate(1)).Code == Code.InvalidArgument, "a closed allocator serves nobody");
    }

    static void DeviceThrows()
    {
        var device = new HeapDevice { AllocateFails = new Exception("lost") };
        var lost = Failing(() => FirstAllocation(device));
        Expect(lost.Code == Code.DeviceFailed && lost.InnerException == device.AllocateFails, "the device has failed");
        device.AllocateFails = new OutOfDeviceMemoryException();
        var full = Failing(() => FirstAllocation(device));
        Expect(full.Code == Code.OutOfDeviceMemory && full.InnerException == device.AllocateFails, "the device is full");
        device.AllocateFails = null;
        FirstAllocation(device);
    }

    static void RefusedPages()
    {
        var device = new HeapDevice();
        var allocator = new Allocator(device);
        allocator.Free(allocator.Allocate(4096).Id);
        device.DeallocateFails = new Exception("lost");
        Expect(Failing(() => allocator.Trim()).InnerException == device.DeallocateFails, "trimming fails");
        Expect(Failing(allocator.Close).InnerException == device.DeallocateFails, "closing fails");
        device.DeallocateFails = null;
        allocator.Close();
        Expect(device.Taken == 1 && device.Returned == 1, "the page went back after all");
    }

    /// A call from within a callback fails after an earlier callback has, whose exception must stay.
    static void NestedCalls()
    {
        const ulong large = 64 << 20; // bytes; no two lie in one page
        var device = new HeapDevice();
        var allocator = new Allocator(device);
        ulong one = allocator.Allocate(large).Id, other = allocator.Allocate(large).Id;
        allocator.Free(one);
        allocator.Free(other);
        var lost = new Exception("lost");
        var calls = 0;
        device.BeforeDeallocate = () =>
        {
            calls++;
            if (calls == 1)
            {
                throw lost;
            }
            Expect(Failing(allocator.Close).Code == Code.Busy, "no allocator is closed from within a callback");
        };
        Expect(Failing(() => allocator.Trim()).InnerException == lost && calls > 1, "the first exception stays");
        device.BeforeDeallocate = () => {};
        allocator.Close();
        Expect(device.Taken == device.Returned, "every page came and went");
    }

    /// Slices are stamped with their ids: were two to overlap, a stamp would be gone. Pages come and go all the time, so
    /// the device is called by all threads.
    static void FourThreads()
    {
        const int threads = 4, rounds = 1000, kept = 16;
        var device = new HeapDevice();
        var allocator = new Allocator(device);
        var failures = new List<Exception>();
        var running = new List<Thread>();
        for (var number = 0; number < threads; number++)
        {
            var random = new Random(number);
            var thread = new Thread(() =>
            {
                try
                {
                    var live = new Queue<Slice>();
                    for (var round = 0; round < rounds; round++)
                    {
                        var slice = allocator.Allocate((ulong)random.Next(8, 1 << 16));
                        Marshal.WriteInt64(slice.Mapped, (long)slice.Id);
                        live.Enqueue(slice);
                        var last = round % 100 == 99;
                        while (live.Count == kept || last && live.Count > 0)
                        {
                            var oldest = live.Dequeue();
                            Expect(Marshal.ReadInt64(oldest.Mapped) == (long)oldest.Id, "a stamp is still there");
                            allocator.Free(oldest.Id);
                        }
                        if (last)
                        {
                            allocator.Trim();
                            GC.Collect();
                        }
                    }
                }
                catch (Exception exception)
                {
                    lock (failures)
                    {
                        failures.Add(exception);
                    }
                }
            });
            running.Add(thread);
            thread.Start();
        }
        running.ForEach(thread => thread.Join());
        Expect(failures.Count == 0, "no thread failed" + (failures.Count == 0 ? "" : ": " + failures[0]));
        allocator.Close();
        Expect(device.Taken == device.Returned && device.Taken > 1, "every page came and went");
    }
}
