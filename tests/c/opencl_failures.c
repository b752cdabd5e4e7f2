/* slicepool_opencl.h where things go wrong: memory runs out, calls fail, arguments are bad; and threads. */
#include "watched_opencl.h"

#include <pthread.h>

/* ---- running out */

static void a_tebibyte_is_refused_by_the_driver_and_changes_nothing(void) {
  struct scene scene;
  init_scene(&scene, SLICEPOOL_OPENCL_FLAG_SVM);
  /* Nobody knows how much there is: the driver has to say it. */
  scene.opencl.heaps[0].size = 0;
  slicepool_pool_options pools[3];
  for (uint32_t i = 0; i < 3; i++) {
    scene.opencl.types[i].max_page = 0;
    pools[i] = of_type(exclusive(2048 * GIB, 4096), i); /* pages of 2^32 granules */
  }
  create_allocator(&scene, pools, 3);
  const slicepool_slice slice = take_of(&scene, 4096, 0, 0);
  const uint32_t required[3] = { SLICEPOOL_OPENCL_DEVICE, SLICEPOOL_OPENCL_HOST, SLICEPOOL_OPENCL_SVM };
  for (int i = 0; i < 3; i++) {
    const slicepool_statistics before = figures_of(scene.allocator);
    const int64_t buffers = watch.buffers;
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    slicepool_request request;
    slicepool_slice none = SLICEPOOL_SLICE_INIT;
    slicepool_opencl_request(&scene.opencl, 1024 * GIB, required[i], &request);
    request.memory_types = 1u << i;
    request.failure = &failure;
    watch.last_size = 0;
    CHECK_RESULT(slicepool_allocate(scene.allocator, &request, &none), SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
    CHECK_RESULT(failure.result, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
    CHECK_RESULT(failure.type_results[i], SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
    if (i < 2) CHECK_LE(1024 * GIB, watch.last_size);
    CHECK(failure.device_code == (i < 2 ? CL_INVALID_BUFFER_SIZE : CL_MEM_OBJECT_ALLOCATION_FAILURE));
    CHECK_EQ(none.id, 0);
    slicepool_statistics after = figures_of(scene.allocator);
    CHECK_LE(before.metadata_bytes, after.metadata_bytes);
    after.metadata_bytes = before.metadata_bytes; /* a pool that has never had a page makes room for books of one */
    CHECK(memcmp(&after, &before, sizeof after) == 0);
    CHECK_EQ(watch.buffers, buffers);
    const slicepool_slice small = take_of(&scene, 4096, required[i], 0);
    give_back(&scene, &small);
    OK(slicepool_trim(scene.allocator, 0, NULL)); /* a page that is idle would go back for the next request */
  }
  give_back(&scene, &slice);
  end_scene(&scene);
}

/* With the limits that the device has told, it is not even asked. */
static void what_the_device_cannot_have_is_refused_before_it_is_asked(void) {
  struct scene scene;
  begin_scene(&scene, 0);
  slicepool_request request;
  slicepool_slice none = SLICEPOOL_SLICE_INIT;
  slicepool_opencl_request(&scene.opencl, scene.opencl.types[0].max_page + 4096, 0, &request);
  CHECK_RESULT(slicepool_allocate(scene.allocator, &request, &none), SLICEPOOL_ERROR_TOO_LARGE);
  CHECK_EQ(watch.creations, 0);
  end_scene(&scene);
}

static void resident_pages_say_at_once_that_there_is_no_memory(void) {
  struct scene scene;
  begin_scene(&scene, SLICEPOOL_OPENCL_FLAG_SVM | SLICEPOOL_OPENCL_FLAG_RESIDENT);
  static const uint32_t required[4] = { SLICEPOOL_OPENCL_DEVICE, SLICEPOOL_OPENCL_HOST, SVM_COARSE, SVM_FINE };
  for (int i = 0; i < 4; i++) {
    const uint64_t fills = watch.fills, made = watch.buffers_made + watch.svm_made;
    const slicepool_slice slice = take_of(&scene, 4096, required[i], 0);
    CHECK_EQ(watch.buffers_made + watch.svm_made, made + 1);
    CHECK_EQ(watch.fills, fills + 1);
    give_back(&scene, &slice);
    OK(slicepool_trim(scene.allocator, 0, NULL));
    /* The driver that takes memory at the first use finds none. */
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    slicepool_request request;
    slicepool_slice none = SLICEPOOL_SLICE_INIT;
    slicepool_opencl_request(&scene.opencl, 4096, required[i], &request);
    request.memory_types = 1u << i;
    request.failure = &failure;
    watch.fail_name = "clWaitForEvents";
    watch.fail_code = CL_OUT_OF_RESOURCES;
    CHECK_RESULT(slicepool_allocate(scene.allocator, &request, &none), SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
    CHECK(failure.device_code == CL_OUT_OF_RESOURCES);
    watch.fail_name = NULL;
    check_nothing_is_out();
  }
  end_scene(&scene);
}

/* ---- failing calls */

/* What a program does, as far as it gets, and what stopped it. */
struct outcome {
  slicepool_result result;
  int32_t code;    /* the device's, where there is a place for it */
  bool has_code;   /* there is */
  bool is_unheard; /* the call that failed was made to unmap a page */
};

static struct outcome run_program(struct scene *scene, uint32_t flags) {
  slicepool_opencl *opencl = &scene->opencl;
  struct outcome outcome = { SLICEPOOL_OK, 0, true, false };
  memset(opencl, 0, sizeof *opencl);
  opencl->flags = flags;
  outcome.result = slicepool_opencl_init(opencl, &watched_functions, scene->context, scene->id, scene->queue);
  outcome.code = opencl->code;
  if (outcome.result != SLICEPOOL_OK) return outcome;
  slicepool_opencl_device(opencl, &scene->device);
  create_allocator(scene, NULL, 0);
  static const uint32_t required[4] = { SLICEPOOL_OPENCL_DEVICE, SLICEPOOL_OPENCL_HOST, SVM_COARSE, SVM_FINE };
  for (uint32_t i = 0; i < 4 && outcome.result == SLICEPOOL_OK; i++) {
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    slicepool_request request;
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    slicepool_opencl_request(opencl, 8 * MIB, required[i], &request);
    request.flags = SLICEPOOL_REQUEST_DEDICATED; /* a size for which there is one try */
    request.memory_types = 1u << i;
    request.failure = &failure;
    outcome.result = slicepool_allocate(scene->allocator, &request, &slice);
    outcome.code = failure.device_code;
    if (outcome.result != SLICEPOOL_OK) break;

    outcome.has_code = false;
    const slicepool_fill_request fill = { .struct_size = sizeof fill, .memory = slice.memory, .offset = slice.offset,
                                          .size = slice.size, .address = slice.address };
    slicepool_point point = { 0, 0, 0 };
    outcome.result = scene->device.fill(scene->device.user_data, &fill, &point);
    void *mapped = NULL;
    if (outcome.result == SLICEPOOL_OK) {
      outcome.result = slicepool_map(scene->allocator, slice.id, &mapped, NULL);
      CHECK_EQ(mapped != NULL, outcome.result == SLICEPOOL_OK);
    }
    if (mapped != NULL) {
      const uint64_t failures = watch.failures;
      OK(slicepool_unmap(scene->allocator, slice.id));
      if (watch.failures != failures) outcome.is_unheard = true;
    }

    cl_mem buffer = NULL;
    if (i < 2 && outcome.result == SLICEPOOL_OK) {
      outcome.has_code = true;
      outcome.result = slicepool_opencl_sub_buffer(opencl, &slice, 0, &buffer, &outcome.code);
      CHECK_EQ(buffer != NULL, outcome.result == SLICEPOOL_OK);
    }
    if (buffer != NULL) CL(watched_functions.clReleaseMemObject(buffer));
    OK(slicepool_free(scene->allocator, slice.id));
    OK(slicepool_trim(scene->allocator, 0, NULL)); /* so that nothing helps the next request */
    if (outcome.result == SLICEPOOL_OK) outcome.has_code = true;
  }
  check_books(scene->allocator, NULL);
  OK(slicepool_allocator_destroy(scene->allocator, 0, NULL));
  return outcome;
}

static void whichever_call_fails_nothing_is_left_and_the_result_is_right(void) {
  struct scene scene;
  open_scene(&scene);
  const slicepool_opencl_functions real = watch.real;
  static const struct {
    cl_int code;
    slicepool_result result;
  } cases[2] = { { CL_OUT_OF_RESOURCES, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY },
                 { CL_INVALID_OPERATION, SLICEPOOL_ERROR_DEVICE_FAILED } };
  for (int turn = 0; turn < 4; turn++) {
    const bool is_resident = turn >= 2;
    const uint32_t flags = SLICEPOOL_OPENCL_FLAG_SVM | (is_resident ? SLICEPOOL_OPENCL_FLAG_RESIDENT : 0);
    uint64_t stops = 0, unheard = 0, helped = 0;
    for (uint64_t k = 1;; k++) {
      memset(&watch, 0, sizeof watch);
      watch.real = real;
      watch.fail_at = k;
      watch.fail_code = cases[turn % 2].code;
      const struct outcome outcome = run_program(&scene, flags);
      const char *failed = watch.failed;
      if (failed == NULL) {
        OK(outcome.result);
        check_nothing_is_out();
        break;
      }
      const bool is_unmap =
          strcmp(failed, "clEnqueueUnmapMemObject") == 0 || strcmp(failed, "clEnqueueSVMUnmap") == 0;
      if (outcome.is_unheard) {
        /* There is nobody to tell; a mapping that does not end goes with its memory. */
        OK(outcome.result);
        CHECK_EQ(watch.mapped, is_unmap);
        watch.mapped = 0;
        CHECK(is_unmap || strcmp(failed, "clWaitForEvents") == 0);
        unheard++;
      } else if (strcmp(failed, "clGetDeviceInfo") == 0) {
        CHECK_RESULT(outcome.result, SLICEPOOL_ERROR_DEVICE_FAILED);
        CHECK(outcome.code == cases[turn % 2].code);
        stops++;
      } else if (strcmp(failed, "clSVMAlloc") == 0) {
        /* The first of two tries may fail; the second does not say why it does. */
        if (outcome.result == SLICEPOOL_OK) {
          helped++;
        } else {
          CHECK_RESULT(outcome.result, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
          CHECK(outcome.code == CL_MEM_OBJECT_ALLOCATION_FAILURE);
          stops++;
        }
      } else {
        CHECK_RESULT(outcome.result, cases[turn % 2].result);
        if (outcome.has_code) CHECK(outcome.code == cases[turn % 2].code);
        stops++;
      }
      check_nothing_is_out();
    }
    /* Five queries; 5, 5, 4 and 3 calls for the four types, and a fill and a wait of each where it has to be resident;
     * enqueueing an unmapping and waiting for it, three times. */
    CHECK_EQ(stops, is_resident ? 30 : 22);
    CHECK_EQ(unheard, 6);
    CHECK_EQ(helped, 2);
  }
  memset(&watch, 0, sizeof watch);
  close_scene(&scene);
}

static void codes_mean_what_they_say(void) {
  static const int32_t out_of_memory[] = { -4, -5, -6, -61 };
  for (int32_t code = -1200; code <= 1; code++) {
    slicepool_result expected = code == 0 ? SLICEPOOL_OK : SLICEPOOL_ERROR_DEVICE_FAILED;
    for (int i = 0; i < 4; i++)
      if (code == out_of_memory[i]) expected = SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY;
    CHECK_RESULT(slicepool_opencl_result(code), expected);
  }
}

/* A command that fails after it was enqueued: its own code, if it can be had. */
static void a_command_that_fails_later_tells_its_own_code(void) {
  struct scene scene;
  begin_scene(&scene, 0);
  const slicepool_slice slice = take_of(&scene, 4096, 0, 0);
  const slicepool_fill_request fill = { .struct_size = sizeof fill, .memory = slice.memory, .size = 64 };
  slicepool_point point = { 0, 0, 0 };
  watch.fail_name = "clWaitForEvents";
  watch.fail_code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
  CHECK_RESULT(slicepool_opencl_fill(&scene.opencl, &fill, &point), SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  watch.fail_code = 3; /* not failed, but still under way: no code */
  CHECK_RESULT(slicepool_opencl_fill(&scene.opencl, &fill, &point), SLICEPOOL_ERROR_DEVICE_FAILED);
  watch.fail_name = NULL;
  CHECK_EQ(watch.events, 0);
  OK(slicepool_opencl_fill(&scene.opencl, &fill, &point));
  CHECK(point.timeline == 0 && point.value == 0);
  give_back(&scene, &slice);
  end_scene(&scene);
}

static void a_buffer_that_is_not_released_stays_and_is_released_later(void) {
  struct scene scene;
  begin_scene(&scene, 0);
  const slicepool_slice slice = take_of(&scene, 4096, 0, 0);
  give_back(&scene, &slice);
  watch.fail_name = "clReleaseMemObject";
  watch.fail_code = CL_OUT_OF_RESOURCES;
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  CHECK_RESULT(slicepool_allocator_destroy(scene.allocator, 0, &failure), SLICEPOOL_ERROR_DEVICE_FAILED);
  CHECK_EQ(figures_of(scene.allocator).pages_stuck, 1);
  CHECK_EQ(watch.buffers, 1);
  watch.fail_name = NULL;
  OK(slicepool_allocator_destroy(scene.allocator, 0, NULL));
  close_scene(&scene);
}

/* ---- the rest */

/* Memory of the program's own becomes a page of 1 MiB. */
static slicepool_slice adopt(struct scene *scene, uint32_t type, uint64_t handle, void *svm) {
  const slicepool_pool_options pool = of_type(sliced(MIB, 0, 0, 128), type);
  create_allocator(scene, &pool, 1);
  slicepool_device_memory memory;
  memset(&memory, 0, sizeof memory);
  memory.struct_size = sizeof memory;
  memory.handle = handle;
  memory.size = MIB;
  memory.address = (uintptr_t)svm;
  memory.context = svm;
  OK(slicepool_adopt(scene->allocator, 0, &memory, NULL));
  const slicepool_slice slice = take_of(scene, 4096, svm != NULL ? SLICEPOOL_OPENCL_SVM : SLICEPOOL_OPENCL_HOST, 0);
  CHECK_EQ(slice.memory, handle);
  CHECK_EQ(figures_of(scene->allocator).pages, 1);
  return slice;
}

static void a_buffer_of_the_program_is_adopted_and_released(void) {
  struct scene scene;
  init_scene(&scene, 0);
  cl_int code = CL_SUCCESS;
  const cl_mem buffer = watched_functions.clCreateBuffer(scene.context, 0, (size_t)MIB, NULL, &code);
  CL(code);
  const slicepool_slice slice = adopt(&scene, SLICEPOOL_OPENCL_TYPE_HOST, (uint64_t)(uintptr_t)buffer, NULL);
  write_slice(&scene, &slice, 123);
  CHECK_EQ(wrong_words(&scene, &slice, 123), 0);
  void *mapped = NULL;
  OK(slicepool_map(scene.allocator, slice.id, &mapped, NULL));
  CHECK_EQ(wrong_among(mapped, slice.size, 123), 0);
  OK(slicepool_unmap(scene.allocator, slice.id));
  CHECK_EQ(watch.buffers, 1);
  give_back(&scene, &slice);
  end_scene(&scene);
}

static void shared_virtual_memory_of_the_program_is_adopted_and_freed(void) {
  struct scene scene;
  init_scene(&scene, SLICEPOOL_OPENCL_FLAG_SVM);
  void *svm = watched_functions.clSVMAlloc(scene.context, CL_MEM_READ_WRITE, (size_t)MIB, 128);
  CHECK(svm != NULL);
  const slicepool_slice slice = adopt(&scene, SLICEPOOL_OPENCL_TYPE_COARSE, (uintptr_t)svm, svm);
  write_svm(&scene, slice.address, slice.size, 123);
  void *mapped = NULL;
  OK(slicepool_map(scene.allocator, slice.id, &mapped, NULL));
  CHECK_EQ(wrong_among(mapped, slice.size, 123), 0);
  OK(slicepool_unmap(scene.allocator, slice.id));
  CHECK_EQ(watch.svm, 1);
  give_back(&scene, &slice);
  end_scene(&scene);
}

static void on_event(void *user_data, const slicepool_event *event) {
  const slicepool_opencl *opencl = user_data;
  if (event->kind == SLICEPOOL_EVENT_PAGE_ALLOCATED) ++*(int *)opencl->user_data;
}

static void callbacks_of_the_program_find_its_own_data(void) {
  struct scene scene;
  int pages = 0;
  init_scene(&scene, 0);
  scene.opencl.user_data = &pages;
  scene.device.event = on_event;
  create_allocator(&scene, NULL, 0);
  const slicepool_slice slice = take_of(&scene, 4096, 0, 0);
  CHECK_EQ(pages, 1);
  give_back(&scene, &slice);
  end_scene(&scene);
}

enum { THREADS = 4 };

static void *run_thread(void *argument) {
  struct scene *scene = argument;
  for (int i = 0; i < 60; i++) {
    const slicepool_slice host = take_of(scene, 100000, SLICEPOOL_OPENCL_HOST, 0);
    const slicepool_slice zero = take_of(scene, 100000, SLICEPOOL_OPENCL_DEVICE, SLICEPOOL_REQUEST_ZERO);
    void *mapped = NULL;
    OK(slicepool_map(scene->allocator, host.id, &mapped, NULL));
    memset(mapped, i, (size_t)host.size);
    OK(slicepool_unmap(scene->allocator, host.id));
    CHECK_EQ(other_bytes(scene, slicepool_opencl_buffer(&zero), zero.offset, zero.size, 0), 0);
    const unsigned char byte = (unsigned char)(i + 1);
    CL(cl.clEnqueueFillBuffer(scene->queue, slicepool_opencl_buffer(&zero), &byte, 1, (size_t)zero.offset,
                              (size_t)zero.size, 0, NULL, NULL));
    CHECK_EQ(other_bytes(scene, slicepool_opencl_buffer(&zero), zero.offset, zero.size, byte), 0);
    give_back(scene, &host);
    give_back(scene, &zero);
    if (i % 10 == 0) OK(slicepool_trim(scene->allocator, 0, NULL));
  }
  return NULL;
}

static void threads_share_an_adapter(void) {
  struct scene scene;
  pthread_t threads[THREADS];
  begin_scene(&scene, 0);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, run_thread, &scene) == 0);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  end_scene(&scene);
}

static const struct test tests[] = {
  TEST(a_tebibyte_is_refused_by_the_driver_and_changes_nothing),
  TEST(what_the_device_cannot_have_is_refused_before_it_is_asked),
  TEST(resident_pages_say_at_once_that_there_is_no_memory),
  TEST(whichever_call_fails_nothing_is_left_and_the_result_is_right),
  TEST(codes_mean_what_they_say),
  TEST(a_command_that_fails_later_tells_its_own_code),
  TEST(a_buffer_that_is_not_released_stays_and_is_released_later),
  TEST(a_buffer_of_the_program_is_adopted_and_released),
  TEST(shared_virtual_memory_of_the_program_is_adopted_and_freed),
  TEST(callbacks_of_the_program_find_its_own_data),
  TEST(threads_share_an_adapter),
};

TEST_MAIN(tests)
