/* A Vulkan device for tests: a CPU's if there is one, with the validation layer where a test wants it, and functions of
 * Vulkan between library and driver that record, count and fail. */
#ifndef VULKAN_WORLD_H
#define VULKAN_WORLD_H

#include "check.h"

#include <vulkan/vulkan.h>

#include "slicepool_vulkan.h"

#define VK(call)                                                                \
  do {                                                                          \
    VkResult vk_result = (call);                                                \
    if (vk_result != VK_SUCCESS) FAIL("%s answers VkResult %d", #call, vk_result); \
  } while (0)

/* ---- what the validation layer says */

static uint32_t messages;
static bool prints_messages = true;

static inline VKAPI_ATTR VkBool32 VKAPI_CALL hear(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                                  VkDebugUtilsMessageTypeFlagsEXT types,
                                                  const VkDebugUtilsMessengerCallbackDataEXT *data, void *user_data) {
  (void)severity;
  (void)types;
  (void)user_data;
  if (prints_messages) fprintf(stderr, "%s\n", data->pMessage);
  messages++;
  return VK_FALSE;
}

/* ---- between library and driver */

enum { MOST_LIVE = 4096 };

struct calls {
  uint64_t allocated, freed, mapped, unmapped, flushed, invalidated;
  uint64_t live, most_live;
  /* From the allocation of this number on, that many fail with this code; 0: none. */
  uint64_t fails_at, fails;
  VkResult code;
  /* So many may be live, as if maxMemoryAllocationCount were that; 0: any number. */
  uint64_t limit;
  /* The next mapping, binding fails with this. */
  VkResult map_code, bind_code;
  /* Of the last allocation. */
  VkDeviceSize size;
  VkBuffer buffer;
  VkImage image;
  VkExternalMemoryHandleTypeFlags exported;
  VkMemoryAllocateFlags flags;
  float priority;
  /* Of the last flush or invalidation. */
  VkMappedMemoryRange range;
  /* What VK_EXT_memory_budget would say. */
  VkDeviceSize usage, budget;
  bool prefers_dedicated, requires_dedicated;
  /* A second memory type is that of the driver, too. */
  bool second_type;
  uint32_t type;
};

struct world {
  VkInstance instance;
  VkDebugUtilsMessengerEXT messenger;
  VkPhysicalDevice physical;
  VkDevice device;
  VkQueue queue;
  VkCommandPool pool;
  bool validates;
  /* What the driver does. */
  slicepool_vulkan_functions driver;
  struct calls calls;
  slicepool_vulkan vulkan;
};

static struct world world;

/* Takes a struct out of a chain; NULL if it is not in it. */
static inline const VkBaseInStructure *take_out(VkMemoryAllocateInfo *info, VkStructureType type) {
  const VkBaseInStructure *at = (const VkBaseInStructure *)info->pNext, *before = NULL;
  while (at != NULL && at->sType != type) {
    before = at;
    at = at->pNext;
  }
  if (at == NULL) return NULL;
  if (before == NULL) {
    info->pNext = at->pNext;
  } else {
    VkBaseInStructure *writable;
    memcpy(&writable, &before, sizeof writable);
    writable->pNext = at->pNext;
  }
  return at;
}

static inline const void *find_in(const VkMemoryAllocateInfo *info, VkStructureType type) {
  const VkBaseInStructure *at = (const VkBaseInStructure *)info->pNext;
  while (at != NULL && at->sType != type) at = at->pNext;
  return at;
}

static inline VKAPI_ATTR VkResult VKAPI_CALL recording_allocate(VkDevice device, const VkMemoryAllocateInfo *info,
                                                                const VkAllocationCallbacks *callbacks,
                                                                VkDeviceMemory *memory) {
  struct calls *calls = &world.calls;
  VkMemoryAllocateInfo passed = *info;
  const VkMemoryDedicatedAllocateInfo *dedicated =
      find_in(info, VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO);
  const VkExportMemoryAllocateInfo *exported = find_in(info, VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO);
  const VkMemoryAllocateFlagsInfo *flags = find_in(info, VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO);
  /* lavapipe has no such extension. */
  const VkMemoryPriorityAllocateInfoEXT *ranked = (const VkMemoryPriorityAllocateInfoEXT *)take_out(
      &passed, VK_STRUCTURE_TYPE_MEMORY_PRIORITY_ALLOCATE_INFO_EXT);
  calls->allocated++;
  calls->size = info->allocationSize;
  calls->buffer = dedicated == NULL ? VK_NULL_HANDLE : dedicated->buffer;
  calls->image = dedicated == NULL ? VK_NULL_HANDLE : dedicated->image;
  calls->exported = exported == NULL ? 0 : exported->handleTypes;
  calls->flags = flags == NULL ? 0 : flags->flags;
  calls->priority = ranked == NULL ? -1 : ranked->priority;
  calls->type = info->memoryTypeIndex;
  if (calls->second_type) passed.memoryTypeIndex = 0;
  if (calls->limit != 0 && calls->live >= calls->limit) return VK_ERROR_TOO_MANY_OBJECTS;
  if (calls->fails_at != 0 && calls->allocated >= calls->fails_at &&
      calls->allocated < calls->fails_at + calls->fails) {
    return calls->code;
  }
  VkResult result = world.driver.vkAllocateMemory(device, &passed, callbacks, memory);
  if (result == VK_SUCCESS && ++calls->live > calls->most_live) calls->most_live = calls->live;
  return result;
}

static inline VKAPI_ATTR void VKAPI_CALL recording_free(VkDevice device, VkDeviceMemory memory,
                                                        const VkAllocationCallbacks *callbacks) {
  world.calls.freed++;
  world.calls.live--;
  world.driver.vkFreeMemory(device, memory, callbacks);
}

static inline VKAPI_ATTR VkResult VKAPI_CALL recording_map(VkDevice device, VkDeviceMemory memory, VkDeviceSize offset,
                                                           VkDeviceSize size, VkMemoryMapFlags flags, void **mapped) {
  const VkResult code = world.calls.map_code;
  world.calls.mapped++;
  world.calls.map_code = VK_SUCCESS;
  return code != VK_SUCCESS ? code : world.driver.vkMapMemory(device, memory, offset, size, flags, mapped);
}

static inline VKAPI_ATTR void VKAPI_CALL recording_unmap(VkDevice device, VkDeviceMemory memory) {
  world.calls.unmapped++;
  world.driver.vkUnmapMemory(device, memory);
}

static inline VKAPI_ATTR VkResult VKAPI_CALL recording_flush(VkDevice device, uint32_t count,
                                                             const VkMappedMemoryRange *ranges) {
  CHECK_EQ(count, 1);
  world.calls.flushed++;
  world.calls.range = ranges[0];
  return world.driver.vkFlushMappedMemoryRanges(device, count, ranges);
}

static inline VKAPI_ATTR VkResult VKAPI_CALL recording_invalidate(VkDevice device, uint32_t count,
                                                                  const VkMappedMemoryRange *ranges) {
  CHECK_EQ(count, 1);
  world.calls.invalidated++;
  world.calls.range = ranges[0];
  return world.driver.vkInvalidateMappedMemoryRanges(device, count, ranges);
}

static inline VKAPI_ATTR VkResult VKAPI_CALL recording_bind_buffer(VkDevice device, VkBuffer buffer,
                                                                   VkDeviceMemory memory, VkDeviceSize offset) {
  const VkResult code = world.calls.bind_code;
  world.calls.bind_code = VK_SUCCESS;
  return code != VK_SUCCESS ? code : world.driver.vkBindBufferMemory(device, buffer, memory, offset);
}

static inline VKAPI_ATTR VkResult VKAPI_CALL recording_bind_image(VkDevice device, VkImage image, VkDeviceMemory memory,
                                                                  VkDeviceSize offset) {
  const VkResult code = world.calls.bind_code;
  world.calls.bind_code = VK_SUCCESS;
  return code != VK_SUCCESS ? code : world.driver.vkBindImageMemory(device, image, memory, offset);
}

static inline void say_dedicated(const VkMemoryRequirements2 *requirements) {
  VkMemoryDedicatedRequirements *dedicated = (VkMemoryDedicatedRequirements *)requirements->pNext;
  if (world.calls.prefers_dedicated) dedicated->prefersDedicatedAllocation = VK_TRUE;
  if (world.calls.requires_dedicated) dedicated->requiresDedicatedAllocation = VK_TRUE;
}

static inline VKAPI_ATTR void VKAPI_CALL recording_buffer_requirements(VkDevice device,
                                                                       const VkBufferMemoryRequirementsInfo2 *info,
                                                                       VkMemoryRequirements2 *requirements) {
  world.driver.vkGetBufferMemoryRequirements2(device, info, requirements);
  say_dedicated(requirements);
  if (world.calls.second_type) requirements->memoryRequirements.memoryTypeBits |= 2;
}

static inline VKAPI_ATTR void VKAPI_CALL recording_image_requirements(VkDevice device,
                                                                      const VkImageMemoryRequirementsInfo2 *info,
                                                                      VkMemoryRequirements2 *requirements) {
  world.driver.vkGetImageMemoryRequirements2(device, info, requirements);
  say_dedicated(requirements);
  if (world.calls.second_type) requirements->memoryRequirements.memoryTypeBits |= 2;
}

static inline VKAPI_ATTR void VKAPI_CALL recording_memory_properties(VkPhysicalDevice physical,
                                                                     VkPhysicalDeviceMemoryProperties2 *properties) {
  VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget = (VkPhysicalDeviceMemoryBudgetPropertiesEXT *)properties->pNext;
  CHECK(budget != NULL && budget->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT);
  properties->pNext = NULL;
  world.driver.vkGetPhysicalDeviceMemoryProperties2(physical, properties);
  properties->pNext = budget;
  budget->heapUsage[0] = world.calls.usage;
  budget->heapBudget[0] = world.calls.budget;
}

/* ---- opening and closing */

static inline bool layer_is_there(const char *name) {
  VkLayerProperties layers[64];
  uint32_t count = 64;
  if (vkEnumerateInstanceLayerProperties(&count, layers) < VK_SUCCESS) return false;
  for (uint32_t i = 0; i < count; i++) {
    if (strcmp(layers[i].layerName, name) == 0) return true;
  }
  return false;
}

static inline bool open_instance(bool validates) {
  const char *const layer = "VK_LAYER_KHRONOS_validation", *const utilities = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
  const VkDebugUtilsMessengerCreateInfoEXT listener = {
      .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
      .messageSeverity =
          VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
      .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
      .pfnUserCallback = hear};
  const VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_2};
  const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                     .pNext = validates ? &listener : NULL,
                                     .pApplicationInfo = &application,
                                     .enabledLayerCount = validates ? 1 : 0,
                                     .ppEnabledLayerNames = &layer,
                                     .enabledExtensionCount = validates ? 1 : 0,
                                     .ppEnabledExtensionNames = &utilities};
  memset(&world, 0, sizeof world);
  messages = 0;
  prints_messages = true;
  if (vkCreateInstance(&info, NULL, &world.instance) != VK_SUCCESS) return false;
  if (validates) {
    const PFN_vkCreateDebugUtilsMessengerEXT listen =
        (PFN_vkCreateDebugUtilsMessengerEXT)vkGetInstanceProcAddr(world.instance, "vkCreateDebugUtilsMessengerEXT");
    VK(listen(world.instance, &listener, NULL, &world.messenger));
  }
  VkPhysicalDevice found[16];
  uint32_t count = 16;
  if (vkEnumeratePhysicalDevices(world.instance, &count, found) < VK_SUCCESS || count == 0) return false;
  world.physical = found[0];
  for (uint32_t i = 0; i < count; i++) {
    VkPhysicalDeviceProperties properties;
    vkGetPhysicalDeviceProperties(found[i], &properties);
    if (properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU) world.physical = found[i];
  }
  world.validates = validates;
  return true;
}

/* A device with all that the adapter can use, and the adapter before slicepool_vulkan_init(). */
static inline void open_world(bool validates) {
  if (validates && !layer_is_there("VK_LAYER_KHRONOS_validation")) FAIL("there is no validation layer");
  CHECK(open_instance(validates));
  const char *const exports = VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME;
  VkQueueFamilyProperties families[16];
  uint32_t count = 16, family = 0;
  vkGetPhysicalDeviceQueueFamilyProperties(world.physical, &count, families);
  while (family < count && (families[family].queueFlags & VK_QUEUE_GRAPHICS_BIT) == 0) family++;
  CHECK(family < count);
  VkPhysicalDeviceVulkan12Features features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                               .bufferDeviceAddress = VK_TRUE,
                                               .timelineSemaphore = VK_TRUE};
  const float priority = 1;
  const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                         .queueFamilyIndex = family,
                                         .queueCount = 1,
                                         .pQueuePriorities = &priority};
  const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                   .pNext = &features,
                                   .queueCreateInfoCount = 1,
                                   .pQueueCreateInfos = &queue,
                                   .enabledExtensionCount = 1,
                                   .ppEnabledExtensionNames = &exports};
  const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                        .queueFamilyIndex = family};
  VK(vkCreateDevice(world.physical, &info, NULL, &world.device));
  vkGetDeviceQueue(world.device, family, 0, &world.queue);
  VK(vkCreateCommandPool(world.device, &pool, NULL, &world.pool));

  slicepool_vulkan_functions *functions = &world.vulkan.functions;
  world.vulkan.physical_device = world.physical;
  world.vulkan.device = world.device;
  CHECK(slicepool_vulkan_load(functions, vkGetInstanceProcAddr, world.instance, world.device) == NULL);
  world.driver = *functions;
  functions->vkAllocateMemory = recording_allocate;
  functions->vkFreeMemory = recording_free;
  functions->vkMapMemory = recording_map;
  functions->vkUnmapMemory = recording_unmap;
  functions->vkFlushMappedMemoryRanges = recording_flush;
  functions->vkInvalidateMappedMemoryRanges = recording_invalidate;
  functions->vkBindBufferMemory = recording_bind_buffer;
  functions->vkBindImageMemory = recording_bind_image;
  functions->vkGetBufferMemoryRequirements2 = recording_buffer_requirements;
  functions->vkGetImageMemoryRequirements2 = recording_image_requirements;
  functions->vkGetPhysicalDeviceMemoryProperties2 = recording_memory_properties;
}

/* Ends everything and says how many messages there were. */
static inline uint32_t end_world(void) {
  vkDestroyCommandPool(world.device, world.pool, NULL);
  vkDestroyDevice(world.device, NULL);
  if (world.messenger != VK_NULL_HANDLE) {
    const PFN_vkDestroyDebugUtilsMessengerEXT destroy =
        (PFN_vkDestroyDebugUtilsMessengerEXT)vkGetInstanceProcAddr(world.instance, "vkDestroyDebugUtilsMessengerEXT");
    destroy(world.instance, world.messenger, NULL);
  }
  vkDestroyInstance(world.instance, NULL);
  return messages;
}

/* The same where the layer must have said nothing, and all memory be back. */
static inline void close_world(void) {
  CHECK_EQ(end_world(), 0);
  CHECK_EQ(world.calls.live, 0);
}

/* ---- allocators and resources */

static inline slicepool_allocator *allocator_with(const slicepool_pool_options *pools, uint32_t count) {
  slicepool_device device = SLICEPOOL_DEVICE_INIT;
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  slicepool_allocation_sizes sizes = SLICEPOOL_ALLOCATION_SIZES_INIT;
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  slicepool_allocator *allocator = NULL;
  slicepool_vulkan_device(&world.vulkan, &device);
  slicepool_vulkan_describe(&world.vulkan, &config);
  /* Small blocks: everything is memory of this machine. */
  sizes.min_device_memblock_size = sizes.max_device_memblock_size = 4 * MIB;
  sizes.min_host_memblock_size = sizes.max_host_memblock_size = 4 * MIB;
  config.blocks = count == 0 ? &sizes : NULL;
  config.pools = pools;
  config.pool_count = count;
  config.failure = &failure;
  if (slicepool_allocator_create(&device, &config, &allocator) != SLICEPOOL_OK) FAIL("no allocator: %s", failure.field);
  return allocator;
}

/* With blocks. */
static inline slicepool_allocator *create_allocator(void) {
  OK(slicepool_vulkan_init(&world.vulkan));
  return allocator_with(NULL, 0);
}

static inline void destroy_allocator(slicepool_allocator *allocator) {
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
}

static inline VkBuffer create_buffer(VkDeviceSize size, VkBufferUsageFlags usage) {
  const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = size, .usage = usage};
  VkBuffer buffer;
  VK(vkCreateBuffer(world.device, &info, NULL, &buffer));
  return buffer;
}

/* One that can be filled and read. */
static inline VkBuffer create_plain_buffer(VkDeviceSize size) {
  return create_buffer(size, VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT);
}

static inline VkImage create_image(uint32_t width, uint32_t height, VkImageTiling tiling) {
  const VkImageCreateInfo info = {.sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
                                  .imageType = VK_IMAGE_TYPE_2D,
                                  .format = VK_FORMAT_R8G8B8A8_UNORM,
                                  .extent = {width, height, 1},
                                  .mipLevels = 1,
                                  .arrayLayers = 1,
                                  .samples = VK_SAMPLE_COUNT_1_BIT,
                                  .tiling = tiling,
                                  .usage = VK_IMAGE_USAGE_TRANSFER_DST_BIT};
  VkImage image;
  VK(vkCreateImage(world.device, &info, NULL, &image));
  return image;
}

/* ---- work */

static inline VkCommandBuffer begin_commands(void) {
  const VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                            .commandPool = world.pool,
                                            .commandBufferCount = 1};
  const VkCommandBufferBeginInfo once = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                         .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
  VkCommandBuffer commands;
  VK(vkAllocateCommandBuffers(world.device, &info, &commands));
  VK(vkBeginCommandBuffer(commands, &once));
  return commands;
}

/* Everything before it is seen by everything after it, the host included. */
static inline void barrier(VkCommandBuffer commands) {
  const VkMemoryBarrier all = {
      .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
      .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT | VK_ACCESS_HOST_WRITE_BIT,
      .dstAccessMask = VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT | VK_ACCESS_HOST_READ_BIT};
  const VkPipelineStageFlags stages = VK_PIPELINE_STAGE_TRANSFER_BIT | VK_PIPELINE_STAGE_HOST_BIT;
  vkCmdPipelineBarrier(commands, stages, stages, 0, 1, &all, 0, NULL, 0, NULL);
}

static inline void end_commands(VkCommandBuffer commands) {
  const VkSubmitInfo submit = {
      .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &commands};
  barrier(commands);
  VK(vkEndCommandBuffer(commands));
  VK(vkQueueSubmit(world.queue, 1, &submit, VK_NULL_HANDLE));
  VK(vkQueueWaitIdle(world.queue));
  vkFreeCommandBuffers(world.device, world.pool, 1, &commands);
}

/* Words of a buffer that are not what they should be, as the device copies it out. */
static inline uint64_t wrong_words(slicepool_allocator *allocator, VkBuffer buffer, VkDeviceSize size, uint32_t word) {
  const slicepool_request readback = slicepool_vulkan_request(SLICEPOOL_VULKAN_READBACK);
  const VkBuffer out = create_buffer(size, VK_BUFFER_USAGE_TRANSFER_DST_BIT);
  const VkBufferCopy all = {.size = size};
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  void *mapped = NULL;
  uint64_t wrong = 0;
  OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, out, &readback, &slice));
  VkCommandBuffer commands = begin_commands();
  barrier(commands);
  vkCmdCopyBuffer(commands, buffer, out, 1, &all);
  end_commands(commands);
  OK(slicepool_map(allocator, slice.id, &mapped, NULL));
  OK(slicepool_invalidate(allocator, slice.id, 0, size, NULL));
  for (VkDeviceSize i = 0; i < size / 4; i++) wrong += ((const uint32_t *)mapped)[i] != word;
  OK(slicepool_unmap(allocator, slice.id));
  vkDestroyBuffer(world.device, out, NULL);
  OK(slicepool_free(allocator, slice.id));
  return wrong;
}

#endif
