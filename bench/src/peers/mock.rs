//! A device that has no memory, but counts what it would have handed out. Vulkan's functions, for those who call them.

use ash::vk::{self, Handle};
use std::collections::HashMap;
use std::ffi::{CStr, c_void};
use std::sync::{Mutex, PoisonError};

/// Bytes of the one heap: more than any workload wants.
pub const HEAP: u64 = 1 << 50;

/// What is held from the device.
#[derive(Debug, Default)]
pub struct Memory(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    last: u64,
    pages: HashMap<u64, u64>,
    calls: u64,
}

impl Memory {
    fn with<R>(&self, act: impl FnOnce(&mut Held) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A page of so many bytes.
    pub fn take(&self, bytes: u64) -> u64 {
        self.with(|held| {
            held.last += 1;
            held.calls += 1;
            held.pages.insert(held.last, bytes);
            held.last
        })
    }

    /// Takes it back.
    ///
    /// # Panics
    /// If it is not held.
    pub fn give_back(&self, page: u64) {
        let bytes = self.with(|held| {
            held.calls += 1;
            held.pages.remove(&page)
        });
        assert!(bytes.is_some(), "a page is given back once");
    }

    /// Bytes of a page, or none if it is not held.
    pub fn page_bytes(&self, page: u64) -> Option<u64> {
        self.with(|held| held.pages.get(&page).copied())
    }

    /// How often pages were taken or given back.
    pub fn calls(&self) -> u64 {
        self.with(|held| held.calls)
    }
}

/// A device of Vulkan with one memory type, which the CPU does not see.
pub struct Vulkan {
    /// Its instance.
    pub instance: ash::Instance,
    /// Its physical device.
    pub physical_device: vk::PhysicalDevice,
    /// The device, whose handle is the address of its memory.
    pub device: ash::Device,
    memory: Box<Memory>,
}

impl Vulkan {
    /// One of which nothing is held.
    pub fn new() -> Self {
        let memory = Box::<Memory>::default();
        let device = vk::Device::from_raw(&raw const *memory as u64);
        // SAFETY: each name stands for a function of its type. Those without one panic when they are called.
        let (instance, device) = unsafe {
            (ash::Instance::load_with(function, vk::Instance::from_raw(1)), ash::Device::load_with(function, device))
        };
        Self { instance, physical_device: vk::PhysicalDevice::from_raw(1), device, memory }
    }

    /// What is held.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }
}

impl Default for Vulkan {
    fn default() -> Self {
        Self::new()
    }
}

/// What a name stands for, NULL if nothing of it is needed.
fn function(name: &CStr) -> *const c_void {
    match name.to_bytes() {
        b"vkGetPhysicalDeviceProperties" => get_properties as *const c_void,
        b"vkGetPhysicalDeviceMemoryProperties" => get_memory_properties as *const c_void,
        b"vkAllocateMemory" => allocate_memory as *const c_void,
        b"vkFreeMemory" => free_memory as *const c_void,
        _ => std::ptr::null(),
    }
}

unsafe extern "system" fn get_properties(_: vk::PhysicalDevice, out: *mut vk::PhysicalDeviceProperties) {
    let limits = vk::PhysicalDeviceLimits {
        max_memory_allocation_count: u32::MAX,
        buffer_image_granularity: 1,
        non_coherent_atom_size: 1,
        ..Default::default()
    };
    let properties = vk::PhysicalDeviceProperties { api_version: vk::API_VERSION_1_0, limits, ..Default::default() };
    // SAFETY: the caller's to write to.
    unsafe { out.write(properties) };
}

unsafe extern "system" fn get_memory_properties(_: vk::PhysicalDevice, out: *mut vk::PhysicalDeviceMemoryProperties) {
    let mut properties =
        vk::PhysicalDeviceMemoryProperties { memory_type_count: 1, memory_heap_count: 1, ..Default::default() };
    properties.memory_types[0].property_flags = vk::MemoryPropertyFlags::DEVICE_LOCAL;
    properties.memory_heaps[0] = vk::MemoryHeap { size: HEAP, flags: vk::MemoryHeapFlags::DEVICE_LOCAL };
    // SAFETY: the caller's to write to.
    unsafe { out.write(properties) };
}

/// The memory that a device's handle is the address of.
///
/// # Safety
/// The device is there for as long as the memory is used.
unsafe fn memory_of<'a>(device: vk::Device) -> &'a Memory {
    // SAFETY: so it was made; the caller sees to the rest.
    unsafe { &*(device.as_raw() as *const Memory) }
}

unsafe extern "system" fn allocate_memory(
    device: vk::Device,
    info: *const vk::MemoryAllocateInfo,
    _: *const vk::AllocationCallbacks,
    out: *mut vk::DeviceMemory,
) -> vk::Result {
    // SAFETY: the device is in use, the info is the caller's, who wants the answer at `out`.
    unsafe {
        let page = memory_of(device).take((*info).allocation_size);
        out.write(vk::DeviceMemory::from_raw(page));
    }
    vk::Result::SUCCESS
}

unsafe extern "system" fn free_memory(device: vk::Device, page: vk::DeviceMemory, _: *const vk::AllocationCallbacks) {
    // SAFETY: the device is in use.
    unsafe { memory_of(device) }.give_back(page.as_raw());
}
