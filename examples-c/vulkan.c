/* A picture goes to the GPU and comes back mirrored: through a staging slice into an image, from there into another
 * one, and through a readback slice to the host, where every byte is checked. Then a thousand buffers of random sizes
 * are bound to slices. The validation layer looks on, if there is one.
 *
 *     cc vulkan.c -lslicepool -lvulkan && ./a.out mirrored.ppm 1
 *
 * The arguments are the file for the picture, and the seed of the sizes; both may be left out.
 */
#include "slicepool_vulkan.h"

#include <stdio.h>
#include <stdlib.h>

#include <vulkan/vulkan.h>

enum { WIDTH = 320, HEIGHT = 200, BYTES = WIDTH * HEIGHT * 4, BUFFERS = 1000 };

static uint32_t messages;

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)
#define VK(call) CHECK((call) == VK_SUCCESS)
#define OK(call) CHECK((call) == SLICEPOOL_OK)

/* ---- Vulkan, as every program sets it up */

static VKAPI_ATTR VkBool32 VKAPI_CALL count_message(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                                    VkDebugUtilsMessageTypeFlagsEXT types,
                                                    const VkDebugUtilsMessengerCallbackDataEXT *data, void *user_data) {
  (void)severity, (void)types, (void)user_data;
  fprintf(stderr, "%s\n", data->pMessage);
  messages++;
  return VK_FALSE;
}

typedef struct graphics {
  VkInstance instance;
  VkDebugUtilsMessengerEXT messenger;
  VkPhysicalDevice physical;
  VkPhysicalDeviceProperties properties;
  VkDevice device;
  uint32_t family;
  VkQueue queue;
  VkCommandPool commands;
} graphics;

static int has_layer(const char *name) {
  VkLayerProperties layers[64];
  uint32_t count = 64;
  if (vkEnumerateInstanceLayerProperties(&count, layers) < VK_SUCCESS) return 0;
  for (uint32_t i = 0; i < count; i++) {
    if (strcmp(layers[i].layerName, name) == 0) return 1;
  }
  return 0;
}

/* 0 if there is no Vulkan here. */
static int open_gpu(graphics *gpu) {
  const char *const layer = "VK_LAYER_KHRONOS_validation", *const utilities = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
  const int validates = has_layer(layer);
  const VkDebugUtilsMessengerCreateInfoEXT listener = {
      .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
      .messageSeverity =
          VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
      .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
      .pfnUserCallback = count_message};
  const VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_1};
  const VkInstanceCreateInfo instance = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                         .pNext = validates ? &listener : NULL,
                                         .pApplicationInfo = &application,
                                         .enabledLayerCount = validates ? 1 : 0,
                                         .ppEnabledLayerNames = &layer,
                                         .enabledExtensionCount = validates ? 1 : 0,
                                         .ppEnabledExtensionNames = &utilities};
  const float priority = 1;
  VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                   .queueCount = 1,
                                   .pQueuePriorities = &priority};
  const VkDeviceCreateInfo device = {
      .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .queueCreateInfoCount = 1, .pQueueCreateInfos = &queue};
  VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
  VkQueueFamilyProperties families[16];
  uint32_t count = 1;
  if (vkCreateInstance(&instance, NULL, &gpu->instance) != VK_SUCCESS) return 0;
  if (vkEnumeratePhysicalDevices(gpu->instance, &count, &gpu->physical) < VK_SUCCESS || count == 0) {
    vkDestroyInstance(gpu->instance, NULL);
    return 0;
  }
  if (validates) {
    const PFN_vkCreateDebugUtilsMessengerEXT listen =
        (PFN_vkCreateDebugUtilsMessengerEXT)vkGetInstanceProcAddr(gpu->instance, "vkCreateDebugUtilsMessengerEXT");
    VK(listen(gpu->instance, &listener, NULL, &gpu->messenger));
  }
  vkGetPhysicalDeviceProperties(gpu->physical, &gpu->properties);
  count = 16;
  vkGetPhysicalDeviceQueueFamilyProperties(gpu->physical, &count, families);
  while (gpu->family < count && (families[gpu->family].queueFlags & VK_QUEUE_GRAPHICS_BIT) == 0) gpu->family++;
  CHECK(gpu->family < count);
  queue.queueFamilyIndex = pool.queueFamilyIndex = gpu->family;
  VK(vkCreateDevice(gpu->physical, &device, NULL, &gpu->device));
  vkGetDeviceQueue(gpu->device, gpu->family, 0, &gpu->queue);
  VK(vkCreateCommandPool(gpu->device, &pool, NULL, &gpu->commands));
  return 1;
}

static void close_gpu(const graphics *gpu) {
  vkDestroyCommandPool(gpu->device, gpu->commands, NULL);
  vkDestroyDevice(gpu->device, NULL);
  if (gpu->messenger != VK_NULL_HANDLE) {
    const PFN_vkDestroyDebugUtilsMessengerEXT destroy =
        (PFN_vkDestroyDebugUtilsMessengerEXT)vkGetInstanceProcAddr(gpu->instance, "vkDestroyDebugUtilsMessengerEXT");
    destroy(gpu->instance, gpu->messenger, NULL);
  }
  vkDestroyInstance(gpu->instance, NULL);
}

static VkBuffer create_buffer(const graphics *gpu, VkDeviceSize size, VkBufferUsageFlags usage) {
  const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = size, .usage = usage};
  VkBuffer buffer;
  VK(vkCreateBuffer(gpu->device, &info, NULL, &buffer));
  return buffer;
}

static VkImage create_image(const graphics *gpu, VkImageUsageFlags usage) {
  const VkImageCreateInfo info = {.sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
                                  .imageType = VK_IMAGE_TYPE_2D,
                                  .format = VK_FORMAT_R8G8B8A8_UNORM,
                                  .extent = {WIDTH, HEIGHT, 1},
                                  .mipLevels = 1,
                                  .arrayLayers = 1,
                                  .samples = VK_SAMPLE_COUNT_1_BIT,
                                  .tiling = VK_IMAGE_TILING_OPTIMAL,
                                  .usage = usage};
  VkImage image;
  VK(vkCreateImage(gpu->device, &info, NULL, &image));
  return image;
}

/* ---- the picture */

static const VkImageSubresourceRange whole = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1};
static const VkImageSubresourceLayers layers = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1};

static void change_layout(VkCommandBuffer commands, VkImage image, VkImageLayout from, VkImageLayout to) {
  const VkImageMemoryBarrier barrier = {
      .sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER,
      .srcAccessMask = from == VK_IMAGE_LAYOUT_UNDEFINED ? 0 : VK_ACCESS_TRANSFER_WRITE_BIT,
      .dstAccessMask = to == VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL ? VK_ACCESS_TRANSFER_WRITE_BIT
                                                                   : VK_ACCESS_TRANSFER_READ_BIT,
      .oldLayout = from,
      .newLayout = to,
      .srcQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
      .dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
      .image = image,
      .subresourceRange = whole};
  vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 0, NULL, 0, NULL, 1,
                       &barrier);
}

/* Uploads `from`, mirrors it on the GPU, and leaves it in `to`. */
static void mirror(const graphics *gpu, VkBuffer from, VkImage upright, VkImage mirrored, VkBuffer to) {
  const VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                            .commandPool = gpu->commands,
                                            .commandBufferCount = 1};
  const VkCommandBufferBeginInfo once = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                         .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
  const VkBufferImageCopy all = {.imageSubresource = layers, .imageExtent = {WIDTH, HEIGHT, 1}};
  const VkImageBlit flip = {.srcSubresource = layers,
                            .srcOffsets = {{0, 0, 0}, {WIDTH, HEIGHT, 1}},
                            .dstSubresource = layers,
                            .dstOffsets = {{WIDTH, 0, 0}, {0, HEIGHT, 1}}};
  const VkMemoryBarrier to_host = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                   .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                                   .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
  VkCommandBuffer commands;
  VK(vkAllocateCommandBuffers(gpu->device, &info, &commands));
  VK(vkBeginCommandBuffer(commands, &once));
  change_layout(commands, upright, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL);
  vkCmdCopyBufferToImage(commands, from, upright, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, 1, &all);
  change_layout(commands, upright, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL);
  change_layout(commands, mirrored, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL);
  vkCmdBlitImage(commands, upright, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, mirrored,
                 VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, 1, &flip, VK_FILTER_NEAREST);
  change_layout(commands, mirrored, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL);
  vkCmdCopyImageToBuffer(commands, mirrored, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, to, 1, &all);
  vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &to_host, 0, NULL, 0,
                       NULL);
  VK(vkEndCommandBuffer(commands));
  const VkSubmitInfo submit = {
      .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &commands};
  VK(vkQueueSubmit(gpu->queue, 1, &submit, VK_NULL_HANDLE));
  VK(vkQueueWaitIdle(gpu->queue));
  vkFreeCommandBuffers(gpu->device, gpu->commands, 1, &commands);
}

/* A disc in front of two gradients: nothing about it is symmetric. */
static void paint(unsigned char *picture) {
  for (int y = 0; y < HEIGHT; y++) {
    for (int x = 0; x < WIDTH; x++) {
      unsigned char *pixel = picture + 4 * (y * WIDTH + x);
      const int dx = x - 90, dy = y - 80, inside = dx * dx + dy * dy < 55 * 55;
      pixel[0] = (unsigned char)(inside ? 250 : x * 255 / WIDTH);
      pixel[1] = (unsigned char)(inside ? 200 - y : y * 255 / HEIGHT);
      pixel[2] = (unsigned char)(x * 7 + y * 13);
      pixel[3] = (unsigned char)(x + y);
    }
  }
}

static uint32_t wrong_bytes(const unsigned char *upright, const unsigned char *mirrored) {
  uint32_t wrong = 0;
  for (int y = 0; y < HEIGHT; y++) {
    for (int x = 0; x < 4 * WIDTH; x++) {
      const int from = 4 * (WIDTH - 1 - x / 4) + x % 4;
      wrong += mirrored[y * 4 * WIDTH + x] != upright[y * 4 * WIDTH + from];
    }
  }
  return wrong;
}

static void write_picture(const char *path, const unsigned char *picture) {
  FILE *file = fopen(path, "wb");
  CHECK(file != NULL);
  fprintf(file, "P6\n%d %d\n255\n", WIDTH, HEIGHT);
  for (int i = 0; i < WIDTH * HEIGHT; i++) CHECK(fwrite(picture + 4 * i, 1, 3, file) == 3);
  CHECK(fclose(file) == 0);
  printf("picture: %s\n", path);
}

/* ---- slices */

static void mirror_a_picture(const graphics *gpu, slicepool_vulkan *vulkan, slicepool_allocator *allocator,
                             const char *path) {
  const slicepool_request upload = slicepool_vulkan_request(SLICEPOOL_VULKAN_UPLOAD);
  const slicepool_request readback = slicepool_vulkan_request(SLICEPOOL_VULKAN_READBACK);
  slicepool_slice slices[4] = {SLICEPOOL_SLICE_INIT, SLICEPOOL_SLICE_INIT, SLICEPOOL_SLICE_INIT, SLICEPOOL_SLICE_INIT};
  unsigned char *picture = malloc(BYTES);
  CHECK(picture != NULL);
  paint(picture);

  const VkBuffer staging = create_buffer(gpu, BYTES, VK_BUFFER_USAGE_TRANSFER_SRC_BIT);
  const VkImage upright = create_image(gpu, VK_IMAGE_USAGE_TRANSFER_DST_BIT | VK_IMAGE_USAGE_TRANSFER_SRC_BIT);
  const VkImage mirrored = create_image(gpu, VK_IMAGE_USAGE_TRANSFER_DST_BIT | VK_IMAGE_USAGE_TRANSFER_SRC_BIT);
  const VkBuffer result = create_buffer(gpu, BYTES, VK_BUFFER_USAGE_TRANSFER_DST_BIT);
  const VkImageTiling optimal = VK_IMAGE_TILING_OPTIMAL;
  OK(slicepool_vulkan_allocate_buffer(vulkan, allocator, staging, &upload, &slices[0]));
  OK(slicepool_vulkan_allocate_image(vulkan, allocator, upright, optimal, NULL, &slices[1]));
  OK(slicepool_vulkan_allocate_image(vulkan, allocator, mirrored, optimal, NULL, &slices[2]));
  OK(slicepool_vulkan_allocate_buffer(vulkan, allocator, result, &readback, &slices[3]));

  memcpy(slices[0].mapped, picture, BYTES);
  OK(slicepool_flush(allocator, slices[0].id, 0, BYTES, NULL));
  mirror(gpu, staging, upright, mirrored, result);
  OK(slicepool_invalidate(allocator, slices[3].id, 0, BYTES, NULL));
  const unsigned char *seen = slices[3].mapped;
  printf("wrong bytes: %u of %d\n", wrong_bytes(picture, seen), BYTES);
  CHECK(wrong_bytes(picture, seen) == 0);
  if (path != NULL) write_picture(path, seen);

  vkDestroyBuffer(gpu->device, staging, NULL);
  vkDestroyImage(gpu->device, upright, NULL);
  vkDestroyImage(gpu->device, mirrored, NULL);
  vkDestroyBuffer(gpu->device, result, NULL);
  for (int i = 0; i < 4; i++) OK(slicepool_free(allocator, slices[i].id));
  free(picture);
}

static void bind_a_thousand_buffers(const graphics *gpu, slicepool_vulkan *vulkan, slicepool_allocator *allocator,
                                    uint64_t seed) {
  static VkBuffer buffers[BUFFERS];
  static uint64_t ids[BUFFERS];
  slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
  uint64_t state = seed;
  for (int i = 0; i < BUFFERS; i++) {
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    state = state * 6364136223846793005u + 1442695040888963407u;
    buffers[i] = create_buffer(gpu, 1 + (state >> 33) % 65536, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT);
    OK(slicepool_vulkan_allocate_buffer(vulkan, allocator, buffers[i], NULL, &slice));
    ids[i] = slice.id;
  }
  OK(slicepool_statistics_get(allocator, &figures));
  printf("%d buffers (seed %llu): %llu bytes on %u pages\n", BUFFERS, (unsigned long long)seed,
         (unsigned long long)figures.in_use_bytes, figures.pages);
  for (int i = 0; i < BUFFERS; i++) {
    vkDestroyBuffer(gpu->device, buffers[i], NULL);
    OK(slicepool_free(allocator, ids[i]));
  }
}

int main(int argc, char **argv) {
  graphics gpu = {0};
  slicepool_vulkan vulkan = SLICEPOOL_VULKAN_INIT;
  slicepool_device device = SLICEPOOL_DEVICE_INIT;
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  slicepool_allocation_sizes blocks = SLICEPOOL_ALLOCATION_SIZES_INIT;
  slicepool_allocator *allocator = NULL;
  if (!open_gpu(&gpu)) {
    puts("SKIPPED: no Vulkan device");
    return 0;
  }
  printf("device: %s\n", gpu.properties.deviceName);

  vulkan.physical_device = gpu.physical;
  vulkan.device = gpu.device;
  CHECK(slicepool_vulkan_load(&vulkan.functions, vkGetInstanceProcAddr, gpu.instance, gpu.device) == NULL);
  OK(slicepool_vulkan_init(&vulkan));
  slicepool_vulkan_device(&vulkan, &device);
  slicepool_vulkan_describe(&vulkan, &config);
  config.blocks = &blocks;
  OK(slicepool_allocator_create(&device, &config, &allocator));

  mirror_a_picture(&gpu, &vulkan, allocator, argc > 1 ? argv[1] : NULL);
  bind_a_thousand_buffers(&gpu, &vulkan, allocator, argc > 2 ? strtoull(argv[2], NULL, 10) : 1);

  OK(slicepool_allocator_destroy(allocator, 0, NULL));
  close_gpu(&gpu);
  if (gpu.messenger != VK_NULL_HANDLE) {
    printf("validation messages: %u\n", messages);
  } else {
    puts("validation layer: not there");
  }
  return messages == 0 ? 0 : 1;
}
