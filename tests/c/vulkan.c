/* slicepool_vulkan.h over a real driver: what the device reads and writes in slices, what the validation layer says of
 * it, and what comes of it when the driver refuses. */
#include "vulkan_world.h"

#include <pthread.h>

/* ---- what the device writes */

/* Fills two slices that lie side by side with different words, the second one `shift` bytes too early, and says how
 * many words of the first are wrong then. */
static uint64_t wrong_words_of_neighbours(VkDeviceSize shift) {
  const VkDeviceSize size = 64 * KIB;
  const uint32_t words[2] = {0xA5A5A5A5, 0x3C3C3C3C};
  open_world(true);
  slicepool_allocator *allocator = create_allocator();
  slicepool_slice slices[2] = {SLICEPOOL_SLICE_INIT, SLICEPOOL_SLICE_INIT};
  VkBuffer buffers[2];
  for (int i = 0; i < 2; i++) {
    slicepool_request request = slicepool_vulkan_request(SLICEPOOL_VULKAN_GPU);
    VkMemoryRequirements requirements;
    buffers[i] = create_plain_buffer(size);
    vkGetBufferMemoryRequirements(world.device, buffers[i], &requirements);
    OK(slicepool_vulkan_require(&request, &requirements, VK_IMAGE_TILING_LINEAR));
    OK(slicepool_allocate(allocator, &request, &slices[i]));
  }
  CHECK_EQ(slices[0].memory, slices[1].memory);
  CHECK_EQ(slices[0].offset + slices[0].size, slices[1].offset);
  slices[1].offset -= shift;
  for (int i = 0; i < 2; i++) VK(slicepool_vulkan_bind_buffer(&world.vulkan, buffers[i], &slices[i]));
  VkCommandBuffer commands = begin_commands();
  for (int i = 0; i < 2; i++) {
    vkCmdFillBuffer(commands, buffers[i], 0, size, words[i]);
    barrier(commands);
  }
  end_commands(commands);
  const uint64_t wrong = wrong_words(allocator, buffers[0], size, words[0]);
  CHECK_EQ(wrong_words(allocator, buffers[1], size, words[1]), 0);
  for (int i = 0; i < 2; i++) {
    vkDestroyBuffer(world.device, buffers[i], NULL);
    OK(slicepool_free(allocator, slices[i].id));
  }
  destroy_allocator(allocator);
  close_world();
  return wrong;
}

static void neighbours_that_the_device_fills_keep_their_words(void) { CHECK_EQ(wrong_words_of_neighbours(0), 0); }

static void an_overlap_of_one_granule_is_seen(void) { CHECK_EQ(wrong_words_of_neighbours(256), 256 / 4); }

/* SEED in the environment replays. */
static uint64_t seed(void) {
  const char *given = getenv("SEED");
  uint64_t state = given != NULL ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
  printf("SEED=%" PRIu64 "\n", state);
  return state;
}

static void a_thousand_buffers_of_random_sizes_keep_their_words(void) {
  const int count = (int)rounds(1000);
  VkBuffer *buffers = calloc((size_t)count, sizeof *buffers);
  slicepool_slice *slices = calloc((size_t)count, sizeof *slices);
  VkDeviceSize *sizes = calloc((size_t)count, sizeof *sizes);
  uint64_t state = seed(), wrong = 0;
  CHECK(buffers != NULL && slices != NULL && sizes != NULL);
  open_world(true);
  slicepool_allocator *allocator = create_allocator();
  for (int round = 0; round < 2; round++) {
    VkCommandBuffer commands = begin_commands();
    for (int i = 0; i < count; i++) {
      const slicepool_slice empty = SLICEPOOL_SLICE_INIT;
      /* In the second round every other one is another. */
      if (round == 1 && random_between(&state, 0, 1) == 0) continue;
      if (round == 1) {
        vkDestroyBuffer(world.device, buffers[i], NULL);
        OK(slicepool_free(allocator, slices[i].id));
      }
      sizes[i] = 4 * random_between(&state, 1, 8192);
      slices[i] = empty;
      buffers[i] = create_plain_buffer(sizes[i]);
      OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, buffers[i], NULL, &slices[i]));
      vkCmdFillBuffer(commands, buffers[i], 0, sizes[i], (uint32_t)i * 2654435761u);
    }
    end_commands(commands);
    for (int i = 0; i < count; i++) wrong += wrong_words(allocator, buffers[i], sizes[i], (uint32_t)i * 2654435761u);
  }
  CHECK_EQ(wrong, 0);
  for (int i = 0; i < count; i++) {
    vkDestroyBuffer(world.device, buffers[i], NULL);
    OK(slicepool_free(allocator, slices[i].id));
  }
  destroy_allocator(allocator);
  close_world();
  free(buffers);
  free(slices);
  free(sizes);
}

static void the_host_reads_and_writes_what_is_mapped_for_good_or_for_a_time(void) {
  for (int on_demand = 0; on_demand < 2; on_demand++) {
    const slicepool_request upload = slicepool_vulkan_request(SLICEPOOL_VULKAN_UPLOAD);
    const VkDeviceSize size = 4096;
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    void *mapped = NULL;
    open_world(true);
    if (on_demand) world.vulkan.flags = SLICEPOOL_VULKAN_MAP_ON_DEMAND;
    slicepool_allocator *allocator = create_allocator();
    const VkBuffer buffer = create_plain_buffer(size);
    OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, buffer, &upload, &slice));
    CHECK((slice.mapped == NULL) == (on_demand == 1));
    /* On demand also while something is bound. */
    CHECK_EQ(world.calls.mapped, 1);
    CHECK_EQ(world.calls.unmapped, on_demand ? 1 : 0);
    OK(slicepool_map(allocator, slice.id, &mapped, NULL));
    CHECK(slice.mapped == NULL || slice.mapped == mapped);
    CHECK_EQ(world.calls.mapped, on_demand ? 2 : 1);
    for (VkDeviceSize i = 0; i < size / 4; i++) ((uint32_t *)mapped)[i] = 0xFEEDF00D;
    OK(slicepool_flush(allocator, slice.id, 0, size, NULL));
    OK(slicepool_unmap(allocator, slice.id));
    CHECK_EQ(world.calls.unmapped, on_demand ? 2 : 0);
    CHECK_EQ(wrong_words(allocator, buffer, size, 0xFEEDF00D), 0);
    vkDestroyBuffer(world.device, buffer, NULL);
    OK(slicepool_free(allocator, slice.id));
    destroy_allocator(allocator);
    close_world();
  }
}

/* ---- granularity */

struct placed {
  uint64_t memory, first, last;
  bool is_image;
};

/* Pairs of a buffer and an image that share a page of `granularity` bytes of the same memory, among many of both. */
static uint64_t pairs_on_one_granularity_page(uint64_t said, uint64_t granularity, bool in_pools) {
  enum { COUNT = 200 };
  static struct placed placed[COUNT];
  VkBuffer buffers[COUNT] = {VK_NULL_HANDLE};
  VkImage images[COUNT] = {VK_NULL_HANDLE};
  uint64_t ids[COUNT], state = 11, pairs = 0;
  open_world(true);
  OK(slicepool_vulkan_init(&world.vulkan));
  slicepool_pool_options pools[VK_MAX_MEMORY_TYPES];
  for (uint32_t i = 0; i < world.vulkan.memory_type_count; i++) {
    const slicepool_pool_options one = SLICEPOOL_POOL_OPTIONS_INIT;
    world.vulkan.memory_types[i].granularity = said;
    pools[i] = one;
    pools[i].kind = SLICEPOOL_POOL_SLICED_PAGES;
    pools[i].page_size = 4 * MIB;
    pools[i].granule = 16;
    pools[i].memory_type = i;
  }
  slicepool_allocator *allocator = allocator_with(pools, in_pools ? world.vulkan.memory_type_count : 0);
  for (int i = 0; i < COUNT; i++) {
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    placed[i].is_image = random_between(&state, 0, 1) == 0;
    if (placed[i].is_image) {
      const uint32_t width = (uint32_t)random_between(&state, 1, 40), height = (uint32_t)random_between(&state, 1, 40);
      images[i] = create_image(width, height, VK_IMAGE_TILING_OPTIMAL);
      OK(slicepool_vulkan_allocate_image(&world.vulkan, allocator, images[i], VK_IMAGE_TILING_OPTIMAL, NULL, &slice));
    } else {
      buffers[i] = create_plain_buffer(random_between(&state, 1, 6000));
      OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, buffers[i], NULL, &slice));
    }
    ids[i] = slice.id;
    placed[i].memory = slice.memory;
    placed[i].first = slice.offset / granularity;
    placed[i].last = (slice.offset + slice.size - 1) / granularity;
    for (int j = 0; j < i; j++) {
      pairs += placed[i].memory == placed[j].memory && placed[i].is_image != placed[j].is_image &&
               placed[i].first <= placed[j].last && placed[j].first <= placed[i].last;
    }
  }
  for (int i = 0; i < COUNT; i++) {
    vkDestroyBuffer(world.device, buffers[i], NULL);
    vkDestroyImage(world.device, images[i], NULL);
    OK(slicepool_free(allocator, ids[i]));
  }
  destroy_allocator(allocator);
  close_world();
  return pairs;
}

static void images_and_buffers_never_share_a_granularity_page(void) {
  open_world(false);
  VkPhysicalDeviceProperties properties;
  vkGetPhysicalDeviceProperties(world.physical, &properties);
  OK(slicepool_vulkan_init(&world.vulkan));
  const uint64_t own = properties.limits.bufferImageGranularity;
  for (uint32_t i = 0; i < world.vulkan.memory_type_count; i++) CHECK_EQ(world.vulkan.memory_types[i].granularity, own);
  close_world();
  printf("granularity of the device: %" PRIu64 "\n", own);
  for (int in_pools = 0; in_pools < 2; in_pools++) {
    CHECK_EQ(pairs_on_one_granularity_page(own, own, in_pools), 0);
    /* Like another device. */
    CHECK_EQ(pairs_on_one_granularity_page(4096, 4096, in_pools), 0);
  }
  /* What the check would see. */
  CHECK(pairs_on_one_granularity_page(1, 4096, true) != 0);
}

/* ---- leaks */

static void a_forgotten_slice_is_reported_before_the_validation_layer_sees_it(void) {
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  open_world(true);
  slicepool_allocator *allocator = create_allocator();
  const VkBuffer buffer = create_plain_buffer(1000);
  OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, buffer, NULL, &slice));
  vkDestroyBuffer(world.device, buffer, NULL);
  CHECK_RESULT(slicepool_allocator_destroy(allocator, 0, &failure), SLICEPOOL_ERROR_BUSY);
  CHECK_EQ(failure.live, 1);
  CHECK_LE(1000, failure.in_use);
  CHECK_EQ(messages, 0);
  /* The page goes with the allocator: the layer has nothing to say. */
  OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  close_world();
}

static void what_is_left_behind_is_what_the_validation_layer_sees(void) {
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  open_world(true);
  slicepool_allocator *allocator = create_allocator();
  const VkBuffer buffer = create_plain_buffer(1000);
  OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, buffer, NULL, &slice));
  vkDestroyBuffer(world.device, buffer, NULL);
  OK(slicepool_allocator_abandon(allocator, 0));
  prints_messages = false;
  CHECK_EQ(end_world(), 1);
}

/* ---- refusals */

static void out_of_memory_of_the_driver_comes_back_with_its_code_and_changes_nothing(void) {
  const uint64_t tebibyte = UINT64_C(1) << 40;
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  slicepool_request request = slicepool_vulkan_request(SLICEPOOL_VULKAN_GPU);
  slicepool_statistics before = SLICEPOOL_STATISTICS_INIT, after = SLICEPOOL_STATISTICS_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT, small = SLICEPOOL_SLICE_INIT;
  /* The layer would refuse to pass such a size on. */
  open_world(false);
  OK(slicepool_vulkan_init(&world.vulkan));
  for (uint32_t i = 0; i < world.vulkan.memory_type_count; i++) world.vulkan.memory_types[i].max_page = 0;
  for (uint32_t i = 0; i < world.vulkan.heap_count; i++) world.vulkan.heaps[i].size = 0;
  slicepool_pool_options pools[2] = {SLICEPOOL_POOL_OPTIONS_INIT, SLICEPOOL_POOL_OPTIONS_INIT};
  pools[0].kind = SLICEPOOL_POOL_SLICED_PAGES;
  pools[0].page_size = 4 * MIB;
  pools[1].kind = SLICEPOOL_POOL_DIRECT;
  pools[1].granule = 64 * KIB;
  slicepool_allocator *allocator = allocator_with(pools, 2);
  request.size = 4096;
  OK(slicepool_allocate(allocator, &request, &small));
  OK(slicepool_statistics_get(allocator, &before));
  request.size = tebibyte;
  request.failure = &failure;
  CHECK_RESULT(slicepool_allocate(allocator, &request, &slice), SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK(world.calls.size >= tebibyte);
  CHECK(failure.device_code == VK_ERROR_OUT_OF_DEVICE_MEMORY || failure.device_code == VK_ERROR_OUT_OF_HOST_MEMORY);
  printf("the driver's code: %d\n", failure.device_code);
  CHECK_LE(tebibyte, failure.size);
  CHECK_EQ(slice.id, 0);
  OK(slicepool_statistics_get(allocator, &after));
  /* But for the refusal itself. */
  CHECK_EQ(after.reserved_bytes, before.reserved_bytes);
  CHECK_EQ(after.in_use_bytes, before.in_use_bytes);
  CHECK_EQ(after.slices, before.slices);
  CHECK_EQ(after.pages, before.pages);
  CHECK_EQ(world.calls.live, before.pages);
  request.size = 4096;
  OK(slicepool_allocate(allocator, &request, &slice));
  CHECK_EQ(slice.memory, small.memory);
  OK(slicepool_free(allocator, slice.id));
  OK(slicepool_free(allocator, small.id));
  destroy_allocator(allocator);
  close_world();
}

/* Requests of all sizes come and go for a long time; says how many were refused. At most 60 are live at once, so that
 * at most 60 pages have to be. */
static uint64_t refusals_of_a_long_life(slicepool_allocator *allocator) {
  enum { LIVE = 60 };
  uint64_t ids[LIVE] = {0}, state = 5, refused = 0;
  for (uint64_t i = 0; i < rounds(20000); i++) {
    const uint64_t slot = random_between(&state, 0, LIVE - 1);
    slicepool_request request = slicepool_vulkan_request(SLICEPOOL_VULKAN_GPU);
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    OK(slicepool_free(allocator, ids[slot]));
    request.size = UINT64_C(1) << random_between(&state, 4, 22);
    if (random_between(&state, 0, 1) == 0) request.flags = SLICEPOOL_REQUEST_DEDICATED;
    if (slicepool_allocate(allocator, &request, &slice) != SLICEPOOL_OK) refused++;
    ids[slot] = slice.id;
  }
  for (int i = 0; i < LIVE; i++) OK(slicepool_free(allocator, ids[i]));
  return refused;
}

static void a_device_of_64_allocations_serves_for_as_long_as_one_likes(void) {
  /* First the allocator knows of the limit, then the device alone. */
  for (int knows = 1; knows >= 0; knows--) {
    open_world(true);
    world.calls.limit = 64;
    if (knows) world.vulkan.max_allocations = 64;
    slicepool_allocator *allocator = create_allocator();
    CHECK_EQ(refusals_of_a_long_life(allocator), 0);
    CHECK_LE(world.calls.most_live, 64);
    if (!is_slow()) CHECK_LE(60, world.calls.most_live);
    destroy_allocator(allocator);
    close_world();
  }
}

static void the_65th_allocation_is_refused_before_the_device_is_asked(void) {
  uint64_t ids[64];
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  open_world(true);
  world.vulkan.max_allocations = 64;
  slicepool_allocator *allocator = create_allocator();
  slicepool_request request = slicepool_vulkan_request(SLICEPOOL_VULKAN_GPU);
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  request.flags = SLICEPOOL_REQUEST_DEDICATED;
  request.size = 64 * KIB;
  for (int i = 0; i < 64; i++) {
    OK(slicepool_allocate(allocator, &request, &slice));
    ids[i] = slice.id;
  }
  request.failure = &failure;
  CHECK_RESULT(slicepool_allocate(allocator, &request, &slice), SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED);
  CHECK_EQ(failure.limit, 64);
  CHECK_EQ(world.calls.allocated, 64);
  /* Another size: the page that is free makes room. */
  OK(slicepool_free(allocator, ids[0]));
  request.size = 128 * KIB;
  OK(slicepool_allocate(allocator, &request, &slice));
  ids[0] = slice.id;
  CHECK_EQ(world.calls.most_live, 64);
  for (int i = 0; i < 64; i++) OK(slicepool_free(allocator, ids[i]));
  destroy_allocator(allocator);
  close_world();
}

static void whatever_fails_nothing_is_leaked_and_the_code_comes_back(void) {
  static const struct {
    VkResult code;
    slicepool_result result;
  } codes[] = {{VK_ERROR_OUT_OF_DEVICE_MEMORY, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY},
               {VK_ERROR_OUT_OF_HOST_MEMORY, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY},
               {VK_ERROR_TOO_MANY_OBJECTS, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY},
               {VK_ERROR_MEMORY_MAP_FAILED, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY},
               {VK_ERROR_DEVICE_LOST, SLICEPOOL_ERROR_DEVICE_FAILED},
               {VK_ERROR_INVALID_EXTERNAL_HANDLE, SLICEPOOL_ERROR_DEVICE_FAILED}};
  for (size_t c = 0; c < sizeof codes / sizeof codes[0]; c++) {
    for (int where = 0; where < 3; where++) {
      slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
      slicepool_request upload = slicepool_vulkan_request(SLICEPOOL_VULKAN_UPLOAD);
      slicepool_slice slice = SLICEPOOL_SLICE_INIT;
      open_world(true);
      slicepool_allocator *allocator = create_allocator();
      /* A page of its own: a block would be tried again with half the size. */
      const VkBuffer buffer = create_plain_buffer(8 * MIB);
      upload.failure = &failure;
      upload.flags = SLICEPOOL_REQUEST_DEDICATED;
      if (where == 0) {
        world.calls.fails_at = 1;
        world.calls.fails = 1;
        world.calls.code = codes[c].code;
      } else if (where == 1) {
        world.calls.map_code = codes[c].code;
      } else {
        world.calls.bind_code = codes[c].code;
      }
      CHECK_RESULT(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, buffer, &upload, &slice),
                   codes[c].result);
      CHECK_EQ(failure.device_code, codes[c].code);
      CHECK_EQ(failure.result, codes[c].result);
      OK(slicepool_trim(allocator, 0, NULL));
      CHECK_EQ(world.calls.live, 0);
      OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, buffer, &upload, &slice));
      CHECK_EQ(world.calls.live, 1);
      vkDestroyBuffer(world.device, buffer, NULL);
      OK(slicepool_free(allocator, slice.id));
      destroy_allocator(allocator);
      close_world();
    }
  }
}

/* ---- memory of its own */

static void what_needs_memory_of_its_own_gets_exactly_as_much_as_it_needs(void) {
  for (int required = 0; required < 2; required++) {
    slicepool_slice of_buffer = SLICEPOOL_SLICE_INIT, of_image = SLICEPOOL_SLICE_INIT, other = SLICEPOOL_SLICE_INIT;
    VkMemoryRequirements needed;
    open_world(true);
    slicepool_allocator *allocator = create_allocator();
    world.calls.requires_dedicated = required == 1;
    world.calls.prefers_dedicated = required == 0;
    const VkBuffer buffer = create_plain_buffer(1001);
    OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, buffer, NULL, &of_buffer));
    vkGetBufferMemoryRequirements(world.device, buffer, &needed);
    CHECK(world.calls.buffer == buffer && world.calls.image == VK_NULL_HANDLE);
    CHECK_EQ(world.calls.size, needed.size);
    CHECK_EQ(of_buffer.size, needed.size);
    const VkImage image = create_image(33, 17, VK_IMAGE_TILING_OPTIMAL);
    OK(slicepool_vulkan_allocate_image(&world.vulkan, allocator, image, VK_IMAGE_TILING_OPTIMAL, NULL, &of_image));
    vkGetImageMemoryRequirements(world.device, image, &needed);
    CHECK(world.calls.buffer == VK_NULL_HANDLE && world.calls.image == image);
    CHECK_EQ(world.calls.size, needed.size);
    CHECK(of_buffer.memory != of_image.memory);
    CHECK_EQ(world.calls.live, 2);
    vkDestroyBuffer(world.device, buffer, NULL);
    vkDestroyImage(world.device, image, NULL);
    OK(slicepool_free(allocator, of_buffer.id));
    OK(slicepool_free(allocator, of_image.id));
    /* That memory serves nothing else. */
    const VkBuffer next = create_plain_buffer(1001);
    OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, next, NULL, &other));
    CHECK_EQ(world.calls.allocated, 3);
    vkDestroyBuffer(world.device, next, NULL);
    OK(slicepool_free(allocator, other.id));
    destroy_allocator(allocator);
    close_world();
  }
}

static void what_only_prefers_memory_of_its_own_shares_where_there_is_none(void) {
  slicepool_slice slices[3] = {SLICEPOOL_SLICE_INIT, SLICEPOOL_SLICE_INIT, SLICEPOOL_SLICE_INIT};
  VkBuffer buffers[3];
  open_world(true);
  world.vulkan.max_allocations = 1;
  slicepool_allocator *allocator = create_allocator();
  for (int i = 0; i < 3; i++) buffers[i] = create_plain_buffer(5000);
  OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, buffers[0], NULL, &slices[0]));
  world.calls.prefers_dedicated = true;
  OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, buffers[1], NULL, &slices[1]));
  CHECK_EQ(slices[1].memory, slices[0].memory);
  world.calls.requires_dedicated = true;
  CHECK_RESULT(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, buffers[2], NULL, &slices[2]),
               SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED);
  CHECK_EQ(world.calls.allocated, 1);
  for (int i = 0; i < 3; i++) {
    vkDestroyBuffer(world.device, buffers[i], NULL);
    OK(slicepool_free(allocator, slices[i].id));
  }
  destroy_allocator(allocator);
  close_world();
}

/* A device with a second memory type, in the host's memory. */
static void open_with_two_types(void) {
  open_world(true);
  world.calls.second_type = true;
  OK(slicepool_vulkan_init(&world.vulkan));
  CHECK_EQ(world.vulkan.memory_type_count, 1);
  world.vulkan.memory_type_count = world.vulkan.heap_count = 2;
  world.vulkan.memory_types[1] = world.vulkan.memory_types[0];
  world.vulkan.heaps[1] = world.vulkan.heaps[0];
  world.vulkan.memory_types[0].properties = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  world.vulkan.memory_types[0].flags &= ~(uint32_t)SLICEPOOL_MEMORY_TYPE_HOST_VISIBLE;
  world.vulkan.memory_types[1].properties =
      VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  world.vulkan.memory_types[1].heap = 1;
  world.vulkan.heaps[0].limit = 4 * MIB;
}

static void what_only_prefers_memory_of_its_own_stays_in_the_best_memory(void) {
  slicepool_slice first = SLICEPOOL_SLICE_INIT, wish = SLICEPOOL_SLICE_INIT;
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  slicepool_request request = slicepool_vulkan_request(SLICEPOOL_VULKAN_GPU);
  open_with_two_types();
  slicepool_allocator *allocator = allocator_with(NULL, 0);
  VkBuffer buffers[2] = {create_plain_buffer(5000), create_plain_buffer(5000)};
  OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, buffers[0], NULL, &first));
  CHECK_EQ(world.calls.type, 0);
  world.calls.prefers_dedicated = true;
  request.failure = &failure;
  OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, buffers[1], &request, &wish));
  CHECK_EQ(wish.memory, first.memory);
  CHECK_EQ(failure.result, SLICEPOOL_OK);
  for (int i = 0; i < 2; i++) vkDestroyBuffer(world.device, buffers[i], NULL);
  OK(slicepool_free(allocator, first.id));
  OK(slicepool_free(allocator, wish.id));
  destroy_allocator(allocator);
  close_world();
}

static void memory_that_the_host_does_not_see_is_not_mapped(void) {
  for (int on_demand = 0; on_demand < 2; on_demand++) {
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    void *mapped = NULL;
    open_with_two_types();
    if (on_demand) world.vulkan.flags = SLICEPOOL_VULKAN_MAP_ON_DEMAND;
    slicepool_allocator *allocator = allocator_with(NULL, 0);
    const VkBuffer buffer = create_plain_buffer(5000);
    OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, buffer, NULL, &slice));
    CHECK(slice.mapped == NULL);
    CHECK_RESULT(slicepool_map(allocator, slice.id, &mapped, NULL), SLICEPOOL_ERROR_DEVICE_FAILED);
    CHECK_EQ(world.calls.mapped, 0);
    vkDestroyBuffer(world.device, buffer, NULL);
    OK(slicepool_free(allocator, slice.id));
    destroy_allocator(allocator);
    close_world();
  }
}

static void nothing_is_bound_in_a_dry_run_before_it_is_resolved(void) {
  slicepool_device device = SLICEPOOL_DEVICE_INIT;
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  slicepool_allocator *allocator = NULL;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  open_world(true);
  OK(slicepool_vulkan_init(&world.vulkan));
  slicepool_vulkan_device(&world.vulkan, &device);
  slicepool_vulkan_describe(&world.vulkan, &config);
  config.flags = SLICEPOOL_ALLOCATOR_DRY_RUN;
  OK(slicepool_allocator_create(&device, &config, &allocator));
  const VkBuffer buffer = create_plain_buffer(5000);
  OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, buffer, NULL, &slice));
  CHECK_EQ(slice.memory, UINT64_MAX);
  CHECK_EQ(world.calls.allocated, 0);
  OK(slicepool_resolve(allocator, slice.id, &slice, NULL));
  VK(slicepool_vulkan_bind_buffer(&world.vulkan, buffer, &slice));
  vkDestroyBuffer(world.device, buffer, NULL);
  OK(slicepool_free(allocator, slice.id));
  destroy_allocator(allocator);
  close_world();
}

static void adopted_memory_is_filled_whether_its_bytes_are_told_or_not(void) {
  for (int told = 0; told < 2; told++) {
    const uint64_t size = MIB;
    slicepool_device_memory page = SLICEPOOL_DEVICE_MEMORY_INIT;
    slicepool_pool_options pool = SLICEPOOL_POOL_OPTIONS_INIT;
    slicepool_request request = slicepool_vulkan_request(SLICEPOOL_VULKAN_UPLOAD);
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    VkDeviceMemory memory;
    open_world(true);
    OK(slicepool_vulkan_init(&world.vulkan));
    pool.kind = SLICEPOOL_POOL_SLICED_PAGES;
    pool.page_size = size;
    slicepool_allocator *allocator = allocator_with(&pool, 1);
    const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .allocationSize = size};
    VK(world.vulkan.functions.vkAllocateMemory(world.device, &info, NULL, &memory));
    VK(vkMapMemory(world.device, memory, 0, VK_WHOLE_SIZE, 0, &page.mapped));
    memset(page.mapped, 0xAB, size);
    page.handle = slicepool_vulkan_handle(memory);
    page.size = size;
    page.context = (void *)(uintptr_t)(told ? size : 0);
    OK(slicepool_adopt(allocator, 0, &page, NULL));
    request.size = 5000;
    request.flags = SLICEPOOL_REQUEST_ZERO;
    OK(slicepool_allocate(allocator, &request, &slice));
    CHECK_EQ(slice.memory, page.handle);
    for (int i = 0; i < 5000; i++) CHECK_EQ(((const unsigned char *)slice.mapped)[i], 0);
    OK(slicepool_free(allocator, slice.id));
    destroy_allocator(allocator);
    close_world();
  }
}

/* A file descriptor for memory of 64 KiB that is nothing's alone. */
static int exported(VkDeviceMemory *memory) {
  const VkExportMemoryAllocateInfo external = {.sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO,
                                               .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
  const VkMemoryAllocateInfo info = {
      .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .pNext = &external, .allocationSize = 64 * KIB};
  const PFN_vkGetMemoryFdKHR get = (PFN_vkGetMemoryFdKHR)vkGetDeviceProcAddr(world.device, "vkGetMemoryFdKHR");
  int file = -1;
  VK(world.vulkan.functions.vkAllocateMemory(world.device, &info, NULL, memory));
  const VkMemoryGetFdInfoKHR wanted = {.sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR,
                                       .memory = *memory,
                                       .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
  VK(get(world.device, &wanted, &file));
  return file;
}

static void imported_memory_is_shared_with_who_exported_it_and_its_handle_is_used_once(void) {
  for (int fails = 0; fails < 2; fails++) {
    slicepool_vulkan_page page = SLICEPOOL_VULKAN_PAGE_INIT;
    slicepool_request request = slicepool_vulkan_request(SLICEPOOL_VULKAN_UPLOAD);
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    VkDeviceMemory memory;
    void *seen = NULL;
    open_world(true);
    slicepool_allocator *allocator = create_allocator();
    const VkImportMemoryFdInfoKHR import = {.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR,
                                            .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT,
                                            .fd = exported(&memory)};
    const VkExternalMemoryBufferCreateInfo external = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
                                                       .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
    const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                     .pNext = &external,
                                     .size = 1000,
                                     .usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    VkBuffer buffer;
    VK(vkCreateBuffer(world.device, &info, NULL, &buffer));
    page.flags = SLICEPOOL_VULKAN_PAGE_NOT_DEDICATED;
    page.exact_size = 64 * KIB;
    page.next = &import;
    request.device_data = &page;
    request.failure = &failure;
    if (fails) world.calls.map_code = VK_ERROR_MEMORY_MAP_FAILED;
    const uint64_t before = world.calls.allocated;
    const slicepool_result result =
        slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, buffer, &request, &slice);
    CHECK_EQ(world.calls.allocated, before + 1);
    CHECK_EQ(page.consumed, 1);
    CHECK(world.calls.buffer == VK_NULL_HANDLE);
    CHECK_EQ(world.calls.size, 64 * KIB);
    if (fails) {
      CHECK_RESULT(result, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
      CHECK_EQ(failure.device_code, VK_ERROR_MEMORY_MAP_FAILED);
      CHECK_EQ(page.code, VK_ERROR_MEMORY_MAP_FAILED);
    } else {
      OK(result);
      VK(vkMapMemory(world.device, memory, 0, VK_WHOLE_SIZE, 0, &seen));
      memset(slice.mapped, 0x5A, 1000);
      for (int i = 0; i < 1000; i++) CHECK_EQ(((const unsigned char *)seen)[i], 0x5A);
      vkUnmapMemory(world.device, memory);
      OK(slicepool_free(allocator, slice.id));
    }
    vkDestroyBuffer(world.device, buffer, NULL);
    destroy_allocator(allocator);
    world.vulkan.functions.vkFreeMemory(world.device, memory, NULL);
    close_world();
  }
}

static void without_the_extension_nothing_is_named_as_what_memory_is_for(void) {
  slicepool_vulkan_page page = SLICEPOOL_VULKAN_PAGE_INIT;
  slicepool_request request = slicepool_vulkan_request(SLICEPOOL_VULKAN_GPU);
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  open_world(true);
  world.vulkan.api_version = VK_API_VERSION_1_0;
  slicepool_allocator *allocator = create_allocator();
  const VkBuffer buffer = create_plain_buffer(1000);
  request.device_data = &page;
  OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, buffer, &request, &slice));
  CHECK(world.calls.buffer == VK_NULL_HANDLE && world.calls.image == VK_NULL_HANDLE);
  vkDestroyBuffer(world.device, buffer, NULL);
  OK(slicepool_free(allocator, slice.id));
  destroy_allocator(allocator);
  close_world();
}

struct mapper {
  slicepool_allocator *allocator;
  uint64_t id;
  bool stop;
};

static void *map_again_and_again(void *of) {
  struct mapper *mapper = of;
  while (!__atomic_load_n(&mapper->stop, __ATOMIC_RELAXED)) {
    void *mapped = NULL;
    OK(slicepool_map(mapper->allocator, mapper->id, &mapped, NULL));
    OK(slicepool_unmap(mapper->allocator, mapper->id));
  }
  return NULL;
}

static void nothing_is_bound_to_memory_while_another_thread_maps_it(void) {
  const slicepool_request upload = slicepool_vulkan_request(SLICEPOOL_VULKAN_UPLOAD);
  slicepool_slice first = SLICEPOOL_SLICE_INIT;
  struct mapper mapper = {0};
  pthread_t thread;
  open_world(true);
  world.vulkan.flags = SLICEPOOL_VULKAN_MAP_ON_DEMAND;
  slicepool_allocator *allocator = create_allocator();
  const VkBuffer held = create_plain_buffer(1000);
  OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, held, &upload, &first));
  mapper.allocator = allocator;
  mapper.id = first.id;
  CHECK(pthread_create(&thread, NULL, map_again_and_again, &mapper) == 0);
  for (uint64_t i = 0; i < rounds(10000); i++) {
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    const VkBuffer buffer = create_plain_buffer(1000);
    OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, buffer, &upload, &slice));
    CHECK_EQ(slice.memory, first.memory);
    vkDestroyBuffer(world.device, buffer, NULL);
    OK(slicepool_free(allocator, slice.id));
  }
  __atomic_store_n(&mapper.stop, true, __ATOMIC_RELAXED);
  CHECK(pthread_join(thread, NULL) == 0);
  vkDestroyBuffer(world.device, held, NULL);
  OK(slicepool_free(allocator, first.id));
  destroy_allocator(allocator);
  close_world();
}

static void a_page_of_its_own_carries_priority_and_handles_to_export(void) {
  slicepool_vulkan_page page = SLICEPOOL_VULKAN_PAGE_INIT;
  slicepool_request request = slicepool_vulkan_request(SLICEPOOL_VULKAN_GPU);
  slicepool_slice slice = SLICEPOOL_SLICE_INIT, shared = SLICEPOOL_SLICE_INIT;
  open_world(true);
  world.vulkan.flags = SLICEPOOL_VULKAN_MEMORY_PRIORITY;
  world.vulkan.priority = 0.25f;
  slicepool_allocator *allocator = create_allocator();
  const VkExternalMemoryBufferCreateInfo external = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
                                                     .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
  const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                   .pNext = &external,
                                   .size = 100000,
                                   .usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT};
  VkBuffer buffer;
  VK(vkCreateBuffer(world.device, &info, NULL, &buffer));
  page.flags = SLICEPOOL_VULKAN_PAGE_PRIORITY;
  page.priority = 0.75f;
  page.export_handle_types = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
  request.device_data = &page;
  OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, buffer, &request, &slice));
  CHECK_EQ(world.calls.exported, VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT);
  CHECK(world.calls.priority == 0.75f);
  CHECK(world.calls.buffer == buffer);
  /* It can really be exported. */
  const PFN_vkGetMemoryFdKHR get = (PFN_vkGetMemoryFdKHR)vkGetDeviceProcAddr(world.device, "vkGetMemoryFdKHR");
  const VkMemoryGetFdInfoKHR wanted = {.sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR,
                                       .memory = slicepool_vulkan_memory(slice.memory),
                                       .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
  int file = -1;
  VK(get(world.device, &wanted, &file));
  CHECK(file >= 0);
  close(file);
  const VkBuffer plain = create_plain_buffer(1000);
  OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, plain, NULL, &shared));
  CHECK_EQ(world.calls.exported, 0);
  CHECK(world.calls.priority == 0.25f);
  /* Vulkan's default. */
  world.vulkan.priority = 0;
  const VkBuffer large = create_plain_buffer(8 * MIB);
  slicepool_slice other = SLICEPOOL_SLICE_INIT;
  OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, large, NULL, &other));
  CHECK(world.calls.priority == 0.5f);
  vkDestroyBuffer(world.device, large, NULL);
  OK(slicepool_free(allocator, other.id));
  vkDestroyBuffer(world.device, buffer, NULL);
  vkDestroyBuffer(world.device, plain, NULL);
  OK(slicepool_free(allocator, slice.id));
  OK(slicepool_free(allocator, shared.id));
  destroy_allocator(allocator);
  close_world();
}

static void buffers_have_addresses_where_the_feature_is_enabled(void) {
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  open_world(true);
  world.vulkan.flags = SLICEPOOL_VULKAN_BUFFER_DEVICE_ADDRESS;
  slicepool_allocator *allocator = create_allocator();
  const VkBuffer buffer =
      create_buffer(1000, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT);
  OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, buffer, NULL, &slice));
  CHECK_EQ(world.calls.flags, VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT);
  const VkBufferDeviceAddressInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, .buffer = buffer};
  CHECK(vkGetBufferDeviceAddress(world.device, &info) != 0);
  vkDestroyBuffer(world.device, buffer, NULL);
  OK(slicepool_free(allocator, slice.id));
  destroy_allocator(allocator);
  close_world();
}

/* ---- caches, budgets, filling, waiting */

static void what_is_flushed_are_whole_atoms_or_the_end_of_the_memory(void) {
  const slicepool_request upload = slicepool_vulkan_request(SLICEPOOL_VULKAN_UPLOAD);
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  open_world(true);
  OK(slicepool_vulkan_init(&world.vulkan));
  const uint64_t atom = world.vulkan.non_coherent_atom;
  CHECK(atom > 1);
  /* As if it were not. */
  for (uint32_t i = 0; i < world.vulkan.memory_type_count; i++) world.vulkan.memory_types[i].non_coherent_atom = atom;
  slicepool_allocator *allocator = allocator_with(NULL, 0);
  const VkBuffer buffer = create_plain_buffer(10000);
  OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, buffer, &upload, &slice));
  OK(slicepool_flush(allocator, slice.id, atom + 1, 1, NULL));
  CHECK_EQ(world.calls.range.offset, slice.offset + atom);
  CHECK_EQ(world.calls.range.size, atom);
  OK(slicepool_invalidate(allocator, slice.id, 0, atom + 1, NULL));
  CHECK_EQ(world.calls.range.offset, slice.offset);
  CHECK_EQ(world.calls.range.size, 2 * atom);
  CHECK_EQ(world.calls.flushed, 1);
  CHECK_EQ(world.calls.invalidated, 1);
  vkDestroyBuffer(world.device, buffer, NULL);
  OK(slicepool_free(allocator, slice.id));
  /* Memory of its own, smaller than its page: the flush ends where the memory does. */
  world.calls.requires_dedicated = true;
  const VkBuffer own = create_plain_buffer(1088);
  VkMemoryRequirements needed;
  vkGetBufferMemoryRequirements(world.device, own, &needed);
  OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, own, &upload, &slice));
  CHECK_EQ(world.calls.size, needed.size);
  OK(slicepool_flush(allocator, slice.id, 0, UINT64_MAX, NULL));
  CHECK_EQ(world.calls.range.offset, 0);
  CHECK_EQ(world.calls.range.size, VK_WHOLE_SIZE);
  /* What is behind that is no memory. */
  slicepool_slice rounded = SLICEPOOL_SLICE_INIT;
  OK(slicepool_slice_get(allocator, slice.id, &rounded));
  const uint64_t flushed = world.calls.flushed, end = (needed.size + atom - 1) / atom * atom;
  if (rounded.size > end) OK(slicepool_flush(allocator, slice.id, end, UINT64_MAX, NULL));
  CHECK_EQ(world.calls.flushed, flushed);
  vkDestroyBuffer(world.device, own, NULL);
  OK(slicepool_free(allocator, slice.id));
  destroy_allocator(allocator);
  close_world();
}

static void coherent_memory_is_not_flushed(void) {
  const slicepool_request upload = slicepool_vulkan_request(SLICEPOOL_VULKAN_UPLOAD);
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  open_world(true);
  slicepool_allocator *allocator = create_allocator();
  const VkBuffer buffer = create_plain_buffer(10000);
  OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, buffer, &upload, &slice));
  OK(slicepool_flush(allocator, slice.id, 0, UINT64_MAX, NULL));
  OK(slicepool_invalidate(allocator, slice.id, 0, UINT64_MAX, NULL));
  CHECK_EQ(world.calls.flushed + world.calls.invalidated, 0);
  vkDestroyBuffer(world.device, buffer, NULL);
  OK(slicepool_free(allocator, slice.id));
  destroy_allocator(allocator);
  close_world();
}

static void the_budget_of_the_extension_is_heeded_by_those_who_ask_for_it(void) {
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  slicepool_request request = slicepool_vulkan_request(SLICEPOOL_VULKAN_GPU);
  slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
  slicepool_heap_budget budget = SLICEPOOL_HEAP_BUDGET_INIT;
  open_world(true);
  world.vulkan.flags = SLICEPOOL_VULKAN_MEMORY_BUDGET;
  slicepool_allocator *allocator = create_allocator();
  world.calls.usage = 100 * MIB;
  world.calls.budget = 103 * MIB;
  OK(slicepool_heap_statistics_get(allocator, 0, &figures, &budget));
  CHECK_EQ(budget.usage, 100 * MIB);
  CHECK_EQ(budget.budget, 103 * MIB);
  request.size = 8 * MIB;
  request.failure = &failure;
  request.flags = SLICEPOOL_REQUEST_WITHIN_BUDGET;
  CHECK_RESULT(slicepool_allocate(allocator, &request, &slice), SLICEPOOL_ERROR_BUDGET_EXCEEDED);
  CHECK_EQ(world.calls.allocated, 0);
  world.calls.budget = 200 * MIB;
  OK(slicepool_allocate(allocator, &request, &slice));
  OK(slicepool_free(allocator, slice.id));
  destroy_allocator(allocator);
  close_world();
}

static bool is_zero(const void *memory, uint64_t size) {
  for (uint64_t i = 0; i < size; i++) {
    if (((const unsigned char *)memory)[i] != 0) return false;
  }
  return true;
}

static void mapped_memory_is_filled_and_other_memory_is_left_to_the_program(void) {
  slicepool_request request = slicepool_vulkan_request(SLICEPOOL_VULKAN_UPLOAD);
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
  open_world(true);
  slicepool_allocator *allocator = create_allocator();
  request.size = 4096;
  request.flags = SLICEPOOL_REQUEST_SCRUB;
  OK(slicepool_allocate(allocator, &request, &slice));
  memset(slice.mapped, 0x77, 4096);
  OK(slicepool_free(allocator, slice.id));
  CHECK(is_zero(slice.mapped, 4096));
  memset(slice.mapped, 0x77, 4096);
  request.flags = SLICEPOOL_REQUEST_ZERO;
  OK(slicepool_allocate(allocator, &request, &slice));
  CHECK(is_zero(slice.mapped, 4096));
  CHECK_EQ(world.calls.flushed, 2);
  OK(slicepool_free(allocator, slice.id));
  /* Memory of its own, smaller than the slice: it is filled as far as it goes. */
  world.calls.requires_dedicated = true;
  const VkBuffer own = create_plain_buffer(1001);
  VkMemoryRequirements needed;
  vkGetBufferMemoryRequirements(world.device, own, &needed);
  OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, own, &request, &slice));
  CHECK_EQ(world.calls.size, needed.size);
  CHECK(is_zero(slice.mapped, needed.size));
  memset(slice.mapped, 0x77, needed.size);
  vkDestroyBuffer(world.device, own, NULL);
  OK(slicepool_free(allocator, slice.id));
  destroy_allocator(allocator);
  world.vulkan.flags = SLICEPOOL_VULKAN_MAP_ON_DEMAND;
  allocator = create_allocator();
  CHECK_RESULT(slicepool_allocate(allocator, &request, &slice), SLICEPOOL_ERROR_DEVICE_FAILED);
  OK(slicepool_statistics_get(allocator, &figures));
  CHECK_EQ(figures.slices, 0);
  destroy_allocator(allocator);
  close_world();
}

static void a_slice_waits_for_a_timeline_semaphore_that_the_allocator_asks(void) {
  const VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                          .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
  const VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
  const slicepool_point point = {.timeline = 0, .reserved = 0, .value = 7};
  slicepool_request request = slicepool_vulkan_request(SLICEPOOL_VULKAN_GPU);
  slicepool_slice slice = SLICEPOOL_SLICE_INIT, next = SLICEPOOL_SLICE_INIT;
  VkSemaphore semaphore;
  open_world(true);
  VK(vkCreateSemaphore(world.device, &info, NULL, &semaphore));
  world.vulkan.timelines = &semaphore;
  world.vulkan.timeline_count = 1;
  world.vulkan.max_allocations = 1;
  slicepool_allocator *allocator = create_allocator();
  /* All of the only block. */
  request.size = 4 * MIB;
  OK(slicepool_allocate(allocator, &request, &slice));
  OK(slicepool_free_after(allocator, slice.id, &point, 1, NULL));
  CHECK(slicepool_allocate(allocator, &request, &next) != SLICEPOOL_OK);
  for (uint64_t value = 6; value <= 7; value++) {
    const VkSemaphoreSignalInfo signal = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO, .semaphore = semaphore, .value = value};
    VK(vkSignalSemaphore(world.device, &signal));
    const slicepool_result result = slicepool_allocate(allocator, &request, &next);
    CHECK((result == SLICEPOOL_OK) == (value == 7));
  }
  CHECK_EQ(next.memory, slice.memory);
  OK(slicepool_free(allocator, next.id));
  destroy_allocator(allocator);
  vkDestroySemaphore(world.device, semaphore, NULL);
  close_world();
}

/* ---- setting up */

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL without_binding_of_devices(VkDevice device, const char *name) {
  return strcmp(name, "vkBindBufferMemory") == 0 ? NULL : vkGetDeviceProcAddr(device, name);
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL without_binding(VkInstance instance, const char *name) {
  if (strcmp(name, "vkGetDeviceProcAddr") == 0) return (PFN_vkVoidFunction)without_binding_of_devices;
  return vkGetInstanceProcAddr(instance, name);
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL with_nothing(VkInstance instance, const char *name) {
  (void)instance;
  (void)name;
  return NULL;
}

static void what_a_loader_lacks_is_named(void) {
  slicepool_vulkan_functions functions;
  open_world(false);
  CHECK_TEXT(slicepool_vulkan_load(&functions, without_binding, world.instance, world.device), "vkBindBufferMemory");
  CHECK_TEXT(slicepool_vulkan_load(&functions, with_nothing, world.instance, world.device), "vkGetDeviceProcAddr");
  close_world();
}

static void what_cannot_work_is_refused_and_changes_nothing(void) {
  open_world(false);
  const slicepool_vulkan good = world.vulkan;
  slicepool_vulkan *vulkan = &world.vulkan;
  for (int bad = 0; bad < 10; bad++) {
    *vulkan = good;
    if (bad == 0) vulkan->device = NULL;
    if (bad == 1) vulkan->physical_device = NULL;
    if (bad == 2) vulkan->flags = 1u << 20;
    if (bad == 3) vulkan->functions.vkFreeMemory = NULL;
    if (bad == 4) vulkan->timeline_count = 1;
    if (bad == 5) vulkan->priority = 1.5f;
    if (bad == 6) vulkan->priority = -0.5f;
    if (bad == 7) {
      vulkan->flags = SLICEPOOL_VULKAN_MEMORY_BUDGET;
      vulkan->functions.vkGetPhysicalDeviceMemoryProperties2 = NULL;
    }
    if (bad == 8) {
      const VkSemaphore none = VK_NULL_HANDLE;
      vulkan->timelines = &none;
      vulkan->functions.vkGetSemaphoreCounterValue = NULL;
    }
    if (bad == 9) vulkan->functions.vkBindImageMemory = NULL;
    const slicepool_vulkan before = *vulkan;
    CHECK_RESULT(slicepool_vulkan_init(vulkan), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK(memcmp(vulkan, &before, sizeof before) == 0);
  }
  CHECK_RESULT(slicepool_vulkan_init(NULL), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  *vulkan = good;
  OK(slicepool_vulkan_init(vulkan));
  close_world();
}

static void functions_of_version_1_1_are_called_where_instance_and_device_have_it(void) {
  open_world(false);
  const slicepool_vulkan_functions all = world.vulkan.functions;
  static const struct {
    uint32_t version, flags;
    bool knows_needs, knows_limits;
  } cases[] = {{0, 0, true, true},
               {VK_API_VERSION_1_1, 0, true, true},
               {VK_API_VERSION_1_0, 0, false, false},
               {VK_API_VERSION_1_0, SLICEPOOL_VULKAN_DEDICATED_ALLOCATION, true, false},
               {VK_API_VERSION_1_0, SLICEPOOL_VULKAN_MAINTENANCE3, false, true}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    world.vulkan.functions = all;
    world.vulkan.api_version = cases[i].version;
    world.vulkan.flags = cases[i].flags;
    OK(slicepool_vulkan_init(&world.vulkan));
    CHECK((world.vulkan.functions.vkGetBufferMemoryRequirements2 != NULL) == cases[i].knows_needs);
    CHECK((world.vulkan.functions.vkGetImageMemoryRequirements2 != NULL) == cases[i].knows_needs);
    CHECK((world.vulkan.memory_types[0].max_page != 0) == cases[i].knows_limits);
  }
  close_world();
}

static void a_device_without_the_newer_functions_is_enough(void) {
  slicepool_slice slice = SLICEPOOL_SLICE_INIT, of_image = SLICEPOOL_SLICE_INIT;
  open_world(true);
  world.vulkan.functions.vkGetPhysicalDeviceMemoryProperties2 = NULL;
  world.vulkan.functions.vkGetPhysicalDeviceProperties2 = NULL;
  world.vulkan.functions.vkGetBufferMemoryRequirements2 = NULL;
  world.vulkan.functions.vkGetImageMemoryRequirements2 = NULL;
  world.vulkan.functions.vkGetSemaphoreCounterValue = NULL;
  slicepool_allocator *allocator = create_allocator();
  const VkBuffer buffer = create_plain_buffer(1000);
  const VkImage image = create_image(8, 8, VK_IMAGE_TILING_LINEAR);
  OK(slicepool_vulkan_allocate_buffer(&world.vulkan, allocator, buffer, NULL, &slice));
  OK(slicepool_vulkan_allocate_image(&world.vulkan, allocator, image, VK_IMAGE_TILING_LINEAR, NULL, &of_image));
  CHECK_EQ(of_image.memory, slice.memory);
  vkDestroyBuffer(world.device, buffer, NULL);
  vkDestroyImage(world.device, image, NULL);
  OK(slicepool_free(allocator, slice.id));
  OK(slicepool_free(allocator, of_image.id));
  destroy_allocator(allocator);
  close_world();
}

static void a_request_says_what_its_use_needs(void) {
  const uint32_t seen = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT, coherent = VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  const uint32_t cached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT, local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  const uint32_t required[] = {0, seen | coherent, seen, seen}, preferred[] = {local, 0, local | coherent, cached};
  VkMemoryRequirements requirements = {.size = 1000, .alignment = 512, .memoryTypeBits = 6};
  for (uint32_t use = SLICEPOOL_VULKAN_GPU; use <= SLICEPOOL_VULKAN_READBACK; use++) {
    const slicepool_request request = slicepool_vulkan_request(use);
    CHECK_EQ(request.required, required[use]);
    CHECK_EQ(request.preferred, preferred[use]);
    CHECK_EQ(request.forbidden, VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT | VK_MEMORY_PROPERTY_PROTECTED_BIT |
                                    VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD |
                                    VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD |
                                    VK_MEMORY_PROPERTY_RDMA_CAPABLE_BIT_NV);
  }
  slicepool_request request = slicepool_vulkan_request(SLICEPOOL_VULKAN_GPU);
  OK(slicepool_vulkan_require(&request, &requirements, VK_IMAGE_TILING_LINEAR));
  CHECK_EQ(request.size, 1000);
  CHECK_EQ(request.alignment, 512);
  CHECK_EQ(request.memory_types, 6);
  CHECK_EQ(request.flags, 0);
  request.memory_types = 12;
  request.alignment = 4096;
  OK(slicepool_vulkan_require(&request, &requirements, VK_IMAGE_TILING_OPTIMAL));
  CHECK_EQ(request.alignment, 4096);
  CHECK_EQ(request.memory_types, 4);
  CHECK_EQ(request.flags, SLICEPOOL_REQUEST_OPTIMAL);
  /* What is asked for is not forbidden. */
  CHECK((request.forbidden & VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT) != 0);
  request.required = VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT;
  request.preferred = VK_MEMORY_PROPERTY_PROTECTED_BIT;
  OK(slicepool_vulkan_require(&request, &requirements, VK_IMAGE_TILING_OPTIMAL));
  CHECK_EQ(request.forbidden, VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD |
                                  VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD | VK_MEMORY_PROPERTY_RDMA_CAPABLE_BIT_NV);
  requirements.memoryTypeBits = 1;
  CHECK_RESULT(slicepool_vulkan_require(&request, &requirements, VK_IMAGE_TILING_LINEAR),
               SLICEPOOL_ERROR_NOT_SUPPORTED);
  CHECK_EQ(request.memory_types, 4);
}

static const struct test tests[] = {
    TEST(neighbours_that_the_device_fills_keep_their_words),
    TEST(an_overlap_of_one_granule_is_seen),
    TEST(a_thousand_buffers_of_random_sizes_keep_their_words),
    TEST(the_host_reads_and_writes_what_is_mapped_for_good_or_for_a_time),
    TEST(images_and_buffers_never_share_a_granularity_page),
    TEST(a_forgotten_slice_is_reported_before_the_validation_layer_sees_it),
    TEST(what_is_left_behind_is_what_the_validation_layer_sees),
    TEST(out_of_memory_of_the_driver_comes_back_with_its_code_and_changes_nothing),
    TEST(a_device_of_64_allocations_serves_for_as_long_as_one_likes),
    TEST(the_65th_allocation_is_refused_before_the_device_is_asked),
    TEST(whatever_fails_nothing_is_leaked_and_the_code_comes_back),
    TEST(what_needs_memory_of_its_own_gets_exactly_as_much_as_it_needs),
    TEST(what_only_prefers_memory_of_its_own_shares_where_there_is_none),
    TEST(what_only_prefers_memory_of_its_own_stays_in_the_best_memory),
    TEST(memory_that_the_host_does_not_see_is_not_mapped),
    TEST(nothing_is_bound_in_a_dry_run_before_it_is_resolved),
    TEST(adopted_memory_is_filled_whether_its_bytes_are_told_or_not),
    TEST(imported_memory_is_shared_with_who_exported_it_and_its_handle_is_used_once),
    TEST(without_the_extension_nothing_is_named_as_what_memory_is_for),
    TEST(nothing_is_bound_to_memory_while_another_thread_maps_it),
    TEST(a_page_of_its_own_carries_priority_and_handles_to_export),
    TEST(buffers_have_addresses_where_the_feature_is_enabled),
    TEST(what_is_flushed_are_whole_atoms_or_the_end_of_the_memory),
    TEST(coherent_memory_is_not_flushed),
    TEST(the_budget_of_the_extension_is_heeded_by_those_who_ask_for_it),
    TEST(mapped_memory_is_filled_and_other_memory_is_left_to_the_program),
    TEST(a_slice_waits_for_a_timeline_semaphore_that_the_allocator_asks),
    TEST(what_a_loader_lacks_is_named),
    TEST(what_cannot_work_is_refused_and_changes_nothing),
    TEST(functions_of_version_1_1_are_called_where_instance_and_device_have_it),
    TEST(a_device_without_the_newer_functions_is_enough),
    TEST(a_request_says_what_its_use_needs),
};

TEST_MAIN(tests)
