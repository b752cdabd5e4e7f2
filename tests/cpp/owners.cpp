/* Owners: who frees what, when, and what is told if it goes wrong. */
#include "heap.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

using namespace slicepool;

/* The compiler must not see that something is moved to itself. */
template <class T>
static T &same(T &one) {
  T *volatile at = &one;
  return *at;
}

static void slices_are_freed_at_the_end_of_their_scope() {
  Allocator allocator(host_memory{});
  {
    Slice slice = allocator.allocate(100000, 4096);
    CHECK(slice && slice.id() != 0 && slice.offset() % 4096 == 0 && slice.size() >= 100000);
    CHECK(slice.bytes().size() == slice.size());
    std::fill(slice.bytes().begin(), slice.bytes().end(), std::byte{7});
    CHECK(slice.bytes()[99999] == std::byte{7} && slice.bytes().first(3).size() == 3);
    CHECK_EQ(allocator.statistics().slices, 1);
  }
  CHECK_EQ(allocator.statistics().slices, 0);
}

static void owners_that_were_moved_from_are_empty() {
  counts counted;
  {
    Allocator first{heap(counted)};
    Slice slice = first.allocate(1000);
    Allocator second = std::move(first);
    CHECK(!same(first) && first.get() == nullptr && second);
    const std::uint64_t id = slice.id();
    Slice moved = std::move(slice);
    CHECK(!same(slice) && slice.id() == 0 && moved.id() == id);
    CHECK_EQ(second.statistics().slices, 1);
    slice = second.allocate(10);
    moved = std::move(slice);
    CHECK(second.statistics().slices == 1 && moved.id() != id);
    CHECK_RESULT(first.try_allocate(10).code(), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_RESULT(slice.try_free().code(), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    first = std::move(second);
    CHECK(first && !same(second));
    swap(slice, moved);
    CHECK(slice && !moved);
  }
  CHECK(counted.pages == 0 && counted.destroyed == 1);
  {
    BufferPool pool{heap(counted)};
    Buffer buffer = pool.acquire(1000);
    BufferCache cache = pool.cache();
    BufferPool other = std::move(pool);
    Buffer taken = std::move(buffer);
    BufferCache kept = std::move(cache);
    CHECK(!same(pool) && !same(buffer) && !same(cache) && other && taken && kept);
    CHECK_RESULT(pool.try_acquire(1).code(), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_RESULT(cache.try_acquire(1).code(), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    kept.release(taken);
    CHECK(!taken);
    taken = kept.acquire(5000);
    taken = kept.acquire(6000);
    CHECK_EQ(other.class_statistics(3).in_use, 1);
  }
  CHECK(counted.pages == 0 && counted.destroyed == 2);
  Space space(100);
  Space roomy = std::move(space);
  CHECK(!same(space) && roomy);
  CHECK_RESULT(space.try_allocate(1).code(), SLICEPOOL_ERROR_INVALID_ARGUMENT);
}

static void moving_to_itself_changes_nothing() {
  Allocator allocator(host_memory{});
  Slice slice = allocator.allocate(1000);
  BufferPool pool(host_memory{});
  Buffer buffer = pool.acquire(1000);
  BufferCache cache = pool.cache();
  Space space(100);
  slice = std::move(same(slice));
  allocator = std::move(same(allocator));
  buffer = std::move(same(buffer));
  cache = std::move(same(cache));
  pool = std::move(same(pool));
  space = std::move(same(space));
  CHECK(slice && allocator && buffer && cache && pool && space);
  CHECK_EQ(allocator.statistics().slices, 1);
  CHECK_EQ(pool.class_statistics(0).in_use, 1);
}

static void what_is_given_back_twice_is_refused() {
  reports told;
  Allocator allocator(host_memory{});
  Slice slice = allocator.allocate(1000);
  const std::uint64_t id = slice.id();
  slice.free();
  CHECK(!slice);
  slice.reset();
  CHECK_RESULT(slice.try_free().code(), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(allocator.try_free_many(&id, 1).code(), SLICEPOOL_ERROR_STALE_HANDLE);
  /* Two owners of one slice: the second is told. */
  slice = allocator.allocate(1000);
  {
    Slice again = allocator.own(slice.id());
  }
  CHECK_EQ(told.count(), 0);
  slice.reset();
  CHECK(told.count() == 1 && told.where()[0] == "slicepool::Slice");
  CHECK_RESULT(told.last().code(), SLICEPOOL_ERROR_STALE_HANDLE);
  allocator.destroy();
  CHECK(!allocator);
  CHECK_RESULT(allocator.try_destroy().code(), SLICEPOOL_ERROR_INVALID_ARGUMENT);
}

static void slices_that_were_let_go_of_can_be_owned_again() {
  Allocator allocator(host_memory{});
  Slice slice = allocator.allocate(1000);
  const std::uint64_t id = slice.release();
  CHECK(!slice && allocator.statistics().slices == 1);
  slice = allocator.own(id);
  CHECK_EQ(slice.id(), id);
  BufferPool pool(host_memory{});
  Buffer buffer = pool.acquire(1000);
  const std::uint64_t name = buffer.release();
  CHECK(!buffer && pool.class_statistics(0).in_use == 1);
  buffer = pool.own(name);
  CHECK_EQ(buffer.id(), name);
}

static void what_is_left_is_reported_and_the_device_has_its_memory_back() {
  reports told;
  counts counted;
  Slice late;
  Buffer packet;
  {
    Allocator allocator{heap(counted)};
    late = allocator.allocate(1000);
    allocator.allocate(1000).release();
  }
  CHECK(counted.pages == 0 && counted.destroyed == 1);
  CHECK(told.count() == 1 && told.where()[0] == "slicepool::Allocator");
  CHECK_RESULT(told.last().code(), SLICEPOOL_ERROR_BUSY);
  CHECK_EQ(told.last().details().live, 2);
  {
    BufferPool pool{heap(counted)};
    packet = pool.acquire(1000);
  }
  CHECK(counted.pages == 0 && counted.destroyed == 2);
  CHECK(told.count() == 2 && told.where()[1] == "slicepool::BufferPool");
  CHECK_EQ(told.last().details().live, 1);
  /* What is late does nothing, also when another owner has taken the place of its own. */
  Allocator other{heap(counted)};
  BufferPool pool{heap(counted)};
  Slice live = other.allocate(1000);
  Buffer out = pool.acquire(1000);
  CHECK_RESULT(late.try_free().code(), SLICEPOOL_ERROR_STALE_HANDLE);
  CHECK_RESULT(late.try_flush().code(), SLICEPOOL_ERROR_STALE_HANDLE);
  late.reset();
  packet.reset();
  CHECK(!late && !packet && told.count() == 2);
  CHECK(other.statistics().slices == 1 && pool.class_statistics(0).in_use == 1);
}

static void owners_that_let_go_leave_everything_to_the_caller() {
  counts counted;
  heap device(counted);
  Allocator allocator(std::ref(device));
  Slice slice = allocator.allocate(1000);
  slicepool_allocator *const raw = allocator.release();
  CHECK(!allocator && raw != nullptr);
  slice.reset();
  auto figures = defaults<slicepool_statistics>();
  OK(slicepool_statistics_get(raw, &figures));
  CHECK_EQ(figures.slices, 1);
  OK(slicepool_allocator_destroy(raw, SLICEPOOL_DESTROY_FORCE, nullptr));
  BufferPool pool(std::ref(device));
  Buffer buffer = pool.acquire(1000);
  BufferCache cache = pool.cache();
  const std::uint64_t id = buffer.id();
  slicepool_buffer_pool *const names = pool.release();
  CHECK(!pool && names != nullptr);
  OK(slicepool_buffer_release(names, nullptr, id));
  OK(slicepool_buffer_pool_destroy(names, 0, nullptr));
  Space space(100);
  OK(slicepool_space_destroy(space.release()));
  CHECK(!space && counted.pages == 0 && counted.destroyed == 0);
}

static void abandoned_owners_say_no_word_to_the_device() {
  counts counted;
  {
    Allocator allocator{heap(counted)};
    Slice slice = allocator.allocate(1000);
    auto walk_found = std::uintptr_t{0};
    allocator.walk([&](const slicepool_range &range) { walk_found = static_cast<std::uintptr_t>(range.memory); });
    allocator.abandon();
    CHECK(!allocator && counted.pages == 1 && counted.destroyed == 1);
    ::operator delete(reinterpret_cast<void *>(walk_found), std::align_val_t(4096));
  }
  BufferPool pool(host_memory{});
  pool.acquire(1000).reset();
  pool.flush_thread_cache();
  pool.close();
  pool.abandon();
  CHECK(!pool);
}

static void frees_wait_for_points() {
  Allocator allocator(host_memory{});
  Slice slice = allocator.allocate(1000);
  slice.free_after({point(0, 5), point(1, 2)});
  CHECK(!slice && allocator.statistics().slices_pending == 1);
  CHECK_RESULT(allocator.try_destroy().code(), SLICEPOOL_ERROR_BUSY);
  allocator.collect(0, 5);
  CHECK_EQ(allocator.statistics().slices_pending, 1);
  allocator.collect(1, 2);
  CHECK_EQ(allocator.statistics().slices_pending, 0);
  std::vector<Slice> frame = allocator.allocate_many({request(10), request(20), request(30)});
  allocator.free_after_many(frame, {point(0, 6)});
  CHECK(!frame[0] && !frame[2] && allocator.statistics().slices_pending == 3);
  allocator.collect(0, 6);
  allocator.timeline_forget(0);
  CHECK_EQ(allocator.statistics().slices_pending, 0);
}

static void many_slices_come_all_or_none() {
  const slicepool_pool_options pool = sliced_pages(1 << 20, 1 << 20);
  Allocator allocator(host_memory{}, config_of(pool));
  std::vector<Slice> slices = allocator.allocate_many({request(1000), request(2000, 4096), request(3000)});
  CHECK(slices.size() == 3 && slices[1].offset() % 4096 == 0 && slices[2].size() >= 3000);
  const auto refused = allocator.try_allocate_many({request(1000), request(1 << 20), request(1000)});
  CHECK_RESULT(refused.code(), SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  CHECK_EQ(refused.error().details().index, 1);
  CHECK_EQ(allocator.statistics().slices, 3);
  CHECK_EQ(allocator.allocate_many({}).size(), 0);
}

static void errors_carry_codes_and_details() {
  const slicepool_pool_options pool = sliced_pages(1 << 20, 1 << 20);
  Allocator allocator(host_memory{}, config_of(pool));
  bool caught = false;
  try {
    allocator.allocate(UINT64_C(1) << 40);
  } catch (const error &refused) {
    caught = true;
    CHECK_RESULT(refused.code(), SLICEPOOL_ERROR_TOO_LARGE);
    CHECK_EQ(refused.details().size, UINT64_C(1) << 40);
    CHECK_EQ(refused.details().limit, 1 << 20);
    CHECK(std::string(refused.what()).find("1099511627776") != std::string::npos);
    CHECK(refused.why().error_code().category() == category());
  }
  CHECK(caught);
  const std::error_code busy(SLICEPOOL_ERROR_BUSY, category());
  CHECK(busy == std::errc::device_or_resource_busy && busy.message() == slicepool_result_string(SLICEPOOL_ERROR_BUSY));
  CHECK(std::error_code(SLICEPOOL_ERROR_CLOSED, category()).default_error_condition().category() == category());
  /* A struct of the program's own is filled in as well. */
  auto details = defaults<slicepool_failure>();
  slicepool_request wanted = request(0);
  wanted.failure = &details;
  CHECK_RESULT(allocator.try_allocate(wanted).code(), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(details.result, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(details.field, "size");
  auto config = slicepool::allocator_config();
  details = defaults<slicepool_failure>();
  config.failure = &details;
  config.page_alignment = 3;
  const auto refused = Allocator::try_create(host_memory{}, config);
  CHECK_RESULT(refused.code(), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(refused.error().details().field, "page_alignment");
  CHECK_TEXT(details.field, "page_alignment");
  CHECK_RESULT(Allocator::try_create(std::shared_ptr<heap>()).code(), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(Allocator::try_create_in(nullptr, 100, host_memory{}).code(), SLICEPOOL_ERROR_INVALID_ARGUMENT);
}

static void results_hold_a_value_or_a_failure() {
  result<int> good = 5;
  result<int> bad = failure(SLICEPOOL_ERROR_BUSY, 77);
  CHECK(good && good.value() == 5 && *good == 5 && good.code() == SLICEPOOL_OK);
  CHECK(!bad && bad.code() == SLICEPOOL_ERROR_BUSY && bad.error().details().device_code == 77);
  CHECK(std::move(bad).value_or(9) == 9);
  bad = 6;
  CHECK(bad.has_value() && std::move(bad).value_or(9) == 6);
  result<void> done;
  done.value();
  done = failure(SLICEPOOL_ERROR_CLOSED);
  bool caught = false;
  try {
    done.value();
  } catch (const error &refused) {
    caught = refused.code() == SLICEPOOL_ERROR_CLOSED;
  }
  CHECK(caught && !done);
}

static void a_walk_shows_everything_until_it_is_told_to_stop() {
  Allocator allocator(host_memory{});
  std::vector<Slice> slices = allocator.allocate_many(std::vector<slicepool_request>(10, request(1000)));
  std::set<std::uint64_t> seen;
  allocator.walk([&](const slicepool_range &range) {
    if (range.kind == SLICEPOOL_RANGE_SLICE) seen.insert(range.id);
  });
  CHECK_EQ(seen.size(), 10);
  int shown = 0;
  allocator.walk([&](const slicepool_range &) { return ++shown < 3; });
  CHECK_EQ(shown, 3);
  bool caught = false;
  try {
    allocator.walk([&](const slicepool_range &) { throw ++shown; });
  } catch (int thrown) {
    caught = thrown == 4;
  }
  CHECK(caught);
  /* From within, the allocator may be used, but not destroyed. */
  slicepool_result code = SLICEPOOL_OK;
  allocator.walk([&](const slicepool_range &) {
    slices.pop_back();
    code = allocator.try_destroy(SLICEPOOL_DESTROY_FORCE).code();
    return false;
  });
  CHECK_RESULT(code, SLICEPOOL_ERROR_BUSY);
  CHECK_EQ(allocator.statistics().slices, 9);
}

static void figures_and_reports_are_values() {
  Allocator allocator(host_memory{});
  Slice slice = allocator.allocate(1000);
  slice.set_name("vertices");
  CHECK(slice.name() == "vertices");
  int mark = 0;
  slice.set_user_data(&mark);
  CHECK(slice.get().user_data == &mark);
  const std::string report = allocator.report_json();
  CHECK(report.front() == '{' && report.back() == '}' && report.find('\0') == std::string::npos);
  CHECK_EQ(allocator.pool_statistics(0).slices, 1);
  CHECK_EQ(allocator.type_statistics(0).slices, 1);
  CHECK_EQ(allocator.heap_statistics(0).statistics.slices, 1);
  CHECK_RESULT(allocator.try_pool_statistics(77).code(), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(allocator.find(slice.memory(), slice.offset()).id, slice.id());
  CHECK_EQ(allocator.find_address(slice.address()).id, slice.id());
  CHECK(allocator.would_fit(request(1000)) && allocator.largest_free() > 1000);
  CHECK(allocator.pool_options(0).page_size >= MIB);
  CHECK(allocator.plan().size() == config_pools(slicepool::allocator_config()).size());
  slice.resize(2000);
  CHECK(slice.size() >= 2000);
  allocator.check_margins();
  slice.reset();
  allocator.install_pools({sliced_pages(65536)});
  allocator.prefill(0, 2);
  CHECK_EQ(allocator.statistics().pages, 2);
  allocator.trim();
  allocator.cleanup();
  CHECK_EQ(allocator.statistics().pages, 0);
}

static void a_damaged_margin_is_reported_and_the_slice_freed() {
  reports told;
  auto config = slicepool::allocator_config();
  config.debug_margin = 256;
  Allocator allocator(host_memory{}, config);
  {
    Slice slice = allocator.allocate(1000);
    static_cast<unsigned char *>(slice.mapped())[slice.size()] = 1;
  }
  CHECK(told.count() == 1 && told.last().code() == SLICEPOOL_ERROR_MARGIN_DAMAGED);
  CHECK_EQ(allocator.statistics().slices, 0);
}

static void books_can_live_in_a_block() {
  static unsigned char block[1 << 20], names[1 << 20];
  counts counted;
  {
    Allocator allocator = Allocator::create_in(block, sizeof block, heap(counted));
    CHECK(reinterpret_cast<unsigned char *>(allocator.get()) >= block);
    CHECK(reinterpret_cast<unsigned char *>(allocator.get()) < block + sizeof block);
    Slice slice = allocator.allocate(1000);
    BufferPool pool = BufferPool::create_in(names, sizeof names, heap(counted));
    Buffer buffer = pool.acquire(1000);
    CHECK(slice && buffer);
  }
  CHECK(counted.pages == 0 && counted.destroyed == 2);
  CHECK_RESULT(BufferPool::try_create_in(names, 16, heap(counted)).code(), SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY);
  CHECK_EQ(counted.destroyed, 3);
}

static void spaces_cut_numbers() {
  Space table(100);
  const slicepool_space_slice first = table.allocate(10), second = table.allocate(20, 16);
  CHECK(first.offset == 0 && second.offset % 16 == 0);
  CHECK_EQ(table.slice(second.id).size, 20);
  CHECK_EQ(table.resize(second.id, 30).size, 30);
  CHECK_RESULT(table.try_allocate(90).code(), SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  std::uint64_t units = 0;
  table.walk([&](const slicepool_space_slice &piece) { units += piece.size; });
  CHECK_EQ(units, 100);
  table.free(first.id);
  CHECK_RESULT(table.try_free(first.id).code(), SLICEPOOL_ERROR_STALE_HANDLE);
  table.grow(100);
  CHECK_EQ(table.statistics().size, 200);
  table.clear();
  CHECK_EQ(table.largest_free(), 200);
  CHECK_RESULT(Space::try_create(0).code(), SLICEPOOL_ERROR_INVALID_ARGUMENT);
}

static void buffers_come_back_with_their_figures() {
  counts counted;
  auto config = buffer_pool_config();
  OK(slicepool_buffer_pool_config_with_size_class_range(&config, 1024, 4096, 4));
  OK(slicepool_buffer_pool_config_with_prefill(&config, 1));
  BufferPool pool(heap(counted), config);
  CHECK_EQ(pool.regions().size(), 3);
  {
    Buffer buffer = pool.acquire(1500, SLICEPOOL_BUFFER_ZERO);
    CHECK(buffer.size() == 2048 && buffer.bytes()[1499] == std::byte{0});
    const Buffer nothing = pool.acquire(0);
    CHECK(!nothing && nothing.size() == 0);
    std::vector<Buffer> all;
    for (int i = 0; i < 4; i++) all.push_back(pool.acquire(4096));
    const auto refused = pool.try_acquire(4000);
    CHECK_RESULT(refused.code(), SLICEPOOL_ERROR_EXHAUSTED);
    CHECK(refused.error().details().size == 4096 && refused.error().details().limit == 4);
    CHECK_RESULT(pool.try_acquire(5000).code(), SLICEPOOL_ERROR_OVERSIZED);
    CHECK_RESULT(pool.try_destroy().code(), SLICEPOOL_ERROR_BUSY);
    CHECK_EQ(pool.statistics().classes, 3);
    buffer.reset();
    pool.close();
    CHECK_RESULT(pool.try_acquire(10).code(), SLICEPOOL_ERROR_CLOSED);
  }
  pool.flush_thread_cache();
  CHECK_EQ(counted.pages, 0);
  auto details = defaults<slicepool_failure>();
  config.alignment = 3;
  config.failure = &details;
  CHECK_RESULT(BufferPool::try_create(heap(counted), config).code(), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(details.field, "alignment");
}

static const struct test tests[] = {
    TEST(slices_are_freed_at_the_end_of_their_scope),
    TEST(owners_that_were_moved_from_are_empty),
    TEST(moving_to_itself_changes_nothing),
    TEST(what_is_given_back_twice_is_refused),
    TEST(slices_that_were_let_go_of_can_be_owned_again),
    TEST(what_is_left_is_reported_and_the_device_has_its_memory_back),
    TEST(owners_that_let_go_leave_everything_to_the_caller),
    TEST(abandoned_owners_say_no_word_to_the_device),
    TEST(frees_wait_for_points),
    TEST(many_slices_come_all_or_none),
    TEST(errors_carry_codes_and_details),
    TEST(results_hold_a_value_or_a_failure),
    TEST(a_walk_shows_everything_until_it_is_told_to_stop),
    TEST(figures_and_reports_are_values),
    TEST(a_damaged_margin_is_reported_and_the_slice_freed),
    TEST(books_can_live_in_a_block),
    TEST(spaces_cut_numbers),
    TEST(buffers_come_back_with_their_figures),
};

TEST_MAIN(tests)
