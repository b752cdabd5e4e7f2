// A small binding of slicepool: a device is an object, results are exceptions.

using System;
using System.Runtime.InteropServices;

namespace Slicepool
{
    /// The results that programs usually tell apart; a code may have any other value of the header, too.
    public enum Code
    {
        Ok = 0,
        InvalidArgument = -1,
        StaleHandle = -2,
        ForeignHandle = -3,
        OutOfDeviceMemory = -8,
        DeviceFailed = -9,
        Busy = -11,
    }

    /// A call that failed. InnerException is what a method of the device threw during it, if one did.
    public sealed class SlicepoolException : Exception
    {
        public readonly Code Code;
        /// Name of the argument that was refused, and its value; null and 0 where that says nothing.
        public readonly string Field;
        public readonly ulong Value;
        /// Bytes asked for, and live slices for Busy; 0 where they say nothing.
        public readonly ulong Size, Live;

        internal SlicepoolException(int result, Failure failure, Exception cause)
            : base(Marshal.PtrToStringAnsi(Native.slicepool_result_string(result)) + " (" + result + ")", cause)
        {
            Code = (Code)result;
            if (failure.result != result)
            {
                return;
            }
            Field = failure.field == IntPtr.Zero ? null : Marshal.PtrToStringAnsi(failure.field);
            Value = failure.value;
            Size = failure.size;
            Live = failure.live;
        }
    }

    /// What a device throws to say that it is full; anything else that it throws says that it has failed.
    public sealed class OutOfDeviceMemoryException : Exception
    {
    }

    public struct Page
    {
        /// The device's own name for the memory: any value but the largest.
        public ulong Handle;
        /// Bytes; filled in by the library.
        public ulong Size;
        /// Where the CPU sees the memory, or zero. Not memory of the garbage collector's, which may move it.
        public IntPtr Mapped;
    }

    /// Gives out memory. Called on the thread whose call needs it, by several at once, with no lock held.
    public interface IDevice
    {
        Page Allocate(ulong size, ulong alignment);
        void Deallocate(Page page);
    }

    /// A part of a page: a plain value that owns nothing. After Free its Id is stale, and Mapped must not be used.
    public struct Slice
    {
        public ulong Id, Memory, Offset, Size;
        public IntPtr Mapped;
    }

    /// Hands out slices of a device's memory; any thread may use it at any time, except for Close and Dispose. It has no
    /// finalizer, which would call the device on a thread of its own at any time: whoever makes one disposes of it.
    public sealed unsafe class Allocator : IDisposable
    {
        // C has pointers to these, which the garbage collector does not see: static fields keep the delegates.
        private static readonly AllocateCallback allocate = OnAllocate;
        private static readonly DeallocateCallback deallocate = OnDeallocate;

        // What a callback threw during the call that this thread is in: callbacks run on the thread of their call.
        [ThreadStatic] private static Exception thrown;

        private IntPtr pointer;
        // Keeps the device until the allocator is gone.
        private GCHandle device;

        public Allocator(IDevice device)
        {
            Native.Check();
            this.device = GCHandle.Alloc(device);
            var callbacks = new DeviceCallbacks
            {
                struct_size = (uint)sizeof(DeviceCallbacks),
                user_data = GCHandle.ToIntPtr(this.device),
                allocate = Marshal.GetFunctionPointerForDelegate(allocate),
                deallocate = Marshal.GetFunctionPointerForDelegate(deallocate),
            };
            var outer = Begin();
            var result = Native.slicepool_allocator_create(ref callbacks, IntPtr.Zero, out pointer);
            if (result != 0)
            {
                this.device.Free();
            }
            End(result, new Failure(), outer);
        }

        /// A slice of so many bytes at a multiple of alignment, a power of two; 0: any.
        public Slice Allocate(ulong size, ulong alignment = 0)
        {
            var failure = NewFailure();
            var request = new Request
            {
                struct_size = (uint)sizeof(Request), size = size, alignment = alignment, failure = (IntPtr)(&failure),
            };
            var slice = new NativeSlice { struct_size = (uint)sizeof(NativeSlice) };
            var outer = Begin();
            End(Native.slicepool_allocate(pointer, ref request, ref slice), failure, outer);
            return new Slice
            {
                Id = slice.id, Memory = slice.memory, Offset = slice.offset, Size = slice.size, Mapped = slice.mapped,
            };
        }

        /// Takes a slice back, whichever thread has it from here. A second time it is a StaleHandle.
        public void Free(ulong id)
        {
            var outer = Begin();
            End(Native.slicepool_free(pointer, id), new Failure(), outer);
        }

        /// Gives pages that hold nothing back to the device, while at least so many bytes stay reserved.
        public void Trim(ulong minKeepBytes = 0)
        {
            var failure = NewFailure();
            var outer = Begin();
            End(Native.slicepool_trim(pointer, minKeepBytes, ref failure), failure, outer);
        }

        /// Gives all pages back. With live slices it throws Busy, if the device refuses a page DeviceFailed; the allocator
        /// is as usable as before then. Afterwards every method throws InvalidArgument, and closing does nothing.
        public void Close()
        {
            if (pointer == IntPtr.Zero)
            {
                return;
            }
            var failure = NewFailure();
            var outer = Begin();
            End(Native.slicepool_allocator_destroy(pointer, 0, ref failure), failure, outer);
            pointer = IntPtr.Zero;
            device.Free();
        }

        /// The same as Close, at the end of `using`.
        public void Dispose()
        {
            Close();
        }

        private static Failure NewFailure()
        {
            return new Failure { struct_size = (uint)sizeof(Failure) };
        }

        /// A callback may make calls of its own: what its call has caught so far is put aside.
        private static Exception Begin()
        {
            var outer = thrown;
            thrown = null;
            return outer;
        }

        private static void End(int result, Failure failure, Exception outer)
        {
            var cause = thrown;
            thrown = outer;
            if (result != 0)
            {
                throw new SlicepoolException(result, failure, cause);
            }
        }

        /// No exception may run through C: it waits in `thrown`, and C is answered that the device has failed.
        private static int Guarded(Action call)
        {
            try
            {
                call();
                return (int)Code.Ok;
            }
            catch (Exception exception)
            {
                thrown = exception;
                return (int)(exception is OutOfDeviceMemoryException ? Code.OutOfDeviceMemory : Code.DeviceFailed);
            }
        }

        private static int OnAllocate(IntPtr userData, ref PageRequest request, ref DeviceMemory memory)
        {
            ulong size = request.size, alignment = request.alignment;
            var page = new Page();
            var result = Guarded(() => page = ((IDevice)GCHandle.FromIntPtr(userData).Target).Allocate(size, alignment));
            if (result == 0)
            {
                memory.handle = page.Handle;
                memory.mapped = page.Mapped;
            }
            return result;
        }

        private static int OnDeallocate(IntPtr userData, ref DeviceMemory memory)
        {
            var page = new Page { Handle = memory.handle, Size = memory.size, Mapped = memory.mapped };
            return Guarded(() => ((IDevice)GCHandle.FromIntPtr(userData).Target).Deallocate(page));
        }
    }
}
