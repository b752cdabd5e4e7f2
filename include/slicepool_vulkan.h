/*
 * slicepool over Vulkan: pages are VkDeviceMemory, slices are what buffers and images are bound to.
 *
 * Header only. The functions of Vulkan come through a table, from whatever loader the program uses: nothing here is
 * linked with one. Include Vulkan first if VK_NO_PROTOTYPES or another macro of it matters (volk.h, say).
 *
 * @code
 * slicepool_vulkan vulkan = SLICEPOOL_VULKAN_INIT;
 * slicepool_device device = SLICEPOOL_DEVICE_INIT;
 * slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
 * slicepool_allocator *allocator = NULL;
 * vulkan.api_version = VK_API_VERSION_1_2; // as in the VkApplicationInfo of the instance
 * vulkan.physical_device = gpu;
 * vulkan.device = logical;
 * vulkan.flags = SLICEPOOL_VULKAN_MEMORY_BUDGET; // VK_EXT_memory_budget is enabled
 * if (slicepool_vulkan_load(&vulkan.functions, vkGetInstanceProcAddr, instance, logical) != NULL) return 1;
 * if (slicepool_vulkan_init(&vulkan) != SLICEPOOL_OK) return 2;
 * slicepool_vulkan_device(&vulkan, &device);
 * slicepool_vulkan_describe(&vulkan, &config);
 * if (slicepool_allocator_create(&device, &config, &allocator) != SLICEPOOL_OK) return 3;
 *
 * slicepool_request request = slicepool_vulkan_request(SLICEPOOL_VULKAN_UPLOAD);
 * slicepool_slice slice = SLICEPOOL_SLICE_INIT;
 * if (slicepool_vulkan_allocate_buffer(&vulkan, allocator, buffer, &request, &slice) != SLICEPOOL_OK) return 4;
 * memcpy(slice.mapped, vertices, size);
 * slicepool_flush(allocator, slice.id, 0, size, NULL); // calls Vulkan only where memory is not coherent
 *
 * // ... and when the GPU is done with it:
 * vkDestroyBuffer(logical, buffer, NULL);
 * slicepool_free(allocator, slice.id);
 * @endcode
 *
 * WHAT IS WHAT. A memory type of the allocator is the memory type of Vulkan of the same index, with the same heap. Its
 * properties are VkMemoryPropertyFlags, for `required`, `preferred` and `forbidden` of requests. A slice's `memory` is
 * its VkDeviceMemory: slicepool_vulkan_memory(). Requests for images that are not linear have
 * SLICEPOOL_REQUEST_OPTIMAL. Alignment is that of a slice's offset, which is all that Vulkan asks for; addresses of
 * buffers are only as aligned as the driver makes them.
 *
 * WHEN SOMETHING GOES. Vulkan wants a buffer or image to be destroyed once the GPU is done with it, and its memory not
 * to be anybody else's before. A program that destroys its objects late anyway frees their slices then;
 * slicepool_free_after() is for memory whose objects are gone, or live on and are not used again (aliasing).
 *
 * OWNERSHIP. `slicepool_vulkan` belongs to the program, and is read by every callback: it stays where it is until the
 * allocator has been destroyed, which comes before vkDestroyDevice(). Callbacks of the program's own (`out_of_memory`,
 * `event`, another `fill`) are set in the slicepool_device after slicepool_vulkan_device(); their first argument is the
 * slicepool_vulkan, whose `user_data` is the program's.
 *
 * THREADS. Everything but slicepool_vulkan_init() may be called by any thread at any time. Vulkan asks the program to
 * keep threads from binding the same buffer or image at once; and from mapping memory while something is bound to it,
 * which concerns slicepool_vulkan_bind_buffer() and slicepool_vulkan_bind_image() with SLICEPOOL_VULKAN_MAP_ON_DEMAND
 * only.
 *
 * FLUSHING. With SLICEPOOL_VULKAN_MAP_ON_DEMAND a slice is flushed and invalidated while it is mapped.
 *
 * ADOPTED MEMORY (slicepool_adopt()) has its bytes in slicepool_device_memory.context if the host may map it, as pages
 * that are taken here do: (void *)(uintptr_t)size.
 *
 * NEEDS headers of Vulkan 1.2 or newer, and a device of any version.
 *
 * LEFT OUT: device groups, sparse binding, and VK_AMD_memory_overallocation_behavior and the like, which are matters of
 * creating the device.
 */
#ifndef SLICEPOOL_VULKAN_H
#define SLICEPOOL_VULKAN_H

#include <string.h>

#include <vulkan/vulkan_core.h>

#include "slicepool.h"

/* ------------------------------------------------------------------------------------------------------------------
 * Functions of Vulkan
 * ------------------------------------------------------------------------------------------------------------------ */

/** The functions of Vulkan that are called here, under their names. slicepool_vulkan_load() fills it in. */
typedef struct slicepool_vulkan_functions {
  /** Required, like all down to the next remark. */
  PFN_vkGetPhysicalDeviceProperties vkGetPhysicalDeviceProperties;
  PFN_vkGetPhysicalDeviceMemoryProperties vkGetPhysicalDeviceMemoryProperties;
  PFN_vkAllocateMemory vkAllocateMemory;
  PFN_vkFreeMemory vkFreeMemory;
  PFN_vkMapMemory vkMapMemory;
  PFN_vkUnmapMemory vkUnmapMemory;
  PFN_vkFlushMappedMemoryRanges vkFlushMappedMemoryRanges;
  PFN_vkInvalidateMappedMemoryRanges vkInvalidateMappedMemoryRanges;
  PFN_vkGetBufferMemoryRequirements vkGetBufferMemoryRequirements;
  PFN_vkGetImageMemoryRequirements vkGetImageMemoryRequirements;
  PFN_vkBindBufferMemory vkBindBufferMemory;
  PFN_vkBindImageMemory vkBindImageMemory;
  /** Vulkan 1.1 or VK_KHR_get_physical_device_properties2; needed for SLICEPOOL_VULKAN_MEMORY_BUDGET. */
  PFN_vkGetPhysicalDeviceMemoryProperties2 vkGetPhysicalDeviceMemoryProperties2;
  /** The same, with Vulkan 1.1 or VK_KHR_maintenance3: then the largest allocation is known. */
  PFN_vkGetPhysicalDeviceProperties2 vkGetPhysicalDeviceProperties2;
  /** Vulkan 1.1 or VK_KHR_dedicated_allocation: then what wants memory of its own gets it. */
  PFN_vkGetBufferMemoryRequirements2 vkGetBufferMemoryRequirements2;
  /** The same. */
  PFN_vkGetImageMemoryRequirements2 vkGetImageMemoryRequirements2;
  /** Vulkan 1.2 or VK_KHR_timeline_semaphore; needed for slicepool_vulkan.timelines. */
  PFN_vkGetSemaphoreCounterValue vkGetSemaphoreCounterValue;
} slicepool_vulkan_functions;

/**
 * Fills in the table.
 *
 * Functions that a device of version 1.0 has by an extension are found under their KHR names. Loaders give pointers to
 * some functions that a device does not support: slicepool_vulkan_init() looks at the device's version, and the flags
 * of slicepool_vulkan say what else is enabled.
 *
 * @param get       of the loader: its symbol of that name, or volk's
 * @param instance  that the device is of
 * @param device    functions of devices are asked for with it
 * @return NULL, or the name of the first required function that is missing
 *
 * Threads: any. Cost: two dozen look-ups by the loader.
 */
static inline const char *slicepool_vulkan_load(slicepool_vulkan_functions *functions, PFN_vkGetInstanceProcAddr get,
                                                VkInstance instance, VkDevice device) {
  const PFN_vkGetDeviceProcAddr get_of_device = (PFN_vkGetDeviceProcAddr)get(instance, "vkGetDeviceProcAddr");
  const char *missing = NULL;
  if (get_of_device == NULL) return "vkGetDeviceProcAddr";
#define SLICEPOOL_VULKAN_OF_INSTANCE(name) functions->name = (PFN_##name)get(instance, #name)
#define SLICEPOOL_VULKAN_OF_DEVICE(name) functions->name = (PFN_##name)get_of_device(device, #name)
#define SLICEPOOL_VULKAN_OR_KHR(name, getter, of) \
  if (functions->name == NULL) functions->name = (PFN_##name)getter(of, #name "KHR")
#define SLICEPOOL_VULKAN_REQUIRED(name) \
  if (functions->name == NULL && missing == NULL) missing = #name
  SLICEPOOL_VULKAN_OF_INSTANCE(vkGetPhysicalDeviceProperties);
  SLICEPOOL_VULKAN_OF_INSTANCE(vkGetPhysicalDeviceMemoryProperties);
  SLICEPOOL_VULKAN_OF_INSTANCE(vkGetPhysicalDeviceMemoryProperties2);
  SLICEPOOL_VULKAN_OF_INSTANCE(vkGetPhysicalDeviceProperties2);
  SLICEPOOL_VULKAN_OF_DEVICE(vkAllocateMemory);
  SLICEPOOL_VULKAN_OF_DEVICE(vkFreeMemory);
  SLICEPOOL_VULKAN_OF_DEVICE(vkMapMemory);
  SLICEPOOL_VULKAN_OF_DEVICE(vkUnmapMemory);
  SLICEPOOL_VULKAN_OF_DEVICE(vkFlushMappedMemoryRanges);
  SLICEPOOL_VULKAN_OF_DEVICE(vkInvalidateMappedMemoryRanges);
  SLICEPOOL_VULKAN_OF_DEVICE(vkGetBufferMemoryRequirements);
  SLICEPOOL_VULKAN_OF_DEVICE(vkGetImageMemoryRequirements);
  SLICEPOOL_VULKAN_OF_DEVICE(vkBindBufferMemory);
  SLICEPOOL_VULKAN_OF_DEVICE(vkBindImageMemory);
  SLICEPOOL_VULKAN_OF_DEVICE(vkGetBufferMemoryRequirements2);
  SLICEPOOL_VULKAN_OF_DEVICE(vkGetImageMemoryRequirements2);
  SLICEPOOL_VULKAN_OF_DEVICE(vkGetSemaphoreCounterValue);
  SLICEPOOL_VULKAN_OR_KHR(vkGetPhysicalDeviceMemoryProperties2, get, instance);
  SLICEPOOL_VULKAN_OR_KHR(vkGetPhysicalDeviceProperties2, get, instance);
  SLICEPOOL_VULKAN_OR_KHR(vkGetBufferMemoryRequirements2, get_of_device, device);
  SLICEPOOL_VULKAN_OR_KHR(vkGetImageMemoryRequirements2, get_of_device, device);
  SLICEPOOL_VULKAN_OR_KHR(vkGetSemaphoreCounterValue, get_of_device, device);
  SLICEPOOL_VULKAN_REQUIRED(vkGetPhysicalDeviceProperties);
  SLICEPOOL_VULKAN_REQUIRED(vkGetPhysicalDeviceMemoryProperties);
  SLICEPOOL_VULKAN_REQUIRED(vkAllocateMemory);
  SLICEPOOL_VULKAN_REQUIRED(vkFreeMemory);
  SLICEPOOL_VULKAN_REQUIRED(vkMapMemory);
  SLICEPOOL_VULKAN_REQUIRED(vkUnmapMemory);
  SLICEPOOL_VULKAN_REQUIRED(vkFlushMappedMemoryRanges);
  SLICEPOOL_VULKAN_REQUIRED(vkInvalidateMappedMemoryRanges);
  SLICEPOOL_VULKAN_REQUIRED(vkGetBufferMemoryRequirements);
  SLICEPOOL_VULKAN_REQUIRED(vkGetImageMemoryRequirements);
  SLICEPOOL_VULKAN_REQUIRED(vkBindBufferMemory);
  SLICEPOOL_VULKAN_REQUIRED(vkBindImageMemory);
#undef SLICEPOOL_VULKAN_OF_INSTANCE
#undef SLICEPOOL_VULKAN_OF_DEVICE
#undef SLICEPOOL_VULKAN_OR_KHR
#undef SLICEPOOL_VULKAN_REQUIRED
  return missing;
}

/* ------------------------------------------------------------------------------------------------------------------
 * The device
 * ------------------------------------------------------------------------------------------------------------------ */

/**
 * VK_EXT_memory_budget is enabled: requests with SLICEPOOL_REQUEST_WITHIN_BUDGET heed what other programs and other
 * allocations of this one hold.
 */
#define SLICEPOOL_VULKAN_MEMORY_BUDGET 1u
/** VK_EXT_memory_priority is enabled: pages have slicepool_vulkan.priority, or that of their slicepool_vulkan_page. */
#define SLICEPOOL_VULKAN_MEMORY_PRIORITY 2u
/** The feature bufferDeviceAddress is enabled: buffers on any page may have an address. */
#define SLICEPOOL_VULKAN_BUFFER_DEVICE_ADDRESS 4u
/**
 * Memory that the host sees is mapped by slicepool_map() only, as long as that lasts. Otherwise every page of it is
 * mapped for good, and slicepool_slice.mapped is where a slice lies.
 */
#define SLICEPOOL_VULKAN_MAP_ON_DEMAND 8u
/** VK_KHR_dedicated_allocation is enabled on a device of version 1.0. */
#define SLICEPOOL_VULKAN_DEDICATED_ALLOCATION 16u
/** VK_KHR_maintenance3 is enabled on a device of version 1.0. */
#define SLICEPOOL_VULKAN_MAINTENANCE3 32u

/** What pages are taken from. Begins as SLICEPOOL_VULKAN_INIT. */
typedef struct slicepool_vulkan {
  /** The program's own. */
  void *user_data;
  /** SLICEPOOL_VULKAN_ flags. */
  uint32_t flags;
  /**
   * With SLICEPOOL_VULKAN_MEMORY_PRIORITY: of all pages that ask for no other, up to 1; 0: 0.5, which is Vulkan's
   * default.
   */
  float priority;
  /** Required. */
  VkPhysicalDevice physical_device;
  /** Required. */
  VkDevice device;
  /**
   * The version that the instance was made for (VkApplicationInfo.apiVersion); 0: at least that of the device.
   * Functions of version 1.1 are called if both have it.
   */
  uint32_t api_version;
  uint32_t reserved;
  /** The host memory for Vulkan's own books, as for any other of its calls; may be NULL. */
  const VkAllocationCallbacks *allocation_callbacks;
  /**
   * The most allocations, of those that the device gives in all (maxMemoryAllocationCount), for this allocator; 0: all
   * of them. They become slicepool_allocator_config.max_pages.
   */
  uint32_t max_allocations;
  /** Number of timelines. */
  uint32_t timeline_count;
  /**
   * Timeline semaphores: the timeline i of slicepool_free_after() is timelines[i], and what it has completed is asked
   * for when memory is short. Read by callbacks. NULL: slicepool_collect() says what is completed.
   */
  const VkSemaphore *timelines;
  /** Required. */
  slicepool_vulkan_functions functions;

  /** What slicepool_vulkan_init() finds. Types and heaps may be changed before slicepool_vulkan_describe(). */
  uint32_t memory_type_count;
  uint32_t heap_count;
  slicepool_memory_type memory_types[VK_MAX_MEMORY_TYPES];
  /** `limit` may be set: what the allocator may hold of a heap. */
  slicepool_heap heaps[VK_MAX_MEMORY_HEAPS];
  /** nonCoherentAtomSize. */
  uint64_t non_coherent_atom;
  /** What the device allows. */
  uint32_t max_memory_allocation_count;
} slicepool_vulkan;

#ifdef __cplusplus
#define SLICEPOOL_VULKAN_INIT \
  {}
#else
#define SLICEPOOL_VULKAN_INIT \
  { 0 }
#endif

/**
 * Asks the device for its memory types, heaps and limits. The fields in front of them are set.
 *
 * `granularity` is bufferImageGranularity, `non_coherent_atom` nonCoherentAtomSize where memory is seen by the host but
 * not coherent, `max_page` maxMemoryAllocationSize. Any alignment can be asked for: the start of a VkDeviceMemory is
 * aligned for all that can be bound to it.
 *
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT: something required is missing, or a flag is unknown; nothing is changed
 *         then
 *
 * Threads: one at a time. Cost: three calls of Vulkan.
 */
static inline slicepool_result slicepool_vulkan_init(slicepool_vulkan *vulkan) {
  const uint32_t known = SLICEPOOL_VULKAN_MEMORY_BUDGET | SLICEPOOL_VULKAN_MEMORY_PRIORITY |
                         SLICEPOOL_VULKAN_BUFFER_DEVICE_ADDRESS | SLICEPOOL_VULKAN_MAP_ON_DEMAND |
                         SLICEPOOL_VULKAN_DEDICATED_ALLOCATION | SLICEPOOL_VULKAN_MAINTENANCE3;
  const slicepool_memory_type no_type = SLICEPOOL_MEMORY_TYPE_INIT;
  const slicepool_heap no_heap = SLICEPOOL_HEAP_INIT;
  slicepool_vulkan_functions *functions = vulkan == NULL ? NULL : &vulkan->functions;
  VkPhysicalDeviceProperties properties;
  VkPhysicalDeviceMemoryProperties memory;
  uint64_t max_page = 0;
  uint32_t i;
  if (functions == NULL || vulkan->physical_device == NULL || vulkan->device == NULL || (vulkan->flags & ~known) != 0 ||
      functions->vkGetPhysicalDeviceProperties == NULL || functions->vkGetPhysicalDeviceMemoryProperties == NULL ||
      functions->vkAllocateMemory == NULL || functions->vkFreeMemory == NULL || functions->vkMapMemory == NULL ||
      functions->vkUnmapMemory == NULL || functions->vkFlushMappedMemoryRanges == NULL ||
      functions->vkInvalidateMappedMemoryRanges == NULL || functions->vkGetBufferMemoryRequirements == NULL ||
      functions->vkGetImageMemoryRequirements == NULL || functions->vkBindBufferMemory == NULL ||
      functions->vkBindImageMemory == NULL || (vulkan->timeline_count != 0 && vulkan->timelines == NULL) ||
      (vulkan->timelines != NULL && functions->vkGetSemaphoreCounterValue == NULL) ||
      ((vulkan->flags & SLICEPOOL_VULKAN_MEMORY_BUDGET) != 0 &&
       functions->vkGetPhysicalDeviceMemoryProperties2 == NULL) ||
      !(vulkan->priority >= 0.0f && vulkan->priority <= 1.0f)) {
    return SLICEPOOL_ERROR_INVALID_ARGUMENT;
  }
  functions->vkGetPhysicalDeviceProperties(vulkan->physical_device, &properties);
  functions->vkGetPhysicalDeviceMemoryProperties(vulkan->physical_device, &memory);
  if (properties.apiVersion < VK_API_VERSION_1_1 ||
      (vulkan->api_version != 0 && vulkan->api_version < VK_API_VERSION_1_1)) {
    /* Loaders hand these out for every device. */
    if ((vulkan->flags & SLICEPOOL_VULKAN_DEDICATED_ALLOCATION) == 0) {
      functions->vkGetBufferMemoryRequirements2 = NULL;
      functions->vkGetImageMemoryRequirements2 = NULL;
    }
    if ((vulkan->flags & SLICEPOOL_VULKAN_MAINTENANCE3) == 0) functions->vkGetPhysicalDeviceProperties2 = NULL;
  }
  if (functions->vkGetPhysicalDeviceProperties2 != NULL) {
    VkPhysicalDeviceMaintenance3Properties maintenance;
    VkPhysicalDeviceProperties2 more;
    memset(&maintenance, 0, sizeof maintenance);
    memset(&more, 0, sizeof more);
    maintenance.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES;
    more.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
    more.pNext = &maintenance;
    functions->vkGetPhysicalDeviceProperties2(vulkan->physical_device, &more);
    max_page = maintenance.maxMemoryAllocationSize;
  }
  vulkan->max_memory_allocation_count = properties.limits.maxMemoryAllocationCount;
  vulkan->non_coherent_atom = properties.limits.nonCoherentAtomSize;
  vulkan->memory_type_count = memory.memoryTypeCount;
  vulkan->heap_count = memory.memoryHeapCount;
  for (i = 0; i < memory.memoryHeapCount; i++) {
    vulkan->heaps[i] = no_heap;
    vulkan->heaps[i].size = memory.memoryHeaps[i].size;
  }
  for (i = 0; i < memory.memoryTypeCount; i++) {
    const VkMemoryPropertyFlags seen = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT;
    const VkMemoryPropertyFlags coherent = VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    slicepool_memory_type *type = &vulkan->memory_types[i];
    *type = no_type;
    type->heap = memory.memoryTypes[i].heapIndex;
    type->properties = memory.memoryTypes[i].propertyFlags;
    type->max_page = max_page;
    type->page_alignment = (uint64_t)1 << 30;
    type->granularity = properties.limits.bufferImageGranularity;
    type->flags = SLICEPOOL_MEMORY_TYPE_MAPPED_ANYWHERE;
    if ((type->properties & seen) != 0) type->flags |= SLICEPOOL_MEMORY_TYPE_HOST_VISIBLE;
    if ((type->properties & (seen | coherent)) == seen) type->non_coherent_atom = vulkan->non_coherent_atom;
  }
  return SLICEPOOL_OK;
}

/* ------------------------------------------------------------------------------------------------------------------
 * Pages
 * ------------------------------------------------------------------------------------------------------------------ */

/** slicepool_vulkan_page.priority counts. */
#define SLICEPOOL_VULKAN_PAGE_PRIORITY 1u
/**
 * slicepool_vulkan_allocate_buffer() and slicepool_vulkan_allocate_image() do not name their object as the only one
 * that the memory is for, unless Vulkan requires it: for imported memory that was not exported as such.
 */
#define SLICEPOOL_VULKAN_PAGE_NOT_DEDICATED 2u

/**
 * What slicepool_request.device_data points to: a page that is not like others. Used while the request is served, not
 * afterwards. Begins as SLICEPOOL_VULKAN_PAGE_INIT.
 *
 * A request that imports names the one memory type that the handle is for: slicepool_request.memory_types.
 */
typedef struct slicepool_vulkan_page {
  /** SLICEPOOL_VULKAN_PAGE_ flags. */
  uint32_t flags;
  /** From 0 to 1, with SLICEPOOL_VULKAN_PAGE_PRIORITY and SLICEPOOL_VULKAN_MEMORY_PRIORITY. */
  float priority;
  /**
   * allocationSize, if it is not that of the slice, which is rounded up: memory for one buffer or image has to have
   * exactly the size that Vulkan says. 0: that of the slice.
   */
  VkDeviceSize exact_size;
  /** The buffer or image that the memory is for (VkMemoryDedicatedAllocateInfo); at most one of them. */
  VkBuffer buffer;
  VkImage image;
  /** Handles that can be exported from it (VkExportMemoryAllocateInfo); 0: none. */
  VkExternalMemoryHandleTypeFlags export_handle_types;
  /**
   * 0. Set to 1 when vkAllocateMemory() has succeeded with `next`: a file descriptor that was imported is Vulkan's from
   * then on, whatever becomes of the request. It is not asked again for this page.
   */
  uint32_t consumed;
  /** Set to the VkResult of the last try. */
  int32_t code;
  uint32_t reserved;
  /**
   * More for VkMemoryAllocateInfo.pNext: a handle to import, say. Not structs that are added anyway: those of the
   * fields above, VkMemoryAllocateFlagsInfo with SLICEPOOL_VULKAN_BUFFER_DEVICE_ADDRESS, and
   * VkMemoryPriorityAllocateInfoEXT with SLICEPOOL_VULKAN_MEMORY_PRIORITY. NULL: nothing.
   */
  const void *next;
} slicepool_vulkan_page;

#ifdef __cplusplus
#define SLICEPOOL_VULKAN_PAGE_INIT \
  {}
#else
#define SLICEPOOL_VULKAN_PAGE_INIT \
  { 0 }
#endif

/** The VkDeviceMemory that is called by this number in slices, pages and reports. */
static inline VkDeviceMemory slicepool_vulkan_memory(uint64_t handle) {
  /* A pointer or a number of 64 bits. */
  VkDeviceMemory memory;
  memcpy(&memory, &handle, sizeof memory);
  return memory;
}

/** The number of a VkDeviceMemory. */
static inline uint64_t slicepool_vulkan_handle(VkDeviceMemory memory) {
  uint64_t handle = 0;
  memcpy(&handle, &memory, sizeof memory);
  return handle;
}

/**
 * What a code of Vulkan's is to slicepool: SLICEPOOL_OK, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY where less, or memory
 * that is given back, may help, otherwise SLICEPOOL_ERROR_DEVICE_FAILED.
 */
static inline slicepool_result slicepool_vulkan_result(VkResult code) {
  if (code == VK_SUCCESS) return SLICEPOOL_OK;
  if (code == VK_ERROR_OUT_OF_DEVICE_MEMORY || code == VK_ERROR_OUT_OF_HOST_MEMORY ||
      code == VK_ERROR_TOO_MANY_OBJECTS || code == VK_ERROR_MEMORY_MAP_FAILED) {
    return SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY;
  }
  return SLICEPOOL_ERROR_DEVICE_FAILED;
}

/** The callback `allocate`: vkAllocateMemory(), and vkMapMemory() where the host sees it. */
static inline slicepool_result slicepool_vulkan_allocate_page(void *user_data, const slicepool_page_request *request,
                                                              slicepool_device_memory *memory) {
  const slicepool_vulkan *vulkan = (const slicepool_vulkan *)user_data;
  slicepool_vulkan_page *page = (slicepool_vulkan_page *)request->device_data;
  const uint32_t properties = vulkan->memory_types[request->memory_type].properties;
  const int is_visible = (properties & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) != 0;
  const int is_mapped = is_visible && (vulkan->flags & SLICEPOOL_VULKAN_MAP_ON_DEMAND) == 0;
  VkMemoryAllocateInfo info;
  VkMemoryDedicatedAllocateInfo dedicated;
  VkExportMemoryAllocateInfo exported;
  VkMemoryAllocateFlagsInfo addressed;
  VkMemoryPriorityAllocateInfoEXT ranked;
  VkDeviceMemory taken = VK_NULL_HANDLE;
  void *mapped = NULL;
  VkResult code;
  if (page != NULL && page->consumed != 0) {
    /* Mapping it has failed. */
    memory->device_code = page->code;
    return slicepool_vulkan_result((VkResult)page->code);
  }
  memset(&info, 0, sizeof info);
  info.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
  info.allocationSize = page != NULL && page->exact_size != 0 ? page->exact_size : request->size;
  info.memoryTypeIndex = request->memory_type;
  if (page != NULL) {
    info.pNext = page->next;
    if (page->buffer != VK_NULL_HANDLE || page->image != VK_NULL_HANDLE) {
      memset(&dedicated, 0, sizeof dedicated);
      dedicated.sType = VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO;
      dedicated.pNext = info.pNext;
      dedicated.buffer = page->buffer;
      dedicated.image = page->image;
      info.pNext = &dedicated;
    }
    if (page->export_handle_types != 0) {
      memset(&exported, 0, sizeof exported);
      exported.sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO;
      exported.pNext = info.pNext;
      exported.handleTypes = page->export_handle_types;
      info.pNext = &exported;
    }
  }
  if ((vulkan->flags & SLICEPOOL_VULKAN_BUFFER_DEVICE_ADDRESS) != 0) {
    memset(&addressed, 0, sizeof addressed);
    addressed.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO;
    addressed.pNext = info.pNext;
    addressed.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
    info.pNext = &addressed;
  }
  if ((vulkan->flags & SLICEPOOL_VULKAN_MEMORY_PRIORITY) != 0) {
    const int own = page != NULL && (page->flags & SLICEPOOL_VULKAN_PAGE_PRIORITY) != 0;
    memset(&ranked, 0, sizeof ranked);
    ranked.sType = VK_STRUCTURE_TYPE_MEMORY_PRIORITY_ALLOCATE_INFO_EXT;
    ranked.pNext = info.pNext;
    ranked.priority = own ? page->priority : vulkan->priority > 0.0f ? vulkan->priority : 0.5f;
    info.pNext = &ranked;
  }
  code = vulkan->functions.vkAllocateMemory(vulkan->device, &info, vulkan->allocation_callbacks, &taken);
  if (code == VK_SUCCESS && page != NULL && page->next != NULL) page->consumed = 1;
  if (code == VK_SUCCESS && is_mapped) {
    code = vulkan->functions.vkMapMemory(vulkan->device, taken, 0, VK_WHOLE_SIZE, 0, &mapped);
    if (code != VK_SUCCESS) vulkan->functions.vkFreeMemory(vulkan->device, taken, vulkan->allocation_callbacks);
  }
  if (page != NULL) page->code = (int32_t)code;
  if (code != VK_SUCCESS) {
    memory->device_code = (int32_t)code;
    return slicepool_vulkan_result(code);
  }
  memory->handle = slicepool_vulkan_handle(taken);
  memory->mapped = mapped;
  /* Its bytes, which may be fewer than the page's, where the host sees it: they fit into an address. */
  if (is_visible) memory->context = (void *)(uintptr_t)info.allocationSize;
  return SLICEPOOL_OK;
}

/** The callback `deallocate`: vkFreeMemory(), which ends a mapping too. */
static inline slicepool_result slicepool_vulkan_deallocate_page(void *user_data,
                                                                const slicepool_device_memory *memory) {
  const slicepool_vulkan *vulkan = (const slicepool_vulkan *)user_data;
  const VkDeviceMemory taken = slicepool_vulkan_memory(memory->handle);
  vulkan->functions.vkFreeMemory(vulkan->device, taken, vulkan->allocation_callbacks);
  return SLICEPOOL_OK;
}

/** The callback `map`: vkMapMemory() of a whole page; SLICEPOOL_ERROR_DEVICE_FAILED where the host does not see it. */
static inline slicepool_result slicepool_vulkan_map_page(void *user_data, const slicepool_device_memory *memory,
                                                         void **mapped) {
  const slicepool_vulkan *vulkan = (const slicepool_vulkan *)user_data;
  const VkDeviceMemory taken = slicepool_vulkan_memory(memory->handle);
  if (memory->context == NULL) return SLICEPOOL_ERROR_DEVICE_FAILED;
  return slicepool_vulkan_result(
      vulkan->functions.vkMapMemory(vulkan->device, taken, 0, VK_WHOLE_SIZE, 0, mapped));
}

/** The callback `unmap`. */
static inline void slicepool_vulkan_unmap_page(void *user_data, const slicepool_device_memory *memory) {
  const slicepool_vulkan *vulkan = (const slicepool_vulkan *)user_data;
  vulkan->functions.vkUnmapMemory(vulkan->device, slicepool_vulkan_memory(memory->handle));
}

/** A range as Vulkan takes it: whole atoms, or up to the end of memory of `bytes` bytes. */
static inline VkMappedMemoryRange slicepool_vulkan_mapped_range(const slicepool_vulkan *vulkan, uint64_t memory,
                                                                uint64_t offset, uint64_t size, const void *bytes) {
  const uint64_t atom = vulkan->non_coherent_atom == 0 ? 1 : vulkan->non_coherent_atom;
  const uint64_t end = (offset + size + atom - 1) / atom * atom;
  VkMappedMemoryRange range;
  memset(&range, 0, sizeof range);
  range.sType = VK_STRUCTURE_TYPE_MAPPED_MEMORY_RANGE;
  range.memory = slicepool_vulkan_memory(memory);
  range.offset = offset / atom * atom;
  range.size = end >= (uint64_t)(uintptr_t)bytes ? VK_WHOLE_SIZE : end - range.offset;
  return range;
}

/** Whether a range lies behind the end of its memory, which may be smaller than its page. */
static inline int slicepool_vulkan_is_behind(const slicepool_cache_range *range) {
  return range->context != NULL && range->offset >= (uint64_t)(uintptr_t)range->context;
}

/** The callback `flush`: vkFlushMappedMemoryRanges(). */
static inline slicepool_result slicepool_vulkan_flush_range(void *user_data, const slicepool_cache_range *range) {
  const slicepool_vulkan *vulkan = (const slicepool_vulkan *)user_data;
  const VkMappedMemoryRange mapped =
      slicepool_vulkan_mapped_range(vulkan, range->memory, range->offset, range->size, range->context);
  if (slicepool_vulkan_is_behind(range)) return SLICEPOOL_OK;
  return slicepool_vulkan_result(vulkan->functions.vkFlushMappedMemoryRanges(vulkan->device, 1, &mapped));
}

/** The callback `invalidate`: vkInvalidateMappedMemoryRanges(). */
static inline slicepool_result slicepool_vulkan_invalidate_range(void *user_data, const slicepool_cache_range *range) {
  const slicepool_vulkan *vulkan = (const slicepool_vulkan *)user_data;
  const VkMappedMemoryRange mapped =
      slicepool_vulkan_mapped_range(vulkan, range->memory, range->offset, range->size, range->context);
  if (slicepool_vulkan_is_behind(range)) return SLICEPOOL_OK;
  return slicepool_vulkan_result(vulkan->functions.vkInvalidateMappedMemoryRanges(vulkan->device, 1, &mapped));
}

/**
 * The callback `fill`, of memory that is mapped for good: memset(), up to the memory's end, and a flush. Other memory
 * it does not fill, so that a request with SLICEPOOL_REQUEST_ZERO is refused (SLICEPOOL_ERROR_DEVICE_FAILED), and a
 * slice with SLICEPOOL_REQUEST_SCRUB is pending for ever once it is freed. A program that wants them there sets a
 * callback of its own, which records vkCmdFillBuffer(), and may call this one for the rest.
 */
static inline slicepool_result slicepool_vulkan_fill(void *user_data, const slicepool_fill_request *request,
                                                     slicepool_point *point) {
  const slicepool_vulkan *vulkan = (const slicepool_vulkan *)user_data;
  const uint64_t bytes = (uint64_t)(uintptr_t)request->context;
  uint64_t size = request->size;
  VkMappedMemoryRange range;
  (void)point;
  if (request->mapped == NULL) return SLICEPOOL_ERROR_DEVICE_FAILED;
  if (bytes != 0 && size > bytes - request->offset) size = bytes - request->offset;
  memset(request->mapped, 0, (size_t)size);
  range = slicepool_vulkan_mapped_range(vulkan, request->memory, request->offset, request->size, request->context);
  return slicepool_vulkan_result(vulkan->functions.vkFlushMappedMemoryRanges(vulkan->device, 1, &range));
}

/** The callback `heap_budget`, with SLICEPOOL_VULKAN_MEMORY_BUDGET. */
static inline slicepool_result slicepool_vulkan_heap_budget(void *user_data, uint32_t heap,
                                                            slicepool_heap_budget *budget) {
  const slicepool_vulkan *vulkan = (const slicepool_vulkan *)user_data;
  VkPhysicalDeviceMemoryBudgetPropertiesEXT found;
  VkPhysicalDeviceMemoryProperties2 properties;
  if (heap >= vulkan->heap_count) return SLICEPOOL_ERROR_INVALID_ARGUMENT;
  memset(&found, 0, sizeof found);
  memset(&properties, 0, sizeof properties);
  found.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT;
  properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
  properties.pNext = &found;
  vulkan->functions.vkGetPhysicalDeviceMemoryProperties2(vulkan->physical_device, &properties);
  budget->usage = found.heapUsage[heap];
  budget->budget = found.heapBudget[heap];
  return SLICEPOOL_OK;
}

/** The callback `completed`, with timelines. */
static inline slicepool_result slicepool_vulkan_completed(void *user_data, uint32_t timeline, uint64_t *completed) {
  const slicepool_vulkan *vulkan = (const slicepool_vulkan *)user_data;
  if (timeline >= vulkan->timeline_count) return SLICEPOOL_ERROR_INVALID_ARGUMENT;
  return slicepool_vulkan_result(
      vulkan->functions.vkGetSemaphoreCounterValue(vulkan->device, vulkan->timelines[timeline], completed));
}

/**
 * Fills in the callbacks. The others may be set afterwards.
 *
 * @param vulkan  after slicepool_vulkan_init(); becomes `user_data` of the callbacks, and stays where it is
 *
 * Threads: any. Cost: constant.
 */
static inline void slicepool_vulkan_device(slicepool_vulkan *vulkan, slicepool_device *device) {
  const slicepool_device none = SLICEPOOL_DEVICE_INIT;
  *device = none;
  device->user_data = vulkan;
  device->allocate = slicepool_vulkan_allocate_page;
  device->deallocate = slicepool_vulkan_deallocate_page;
  device->map = slicepool_vulkan_map_page;
  device->unmap = slicepool_vulkan_unmap_page;
  device->flush = slicepool_vulkan_flush_range;
  device->invalidate = slicepool_vulkan_invalidate_range;
  device->fill = slicepool_vulkan_fill;
  if ((vulkan->flags & SLICEPOOL_VULKAN_MEMORY_BUDGET) != 0) device->heap_budget = slicepool_vulkan_heap_budget;
  if (vulkan->timelines != NULL) device->completed = slicepool_vulkan_completed;
}

/**
 * Fills in memory types, heaps and the number of allocations of a config. `blocks` or `pools` are the program's to set;
 * without, there are the pools of slicepool_layout_adaptive() for each memory type.
 *
 * Threads: any. Cost: constant.
 */
static inline void slicepool_vulkan_describe(const slicepool_vulkan *vulkan, slicepool_allocator_config *config) {
  config->memory_types = vulkan->memory_types;
  config->memory_type_count = vulkan->memory_type_count;
  config->heaps = vulkan->heaps;
  config->heap_count = vulkan->heap_count;
  config->max_pages = vulkan->max_memory_allocation_count;
  if (vulkan->max_allocations != 0 && vulkan->max_allocations < config->max_pages) {
    config->max_pages = vulkan->max_allocations;
  }
}

/* ------------------------------------------------------------------------------------------------------------------
 * Requests
 * ------------------------------------------------------------------------------------------------------------------ */

/** What only the GPU touches: DEVICE_LOCAL if there is some. */
#define SLICEPOOL_VULKAN_GPU 0u
/** What the host writes once, in order, and the GPU reads: HOST_VISIBLE and HOST_COHERENT. */
#define SLICEPOOL_VULKAN_UPLOAD 1u
/**
 * What the host writes again and again and the GPU reads: HOST_VISIBLE, and DEVICE_LOCAL and HOST_COHERENT if possible.
 */
#define SLICEPOOL_VULKAN_STREAM 2u
/** What the GPU writes and the host reads: HOST_VISIBLE, and HOST_CACHED if possible. */
#define SLICEPOOL_VULKAN_READBACK 3u

/**
 * Properties of memory that nothing is placed in that does not ask for it: VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT,
 * PROTECTED_BIT, DEVICE_COHERENT_BIT_AMD, DEVICE_UNCACHED_BIT_AMD, RDMA_CAPABLE_BIT_NV. For the last four a feature has
 * to be enabled.
 */
#define SLICEPOOL_VULKAN_SPECIAL (0x10u | 0x20u | 0x40u | 0x80u | 0x100u)

/**
 * A request for a use. Its size, alignment and memory types come from a buffer or image; every other field may be
 * changed.
 *
 * Where several memory types are as good, Vulkan's order decides: those with fewer properties come first.
 *
 * @param use  a SLICEPOOL_VULKAN_ use; another counts as SLICEPOOL_VULKAN_GPU
 *
 * Threads: any. Cost: constant.
 */
static inline slicepool_request slicepool_vulkan_request(uint32_t use) {
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  request.forbidden = SLICEPOOL_VULKAN_SPECIAL;
  if (use == SLICEPOOL_VULKAN_UPLOAD) {
    request.required = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  } else if (use == SLICEPOOL_VULKAN_STREAM) {
    request.required = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT;
    request.preferred = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  } else if (use == SLICEPOOL_VULKAN_READBACK) {
    request.required = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT;
    request.preferred = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
  } else {
    request.preferred = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  }
  return request;
}

/**
 * Adds to a request what Vulkan requires: the size, at least the alignment, only the memory types that it allows. What
 * is required or preferred is not forbidden any more.
 *
 * @param tiling  of an image; VK_IMAGE_TILING_LINEAR for a buffer. Others are SLICEPOOL_REQUEST_OPTIMAL
 * @return SLICEPOOL_ERROR_NOT_SUPPORTED if the request allows none of those memory types; unchanged then
 *
 * Threads: any. Cost: constant.
 */
static inline slicepool_result slicepool_vulkan_require(slicepool_request *request,
                                                        const VkMemoryRequirements *requirements,
                                                        VkImageTiling tiling) {
  const uint32_t allowed = request->memory_types == 0 ? UINT32_MAX : request->memory_types;
  if ((allowed & requirements->memoryTypeBits) == 0) return SLICEPOOL_ERROR_NOT_SUPPORTED;
  request->memory_types = allowed & requirements->memoryTypeBits;
  request->forbidden &= ~(request->required | request->preferred);
  request->size = requirements->size;
  if (request->alignment < requirements->alignment) request->alignment = requirements->alignment;
  if (tiling != VK_IMAGE_TILING_LINEAR) request->flags |= SLICEPOOL_REQUEST_OPTIMAL;
  return SLICEPOOL_OK;
}

/** vkBindBufferMemory() to a slice. With SLICEPOOL_VULKAN_MAP_ON_DEMAND, while nobody maps or unmaps its page. */
static inline VkResult slicepool_vulkan_bind_buffer(const slicepool_vulkan *vulkan, VkBuffer buffer,
                                                    const slicepool_slice *slice) {
  const VkDeviceMemory memory = slicepool_vulkan_memory(slice->memory);
  return vulkan->functions.vkBindBufferMemory(vulkan->device, buffer, memory, slice->offset);
}

/** vkBindImageMemory() to a slice. With SLICEPOOL_VULKAN_MAP_ON_DEMAND, while nobody maps or unmaps its page. */
static inline VkResult slicepool_vulkan_bind_image(const slicepool_vulkan *vulkan, VkImage image,
                                                   const slicepool_slice *slice) {
  const VkDeviceMemory memory = slicepool_vulkan_memory(slice->memory);
  return vulkan->functions.vkBindImageMemory(vulkan->device, image, memory, slice->offset);
}

/** The memory types, one bit, that a request comes to first; 0 if none suits. */
static inline uint32_t slicepool_vulkan_best_type(const slicepool_vulkan *vulkan, const slicepool_request *request) {
  uint32_t best = 0, fewest = 33, i, lacking, count;
  for (i = 0; i < vulkan->memory_type_count; i++) {
    const uint32_t properties = vulkan->memory_types[i].properties;
    if ((request->memory_types >> i & 1) == 0 || (properties & request->required) != request->required ||
        (properties & request->forbidden) != 0) {
      continue;
    }
    count = 0;
    for (lacking = request->preferred & ~properties; lacking != 0; lacking &= lacking - 1) count++;
    if (count < fewest) {
      fewest = count;
      best = (uint32_t)1 << i;
    }
  }
  return best;
}

/** Whether memory of its own may be had for the asking: pages are not getting scarce. */
static inline int slicepool_vulkan_has_pages(const slicepool_vulkan *vulkan, slicepool_allocator *allocator) {
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
  slicepool_vulkan_describe(vulkan, &config);
  return slicepool_statistics_get(allocator, &figures) == SLICEPOOL_OK &&
         (uint64_t)figures.pages * 4 < (uint64_t)config.max_pages * 3;
}

/**
 * A slice for what Vulkan requires: in memory of its own if that has to be, or is wanted and the best memory type has
 * some and pages are not scarce; otherwise where there is room. For the two functions below.
 */
static inline slicepool_result slicepool_vulkan_place(const slicepool_vulkan *vulkan, slicepool_allocator *allocator,
                                                      slicepool_request *request,
                                                      const VkMemoryRequirements2 *requirements, VkImageTiling tiling,
                                                      VkBuffer buffer, VkImage image, slicepool_slice *slice) {
  const VkMemoryDedicatedRequirements *dedicated = (const VkMemoryDedicatedRequirements *)requirements->pNext;
  const int has_to = dedicated->requiresDedicatedAllocation != VK_FALSE;
  const uint32_t shares = SLICEPOOL_REQUEST_IN_POOL | SLICEPOOL_REQUEST_NEVER_GROW | SLICEPOOL_REQUEST_PERSISTENT |
                          SLICEPOOL_REQUEST_DEDICATED;
  slicepool_vulkan_page *const given = (slicepool_vulkan_page *)request->device_data;
  slicepool_vulkan_page page = SLICEPOOL_VULKAN_PAGE_INIT;
  slicepool_request own;
  slicepool_result result = slicepool_vulkan_require(request, &requirements->memoryRequirements, tiling);
  int is_named;
  if (result != SLICEPOOL_OK) return result;
  if (given == NULL && !has_to &&
      (dedicated->prefersDedicatedAllocation == VK_FALSE || (request->flags & shares) != 0 ||
       !slicepool_vulkan_has_pages(vulkan, allocator))) {
    return slicepool_allocate(allocator, request, slice);
  }
  if (given != NULL) page = *given;
  is_named = vulkan->functions.vkGetBufferMemoryRequirements2 != NULL &&
             (has_to || (page.flags & SLICEPOOL_VULKAN_PAGE_NOT_DEDICATED) == 0);
  if (is_named && page.buffer == VK_NULL_HANDLE && page.image == VK_NULL_HANDLE) {
    page.buffer = buffer;
    page.image = image;
  }
  if (is_named && page.exact_size == 0) page.exact_size = requirements->memoryRequirements.size;
  own = *request;
  own.device_data = &page;
  if (given == NULL && !has_to) {
    /* Only a wish: not at the cost of worse memory, and nobody is told if it fails. */
    own.memory_types = slicepool_vulkan_best_type(vulkan, request);
    own.failure = NULL;
  }
  result = own.memory_types == 0 ? SLICEPOOL_ERROR_NOT_SUPPORTED : slicepool_allocate(allocator, &own, slice);
  if (given != NULL) {
    given->consumed = page.consumed;
    given->code = page.code;
  }
  if (result == SLICEPOOL_OK) {
    /* What is behind that is no memory. */
    if (page.exact_size != 0 && slice->struct_size >= sizeof *slice) slice->size = page.exact_size;
    return result;
  }
  return given == NULL && !has_to ? slicepool_allocate(allocator, request, slice) : result;
}

/**
 * Binds an object to a new slice: not in a dry run. Where pages are mapped on demand, this one is mapped meanwhile,
 * since nobody else may do that then.
 */
static inline VkResult slicepool_vulkan_bind_new(const slicepool_vulkan *vulkan, slicepool_allocator *allocator,
                                                 VkBuffer buffer, VkImage image, const slicepool_slice *slice) {
  void *mapped = NULL;
  int is_mapped;
  VkResult code;
  if (slice->memory == UINT64_MAX) return VK_SUCCESS;
  is_mapped = (vulkan->flags & SLICEPOOL_VULKAN_MAP_ON_DEMAND) != 0 &&
              slicepool_map(allocator, slice->id, &mapped, NULL) == SLICEPOOL_OK;
  code = buffer != VK_NULL_HANDLE ? slicepool_vulkan_bind_buffer(vulkan, buffer, slice)
                                  : slicepool_vulkan_bind_image(vulkan, image, slice);
  if (is_mapped) slicepool_unmap(allocator, slice->id);
  return code;
}

/** What is left of a slice whose buffer or image Vulkan did not bind: nothing but the code. */
static inline slicepool_result slicepool_vulkan_not_bound(slicepool_allocator *allocator, const slicepool_slice *slice,
                                                          VkResult code, slicepool_failure *failure) {
  const slicepool_result result = slicepool_vulkan_result(code);
  slicepool_free(allocator, slice->id);
  if (failure != NULL && failure->struct_size >= sizeof *failure) {
    failure->result = result;
    failure->device_code = (int32_t)code;
  }
  return result;
}

/** What Vulkan requires of the memory for a buffer, or else an image, and whether that is to be memory of its own. */
static inline void slicepool_vulkan_requirements(const slicepool_vulkan *vulkan, VkBuffer buffer, VkImage image,
                                                 VkMemoryRequirements2 *requirements) {
  const slicepool_vulkan_functions *functions = &vulkan->functions;
  VkBufferMemoryRequirementsInfo2 of_buffer;
  VkImageMemoryRequirementsInfo2 of_image;
  memset(&of_buffer, 0, sizeof of_buffer);
  memset(&of_image, 0, sizeof of_image);
  of_buffer.sType = VK_STRUCTURE_TYPE_BUFFER_MEMORY_REQUIREMENTS_INFO_2;
  of_buffer.buffer = buffer;
  of_image.sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_REQUIREMENTS_INFO_2;
  of_image.image = image;
  if (buffer != VK_NULL_HANDLE && functions->vkGetBufferMemoryRequirements2 != NULL) {
    functions->vkGetBufferMemoryRequirements2(vulkan->device, &of_buffer, requirements);
  } else if (buffer != VK_NULL_HANDLE) {
    functions->vkGetBufferMemoryRequirements(vulkan->device, buffer, &requirements->memoryRequirements);
  } else if (functions->vkGetImageMemoryRequirements2 != NULL) {
    functions->vkGetImageMemoryRequirements2(vulkan->device, &of_image, requirements);
  } else {
    functions->vkGetImageMemoryRequirements(vulkan->device, image, &requirements->memoryRequirements);
  }
}

/** The two functions below: one of `buffer` and `image` is VK_NULL_HANDLE. */
static inline slicepool_result slicepool_vulkan_allocate_for(const slicepool_vulkan *vulkan,
                                                             slicepool_allocator *allocator, VkBuffer buffer,
                                                             VkImage image, VkImageTiling tiling,
                                                             const slicepool_request *like, slicepool_slice *slice) {
  slicepool_request request = like == NULL ? slicepool_vulkan_request(SLICEPOOL_VULKAN_GPU) : *like;
  VkMemoryDedicatedRequirements dedicated;
  VkMemoryRequirements2 requirements;
  slicepool_result result;
  VkResult code;
  memset(&dedicated, 0, sizeof dedicated);
  memset(&requirements, 0, sizeof requirements);
  dedicated.sType = VK_STRUCTURE_TYPE_MEMORY_DEDICATED_REQUIREMENTS;
  requirements.sType = VK_STRUCTURE_TYPE_MEMORY_REQUIREMENTS_2;
  requirements.pNext = &dedicated;
  slicepool_vulkan_requirements(vulkan, buffer, image, &requirements);
  result = slicepool_vulkan_place(vulkan, allocator, &request, &requirements, tiling, buffer, image, slice);
  if (result != SLICEPOOL_OK) return result;
  code = slicepool_vulkan_bind_new(vulkan, allocator, buffer, image, slice);
  return code == VK_SUCCESS ? SLICEPOOL_OK : slicepool_vulkan_not_bound(allocator, slice, code, request.failure);
}

/**
 * Gets memory for a buffer and binds it. On a device of version 1.1, or with SLICEPOOL_VULKAN_DEDICATED_ALLOCATION, a
 * buffer that needs memory of its own gets it, and so does one that only wants it, if the best of its memory types has
 * some to spare. That memory has exactly the buffer's size, which is what slicepool_slice.size says here;
 * slicepool_slice_get() says it rounded up, but the rest is no memory.
 *
 * In a dry run nothing is bound: after slicepool_resolve(), slicepool_vulkan_bind_buffer() does that.
 *
 * @param like   what slicepool_vulkan_request() answers, or more; device_data is NULL or a slicepool_vulkan_page, and
 *               `alignment` may be larger than the buffer's own; NULL: as for SLICEPOOL_VULKAN_GPU
 * @param slice  filled in on success; its struct_size must be set
 * @return as slicepool_allocate(), SLICEPOOL_ERROR_INVALID_ARGUMENT also for a buffer that needs memory of its own and
 *         a request for one pool; SLICEPOOL_ERROR_NOT_SUPPORTED if none of the memory types will do; what
 *         vkBindBufferMemory() failed with, after which the slice is freed: request->failure has its code
 *
 * Threads: any. Cost: that of slicepool_allocate(), and two calls of Vulkan; with SLICEPOOL_VULKAN_MAP_ON_DEMAND four.
 */
static inline slicepool_result slicepool_vulkan_allocate_buffer(const slicepool_vulkan *vulkan,
                                                                slicepool_allocator *allocator, VkBuffer buffer,
                                                                const slicepool_request *like, slicepool_slice *slice) {
  return slicepool_vulkan_allocate_for(vulkan, allocator, buffer, VK_NULL_HANDLE, VK_IMAGE_TILING_LINEAR, like, slice);
}

/**
 * The same for an image. Not for images of several planes that are bound one by one, nor for sparse ones: those take
 * slicepool_vulkan_require(), slicepool_allocate() and vkBindImageMemory2().
 *
 * @param tiling  that the image was made with
 * @return as slicepool_vulkan_allocate_buffer()
 *
 * Threads: any. Cost: as slicepool_vulkan_allocate_buffer().
 */
static inline slicepool_result slicepool_vulkan_allocate_image(const slicepool_vulkan *vulkan,
                                                               slicepool_allocator *allocator, VkImage image,
                                                               VkImageTiling tiling, const slicepool_request *like,
                                                               slicepool_slice *slice) {
  return slicepool_vulkan_allocate_for(vulkan, allocator, VK_NULL_HANDLE, image, tiling, like, slice);
}

#endif /* SLICEPOOL_VULKAN_H */
