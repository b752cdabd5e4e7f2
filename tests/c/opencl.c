/* slicepool_opencl.h over a real device: slices that kernels write to, memory types, mappings, shared virtual memory,
 * fills. `--probe` instead of tests: says whether there is a device. SLICEPOOL_SEED repeats random numbers. */
#include "watched_opencl.h"

enum { GRANULE = 256 };

/* ---- slices and kernels */

static void neighbours_that_kernels_write_to_do_not_touch_each_other(void) {
  struct scene scene;
  begin_scene(&scene, 0);
  const slicepool_slice left = take_of(&scene, 64 * KIB, SLICEPOOL_OPENCL_DEVICE, 0);
  const slicepool_slice right = take_of(&scene, 64 * KIB, SLICEPOOL_OPENCL_DEVICE, 0);
  CHECK_EQ(right.memory, left.memory);
  CHECK_EQ(right.offset, left.offset + left.size);
  /* Through sub-buffers, in both orders. */
  for (uint32_t turn = 0; turn < 2; turn++) {
    write_slice(&scene, turn == 0 ? &left : &right, 0x11110000u + turn);
    write_slice(&scene, turn == 0 ? &right : &left, 0x22220000u + turn);
    CHECK_EQ(wrong_words(&scene, turn == 0 ? &left : &right, 0x11110000u + turn), 0);
    CHECK_EQ(wrong_words(&scene, turn == 0 ? &right : &left, 0x22220000u + turn), 0);
  }
  /* Through the root buffer and offsets. */
  write_words(&scene, slicepool_opencl_buffer(&left), left.offset, left.size, 0x33330000u);
  write_words(&scene, slicepool_opencl_buffer(&right), right.offset, right.size, 0x44440000u);
  CHECK_EQ(wrong_words(&scene, &left, 0x33330000u), 0);
  CHECK_EQ(wrong_words(&scene, &right, 0x44440000u), 0);
  give_back(&scene, &left);
  give_back(&scene, &right);
  end_scene(&scene);
}

/* What the test above would say if slices did overlap. */
static void an_overlap_of_one_granule_is_found(void) {
  struct scene scene;
  begin_scene(&scene, 0);
  const slicepool_slice left = take_of(&scene, 64 * KIB, SLICEPOOL_OPENCL_DEVICE, 0);
  const slicepool_slice right = take_of(&scene, 64 * KIB, SLICEPOOL_OPENCL_DEVICE, 0);
  slicepool_slice shifted = right;
  CHECK_EQ(right.offset, left.offset + left.size);
  shifted.offset -= GRANULE;
  write_slice(&scene, &left, 0x11110000u);
  write_slice(&scene, &shifted, 0x22220000u);
  CHECK_EQ(wrong_words(&scene, &left, 0x11110000u), GRANULE / 4);
  CHECK_EQ(wrong_words(&scene, &right, 0x22220000u), right.size / 4);
  CHECK_EQ(wrong_words(&scene, &shifted, 0x22220000u), 0);
  give_back(&scene, &left);
  give_back(&scene, &right);
  end_scene(&scene);
}

enum { MANY = 400 };

/* The memory of one slice after the other. */
static void many_slices_of_random_sizes_keep_what_was_written_to_them(void) {
  struct scene scene;
  static slicepool_slice slices[MANY];
  static uint32_t patterns[MANY];
  const char *given = getenv("SLICEPOOL_SEED");
  const uint64_t seed = given != NULL ? strtoull(given, NULL, 0) : (uint64_t)time(NULL) ^ (uint64_t)getpid() << 32;
  uint64_t state = seed, wrong = 0;
  printf("SLICEPOOL_SEED=%" PRIu64 "\n", seed);
  fflush(stdout);
  begin_scene(&scene, 0);
  for (uint32_t round = 0; round < 3; round++) {
    for (uint32_t i = 0; i < MANY; i++) {
      /* From the second round on, half of them go and others come. */
      if (slices[i].id != 0 && random_next(&state) % 2 == 0) {
        give_back(&scene, &slices[i]);
        slices[i].id = 0;
      }
      if (slices[i].id != 0) continue;
      const uint32_t host = random_next(&state) % 4 == 0 ? SLICEPOOL_OPENCL_HOST : 0;
      const uint64_t size = random_between(&state, 1, random_next(&state) % 8 == 0 ? 256 * KIB : 8 * KIB);
      slices[i] = take_of(&scene, size, host, 0);
      patterns[i] = (uint32_t)random_next(&state);
      if (i % 4 == 0)
        write_slice(&scene, &slices[i], patterns[i]);
      else
        write_words(&scene, slicepool_opencl_buffer(&slices[i]), slices[i].offset, slices[i].size, patterns[i]);
    }
    for (uint32_t i = 0; i < MANY; i++) wrong += wrong_words(&scene, &slices[i], patterns[i]);
  }
  CHECK_EQ(wrong, 0);
  CHECK_EQ(figures_of(scene.allocator).slices, MANY);
  for (uint32_t i = 0; i < MANY; i++) give_back(&scene, &slices[i]);
  CHECK(watch.buffers_made >= 2);
  end_scene(&scene);
}

static size_t mem_size_info(cl_mem buffer, cl_mem_info what) {
  size_t value = 0;
  CL(cl.clGetMemObjectInfo(buffer, what, sizeof value, &value, NULL));
  return value;
}

static void sub_buffers_begin_where_slices_do(void) {
  struct scene scene;
  begin_scene(&scene, 0);
  cl_uint bits = 0;
  CL(cl.clGetDeviceInfo(scene.id, CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof bits, &bits, NULL));
  CHECK_EQ(scene.opencl.alignment, bits / 8);
  for (uint64_t size = 1; size < 100000; size = size * 3 + 1) {
    const slicepool_slice slice = take_of(&scene, size, 0, 0);
    CHECK_EQ(slice.offset % (bits / 8), 0);
    cl_mem buffer = NULL, root = NULL;
    OK(slicepool_opencl_sub_buffer(&scene.opencl, &slice, CL_MEM_READ_ONLY, &buffer, NULL));
    CL(cl.clGetMemObjectInfo(buffer, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof root, &root, NULL));
    CHECK(root == slicepool_opencl_buffer(&slice));
    CHECK_EQ(mem_size_info(buffer, CL_MEM_OFFSET), slice.offset);
    CHECK_EQ(mem_size_info(buffer, CL_MEM_SIZE), slice.size);
    CL(watched_functions.clReleaseMemObject(buffer));
  }
  OK(slicepool_allocator_destroy(scene.allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  close_scene(&scene);
}

/* A device that wants more than a granule. */
static void requests_are_aligned_to_what_the_device_wants(void) {
  struct scene scene;
  open_scene(&scene);
  watch.align_bits = 8 * 8192;
  OK(slicepool_opencl_init(&scene.opencl, &watched_functions, scene.context, scene.id, scene.queue));
  slicepool_opencl_device(&scene.opencl, &scene.device);
  create_allocator(&scene, NULL, 0);
  CHECK_EQ(scene.opencl.types[SLICEPOOL_OPENCL_TYPE_DEVICE].page_alignment, 8192);
  for (int i = 0; i < 5; i++) {
    const slicepool_slice slice = take_of(&scene, 300, 0, 0);
    CHECK_EQ(slice.offset, UINT64_C(8192) * (unsigned)i);
    /* The device would do with less. */
    cl_mem buffer = NULL;
    OK(slicepool_opencl_sub_buffer(&scene.opencl, &slice, 0, &buffer, NULL));
    CL(watched_functions.clReleaseMemObject(buffer));
  }
  OK(slicepool_allocator_destroy(scene.allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  close_scene(&scene);
}

static void sub_buffers_that_cannot_be_are_refused(void) {
  struct scene scene;
  begin_scene(&scene, SLICEPOOL_OPENCL_FLAG_SVM);
  const slicepool_slice slice = take_of(&scene, 4096, 0, 0);
  slicepool_slice other = slice;
  cl_mem buffer = NULL;
  int32_t code = 1;
  CHECK_RESULT(slicepool_opencl_sub_buffer(NULL, &slice, 0, &buffer, &code), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(code, CL_SUCCESS);
  CHECK_RESULT(slicepool_opencl_sub_buffer(&scene.opencl, NULL, 0, &buffer, NULL), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(slicepool_opencl_sub_buffer(&scene.opencl, &slice, 0, NULL, NULL), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  other.offset += scene.opencl.alignment / 2;
  CHECK_RESULT(slicepool_opencl_sub_buffer(&scene.opencl, &other, 0, &buffer, &code), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK(code == CL_MISALIGNED_SUB_BUFFER_OFFSET);
  /* Past the end of the root buffer: that the driver knows. */
  other.offset = slice.offset;
  other.size = UINT64_C(1) << 40;
  CHECK_RESULT(slicepool_opencl_sub_buffer(&scene.opencl, &other, 0, &buffer, &code), SLICEPOOL_ERROR_DEVICE_FAILED);
  CHECK(code == CL_INVALID_VALUE);
  other.memory = UINT64_MAX;
  CHECK(slicepool_opencl_buffer(&other) == NULL);
  CHECK_RESULT(slicepool_opencl_sub_buffer(&scene.opencl, &other, 0, &buffer, &code), SLICEPOOL_ERROR_NOT_SUPPORTED);
  const slicepool_slice svm = take_of(&scene, 4096, SVM_FINE, 0);
  CHECK(slicepool_opencl_buffer(&svm) == NULL);
  CHECK_RESULT(slicepool_opencl_sub_buffer(&scene.opencl, &svm, 0, &buffer, &code), SLICEPOOL_ERROR_NOT_SUPPORTED);
  CHECK_EQ(code, CL_SUCCESS);
  CHECK(buffer == NULL);
  give_back(&scene, &slice);
  give_back(&scene, &svm);
  end_scene(&scene);
}

/* ---- mapping */

static void pages_of_the_host_are_mapped_for_a_time(void) {
  struct scene scene;
  begin_scene(&scene, 0);
  const slicepool_slice slices[2] = { take_of(&scene, 5000, SLICEPOOL_OPENCL_HOST, 0),
                                      take_of(&scene, 5000, SLICEPOOL_OPENCL_HOST, 0) };
  CHECK_EQ(slices[0].memory, slices[1].memory);
  CHECK(slices[0].mapped == NULL);
  CHECK_EQ(watch.mapped, 0);
  for (uint32_t round = 0; round < 3; round++) {
    uint32_t *mapped[2] = { NULL, NULL };
    for (int i = 0; i < 2; i++) {
      void *at = NULL;
      OK(slicepool_map(scene.allocator, slices[i].id, &at, NULL));
      mapped[i] = at;
      CHECK_EQ(watch.mapped, 1);
      CHECK_EQ(watch.last_mapped, figures_of(scene.allocator).reserved_bytes); /* all of the one page */
    }
    CHECK_EQ((uintptr_t)mapped[1] - (uintptr_t)mapped[0], slices[1].offset - slices[0].offset);
    for (uint32_t i = 0; i < slices[0].size / 4; i++) mapped[0][i] = 1000 * round + i;
    for (uint32_t i = 0; i < slices[1].size / 4; i++) mapped[1][i] = 7000 * round + i;
    OK(slicepool_unmap(scene.allocator, slices[0].id));
    CHECK_EQ(watch.mapped, 1);
    OK(slicepool_unmap(scene.allocator, slices[1].id));
    CHECK_EQ(watch.mapped, 0);
    CHECK_EQ(wrong_words(&scene, &slices[0], 1000 * round), 0);
    CHECK_EQ(wrong_words(&scene, &slices[1], 7000 * round), 0);
    /* And the other way. */
    void *at = NULL;
    write_slice(&scene, &slices[1], 3 + round);
    OK(slicepool_map(scene.allocator, slices[1].id, &at, NULL));
    CHECK_EQ(wrong_among(at, slices[1].size, 3 + round), 0);
    OK(slicepool_unmap(scene.allocator, slices[1].id));
  }
  give_back(&scene, &slices[0]);
  /* One that is freed while it is mapped: the page is unmapped before it goes back. */
  void *at = NULL;
  OK(slicepool_map(scene.allocator, slices[1].id, &at, NULL));
  give_back(&scene, &slices[1]);
  CHECK_EQ(watch.mapped, 1);
  OK(slicepool_trim(scene.allocator, 0, NULL));
  check_nothing_is_out();
  end_scene(&scene);
}

/* As the header tells those to do it who want the rest of the page to stay with the device. */
static void one_slice_can_be_mapped_while_a_kernel_writes_to_its_neighbour(void) {
  struct scene scene;
  begin_scene(&scene, 0);
  const slicepool_slice mine = take_of(&scene, 5000, SLICEPOOL_OPENCL_HOST, 0);
  const slicepool_slice kernels = take_of(&scene, 5000, SLICEPOOL_OPENCL_HOST, 0);
  CHECK_EQ(mine.memory, kernels.memory);
  cl_int code = CL_SUCCESS;
  uint32_t *words = cl.clEnqueueMapBuffer(scene.queue, slicepool_opencl_buffer(&mine), CL_TRUE, CL_MAP_WRITE,
                                          (size_t)mine.offset, (size_t)mine.size, 0, NULL, NULL, &code);
  CL(code);
  write_slice(&scene, &kernels, 99);
  for (uint32_t i = 0; i < mine.size / 4; i++) words[i] = 55 + i;
  CL(cl.clEnqueueUnmapMemObject(scene.queue, slicepool_opencl_buffer(&mine), words, 0, NULL, NULL));
  CHECK_EQ(wrong_words(&scene, &mine, 55), 0);
  CHECK_EQ(wrong_words(&scene, &kernels, 99), 0);
  give_back(&scene, &mine);
  give_back(&scene, &kernels);
  end_scene(&scene);
}

static void pages_of_the_device_can_be_mapped_too(void) {
  struct scene scene;
  begin_scene(&scene, 0);
  const slicepool_slice slice = take_of(&scene, 5000, 0, 0);
  void *mapped = NULL;
  write_slice(&scene, &slice, 17);
  OK(slicepool_map(scene.allocator, slice.id, &mapped, NULL));
  CHECK_EQ(watch.mapped, 1);
  CHECK_EQ(wrong_among(mapped, slice.size, 17), 0);
  for (uint32_t i = 0; i < slice.size / 4; i++) ((uint32_t *)mapped)[i] = 18 + i;
  OK(slicepool_unmap(scene.allocator, slice.id));
  CHECK_EQ(watch.mapped, 0);
  CHECK_EQ(wrong_words(&scene, &slice, 18), 0);
  give_back(&scene, &slice);
  end_scene(&scene);
}

/* By a driver that maps a buffer now here, now there. */
static void a_page_is_unmapped_from_where_it_was_mapped(void) {
  struct scene scene;
  begin_scene(&scene, 0);
  const slicepool_slice slice = take_of(&scene, 5000, SLICEPOOL_OPENCL_HOST, 0);
  void *first = NULL;
  for (size_t i = 0; i < 3; i++) {
    void *mapped = NULL;
    watch.move_map_by = 4096 * i;
    OK(slicepool_map(scene.allocator, slice.id, &mapped, NULL));
    if (i == 0) first = mapped;
    CHECK_EQ((uintptr_t)mapped, (uintptr_t)first + 4096 * i);
    CHECK_EQ(watch.mapped, 1);
    /* The last is still mapped when its page goes back. */
    if (i < 2)
      OK(slicepool_unmap(scene.allocator, slice.id));
    else
      give_back(&scene, &slice);
    if (i == 2) OK(slicepool_trim(scene.allocator, 0, NULL));
    CHECK_EQ(watch.mapped, 0); /* the driver refuses to unmap what it has not mapped there */
  }
  end_scene(&scene);
}

/* ---- shared virtual memory */

static void coarse_grain_memory_is_mapped_and_kernels_take_its_address(void) {
  struct scene scene;
  begin_scene(&scene, SLICEPOOL_OPENCL_FLAG_SVM);
  const slicepool_slice left = take_of(&scene, 10000, SVM_COARSE, 0), right = take_of(&scene, 10000, SVM_COARSE, 0);
  CHECK_EQ(left.memory, right.memory);
  CHECK(left.mapped == NULL);
  CHECK_EQ(left.address, left.memory + left.offset);
  write_svm(&scene, left.address, left.size, 5);
  write_svm(&scene, right.address, right.size, 77);
  void *mapped = NULL;
  OK(slicepool_map(scene.allocator, left.id, &mapped, NULL));
  CHECK_EQ((uintptr_t)mapped, left.address);
  CHECK_EQ(watch.mapped, 1);
  CHECK_EQ(watch.last_mapped, figures_of(scene.allocator).reserved_bytes);
  CHECK_EQ(wrong_among(mapped, left.size, 5), 0);
  CHECK_EQ(wrong_among((uint32_t *)(uintptr_t)right.address, right.size, 77), 0);
  OK(slicepool_unmap(scene.allocator, left.id));
  CHECK_EQ(watch.mapped, 0);
  give_back(&scene, &left);
  give_back(&scene, &right);
  end_scene(&scene);
}

static void fine_grain_memory_is_mapped_for_good(void) {
  struct scene scene;
  begin_scene(&scene, SLICEPOOL_OPENCL_FLAG_SVM);
  const slicepool_slice left = take_of(&scene, 10000, SVM_FINE, 0), right = take_of(&scene, 10000, SVM_FINE, 0);
  CHECK_EQ(left.memory, right.memory);
  CHECK_EQ((uintptr_t)left.mapped, left.address);
  uint32_t *words = left.mapped;
  for (uint32_t i = 0; i < left.size / 4; i++) words[i] = 5 + i;
  write_svm(&scene, right.address, right.size, 77);
  CHECK_EQ(wrong_among(left.mapped, left.size, 5), 0);
  CHECK_EQ(wrong_among(right.mapped, right.size, 77), 0);
  /* Mapping only counts. */
  void *mapped = NULL;
  OK(slicepool_map(scene.allocator, right.id, &mapped, NULL));
  CHECK(mapped == right.mapped);
  OK(slicepool_unmap(scene.allocator, right.id));
  CHECK_EQ(watch.mapped, 0);
  give_back(&scene, &left);
  give_back(&scene, &right);
  end_scene(&scene);
}

/* clSVMAlloc need not know alignments above that of the largest type. */
static void shared_virtual_memory_is_aligned_above_what_the_driver_knows(void) {
  struct scene scene;
  static const uint64_t granules[] = { 128, 256, 4096, 65536 };
  for (size_t i = 0; i < sizeof granules / sizeof *granules; i++) {
    init_scene(&scene, SLICEPOOL_OPENCL_FLAG_SVM);
    const slicepool_pool_options pool = of_type(sliced(MIB, 0, 0, granules[i]), SLICEPOOL_OPENCL_TYPE_COARSE);
    create_allocator(&scene, &pool, 1);
    for (int page = 0; page < 4; page++) {
      const slicepool_slice slice = take_of(&scene, MIB, SVM_COARSE, 0);
      CHECK_EQ(slice.offset, 0);
      CHECK_EQ(slice.address & (granules[i] - 1), 0);
      write_svm(&scene, slice.address, slice.size, 9);
    }
    CHECK_EQ(watch.svm_made, 4);
    OK(slicepool_allocator_destroy(scene.allocator, SLICEPOOL_DESTROY_FORCE, NULL));
    close_scene(&scene);
  }
}

/* ---- fills */

static void zeroed_slices_are_zero_and_their_neighbours_are_not(void) {
  struct scene scene;
  init_scene(&scene, SLICEPOOL_OPENCL_FLAG_SVM);
  static const uint32_t properties[4] = { SLICEPOOL_OPENCL_DEVICE, SLICEPOOL_OPENCL_HOST, SVM_COARSE, SVM_FINE };
  slicepool_pool_options pools[4];
  /* Slices of single bytes, where no pattern of four fits. */
  for (uint32_t i = 0; i < 4; i++) pools[i] = of_type(sliced(MIB, 0, 0, 1), i);
  create_allocator(&scene, pools, 4);
  for (uint32_t i = 0; i < 4; i++) {
    slicepool_request request = SLICEPOOL_REQUEST_INIT;
    slicepool_slice dirty = SLICEPOOL_SLICE_INIT, slices[3];
    request.size = MIB;
    request.memory_types = 1u << i;
    CHECK_EQ(scene.opencl.types[i].properties & properties[i], properties[i]);
    OK(slicepool_allocate(scene.allocator, &request, &dirty));
    if (i < 2) {
      write_words(&scene, slicepool_opencl_buffer(&dirty), 0, MIB, 0x01010101u);
      CL(cl.clFinish(scene.queue));
    } else {
      write_svm(&scene, dirty.address, MIB, 0x01010101u);
    }
    give_back(&scene, &dirty);
    static const uint64_t sizes[3] = { 1021, 4099, 4096 };
    for (int s = 0; s < 3; s++) {
      const uint64_t fills = watch.fills;
      request.size = sizes[s];
      request.flags = s == 1 ? SLICEPOOL_REQUEST_ZERO : 0;
      slices[s] = (slicepool_slice)SLICEPOOL_SLICE_INIT;
      OK(slicepool_allocate(scene.allocator, &request, &slices[s]));
      CHECK_EQ(watch.fills, fills + (s == 1));
    }
    CHECK_EQ(slices[1].offset, 1021);
    CHECK_EQ(slices[2].offset, 1021 + 4099);
    unsigned char *bytes = malloc((size_t)MIB);
    CHECK(bytes != NULL);
    if (i < 2)
      read_bytes(&scene, slicepool_opencl_buffer(&dirty), 0, MIB, bytes);
    else
      memcpy(bytes, (void *)(uintptr_t)dirty.address, (size_t)MIB);
    for (uint32_t at = 0; at < MIB; at++) {
      const uint32_t word = 0x01010101u + at / 4;
      const unsigned char was = (unsigned char)(word >> (at % 4 * 8));
      const bool is_zero = at >= 1021 && at < 1021 + 4099;
      if (bytes[at] != (is_zero ? 0 : was)) FAIL("type %u: byte %u is %u", i, at, bytes[at]);
    }
    free(bytes);
    for (int s = 0; s < 3; s++) give_back(&scene, &slices[s]);
  }
  end_scene(&scene);
}

static void scrubbed_slices_are_zero_once_they_are_freed(void) {
  struct scene scene;
  begin_scene(&scene, 0);
  const slicepool_slice keeper = take_of(&scene, 4096, 0, 0);
  const slicepool_slice secret = take_of(&scene, 70000, 0, SLICEPOOL_REQUEST_SCRUB);
  const cl_mem root = slicepool_opencl_buffer(&secret);
  CL(cl.clEnqueueFillBuffer(scene.queue, root, "\x5a", 1, (size_t)secret.offset, (size_t)secret.size, 0, NULL, NULL));
  CHECK_EQ(other_bytes(&scene, root, secret.offset, secret.size, 0x5a), 0);
  CHECK_EQ(watch.fills, 0);
  give_back(&scene, &secret);
  CHECK_EQ(watch.fills, 1);
  CHECK_EQ(other_bytes(&scene, root, secret.offset, secret.size, 0), 0);
  /* While the device cannot, the slice waits. */
  const slicepool_slice again = take_of(&scene, 70000, 0, SLICEPOOL_REQUEST_SCRUB);
  watch.fail_name = "clEnqueueFillBuffer";
  watch.fail_code = CL_OUT_OF_RESOURCES;
  give_back(&scene, &again);
  CHECK_EQ(figures_of(scene.allocator).slices_pending, 1);
  CHECK_RESULT(slicepool_collect(scene.allocator, 0, 0, NULL), SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  watch.fail_name = NULL;
  OK(slicepool_collect(scene.allocator, 0, 0, NULL));
  CHECK_EQ(figures_of(scene.allocator).slices_pending, 0);
  give_back(&scene, &keeper);
  end_scene(&scene);
}

static void without_a_queue_nothing_is_filled_or_mapped(void) {
  struct scene scene;
  open_scene(&scene);
  OK(slicepool_opencl_init(&scene.opencl, &watched_functions, scene.context, scene.id, NULL));
  slicepool_opencl_device(&scene.opencl, &scene.device);
  CHECK(scene.device.map == NULL && scene.device.unmap == NULL && scene.device.fill == NULL);
  create_allocator(&scene, NULL, 0);
  const slicepool_slice slice = take_of(&scene, 4096, SLICEPOOL_OPENCL_HOST, 0);
  void *mapped = NULL;
  CHECK_RESULT(slicepool_map(scene.allocator, slice.id, &mapped, NULL), SLICEPOOL_ERROR_NOT_SUPPORTED);
  slicepool_request request;
  slicepool_slice none = SLICEPOOL_SLICE_INIT;
  slicepool_opencl_request(&scene.opencl, 4096, 0, &request);
  request.flags = SLICEPOOL_REQUEST_ZERO;
  CHECK_RESULT(slicepool_allocate(scene.allocator, &request, &none), SLICEPOOL_ERROR_NOT_SUPPORTED);
  /* Nor by callbacks that somebody else has put into the table. */
  const uint64_t calls = watch.calls;
  const slicepool_fill_request fill = { .struct_size = sizeof fill, .memory = slice.memory, .size = 64 };
  slicepool_point point = { 0, 0, 0 };
  CHECK_RESULT(slicepool_opencl_fill(&scene.opencl, &fill, &point), SLICEPOOL_ERROR_DEVICE_FAILED);
  const slicepool_device_memory memory = { .struct_size = sizeof memory, .handle = slice.memory, .size = 4096 };
  CHECK_RESULT(slicepool_opencl_map_page(&scene.opencl, &memory, &mapped), SLICEPOOL_ERROR_DEVICE_FAILED);
  CHECK_EQ(watch.calls, calls);
  CHECK(mapped == NULL);
  give_back(&scene, &slice);
  end_scene(&scene);
}

static const struct test tests[] = {
  TEST(neighbours_that_kernels_write_to_do_not_touch_each_other),
  TEST(an_overlap_of_one_granule_is_found),
  TEST(many_slices_of_random_sizes_keep_what_was_written_to_them),
  TEST(sub_buffers_begin_where_slices_do),
  TEST(requests_are_aligned_to_what_the_device_wants),
  TEST(sub_buffers_that_cannot_be_are_refused),
  TEST(pages_of_the_host_are_mapped_for_a_time),
  TEST(one_slice_can_be_mapped_while_a_kernel_writes_to_its_neighbour),
  TEST(pages_of_the_device_can_be_mapped_too),
  TEST(a_page_is_unmapped_from_where_it_was_mapped),
  TEST(coarse_grain_memory_is_mapped_and_kernels_take_its_address),
  TEST(fine_grain_memory_is_mapped_for_good),
  TEST(shared_virtual_memory_is_aligned_above_what_the_driver_knows),
  TEST(zeroed_slices_are_zero_and_their_neighbours_are_not),
  TEST(scrubbed_slices_are_zero_once_they_are_freed),
  TEST(without_a_queue_nothing_is_filled_or_mapped),
};

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "--probe") == 0) {
    slicepool_opencl_functions functions;
    cl_device_id device = NULL;
    const char *why = open_opencl(&functions, &device);
    puts(why == NULL ? "found" : why);
    return 0;
  }
  return run_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
