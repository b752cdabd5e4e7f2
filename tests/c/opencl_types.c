/* slicepool_opencl.h before there is memory: what it loads and asks for, the memory types and heaps that come of it,
 * which of them serves a request. */
#include "watched_opencl.h"

/* ---- memory types */

static void what_the_device_says_is_what_is_described(void) {
  struct scene scene;
  init_scene(&scene, SLICEPOOL_OPENCL_FLAG_SVM);
  const slicepool_opencl *opencl = &scene.opencl;
  cl_ulong max_page = 0, global = 0;
  cl_bitfield svm = 0;
  CL(cl.clGetDeviceInfo(scene.id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof max_page, &max_page, NULL));
  CL(cl.clGetDeviceInfo(scene.id, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof global, &global, NULL));
  CL(cl.clGetDeviceInfo(scene.id, CL_DEVICE_SVM_CAPABILITIES, sizeof svm, &svm, NULL));
  CHECK_EQ(opencl->svm_capabilities, svm);
  CHECK_EQ(opencl->code, CL_SUCCESS);
  static const uint32_t properties[4] = {
    SLICEPOOL_OPENCL_DEVICE | SLICEPOOL_OPENCL_BUFFER,
    SLICEPOOL_OPENCL_DEVICE | SLICEPOOL_OPENCL_BUFFER | SLICEPOOL_OPENCL_HOST,
    SLICEPOOL_OPENCL_DEVICE | SLICEPOOL_OPENCL_SVM | SLICEPOOL_OPENCL_HOST,
    SLICEPOOL_OPENCL_DEVICE | SLICEPOOL_OPENCL_SVM | SLICEPOOL_OPENCL_HOST | SLICEPOOL_OPENCL_MAPPED,
  };
  static const cl_bitfield flags[4] = { CL_MEM_READ_WRITE, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR,
                                        CL_MEM_READ_WRITE, CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER };
  CHECK_EQ(opencl->type_count, 4);
  CHECK_EQ(opencl->heap_count, 1);
  CHECK_EQ(opencl->heaps[0].size, global);
  for (uint32_t i = 0; i < 4; i++) {
    CHECK_EQ(opencl->types[i].properties, properties[i]);
    CHECK_EQ(opencl->types[i].flags, i == 0 ? 0 : SLICEPOOL_MEMORY_TYPE_HOST_VISIBLE);
    CHECK_EQ(opencl->types[i].heap, 0);
    CHECK_EQ(opencl->types[i].max_page, i < 2 ? max_page : max_page - 4096);
    CHECK_EQ(opencl->types[i].page_alignment, i < 2 ? 4096 : 128);
    CHECK_EQ(opencl->memory_flags[i], flags[i]);
  }
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  slicepool_opencl_describe(opencl, &config);
  CHECK(config.memory_types == opencl->types && config.memory_type_count == 4);
  CHECK(config.heaps == opencl->heaps && config.heap_count == 1);
  close_scene(&scene);
}

static void a_device_with_memory_of_its_own_has_two_heaps(void) {
  struct scene scene;
  open_scene(&scene);
  /* Or one that does not say. */
  watch.unknown = CL_DEVICE_HOST_UNIFIED_MEMORY;
  OK(slicepool_opencl_init(&scene.opencl, &watched_functions, scene.context, scene.id, scene.queue));
  CHECK_EQ(scene.opencl.heap_count, 2);
  watch.unknown = 0;
  watch.is_discrete = true;
  scene.opencl.flags = SLICEPOOL_OPENCL_FLAG_SVM;
  OK(slicepool_opencl_init(&scene.opencl, &watched_functions, scene.context, scene.id, scene.queue));
  slicepool_opencl_device(&scene.opencl, &scene.device);
  static const uint32_t heaps[4] = { 0, 1, 0, 1 };
  CHECK_EQ(scene.opencl.heap_count, 2);
  CHECK(scene.opencl.heaps[0].size != 0);
  CHECK_EQ(scene.opencl.heaps[1].size, 0);
  for (uint32_t i = 0; i < 4; i++) {
    CHECK_EQ(scene.opencl.types[i].heap, heaps[i]);
    CHECK_EQ((scene.opencl.types[i].properties & SLICEPOOL_OPENCL_DEVICE) != 0, heaps[i] == 0);
  }
  create_allocator(&scene, NULL, 0);
  const slicepool_slice slice = take_of(&scene, 4096, SLICEPOOL_OPENCL_HOST, 0);
  slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
  OK(slicepool_heap_statistics_get(scene.allocator, 1, &figures, NULL));
  CHECK_EQ(figures.in_use_bytes, 4096);
  give_back(&scene, &slice);
  end_scene(&scene);
}

/* A device that has no fine-grain memory, and one that has no coarse-grain memory, which is none. */
static void shared_virtual_memory_is_described_as_far_as_it_is_there(void) {
  struct scene scene;
  open_scene(&scene);
  scene.opencl.flags = SLICEPOOL_OPENCL_FLAG_SVM;
  watch.less_svm = CL_DEVICE_SVM_FINE_GRAIN_BUFFER;
  OK(slicepool_opencl_init(&scene.opencl, &watched_functions, scene.context, scene.id, scene.queue));
  CHECK_EQ(scene.opencl.type_count, 3);
  CHECK_EQ(scene.opencl.types[2].properties, SLICEPOOL_OPENCL_HOST | SVM_COARSE);
  watch.less_svm = CL_DEVICE_SVM_COARSE_GRAIN_BUFFER;
  OK(slicepool_opencl_init(&scene.opencl, &watched_functions, scene.context, scene.id, scene.queue));
  CHECK_EQ(scene.opencl.type_count, 2);
  close_scene(&scene);
}

static void pages_are_made_with_the_flags_of_their_type(void) {
  struct scene scene;
  init_scene(&scene, SLICEPOOL_OPENCL_FLAG_SVM);
  scene.opencl.memory_flags[0] |= CL_MEM_HOST_NO_ACCESS;
  scene.opencl.memory_flags[3] |= CL_MEM_SVM_ATOMICS;
  create_allocator(&scene, NULL, 0);
  static const uint32_t required[4] = { 0, SLICEPOOL_OPENCL_HOST, SVM_COARSE, SVM_FINE };
  static const cl_bitfield flags[4] = {
    CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS,
    CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR,
    CL_MEM_READ_WRITE,
    CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER | CL_MEM_SVM_ATOMICS,
  };
  for (int i = 0; i < 4; i++) {
    const slicepool_slice slice = take_of(&scene, 4096, required[i], 0);
    CHECK_EQ(watch.last_flags, flags[i]);
    give_back(&scene, &slice);
  }
  end_scene(&scene);
}

/* SVM is there only if the program, the device and the library all have it. */
static void without_shared_virtual_memory_there_are_two_types(void) {
  struct scene scene;
  for (int i = 0; i < 4; i++) {
    open_scene(&scene);
    slicepool_opencl_functions functions = watched_functions;
    if (i != 0) scene.opencl.flags = SLICEPOOL_OPENCL_FLAG_SVM;
    if (i == 1) watch.unknown = CL_DEVICE_SVM_CAPABILITIES;
    if (i == 2) functions.clSVMAlloc = NULL;
    if (i == 3) functions.clEnqueueSVMMemFill = NULL;
    OK(slicepool_opencl_init(&scene.opencl, &functions, scene.context, scene.id, scene.queue));
    CHECK_EQ(scene.opencl.type_count, 2);
    CHECK_EQ(scene.opencl.svm_capabilities, 0);
    slicepool_opencl_device(&scene.opencl, &scene.device);
    create_allocator(&scene, NULL, 0);
    slicepool_request request;
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    slicepool_opencl_request(&scene.opencl, 4096, SLICEPOOL_OPENCL_SVM, &request);
    CHECK_RESULT(slicepool_allocate(scene.allocator, &request, &slice), SLICEPOOL_ERROR_NOT_SUPPORTED);
    end_scene(&scene);
  }
}

static void a_request_chooses_by_properties(void) {
  struct scene scene;
  begin_scene(&scene, SLICEPOOL_OPENCL_FLAG_SVM);
  static const struct {
    uint32_t required, type;
  } cases[] = {
    { 0, 0 },
    { SLICEPOOL_OPENCL_DEVICE, 0 },
    { SLICEPOOL_OPENCL_BUFFER, 0 },
    { SLICEPOOL_OPENCL_HOST, 1 },
    { SLICEPOOL_OPENCL_HOST | SLICEPOOL_OPENCL_DEVICE, 1 },
    { SLICEPOOL_OPENCL_SVM, 2 },
    { SLICEPOOL_OPENCL_SVM | SLICEPOOL_OPENCL_HOST, 2 },
    { SLICEPOOL_OPENCL_SVM | SLICEPOOL_OPENCL_MAPPED, 3 },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const slicepool_slice slice = take_of(&scene, 1000, cases[i].required, 0);
    CHECK_EQ(type_of(&scene, &slice), cases[i].type);
    CHECK_EQ(slice.mapped != NULL, cases[i].type == 3);
    if (cases[i].type == 3) CHECK_EQ((uintptr_t)slice.mapped, slice.address);
    give_back(&scene, &slice);
  }
  /* No buffer is mapped for good. */
  slicepool_request request;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  slicepool_opencl_request(&scene.opencl, 1000, SLICEPOOL_OPENCL_MAPPED, &request);
  CHECK_RESULT(slicepool_allocate(scene.allocator, &request, &slice), SLICEPOOL_ERROR_NOT_SUPPORTED);
  end_scene(&scene);
}

/* It would name no cl_mem. */
static void who_wants_a_buffer_never_gets_shared_virtual_memory(void) {
  struct scene scene;
  begin_scene(&scene, SLICEPOOL_OPENCL_FLAG_SVM);
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  slicepool_request request;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  watch.fail_name = "clCreateBuffer";
  watch.fail_code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
  slicepool_opencl_request(&scene.opencl, 4096, 0, &request);
  request.failure = &failure;
  CHECK_RESULT(slicepool_allocate(scene.allocator, &request, &slice), SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK(failure.device_code == CL_MEM_OBJECT_ALLOCATION_FAILURE);
  CHECK_RESULT(failure.type_results[0], SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_RESULT(failure.type_results[1], SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_RESULT(failure.type_results[2], 0);
  /* One that takes anything does. */
  request.required = 0;
  OK(slicepool_allocate(scene.allocator, &request, &slice));
  CHECK_EQ(type_of(&scene, &slice), 2);
  give_back(&scene, &slice);
  end_scene(&scene);
}

/* ---- arguments and entry points */

static void bad_arguments_are_refused_and_change_nothing(void) {
  struct scene scene;
  open_scene(&scene);
  slicepool_opencl opencl, before;
  memset(&opencl, 0, sizeof opencl);
  opencl.user_data = &scene;
  before = opencl;
  const slicepool_opencl_functions *functions = &watched_functions;
  CHECK_RESULT(slicepool_opencl_init(NULL, functions, scene.context, scene.id, NULL), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(slicepool_opencl_init(&opencl, NULL, scene.context, scene.id, NULL), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(slicepool_opencl_init(&opencl, functions, NULL, scene.id, NULL), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(slicepool_opencl_init(&opencl, functions, scene.context, NULL, NULL), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  /* Each of the ten that are required. */
  for (size_t i = 0; i < 10; i++) {
    slicepool_opencl_functions some = watched_functions;
    memset((char *)&some + i * sizeof(void *), 0, sizeof(void *));
    CHECK_RESULT(slicepool_opencl_init(&opencl, &some, scene.context, scene.id, scene.queue),
                 SLICEPOOL_ERROR_INVALID_ARGUMENT);
  }
  CHECK(memcmp(&opencl, &before, sizeof opencl) == 0);
  for (uint32_t flag = 2; flag != 0; flag <<= 1) { /* RESIDENT without a queue, and all that do not exist */
    opencl.flags = flag;
    CHECK_RESULT(slicepool_opencl_init(&opencl, functions, scene.context, scene.id, NULL),
                 SLICEPOOL_ERROR_INVALID_ARGUMENT);
  }
  opencl.flags = 0;
  CHECK_EQ(watch.calls, 0);
  /* Devices that cannot be. */
  static const cl_uint bits[] = { 4, 96, 1000, 0x80000001u };
  for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
    watch.align_bits = bits[i];
    CHECK_RESULT(slicepool_opencl_init(&opencl, functions, scene.context, scene.id, NULL),
                 SLICEPOOL_ERROR_DEVICE_FAILED);
    CHECK(opencl.code == CL_INVALID_VALUE);
    opencl.code = 0;
    CHECK(memcmp(&opencl, &before, sizeof opencl) == 0);
  }
  watch.align_bits = 0;
  OK(slicepool_opencl_init(&opencl, functions, scene.context, scene.id, NULL));
  CHECK(opencl.user_data == &scene);
  /* A memory type that was not described. */
  slicepool_page_request request;
  memset(&request, 0, sizeof request);
  request.size = request.alignment = 4096;
  request.memory_type = opencl.type_count;
  slicepool_device_memory memory;
  memset(&memory, 0, sizeof memory);
  CHECK_RESULT(slicepool_opencl_allocate_page(&opencl, &request, &memory), SLICEPOOL_ERROR_DEVICE_FAILED);
  CHECK(memory.device_code == CL_INVALID_VALUE);
  close_scene(&scene);
}

/* A library that lacks one function. */
static const char *missing = NULL;
static unsigned asked = 0;

static void *find_some(void *user_data, const char *name) {
  CHECK(user_data == &missing);
  asked++;
  return missing != NULL && strcmp(missing, name) == 0 ? NULL : dlsym(library, name);
}

static void functions_are_loaded_by_name_and_some_may_be_missing(void) {
  static const char *const names[15] = {
    "clGetDeviceInfo",         "clCreateBuffer",      "clCreateSubBuffer", "clReleaseMemObject", "clEnqueueMapBuffer",
    "clEnqueueUnmapMemObject", "clEnqueueFillBuffer", "clWaitForEvents",   "clGetEventInfo",     "clReleaseEvent",
    "clSVMAlloc",              "clSVMFree",           "clEnqueueSVMMap",   "clEnqueueSVMUnmap",  "clEnqueueSVMMemFill",
  };
  struct scene scene;
  open_scene(&scene);
  slicepool_opencl_functions functions, before;
  memset(&functions, 0x55, sizeof functions);
  before = functions;
  CHECK_RESULT(slicepool_opencl_load(NULL, find_some, &missing), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(slicepool_opencl_load(&functions, NULL, &missing), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(asked, 0);
  for (int i = 0; i < 10; i++) {
    missing = names[i];
    CHECK_RESULT(slicepool_opencl_load(&functions, find_some, &missing), SLICEPOOL_ERROR_NOT_SUPPORTED);
    CHECK(memcmp(&functions, &before, sizeof functions) == 0);
  }
  missing = NULL;
  OK(slicepool_opencl_load(&functions, find_some, &missing));
  CHECK_EQ(asked, 11 * 15);
  /* Each is in the place of its name. */
  void *places[15];
  CHECK_EQ(sizeof places, sizeof functions);
  memcpy(places, &functions, sizeof places);
  for (int i = 0; i < 15; i++) CHECK(places[i] == dlsym(library, names[i]));
  for (int i = 10; i < 15; i++) {
    missing = names[i];
    OK(slicepool_opencl_load(&functions, find_some, &missing));
    memset(&scene.opencl, 0, sizeof scene.opencl);
    scene.opencl.flags = SLICEPOOL_OPENCL_FLAG_SVM;
    OK(slicepool_opencl_init(&scene.opencl, &functions, scene.context, scene.id, NULL));
    CHECK_EQ(scene.opencl.type_count, 2);
  }
  close_scene(&scene);
}

static const struct test tests[] = {
  TEST(what_the_device_says_is_what_is_described),
  TEST(a_device_with_memory_of_its_own_has_two_heaps),
  TEST(shared_virtual_memory_is_described_as_far_as_it_is_there),
  TEST(pages_are_made_with_the_flags_of_their_type),
  TEST(without_shared_virtual_memory_there_are_two_types),
  TEST(a_request_chooses_by_properties),
  TEST(who_wants_a_buffer_never_gets_shared_virtual_memory),
  TEST(bad_arguments_are_refused_and_change_nothing),
  TEST(functions_are_loaded_by_name_and_some_may_be_missing),
};

TEST_MAIN(tests)
