// The part of slicepool.h that the binding uses, in the words of the header.
//
// All structs are plain data of the C layout, so they are passed by reference and nothing is copied. Check() compares
// their sizes with the library's.

using System;
using System.Runtime.InteropServices;

// Most fields are the library's to fill in.
#pragma warning disable 649

namespace Slicepool
{
    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct Failure
    {
        public uint struct_size;
        public int result;
        public ulong size, limit, in_use, pending, largest_free, value, memory, live;
        public uint in_flight, index;
        public int device_code;
        public uint device_fault;
        public fixed int type_results[32];
        public IntPtr field, reserved;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal struct PageRequest
    {
        public uint struct_size, pool;
        public ulong size, alignment;
        public uint memory_type, flags;
        public IntPtr device_data, reserved;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal struct DeviceMemory
    {
        public uint struct_size;
        public int device_code;
        public ulong handle, address, size;
        public IntPtr mapped, context;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal struct DeviceCallbacks
    {
        public uint struct_size, reserved;
        public IntPtr user_data, allocate, deallocate, completed, out_of_memory, fill, heap_budget, map, unmap, flush,
            invalidate, on_event;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal struct Request
    {
        public uint struct_size, flags;
        public ulong size, alignment;
        public uint pool, search_depth, memory_types, required, preferred, forbidden;
        public IntPtr device_data, name, user_data, failure;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal struct NativeSlice
    {
        public uint struct_size, reserved;
        public ulong id, memory, offset, size, address;
        public IntPtr mapped, user_data;
    }

    [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
    internal delegate int AllocateCallback(IntPtr userData, ref PageRequest request, ref DeviceMemory memory);

    [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
    internal delegate int DeallocateCallback(IntPtr userData, ref DeviceMemory memory);

    internal static unsafe class Native
    {
        private const string Library = "slicepool";
        private const CallingConvention C = CallingConvention.Cdecl;

        // The minor version that these declarations were written for: major * 1000 + minor.
        private const uint Version = 1;

        [DllImport(Library, CallingConvention = C)] internal static extern uint slicepool_version();
        [DllImport(Library, CallingConvention = C)] internal static extern IntPtr slicepool_result_string(int result);
        [DllImport(Library, CallingConvention = C)] internal static extern uint slicepool_sizeof_failure();
        [DllImport(Library, CallingConvention = C)] internal static extern uint slicepool_sizeof_page_request();
        [DllImport(Library, CallingConvention = C)] internal static extern uint slicepool_sizeof_device_memory();
        [DllImport(Library, CallingConvention = C)] internal static extern uint slicepool_sizeof_device();
        [DllImport(Library, CallingConvention = C)] internal static extern uint slicepool_sizeof_request();
        [DllImport(Library, CallingConvention = C)] internal static extern uint slicepool_sizeof_slice();

        [DllImport(Library, CallingConvention = C)]
        internal static extern int slicepool_allocator_create(ref DeviceCallbacks device, IntPtr config, out IntPtr allocator);

        [DllImport(Library, CallingConvention = C)]
        internal static extern int slicepool_allocator_destroy(IntPtr allocator, uint flags, ref Failure failure);

        [DllImport(Library, CallingConvention = C)]
        internal static extern int slicepool_allocate(IntPtr allocator, ref Request request, ref NativeSlice slice);

        [DllImport(Library, CallingConvention = C)] internal static extern int slicepool_free(IntPtr allocator, ulong id);

        [DllImport(Library, CallingConvention = C)]
        internal static extern int slicepool_trim(IntPtr allocator, ulong minKeepBytes, ref Failure failure);

        /// Refuses a library whose structs are others. Later libraries may know longer ones, which is allowed.
        internal static void Check()
        {
            if (slicepool_version() / 1000 != Version)
            {
                throw new NotSupportedException("this binding is for slicepool 0." + Version);
            }
            Check("failure", sizeof(Failure), slicepool_sizeof_failure());
            Check("page_request", sizeof(PageRequest), slicepool_sizeof_page_request());
            Check("device_memory", sizeof(DeviceMemory), slicepool_sizeof_device_memory());
            Check("device", sizeof(DeviceCallbacks), slicepool_sizeof_device());
            Check("request", sizeof(Request), slicepool_sizeof_request());
            Check("slice", sizeof(NativeSlice), slicepool_sizeof_slice());
        }

        private static void Check(string name, int here, uint there)
        {
            if (there < here)
            {
                throw new NotSupportedException("slicepool_" + name + " has " + there + " bytes, not " + here);
            }
        }

        /// Whether all structs are exactly as long as the library's.
        internal static bool SizesAreEqual()
        {
            return sizeof(Failure) == slicepool_sizeof_failure() && sizeof(PageRequest) == slicepool_sizeof_page_request()
                && sizeof(DeviceMemory) == slicepool_sizeof_device_memory()
                && sizeof(DeviceCallbacks) == slicepool_sizeof_device() && sizeof(Request) == slicepool_sizeof_request()
                && sizeof(NativeSlice) == slicepool_sizeof_slice();
        }
    }
}
