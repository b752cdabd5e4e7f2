/* What exclusive pages and direct pools promise. Alignment 32, largest page 128 MiB. */
#include "check.h"
#include "shorthand.h"

/* ---- exclusive pages */

static void the_same_request_after_a_free_leaves_the_same_figures(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_one(&device, exclusive(512, 32));
  slicepool_slice first = take(allocator, 100);
  const slicepool_statistics figures = figures_of(allocator);
  CHECK_EQ(figures.in_use_bytes, 100);
  CHECK_EQ(figures.slices, 1);
  CHECK(figures.reserved_bytes >= 100 && figures.reserved_bytes <= 512);
  OK(slicepool_free(allocator, first.id));
  slicepool_slice second = take(allocator, 100);
  const slicepool_statistics again = figures_of(allocator);
  CHECK(memcmp(&figures, &again, sizeof again) == 0);
  CHECK(first.id != second.id && first.memory == second.memory);
  CHECK_EQ(device.allocate_calls, 1);
  OK(slicepool_free(allocator, second.id));
  finish(allocator, &device);
}

static void a_slice_between_two_freed_ones_survives_a_cleanup(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_one(&device, exclusive(1024, 32));
  slicepool_slice slices[3];
  for (int i = 0; i < 3; i++) slices[i] = take(allocator, 1024);
  CHECK_EQ(device.live, 3);
  OK(slicepool_free(allocator, slices[0].id));
  OK(slicepool_free(allocator, slices[2].id));
  OK(slicepool_cleanup(allocator, NULL));
  slicepool_slice found = look_up(allocator, slices[1].id);
  CHECK(same_slice(&found, &slices[1]));
  CHECK_EQ(figures_of(allocator).reserved_bytes, 1024);
  CHECK(device.pages[slices[1].memory - MOCK_FIRST_HANDLE].live);
  CHECK_RESULT(slicepool_free(allocator, slices[0].id), SLICEPOOL_ERROR_STALE_HANDLE);
  OK(slicepool_free(allocator, slices[1].id));
  finish(allocator, &device);
}

/* The request rounded up to the granule and by an eighth at most, and never above the largest request. */
static void a_page_has_the_size_of_its_request_and_at_most_an_eighth_more(void) {
  static const uint64_t largest[] = { 1, 32, 33, 1000, 1056, 64 * KIB, MIB - 1, 100 * MIB };
  for (size_t l = 0; l < sizeof largest / sizeof *largest; l++) {
    struct mock_device device;
    slicepool_allocator *allocator = create_one(&device, exclusive(largest[l], 32));
    uint64_t state = 8;
    for (uint64_t i = 0; i < 1200 + rounds(2000); i++) {
      const uint64_t size = i < 1200 ? i + 1 : random_between(&state, 1, largest[l] >> random_between(&state, 0, 12));
      if (size == 0 || size > largest[l]) continue;
      slicepool_slice slice = touch(allocator, size);
      OK(slicepool_cleanup(allocator, NULL));
      const uint64_t aligned = (size + 31) / 32 * 32;
      CHECK_EQ(slice.offset, 0);
      CHECK_EQ(slice.size, device.last_size);
      CHECK_EQ(slice.size % 32, 0);
      CHECK(slice.size >= aligned);
      CHECK_LE(slice.size - aligned, aligned / 8);
      CHECK_LE(slice.size, (largest[l] + 31) / 32 * 32);
    }
    finish(allocator, &device);
  }
}

/* Seen in other pools: a page as large as half of the largest request, or as requests are on average. */
static void no_page_is_larger_because_of_other_requests(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_one(&device, exclusive(MIB, 32));
  uint64_t ids[11];
  ids[0] = take(allocator, 10).id;
  CHECK_EQ(device.last_size, 32);
  for (int i = 1; i < 10; i++) ids[i] = take(allocator, MIB).id;
  ids[10] = take(allocator, 10).id;
  CHECK_EQ(device.last_size, 32);
  OK(slicepool_free_many(allocator, ids, 11, NULL));
  finish(allocator, &device);

  mock_init(&device);
  allocator = create(&device, exclusive(GIB, 32));
  const uint64_t tensor = 617558016;
  slicepool_slice slice = take(allocator, tensor);
  CHECK_LE(slice.size, tensor + tensor / 8);
  CHECK_EQ(figures_of(allocator).padding_bytes, slice.size - tensor);
  OK(slicepool_free(allocator, slice.id));
  finish(allocator, &device);
}

static void near_sizes_share_a_page_and_others_do_not(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_one(&device, exclusive(MIB, 32));
  const uint64_t page = touch(allocator, 1000).size;
  for (uint64_t size = 1000; size <= page; size++) touch(allocator, size);
  for (uint64_t size = (page + 1) / 2; size <= 1000; size++) touch(allocator, size);
  CHECK_EQ(device.allocate_calls, 1);
  touch(allocator, page + 1);
  CHECK_EQ(device.allocate_calls, 2);
  /* One of more than twice the request is not for it, while there are others. */
  OK(slicepool_cleanup(allocator, NULL));
  slicepool_slice large = touch(allocator, 4096);
  CHECK_EQ(large.size, 4096);
  CHECK(would_fit(allocator, 2048) && !would_fit(allocator, 2047));
  CHECK_EQ(touch(allocator, 2048).memory, large.memory);
  CHECK_EQ(device.allocate_calls, 3);
  CHECK(touch(allocator, 2047).memory != large.memory);
  CHECK_EQ(device.allocate_calls, 4);
  finish(allocator, &device);
}

/* In whatever order they were freed. */
static void of_the_free_pages_that_hold_a_request_the_smallest_serves(void) {
  static const uint64_t sizes[5] = { 1024, 1280, 1536, 1792, 2048 };
  static const uint64_t requests[5] = { 1024, 1025, 1281, 1700, 1793 };
  for (int start = 0; start < 5; start++) {
    for (int step = 1; step < 5; step++) {
      struct mock_device device;
      slicepool_allocator *allocator = create_one(&device, exclusive(MIB, 32));
      slicepool_slice slices[5];
      uint64_t ids[5];
      for (int i = 0; i < 5; i++) {
        slices[i] = take(allocator, sizes[i]);
        CHECK_EQ(slices[i].size, sizes[i]);
      }
      for (int i = 0; i < 5; i++) OK(slicepool_free(allocator, slices[(start + i * step) % 5].id));
      for (int i = 0; i < 5; i++) {
        slicepool_slice slice = take(allocator, requests[i]);
        CHECK_EQ(slice.memory, slices[i].memory);
        ids[i] = slice.id;
      }
      CHECK_EQ(device.given, 5);
      OK(slicepool_free_many(allocator, ids, 5, NULL));
      finish(allocator, &device);
    }
  }
}

static void a_much_larger_free_page_serves_when_the_device_gives_no_other(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_one(&device, exclusive(MIB, 32));
  slicepool_slice large = touch(allocator, 64 * KIB), larger = touch(allocator, 256 * KIB);
  slicepool_slice own = take(allocator, 100);
  CHECK_EQ(device.given, 3);
  device.capacity = device.bytes;
  slicepool_slice pinned = take(allocator, 100);
  CHECK_EQ(pinned.memory, large.memory);
  CHECK_EQ(pinned.size, 64 * KIB);
  CHECK_EQ(device.allocate_calls, 4);
  CHECK_EQ(figures_of(allocator).padding_bytes, own.size - 100 + 64 * KIB - 100);
  slicepool_slice next = take(allocator, 300);
  CHECK_EQ(next.memory, larger.memory);
  slicepool_failure failure = refused(allocator, 100, 0, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_EQ(failure.size, own.size);
  check_books(allocator, &device);
  /* Freed, it serves what it was made for. */
  OK(slicepool_free(allocator, pinned.id));
  CHECK_EQ(touch(allocator, 64 * KIB).memory, large.memory);
  OK(slicepool_free(allocator, own.id));
  OK(slicepool_free(allocator, next.id));
  finish(allocator, &device);
}

static void requests_above_the_largest_are_refused_by_size_and_limit(void) {
  static const uint64_t sizes[] = { 1001, 1024, UINT64_C(1) << 40, UINT64_MAX };
  struct mock_device device;
  slicepool_allocator *allocator = create_one(&device, exclusive(1000, 32));
  touch(allocator, 1000);
  for (int i = 0; i < 4; i++) {
    slicepool_failure failure = refused(allocator, sizes[i], 0, SLICEPOOL_ERROR_TOO_LARGE);
    CHECK_EQ(failure.size, sizes[i]);
    CHECK_EQ(failure.limit, 1000);
  }
  CHECK_EQ(device.allocate_calls, 1);
  finish(allocator, &device);
  /* Nor does a pool take more than the device gives. */
  allocator = create_one(&device, exclusive(UINT64_MAX, 32));
  CHECK_EQ(touch(allocator, 128 * MIB).size, 128 * MIB);
  CHECK_EQ(refused(allocator, 128 * MIB + 1, 0, SLICEPOOL_ERROR_TOO_LARGE).limit, 128 * MIB);
  finish(allocator, &device);
}

/* More than 32 bits of padding. */
static void a_byte_in_a_page_of_eight_gigabytes_is_booked_exactly(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, exclusive(8 * GIB, 256));
  slicepool_slice large = touch(allocator, 8 * GIB);
  device.capacity = 8 * GIB;
  slicepool_slice slice = take(allocator, 1);
  CHECK_EQ(slice.memory, large.memory);
  CHECK_EQ(figures_of(allocator).padding_bytes, 8 * GIB - 1);
  check_books(allocator, &device);
  OK(slicepool_try_resize(allocator, slice.id, 8 * GIB - 5, &slice, NULL));
  CHECK_EQ(figures_of(allocator).padding_bytes, 5);
  CHECK_EQ(figures_of(allocator).in_use_bytes, 8 * GIB - 5);
  check_books(allocator, &device);
  OK(slicepool_free(allocator, slice.id));
  finish(allocator, &device);
}

/* ---- both kinds */

static void a_slice_is_resized_within_its_page_and_never_beyond(void) {
  for (int kind = 0; kind < 2; kind++) {
    struct mock_device device;
    slicepool_allocator *allocator = create_one(&device, kind == 0 ? exclusive(MIB, 32) : direct(0, 32));
    const slicepool_slice slice = take(allocator, 1025);
    const uint64_t page = slice.size, sizes[] = { 1, page, 32, 1100 > page ? page : 1100, page - 1 };
    for (int i = 0; i < 5; i++) {
      slicepool_slice resized = SLICEPOOL_SLICE_INIT;
      OK(slicepool_try_resize(allocator, slice.id, sizes[i], &resized, NULL));
      CHECK(same_slice(&resized, &slice));
      CHECK_EQ(figures_of(allocator).in_use_bytes, sizes[i]);
      CHECK_EQ(figures_of(allocator).padding_bytes, page - sizes[i]);
      check_books(allocator, &device);
    }
    slicepool_slice untouched = SLICEPOOL_SLICE_INIT;
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    CHECK_RESULT(slicepool_try_resize(allocator, slice.id, page + 1, &untouched, &failure), SLICEPOOL_ERROR_NO_ROOM);
    CHECK_EQ(failure.size, page + 1);
    CHECK_EQ(failure.limit, page);
    const uint64_t limit = kind == 0 ? MIB : 128 * MIB;
    CHECK_RESULT(slicepool_try_resize(allocator, slice.id, limit + 1, &untouched, &failure),
                 SLICEPOOL_ERROR_TOO_LARGE);
    CHECK_EQ(failure.limit, limit);
    CHECK_RESULT(slicepool_try_resize(allocator, slice.id, 0, &untouched, &failure), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(failure.field, "size");
    CHECK_EQ(untouched.id, 0);
    CHECK_EQ(figures_of(allocator).in_use_bytes, page - 1);
    /* A page is found by its own size, whatever its last slice said it needed. */
    OK(slicepool_try_resize(allocator, slice.id, 1, &untouched, NULL));
    OK(slicepool_free(allocator, slice.id));
    CHECK_EQ(touch(allocator, page).memory, slice.memory);
    CHECK_EQ(device.given, 1);
    finish(allocator, &device);
  }
}

static void alignments_up_to_that_of_pages_cost_nothing_and_larger_ones_are_refused(void) {
  for (int kind = 0; kind < 2; kind++) {
    struct mock_device device;
    mock_init(&device);
    const slicepool_pool_options pool = kind == 0 ? exclusive(MIB, 32) : direct(0, 32);
    slicepool_device table = mock_table(&device);
    slicepool_allocator *allocator = create_over(&table, &pool, 1, 4096);
    for (int shift = 0; shift <= 12; shift++) {
      slicepool_slice slice = take_aligned(allocator, 100, UINT64_C(1) << shift);
      CHECK_EQ(slice.size, 128);
      CHECK_EQ(slice.address % (UINT64_C(1) << shift), 0);
      OK(slicepool_free(allocator, slice.id));
    }
    CHECK_EQ(device.given, 1);
    slicepool_failure failure = refused(allocator, 100, 8192, SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(failure.field, "alignment");
    CHECK_EQ(failure.value, 8192);
    finish(allocator, &device);
  }
}

/* Seen in other pools: pages were counted in 16 bits. */
static void more_pages_than_sixteen_bits_count_are_all_kept_apart(void) {
  const uint64_t count = rounds(65537);
  slicepool_slice *slices = calloc(count, sizeof *slices);
  CHECK(slices != NULL);
  for (int kind = 0; kind < 2; kind++) {
    struct mock_device device;
    slicepool_allocator *allocator = create_one(&device, kind == 0 ? exclusive(32, 32) : direct(0, 32));
    for (uint64_t i = 0; i < count; i++) slices[i] = take(allocator, 32);
    CHECK_EQ(figures_of(allocator).pages, count);
    CHECK_EQ(figures_of(allocator).reserved_bytes, 32 * count);
    for (uint64_t i = 0; i < count; i++) {
      slicepool_slice found = look_up(allocator, slices[i].id);
      CHECK(same_slice(&found, &slices[i]));
      CHECK_EQ(found.memory, MOCK_FIRST_HANDLE + i);
      CHECK_EQ(found.address, device.pages[i].address);
    }
    check_books(allocator, &device);
    for (uint64_t i = 0; i < count; i++) OK(slicepool_free(allocator, slices[i].id));
    OK(slicepool_cleanup(allocator, NULL));
    CHECK_EQ(device.live, 0);
    finish(allocator, &device);
  }
  free(slices);
}

/* ---- requests for nothing */

static void requests_for_nothing_are_served_by_a_pool_for_them_and_by_no_other(void) {
  struct mock_device device;
  for (int kind = 0; kind < KINDS; kind++) {
    slicepool_allocator *allocator = create_one(&device, kind_of(kind).pool);
    slicepool_failure failure = refused(allocator, 0, 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(failure.field, "size");
    CHECK_EQ(mock_calls(&device), 0);
    finish(allocator, &device);
  }
  const slicepool_pool_options pools[2] = { sliced(1024, 0, 0, 32), exclusive(0, 32) };
  slicepool_allocator *allocator = create_list(&device, pools, 2);
  CHECK(!would_fit(allocator, 0));
  slicepool_slice empty = take(allocator, 0);
  CHECK_EQ(empty.offset, 0);
  CHECK_EQ(device.last_pool, 1);
  CHECK_EQ(device.last_size, 32);
  CHECK_EQ(empty.size, 32);
  slicepool_statistics figures = figures_in(allocator, 1);
  CHECK_EQ(figures.slices, 1);
  CHECK_EQ(figures.in_use_bytes, 0);
  CHECK_EQ(figures.padding_bytes, 32);
  CHECK_EQ(figures.largest_allocation_bytes, 0);
  check_books(allocator, &device);
  /* It takes nothing else, and grows for nothing. */
  CHECK_EQ(refused_in(allocator, 1, 1, SLICEPOOL_ERROR_TOO_LARGE).limit, 0);
  slicepool_slice resized = SLICEPOOL_SLICE_INIT;
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  CHECK_RESULT(slicepool_try_resize(allocator, empty.id, 1, &resized, &failure), SLICEPOOL_ERROR_TOO_LARGE);
  slicepool_slice byte = take(allocator, 1);
  CHECK_EQ(figures_in(allocator, 0).slices, 1);
  OK(slicepool_free(allocator, empty.id));
  CHECK_RESULT(slicepool_free(allocator, empty.id), SLICEPOOL_ERROR_STALE_HANDLE);
  CHECK(would_fit(allocator, 0));
  slicepool_slice again = take(allocator, 0);
  CHECK(again.memory == empty.memory && again.id != empty.id);
  CHECK_EQ(device.given, 2);
  OK(slicepool_free(allocator, again.id));
  OK(slicepool_free(allocator, byte.id));
  finish(allocator, &device);
}

static void slices_of_nothing_are_told_apart_however_many_there_are(void) {
  struct mock_device device;
  const slicepool_pool_options pools[2] = { exclusive(0, 32), exclusive(1024, 32) };
  slicepool_allocator *allocator = create_list(&device, pools, 2);
  const uint64_t count = rounds(10000);
  slicepool_slice *slices = calloc(count, sizeof *slices);
  CHECK(slices != NULL);
  for (uint64_t i = 0; i < count; i++) {
    slices[i] = take(allocator, 0);
    /* Pages come in this order. */
    CHECK_EQ(slices[i].memory, MOCK_FIRST_HANDLE + i);
  }
  CHECK_EQ(figures_of(allocator).slices, count);
  CHECK_EQ(figures_of(allocator).in_use_bytes, 0);
  check_books(allocator, &device);
  for (uint64_t i = 0; i < count; i++) {
    slicepool_slice found = look_up(allocator, slices[i].id);
    CHECK(same_slice(&found, &slices[i]));
    OK(slicepool_free(allocator, slices[i].id));
    CHECK_RESULT(slicepool_slice_get(allocator, slices[i].id, &found), SLICEPOOL_ERROR_STALE_HANDLE);
  }
  free(slices);
  finish(allocator, &device);
}

/* ---- direct pools */

static void a_direct_page_has_exactly_the_aligned_size_of_its_slice(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_one(&device, direct(0, 32));
  slicepool_slice slice = take(allocator, 700 * KIB + 17);
  CHECK_EQ(figures_of(allocator).in_use_bytes, 700 * KIB + 17);
  CHECK_EQ(figures_of(allocator).reserved_bytes, 700 * KIB + 32);
  CHECK_EQ(slice.size, 700 * KIB + 32);
  OK(slicepool_free(allocator, slice.id));
  static const uint64_t sizes[] = { 1, 31, 32, 33, MIB, 128 * MIB };
  for (int i = 0; i < 6; i++) {
    touch(allocator, sizes[i]);
    if (sizes[i] != 31 && sizes[i] != 32) CHECK_EQ(device.last_size, (sizes[i] + 31) / 32 * 32);
  }
  CHECK_EQ(device.allocate_calls, 5);
  slicepool_failure failure = refused(allocator, 128 * MIB + 1, 0, SLICEPOOL_ERROR_TOO_LARGE);
  CHECK_EQ(failure.limit, 128 * MIB);
  finish(allocator, &device);
}

static void requests_of_one_aligned_size_share_a_direct_page_and_no_others_do(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_one(&device, direct(0, 32));
  const uint64_t page = touch(allocator, 1000).memory;
  static const uint64_t same[] = { 1024, 993, 1000 }, other[] = { 1025, 992, 512 };
  for (int i = 0; i < 3; i++) CHECK_EQ(touch(allocator, same[i]).memory, page);
  CHECK_EQ(device.given, 1);
  for (int i = 0; i < 3; i++) {
    CHECK(!would_fit(allocator, other[i]));
    CHECK(touch(allocator, other[i]).memory != page);
    CHECK(would_fit(allocator, other[i]));
  }
  CHECK_EQ(device.given, 4);
  /* One that is held serves nobody else. */
  slicepool_slice held = take(allocator, 1000), another = take(allocator, 1000);
  CHECK(held.memory == page && another.memory != page);
  OK(slicepool_free(allocator, held.id));
  CHECK_EQ(touch(allocator, 1001).memory, page);
  OK(slicepool_free(allocator, another.id));
  /* Exact means exact, also when the device has nothing left: free pages go back for one of the right size. */
  device.capacity = device.bytes;
  slicepool_slice exact = take(allocator, 2000);
  CHECK_EQ(exact.size, 2016);
  CHECK(device.taken != 0);
  OK(slicepool_free(allocator, exact.id));
  finish(allocator, &device);
}

/* Seen in other pools: a page that served again was not found by its size any more. */
static void what_a_slice_asked_for_does_not_change_the_size_of_its_direct_page(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_one(&device, direct(0, 4));
  const uint64_t page = touch(allocator, 1025).memory;
  slicepool_slice again = take(allocator, 1026);
  CHECK_EQ(again.memory, page);
  CHECK_EQ(figures_of(allocator).padding_bytes, 2);
  OK(slicepool_free(allocator, again.id));
  CHECK_EQ(touch(allocator, 1028).memory, page);
  CHECK(touch(allocator, 1024).memory != page);
  CHECK_EQ(device.given, 2);
  finish(allocator, &device);
}

static void every_free_direct_page_is_found_by_its_size_among_thousands(void) {
  enum { SIZES = 2000 };
  struct mock_device device;
  slicepool_allocator *allocator = create_one(&device, direct(0, 32));
  static uint64_t memory[SIZES], live[SIZES];
  uint64_t state = 14;
  for (int i = 0; i < SIZES; i++) {
    slicepool_slice slice = take(allocator, 32 * ((uint64_t)i + 1));
    memory[i] = slice.memory;
    live[i] = slice.id;
  }
  const uint64_t operations = rounds(100000);
  for (uint64_t i = 0; i < operations; i++) {
    const uint64_t at = random_between(&state, 0, SIZES - 1);
    if (live[at] != 0) {
      OK(slicepool_free(allocator, live[at]));
      live[at] = 0;
    } else {
      slicepool_slice slice = take(allocator, 32 * (at + 1) - random_between(&state, 0, 31));
      CHECK_EQ(slice.memory, memory[at]);
      live[at] = slice.id;
    }
  }
  CHECK_EQ(device.given, SIZES);
  check_books(allocator, &device);
  OK(slicepool_free_many(allocator, live, SIZES, NULL));
  finish(allocator, &device);
}

static void cleanup_leaves_the_direct_page_that_is_live_whatever_the_watermark(void) {
  static const uint64_t watermarks[] = { 0, 1, 64 * MIB, UINT64_MAX };
  for (int i = 0; i < 4; i++) {
    struct mock_device device;
    slicepool_allocator *allocator = create_one(&device, direct(watermarks[i], 32));
    slicepool_slice live = take(allocator, MIB);
    touch(allocator, 2 * MIB);
    CHECK_EQ(figures_of(allocator).pages, 2);
    OK(slicepool_cleanup(allocator, NULL));
    CHECK_EQ(figures_of(allocator).pages, 1);
    CHECK_EQ(figures_of(allocator).reserved_bytes, MIB);
    slicepool_slice found = look_up(allocator, live.id);
    CHECK(same_slice(&found, &live));
    OK(slicepool_free(allocator, live.id));
    finish(allocator, &device);
  }
}

/* 7 MiB: 1, 2 and 3 MiB are free, and 4 MiB are asked for. */
static void above_the_watermark_free_pages_go_back_lowest_index_first(void) {
  static const int orders[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
  for (int o = 0; o < 6; o++) {
    struct mock_device device;
    slicepool_allocator *allocator = create_one(&device, direct(7 * MIB, 32));
    slicepool_slice slices[3];
    for (int i = 0; i < 3; i++) slices[i] = take(allocator, ((uint64_t)i + 1) * MIB);
    for (int i = 0; i < 3; i++) OK(slicepool_free(allocator, slices[orders[o][i]].id));
    CHECK_EQ(device.taken, 0);
    slicepool_slice slice = take(allocator, 4 * MIB);
    CHECK(!device.pages[0].live && !device.pages[1].live && device.pages[2].live && device.pages[3].live);
    CHECK_EQ(figures_of(allocator).reserved_bytes, 7 * MIB);
    CHECK_EQ(device.bytes_peak, 7 * MIB);
    OK(slicepool_free(allocator, slice.id));
    finish(allocator, &device);
  }
}

/* Reaching it is not passing it. */
static void a_page_that_reaches_the_watermark_exactly_costs_nothing(void) {
  static const struct {
    uint64_t watermark, pages;
  } cases[] = { { 0, 4 },           { 10 * MIB, 4 },    { 10 * MIB - 1, 3 }, { 9 * MIB, 3 },
                { 9 * MIB - 1, 2 }, { 7 * MIB - 1, 1 }, { 1, 1 },            { UINT64_MAX, 4 } };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    struct mock_device device;
    slicepool_allocator *allocator = create_one(&device, direct(cases[c].watermark, 32));
    uint64_t ids[3];
    for (int i = 0; i < 3; i++) ids[i] = take(allocator, ((uint64_t)i + 1) * MIB).id;
    OK(slicepool_free_many(allocator, ids, 3, NULL));
    slicepool_slice slice = take(allocator, 4 * MIB);
    CHECK_EQ(device.live, cases[c].pages);
    OK(slicepool_free(allocator, slice.id));
    finish(allocator, &device);
  }
}

static void live_pages_stay_above_the_watermark_and_go_when_they_are_free_and_in_the_way(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_one(&device, direct(1024, 32));
  slicepool_slice first = take(allocator, 4096), second = take(allocator, 4096);
  CHECK_EQ(figures_of(allocator).reserved_bytes, 8192);
  OK(slicepool_free(allocator, first.id));
  OK(slicepool_free(allocator, second.id));
  CHECK_EQ(figures_of(allocator).reserved_bytes, 8192);
  /* A page that serves again gives nothing back. */
  touch(allocator, 4096);
  CHECK_EQ(device.taken, 0);
  slicepool_slice small = take(allocator, 64);
  CHECK_EQ(figures_of(allocator).reserved_bytes, 64);
  CHECK_EQ(device.taken, 2);
  /* Nothing is free any more, and the request is served anyway. */
  slicepool_slice large = take(allocator, 4096);
  CHECK_EQ(figures_of(allocator).reserved_bytes, 4160);
  OK(slicepool_free(allocator, small.id));
  OK(slicepool_free(allocator, large.id));
  finish(allocator, &device);
}

static void without_a_watermark_nothing_goes_back_by_itself(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_one(&device, direct(0, 32));
  for (uint64_t i = 1; i <= 1000; i++) touch(allocator, 32 * i);
  CHECK_EQ(device.live, 1000);
  CHECK_EQ(device.taken, 0);
  OK(slicepool_cleanup(allocator, NULL));
  CHECK_EQ(device.live, 0);
  CHECK_EQ(device.taken, 1000);
  finish(allocator, &device);
}

/* What is stuck counts and is not waited for. */
static void a_device_that_keeps_what_is_above_the_watermark_gets_the_request_all_the_same(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_one(&device, direct(4096, 32));
  const uint64_t ids[2] = { take(allocator, 1024).id, take(allocator, 2048).id };
  OK(slicepool_free_many(allocator, ids, 2, NULL));
  device.refusals = 2;
  slicepool_slice slice = take(allocator, 3072);
  slicepool_statistics figures = figures_of(allocator);
  CHECK_EQ(figures.pages_stuck, 2);
  CHECK_EQ(figures.stuck_bytes, 3072);
  CHECK_EQ(figures.reserved_bytes, 6144);
  check_books(allocator, &device);
  OK(slicepool_free(allocator, slice.id));
  OK(slicepool_cleanup(allocator, NULL));
  finish(allocator, &device);
}

/* 19. */
struct meddler {
  slicepool_allocator *allocator;
  bool allocates;
  uint64_t ids[64]; /* of slices that callbacks free */
  uint64_t depth, deepest, runs;
};

static void free_in_callback(struct mock_device *device) {
  struct meddler *meddler = device->hook_data;
  if (++meddler->depth > meddler->deepest) meddler->deepest = meddler->depth;
  uint64_t *id = &meddler->ids[meddler->runs++ % 64];
  OK(slicepool_free(meddler->allocator, *id));
  *id = 0;
  /* An allocation ages pages wherever it is made. */
  if (meddler->allocates) *id = take(meddler->allocator, 512).id;
  meddler->depth--;
}

static void a_free_inside_a_page_that_goes_back_is_neither_recursion_nor_loop(void) {
  const slicepool_pool_options pools[] = { direct(64 * KIB, 32), ageing(exclusive(MIB, 32), 5),
                                           ageing(direct(0, 32), 5), ageing(direct(8 * KIB, 32), 5) };
  for (int p = 0; p < 4; p++) {
    for (int allocates = 0; allocates < (p == 1 || p == 2 ? 2 : 1); allocates++) {
      struct mock_device device;
      slicepool_allocator *allocator = create_one(&device, pools[p]);
      struct meddler meddler = { allocator, allocates == 1, { 0 }, 0, 0, 0 };
      for (int i = 0; i < 64; i++) meddler.ids[i] = take(allocator, 512).id;
      device.hook_data = &meddler;
      device.in_deallocate = free_in_callback;
      uint64_t ids[40];
      for (uint64_t round = 0; round < 5; round++) {
        for (uint64_t i = 0; i < 40; i++) ids[i] = take(allocator, 1024 + 64 * (i + 40 * round)).id;
        OK(slicepool_free_many(allocator, ids, 40, NULL));
        for (uint64_t i = 0; i < 200; i++) touch(allocator, 32 * (i + 1) + 20 * KIB);
      }
      CHECK(meddler.runs > 100);
      CHECK_EQ(meddler.deepest, 1);
      device.in_deallocate = NULL;
      OK(slicepool_free_many(allocator, meddler.ids, 64, NULL));
      finish(allocator, &device);
    }
  }
}

static const struct test tests[] = {
  TEST(the_same_request_after_a_free_leaves_the_same_figures),
  TEST(a_slice_between_two_freed_ones_survives_a_cleanup),
  TEST(a_page_has_the_size_of_its_request_and_at_most_an_eighth_more),
  TEST(no_page_is_larger_because_of_other_requests),
  TEST(near_sizes_share_a_page_and_others_do_not),
  TEST(of_the_free_pages_that_hold_a_request_the_smallest_serves),
  TEST(a_much_larger_free_page_serves_when_the_device_gives_no_other),
  TEST(requests_above_the_largest_are_refused_by_size_and_limit),
  TEST(a_byte_in_a_page_of_eight_gigabytes_is_booked_exactly),
  TEST(a_slice_is_resized_within_its_page_and_never_beyond),
  TEST(alignments_up_to_that_of_pages_cost_nothing_and_larger_ones_are_refused),
  TEST(more_pages_than_sixteen_bits_count_are_all_kept_apart),
  TEST(requests_for_nothing_are_served_by_a_pool_for_them_and_by_no_other),
  TEST(slices_of_nothing_are_told_apart_however_many_there_are),
  TEST(a_direct_page_has_exactly_the_aligned_size_of_its_slice),
  TEST(requests_of_one_aligned_size_share_a_direct_page_and_no_others_do),
  TEST(what_a_slice_asked_for_does_not_change_the_size_of_its_direct_page),
  TEST(every_free_direct_page_is_found_by_its_size_among_thousands),
  TEST(cleanup_leaves_the_direct_page_that_is_live_whatever_the_watermark),
  TEST(above_the_watermark_free_pages_go_back_lowest_index_first),
  TEST(a_page_that_reaches_the_watermark_exactly_costs_nothing),
  TEST(live_pages_stay_above_the_watermark_and_go_when_they_are_free_and_in_the_way),
  TEST(without_a_watermark_nothing_goes_back_by_itself),
  TEST(a_device_that_keeps_what_is_above_the_watermark_gets_the_request_all_the_same),
  TEST(a_free_inside_a_page_that_goes_back_is_neither_recursion_nor_loop),
};

TEST_MAIN(tests)
