/* Devices from objects: which functions are found, who keeps them, and where their exceptions go. */
#include "heap.hpp"

#include <memory>
#include <stdexcept>
#include <thread>

using namespace slicepool;

/* ---- what a device may look like */

/* Hands out numbers. */
struct numbers {
  std::uint64_t next = 0;
  int pages = 0;
  slicepool_device_memory allocate(const slicepool_page_request &) {
    pages++;
    return page(++next);
  }
  void deallocate(const slicepool_device_memory &) { pages--; }
};

struct by_optional : numbers {
  std::optional<slicepool_device_memory> allocate(const slicepool_page_request &request) {
    if (pages == 1) return std::nullopt;
    return numbers::allocate(request);
  }
};

struct by_result : numbers {
  result<slicepool_device_memory> allocate(const slicepool_page_request &request) {
    if (pages == 1) return failure(SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, -77);
    return numbers::allocate(request);
  }
  result<void> deallocate(const slicepool_device_memory &memory) {
    numbers::deallocate(memory);
    return {};
  }
};

struct as_in_c : numbers {
  slicepool_result allocate(const slicepool_page_request &request, slicepool_device_memory &memory) {
    if (pages == 1) {
      memory.device_code = -78;
      return SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    memory.handle = numbers::allocate(request).handle;
    return SLICEPOOL_OK;
  }
  bool deallocate(const slicepool_device_memory &memory) {
    numbers::deallocate(memory);
    return true;
  }
};

/* Has a member called `map` that is no function of the device. */
struct with_a_map : numbers {
  int map = 0;
  std::vector<int> event;
};

template <class Device>
static slicepool_failure second_page_of() {
  Device device;
  const slicepool_pool_options pool = sliced_pages(65536);
  failure why(SLICEPOOL_OK);
  {
    Allocator allocator(std::ref(device), config_of(pool));
    const Slice first = allocator.allocate(65536);
    CHECK_EQ(first.memory(), 1);
    const auto second = allocator.try_allocate(65536);
    if (!second) why = second.error();
  }
  CHECK_EQ(device.pages, 0);
  return why.details();
}

static void pages_come_in_every_form_that_is_offered() {
  CHECK_RESULT(second_page_of<numbers>().result, SLICEPOOL_OK);
  CHECK_RESULT(second_page_of<with_a_map>().result, SLICEPOOL_OK);
  CHECK_RESULT(second_page_of<by_optional>().result, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_EQ(second_page_of<by_result>().device_code, static_cast<std::uint64_t>(-77));
  CHECK_EQ(second_page_of<as_in_c>().device_code, static_cast<std::uint64_t>(-78));
}

static void what_a_device_lacks_is_not_supported() {
  Allocator allocator{numbers()};
  Slice slice = allocator.allocate(1000);
  CHECK(slice.mapped() == nullptr && slice.bytes().empty());
  CHECK_RESULT(slice.try_map().code(), SLICEPOOL_ERROR_NOT_SUPPORTED);
  CHECK_RESULT(allocator.try_allocate(1000, 0, SLICEPOOL_REQUEST_ZERO).code(), SLICEPOOL_ERROR_NOT_SUPPORTED);
}

/* Everything that there is; a bit for each function that was called. */
struct everything : numbers {
  unsigned called = 0;
  unsigned char bytes[65536];
  std::uint64_t done = 0;
  void *map(const slicepool_device_memory &) { called |= 1; return bytes; }
  void unmap(const slicepool_device_memory &) { called |= 2; }
  void flush(const slicepool_cache_range &) { called |= 4; }
  slicepool_result invalidate(const slicepool_cache_range &) { called |= 8; return SLICEPOOL_OK; }
  void fill(const slicepool_fill_request &request, slicepool_point &until) {
    called |= 16;
    if (request.reason == SLICEPOOL_FILL_SCRUB) until = point(3, 7);
  }
  slicepool_heap_budget heap_budget(std::uint32_t) {
    called |= 32;
    auto budget = defaults<slicepool_heap_budget>();
    budget.usage = 5;
    budget.budget = 1 << 20;
    return budget;
  }
  std::uint64_t completed(std::uint32_t) { called |= 64; return done; }
  bool out_of_memory(const slicepool_shortage &shortage) {
    called |= 128;
    return shortage.attempt == 0;
  }
  void event(const slicepool_event &) { called |= 256; }
};

static void every_function_that_a_device_has_is_called() {
  auto device = std::make_unique<everything>();
  auto type = defaults<slicepool_memory_type>();
  type.non_coherent_atom = 64;
  const slicepool_pool_options pool = sliced_pages(65536, 65536);
  auto config = config_of(pool);
  const auto heap = defaults<slicepool_heap>();
  config.memory_types = &type;
  config.memory_type_count = 1;
  config.heaps = &heap;
  config.heap_count = 1;
  {
    Allocator allocator(std::ref(*device), config);
    Slice slice = allocator.allocate(1000, 0, SLICEPOOL_REQUEST_ZERO | SLICEPOOL_REQUEST_SCRUB);
    {
      Mapping mapping = slice.map();
      CHECK(mapping.bytes().data() == reinterpret_cast<std::byte *>(device->bytes) + slice.offset());
      Mapping moved = std::move(mapping);
      CHECK(moved.bytes().size() == slice.size() && (device->called & 2) == 0);
    }
    CHECK_EQ(device->called & 3, 3);
    slice.flush();
    slice.invalidate(0, 64);
    CHECK_RESULT(slice.try_flush(slice.size() + 1, 1).code(), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_EQ(allocator.heap_statistics(0).budget.usage, 5);
    slice.reset();
    CHECK_EQ(allocator.statistics().slices_pending, 1);
    CHECK_RESULT(allocator.try_allocate(65536).code(), SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
    device->done = 7;
    CHECK(allocator.allocate(65536));
  }
  CHECK_EQ(device->called, 511);
  CHECK_EQ(device->pages, 0);
}

/* ---- who keeps it */

static void a_device_that_was_handed_over_goes_after_its_last_page() {
  counts counted;
  Allocator allocator{heap(counted)};
  allocator.allocate(1000).reset();
  CHECK(counted.pages == 1 && counted.destroyed == 0);
  allocator = Allocator();
  CHECK(counted.pages == 0 && counted.destroyed == 1);
  /* Also of an allocator that cannot be created. */
  auto config = slicepool::allocator_config();
  config.flags = 1U << 31;
  CHECK_RESULT(Allocator::try_create(heap(counted), config).code(), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(counted.destroyed, 2);
}

static void a_device_may_be_borrowed_or_shared() {
  counts counted;
  {
    heap device(counted);
    Allocator allocator(std::ref(device));
    BufferPool pool(std::ref(device));
    const Slice slice = allocator.allocate(1000);
    const Buffer buffer = pool.acquire(1000);
    CHECK_EQ(counted.pages, 2);
  }
  CHECK(counted.pages == 0 && counted.destroyed == 1);
  auto shared = std::make_shared<heap>(counted);
  Allocator allocator(shared);
  BufferPool pool(std::move(shared));
  allocator = Allocator();
  CHECK_EQ(counted.destroyed, 1);
  pool = BufferPool();
  CHECK_EQ(counted.destroyed, 2);
  /* And one may be a table of callbacks. */
  auto table = defaults<slicepool_device>();
  OK(slicepool_host_device(&table));
  allocator = Allocator(table);
  CHECK(allocator.allocate(1000).mapped() != nullptr);
}

/* ---- exceptions */

struct oops : std::runtime_error {
  explicit oops(int number) : std::runtime_error("oops"), which(number) {}
  int which;
};

/* Throws where it is told to. */
struct thrower : numbers {
  std::function<void()> at_allocate, at_deallocate, at_map, at_unmap, at_flush, at_fill, at_shortage, at_event, at_completed;
  unsigned char bytes[65536] = {};

  static void run(const std::function<void()> &at) {
    if (at) at();
  }
  slicepool_device_memory allocate(const slicepool_page_request &request) {
    run(at_allocate);
    return numbers::allocate(request);
  }
  void deallocate(const slicepool_device_memory &memory) {
    run(at_deallocate);
    numbers::deallocate(memory);
  }
  void *map(const slicepool_device_memory &) {
    run(at_map);
    return bytes;
  }
  void unmap(const slicepool_device_memory &) { run(at_unmap); }
  void flush(const slicepool_cache_range &) { run(at_flush); }
  void invalidate(const slicepool_cache_range &) { run(at_flush); }
  void fill(const slicepool_fill_request &) { run(at_fill); }
  bool out_of_memory(const slicepool_shortage &) {
    run(at_shortage);
    return false;
  }
  void event(const slicepool_event &) { run(at_event); }
  std::uint64_t completed(std::uint32_t) {
    run(at_completed);
    return 0;
  }
};

static std::function<void()> throws(int which) {
  return [which] { throw oops(which); };
}

/* Which exception a call throws; 0 for none. */
template <class Call>
static int thrown_by(Call &&call) {
  try {
    call();
    return 0;
  } catch (const oops &caught) {
    return caught.which;
  } catch (const error &) {
    return -1;
  } catch (const std::bad_alloc &) {
    return -2;
  }
}

struct stage {
  thrower device;
  slicepool_pool_options pool = sliced_pages(65536, 4 * 65536);
  slicepool_memory_type type = defaults<slicepool_memory_type>();
  Allocator allocator;

  stage() {
    auto config = config_of(pool);
    type.non_coherent_atom = 64;
    config.memory_types = &type;
    config.memory_type_count = 1;
    allocator = Allocator(std::ref(device), config);
  }
};

static void what_allocate_throws_is_thrown_by_the_call_that_needed_it() {
  stage on;
  on.device.at_allocate = throws(7);
  CHECK_EQ(thrown_by([&] { on.allocator.allocate(1000); }), 7);
  const auto refused = on.allocator.try_allocate(1000);
  CHECK_RESULT(refused.code(), SLICEPOOL_ERROR_DEVICE_FAILED);
  CHECK(refused.error().exception() != nullptr);
  CHECK_EQ(thrown_by([&] { std::rethrow_exception(refused.error().exception()); }), 7);
  on.device.at_allocate = [] { throw std::bad_alloc(); };
  CHECK(thrown_by([&] { on.allocator.allocate(1000); }) == -2);
  CHECK_RESULT(on.allocator.try_allocate(1000).code(), SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  on.device.at_allocate = [] { throw error(failure(SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY)); };
  on.allocator.trim();
  CHECK_RESULT(on.allocator.try_allocate(1000).code(), SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  on.device.at_allocate = [] { throw 5; };
  on.allocator.trim();
  CHECK_RESULT(on.allocator.try_allocate(1000).code(), SLICEPOOL_ERROR_DEVICE_FAILED);
  /* Nothing of that is left for a call that fails for another reason. */
  CHECK_RESULT(on.allocator.try_allocate(1 << 30).code(), SLICEPOOL_ERROR_TOO_LARGE);
  on.device.at_allocate = nullptr;
  CHECK(on.allocator.allocate(1000));
  CHECK_EQ(thrown_by([&] { on.allocator.allocate(1 << 30); }), static_cast<std::uint64_t>(-1));
  on.device.at_allocate = throws(8);
  BufferPool pool(std::ref(on.device));
  CHECK_EQ(thrown_by([&] { pool.acquire(1000); }), 8);
  auto prefilled = buffer_pool_config();
  prefilled.flags = SLICEPOOL_BUFFER_POOL_PREFILL;
  CHECK_EQ(thrown_by([&] { BufferPool(std::ref(on.device), prefilled); }), 8);
}

static void what_is_thrown_in_an_attempt_is_lost_if_the_call_succeeds() {
  thrower device;
  slicepool_pool_options pool = sliced_pages(4 << 20);
  pool.max_page_size = 64 << 20;
  Allocator allocator(std::ref(device), config_of(pool));
  int asked = 0;
  device.at_allocate = [&] {
    if (++asked == 1) throw std::bad_alloc();
  };
  CHECK(allocator.allocate(1000));
  CHECK_EQ(asked, 2);
}

static void what_deallocate_throws_is_thrown_by_the_call_that_gave_back() {
  reports told;
  thrower device;
  {
    Allocator allocator(std::ref(device));
    allocator.allocate(1000).reset();
    device.at_deallocate = throws(9);
    CHECK_EQ(thrown_by([&] { allocator.trim(); }), 9);
    CHECK_EQ(allocator.statistics().pages_stuck, 1);
    CHECK_EQ(thrown_by([&] { allocator.cleanup(); }), 9);
    CHECK_EQ(thrown_by([&] { allocator.destroy(); }), 9);
    CHECK(allocator && device.pages == 1);
    device.at_deallocate = nullptr;
    allocator.trim();
    CHECK_EQ(device.pages, 0);
    allocator.allocate(1000).reset();
    device.at_deallocate = throws(10);
  }
  /* A destructor cannot throw: it tells the handler, and lets the page be. */
  CHECK(told.count() == 1 && told.last().code() == SLICEPOOL_ERROR_DEVICE_FAILED);
  CHECK_EQ(thrown_by([&] { std::rethrow_exception(told.last().exception()); }), 10);
  CHECK_EQ(device.pages, 1);
}

static void what_other_callbacks_throw_is_thrown_by_their_calls() {
  stage on;
  Slice slice = on.allocator.allocate(1000);
  on.device.at_map = throws(1);
  CHECK_EQ(thrown_by([&] { slice.map(); }), 1);
  on.device.at_map = nullptr;
  on.device.at_flush = throws(2);
  CHECK_EQ(thrown_by([&] { slice.flush(); }), 2);
  CHECK_EQ(thrown_by([&] { slice.invalidate(); }), 2);
  on.device.at_fill = throws(3);
  CHECK_EQ(thrown_by([&] { on.allocator.allocate(1000, 0, SLICEPOOL_REQUEST_ZERO); }), 3);
  on.device.at_shortage = throws(4);
  CHECK_EQ(thrown_by([&] { on.allocator.allocate(65536).release(), on.allocator.allocate(65536).release(),
                           on.allocator.allocate(65536).release(), on.allocator.allocate(65536); }), 4);
  on.device.at_completed = throws(5);
  on.device.at_event = throws(6);
  on.device.at_unmap = throws(6);
  on.device.at_shortage = nullptr;
  on.device.at_fill = nullptr;
  /* What no call can fail of is lost. */
  slice.map();
  slice.free_after({point(0, 1)});
  CHECK_RESULT(on.allocator.try_allocate(65536).code(), SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  CHECK_EQ(thrown_by([&] { on.allocator.allocate(65536); }), static_cast<std::uint64_t>(-1));
  on.allocator.destroy(SLICEPOOL_DESTROY_FORCE);
}

static void calls_in_callbacks_keep_their_exceptions_apart() {
  stage outer, inner;
  inner.device.at_allocate = throws(20);
  /* The inner call's exception passes through the callback, and is the outer call's then. */
  outer.device.at_allocate = [&] { inner.allocator.allocate(1000); };
  CHECK_EQ(thrown_by([&] { outer.allocator.allocate(1000); }), 20);
  /* One that the callback deals with is not. */
  outer.device.at_allocate = [&] {
    CHECK_EQ(thrown_by([&] { inner.allocator.allocate(1000); }), 20);
    auto slice = defaults<slicepool_slice>();
    const slicepool_request wanted = request(1000);
    CHECK_RESULT(slicepool_allocate(inner.allocator.get(), &wanted, &slice), SLICEPOOL_ERROR_DEVICE_FAILED);
    throw oops(21);
  };
  CHECK_EQ(thrown_by([&] { outer.allocator.allocate(1000); }), 21);
  outer.device.at_allocate = [&] { CHECK(!inner.allocator.try_allocate(1000)); };
  CHECK(outer.allocator.allocate(1000));
  /* The same allocator, from within its own callback; it is not to be destroyed there. */
  outer.allocator.trim();
  bool nested = false;
  outer.device.at_allocate = [&] {
    if (std::exchange(nested, true)) throw oops(22);
    CHECK_EQ(thrown_by([&] { outer.allocator.allocate(60000); }), 22);
    CHECK_RESULT(outer.allocator.try_destroy(SLICEPOOL_DESTROY_FORCE).code(), SLICEPOOL_ERROR_BUSY);
  };
  CHECK(outer.allocator.allocate(65536));
  CHECK(nested);
}

static void each_thread_gets_its_own_exception() {
  thrower device;
  device.at_allocate = [] {
    const int which = static_cast<int>(std::hash<std::thread::id>{}(std::this_thread::get_id()) & 0xFFFF) + 1;
    throw oops(which);
  };
  Allocator allocator(std::ref(device));
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  const int each = static_cast<int>(rounds(2000));
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([&] {
      const int mine = static_cast<int>(std::hash<std::thread::id>{}(std::this_thread::get_id()) & 0xFFFF) + 1;
      for (int i = 0; i < each; i++) right += thrown_by([&] { allocator.allocate(1000); }) == mine;
    });
  }
  for (std::thread &thread : threads) thread.join();
  CHECK_EQ(right, 4 * each);
}

static const struct test tests[] = {
    TEST(pages_come_in_every_form_that_is_offered),
    TEST(what_a_device_lacks_is_not_supported),
    TEST(every_function_that_a_device_has_is_called),
    TEST(a_device_that_was_handed_over_goes_after_its_last_page),
    TEST(a_device_may_be_borrowed_or_shared),
    TEST(what_allocate_throws_is_thrown_by_the_call_that_needed_it),
    TEST(what_is_thrown_in_an_attempt_is_lost_if_the_call_succeeds),
    TEST(what_deallocate_throws_is_thrown_by_the_call_that_gave_back),
    TEST(what_other_callbacks_throw_is_thrown_by_their_calls),
    TEST(calls_in_callbacks_keep_their_exceptions_apart),
    TEST(each_thread_gets_its_own_exception),
};

TEST_MAIN(tests)
