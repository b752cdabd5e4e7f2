/* Buffer pools where something fails: every call of the device, every piece of host memory. */
#include "buffers.h"
#include "check.h"
#include "watched_host.h"

/* Everything that a pool can do, as far as it goes; answers the first result that is none of exhaustion. */
static slicepool_result use(slicepool_buffer_pool *pool, bool with_cache) {
  enum { BUFFERS = 60 };
  slicepool_buffer buffers[BUFFERS];
  slicepool_buffer_cache *cache = NULL;
  slicepool_result first = with_cache ? slicepool_buffer_cache_create(pool, &cache) : SLICEPOOL_OK;
  CHECK((cache != NULL) == (with_cache && first == SLICEPOOL_OK));
  for (uint32_t i = 0; i < BUFFERS; i++) {
    buffers[i] = (slicepool_buffer)SLICEPOOL_BUFFER_INIT;
    static const uint64_t sizes[4] = { 64, 100000, 1000, 4096 };
    const uint32_t flags = i % 8 == 7 ? SLICEPOOL_BUFFER_UNTRACKED : 0;
    const slicepool_result result =
        slicepool_buffer_acquire(pool, cache, sizes[i % 4] * (flags == 0 ? 1 : 40), flags, &buffers[i], NULL);
    CHECK((buffers[i].id != 0) == (result == SLICEPOOL_OK));
    if (first == SLICEPOOL_OK && result != SLICEPOOL_ERROR_EXHAUSTED) first = result;
  }
  check_buffer_books(pool);
  for (uint32_t i = 0; i < BUFFERS; i++) OK(slicepool_buffer_release(pool, i % 3 == 0 ? NULL : cache, buffers[i].id));
  if (cache != NULL) OK(slicepool_buffer_cache_destroy(cache));
  check_buffer_books(pool);
  return first;
}

static slicepool_buffer_pool_config some_classes(void) {
  return with_class(with_class(with_class(one_class(64, 30), 1024, 9), 4096, 9), 131072, 4);
}

static void every_device_call_may_fail(void) {
  uint64_t calls = 0;
  for (int prefill = 0; prefill < 2; prefill++) {
    for (int mode = 0; mode < 4; mode++) {
      const bool from_then_on = mode % 2 != 0;
      for (uint64_t at = 0; at <= calls; at++) {
        struct mock_device device;
        mock_init(&device);
        device.fail_at = at;
        device.fail_from_then_on = from_then_on;
        device.failure = mode < 2 ? SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY : SLICEPOOL_ERROR_DEVICE_FAILED;
        device.device_code = 321;
        const slicepool_device table = mock_table(&device);
        slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
        slicepool_buffer_pool_config config = some_classes();
        if (prefill) config = prefilled(config);
        config.failure = &failure;
        slicepool_buffer_pool *pool = NULL;
        slicepool_result result = slicepool_buffer_pool_create(&table, &config, &pool);
        CHECK((pool != NULL) == (result == SLICEPOOL_OK));
        if (pool == NULL) {
          /* The class that could not be filled, and nothing is held. */
          CHECK(prefill == 1 && at >= 1 && at <= 4);
          CHECK_RESULT(result, device.failure);
          static const uint64_t sizes[4] = { 64, 1024, 4096, 131072 };
          CHECK_TEXT(failure.field, "prefill");
          CHECK_EQ(failure.value, sizes[at - 1]);
          CHECK_EQ(failure.device_code, 321);
          mock_end(&device);
          continue;
        }
        result = use(pool, at % 2 == 0);
        /* Where less memory might do, less is asked for. */
        CHECK(result == SLICEPOOL_OK || result == device.failure);
        if (at == 0) {
          OK(result);
          calls = device.allocate_calls;
          CHECK(calls > 4);
        }
        /* The device has recovered, which is noticed after a while, and nothing has been lost. */
        device.fail_at = 0;
        for (int i = 0; i < 100 && use(pool, true) != SLICEPOOL_OK; i++) {}
        OK(use(pool, true));
        end_buffers(pool);
        mock_end(&device);
      }
    }
  }
}

static void every_piece_of_host_memory_may_be_refused(void) {
  uint64_t pieces = 0;
  for (int prefill = 0; prefill < 2; prefill++) {
    for (int from_then_on = 0; from_then_on < 2; from_then_on++) {
      for (uint64_t at = 0; at <= pieces; at++) {
        struct mock_device device;
        mock_init(&device);
        struct watched_host host;
        watched_init(&host);
        host.fail_at = at;
        host.fail_from_then_on = from_then_on != 0;
        const slicepool_device table = mock_table(&device);
        const slicepool_host functions = watched_table(&host, HOOK_MEMORY | HOOK_LOCK);
        slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
        slicepool_buffer_pool_config config = some_classes();
        if (prefill) config = prefilled(config);
        config.host = &functions;
        config.failure = &failure;
        slicepool_buffer_pool *pool = NULL;
        slicepool_result result = slicepool_buffer_pool_create(&table, &config, &pool);
        CHECK((pool != NULL) == (result == SLICEPOOL_OK));
        if (result == SLICEPOOL_OK) {
          result = use(pool, true);
          if (at == 0) pieces = host.allocations;
          host.fail_at = 0;
          OK(use(pool, true));
          end_buffers(pool);
        }
        CHECK(result == SLICEPOOL_OK || (at != 0 && result == SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY));
        CHECK(at == 0 || host.refusals != 0);
        watched_end(&host);
        mock_end(&device);
      }
      CHECK(pieces > 20);
    }
  }
}

static void a_device_that_takes_nothing_back_is_told_of_and_asked_again(void) {
  for (int force = 0; force < 2; force++) {
    struct mock_device device;
    mock_init(&device);
    slicepool_buffer_pool *pool = create_buffers_over(&device, with_class(one_class(64, 8), MIB, 1));
    slicepool_buffer_cache *cache = create_cache(pool);
    const slicepool_buffer buffers[2] = { acquire(pool, cache, 1), acquire(pool, NULL, MIB) };
    const slicepool_buffer own = acquire_flagged(pool, cache, 5000 * KIB, SLICEPOOL_BUFFER_UNTRACKED);
    /* Releasing succeeds all the same. */
    device.refusals = 1;
    release(pool, cache, own);
    CHECK_EQ(device.live, 3);
    for (int i = 0; i < 2; i++) release(pool, cache, buffers[i]);
    OK(slicepool_buffer_cache_destroy(cache));
    device.refusals = 100;
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    const slicepool_result result =
        slicepool_buffer_pool_destroy(pool, force ? SLICEPOOL_DESTROY_FORCE : 0, &failure);
    if (force) {
      OK(result);
      CHECK_EQ(device.live, 3);
      for (uint64_t i = 0; i < device.page_count; i++) device.pages[i].live = false;
      free(device.pages);
      continue;
    }
    CHECK_RESULT(result, SLICEPOOL_ERROR_DEVICE_FAILED);
    CHECK_EQ(failure.device_fault, SLICEPOOL_DEVICE_FAULT_REFUSED);
    CHECK_EQ(failure.device_code, SLICEPOOL_ERROR_DEVICE_FAILED);
    CHECK_EQ(buffer_figures_of(pool).closed, 1);
    device.refusals = 0;
    OK(slicepool_buffer_pool_destroy(pool, 0, NULL));
    mock_end(&device);
  }
}

/* What a device must not do. */
static void nonsense_from_a_device_is_a_failed_device(void) {
  struct mock_device device;
  mock_init(&device);
  device.misalign_by = 8;
  slicepool_buffer_pool *pool = create_buffers_over(&device, one_class(64, 8));
  CHECK_EQ(not_acquired(pool, NULL, 1, 0, SLICEPOOL_ERROR_DEVICE_FAILED).device_fault,
           SLICEPOOL_DEVICE_FAULT_MISALIGNED);
  CHECK_EQ(device.live, 0);
  device.misalign_by = 0;
  device.fail_at = device.allocate_calls + 1;
  device.failure = 12345;
  const slicepool_failure failure = not_acquired(pool, NULL, 1, 0, SLICEPOOL_ERROR_DEVICE_FAILED);
  CHECK_EQ(failure.device_fault, SLICEPOOL_DEVICE_FAULT_UNKNOWN_RESULT);
  CHECK_EQ(failure.device_code, 12345);
  release(pool, NULL, acquire(pool, NULL, 1));
  end_buffers(pool);
  mock_end(&device);
}

static const struct test tests[] = {
  TEST(every_device_call_may_fail),
  TEST(every_piece_of_host_memory_may_be_refused),
  TEST(a_device_that_takes_nothing_back_is_told_of_and_asked_again),
  TEST(nonsense_from_a_device_is_a_failed_device),
};

TEST_MAIN(tests)
