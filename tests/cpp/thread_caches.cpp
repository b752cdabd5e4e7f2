/* Caches that threads have of buffer pools: who destroys what, in which order ever. */
#include "heap.hpp"

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

using namespace slicepool;

/* Lets threads wait for each other's steps. */
class steps {
 public:
  void reach(int step) {
    const std::lock_guard<std::mutex> lock(mutex_);
    step_ = std::max(step_, step);
    changed_.notify_all();
  }
  void wait_for(int step) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return step_ >= step; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int step_ = 0;
};

static slicepool_buffer_pool_config of_one_class(std::uint32_t buffers, std::uint64_t threads = 1) {
  auto config = buffer_pool_config();
  OK(slicepool_buffer_pool_config_with_size_class_range(&config, 1024, 1024, buffers));
  OK(slicepool_buffer_pool_config_with_parallelism(&config, threads));
  return config;
}

static void a_thread_keeps_what_it_releases_until_it_ends() {
  counts counted;
  BufferPool pool(heap(counted), of_one_class(64));
  std::thread([&] {
    std::uint64_t at = 0;
    for (int i = 0; i < 100; i++) {
      const Buffer buffer = pool.acquire(1000);
      CHECK(at == 0 || at == buffer.address());
      at = buffer.address();
    }
    const auto figures = pool.class_statistics(0);
    CHECK(figures.hits >= 99 && figures.cached > 0);
    CHECK_EQ(pool.statistics().caches, 1);
    pool.flush_thread_cache();
    CHECK_EQ(pool.class_statistics(0).cached, 0);
    pool.acquire(1000).reset();
    CHECK(pool.class_statistics(0).cached > 0);
    flush_thread_caches();
    CHECK_EQ(pool.class_statistics(0).cached, 0);
    pool.acquire(1000).reset();
  }).join();
  CHECK_EQ(pool.statistics().caches, 0);
  CHECK_EQ(pool.class_statistics(0).cached, 0);
  CHECK_EQ(pool.class_statistics(0).in_use, 0);
}

static void a_pool_may_go_before_its_threads() {
  counts counted;
  steps step;
  auto pool = std::make_unique<BufferPool>(heap(counted));
  std::thread thread([&] {
    pool->acquire(1000).reset();
    CHECK_EQ(pool->statistics().caches, 1);
    step.reach(1);
    step.wait_for(2);
    /* Nothing is left of it for this thread, and calls that name no pool find none. */
    flush_thread_caches();
    step.reach(3);
    step.wait_for(4);
  });
  step.wait_for(1);
  reports told;
  pool.reset();
  CHECK(counted.pages == 0 && counted.destroyed == 1);
  CHECK_EQ(told.count(), 0);
  step.reach(2);
  step.wait_for(3);
  /* Another pool, likely in the same place. */
  BufferPool next{heap(counted)};
  next.acquire(1000).reset();
  step.reach(4);
  thread.join();
  CHECK_EQ(next.statistics().caches, 1);
}

static void a_thread_gets_a_new_cache_for_the_pool_that_takes_the_place_of_another() {
  counts counted;
  steps step;
  auto pool = std::make_unique<BufferPool>(heap(counted));
  std::thread thread([&] {
    for (int round = 0; round < 5; round++) {
      step.wait_for(2 * round);
      const Buffer buffer = pool->acquire(1000);
      CHECK_EQ(pool->statistics().caches, 1);
      CHECK_EQ(pool->class_statistics(0).in_use, 1);
      step.reach(2 * round + 1);
      step.wait_for(2 * round + 2);
    }
  });
  reports told;
  for (int round = 0; round < 5; round++) {
    step.wait_for(2 * round + 1);
    pool = std::make_unique<BufferPool>(heap(counted));
    step.reach(2 * round + 2);
  }
  thread.join();
  CHECK_EQ(told.count(), 5);
  CHECK_EQ(pool->statistics().caches, 0);
}

static void a_thread_may_use_many_pools() {
  counts counted;
  std::vector<BufferPool> pools;
  for (int i = 0; i < 100; i++) pools.emplace_back(heap(counted), of_one_class(16));
  std::thread([&] {
    for (int round = 0; round < 3; round++) {
      for (BufferPool &pool : pools) pool.acquire(1000).reset();
    }
    for (BufferPool &pool : pools) CHECK(pool.class_statistics(0).hits >= 2);
    for (std::size_t i = 0; i < pools.size(); i += 2) pools[i] = BufferPool();
  }).join();
  for (std::size_t i = 1; i < pools.size(); i += 2) CHECK_EQ(pools[i].statistics().caches, 0);
  pools.clear();
  CHECK(counted.pages == 0 && counted.destroyed == 100);
}

static void threads_that_end_and_pools_that_go_meet_without_harm() {
  counts counted;
  const int each = static_cast<int>(rounds(2000));
  reports told;
  auto config = of_one_class(16, 4);
  config.flags = SLICEPOOL_BUFFER_POOL_PREFILL;
  for (int round = 0; round < each; round++) {
    auto pool = std::make_unique<BufferPool>(heap(counted), config);
    std::atomic<int> done{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; t++) {
      threads.emplace_back([&] {
        pool->acquire(1000).reset();
        done++;
      });
    }
    while (done < 3) std::this_thread::yield();
    /* The threads are ending now, or about to. */
    pool.reset();
    for (std::thread &thread : threads) thread.join();
  }
  CHECK(counted.pages == 0 && counted.destroyed == each && told.count() == 0);
}

static void threads_exchange_buffers() {
  counts counted;
  constexpr int producers = 2;
  const int each = static_cast<int>(rounds(40000));
  {
    BufferPool pool(heap(counted), of_one_class(64, 4));
    std::mutex mutex;
    std::condition_variable filled;
    std::deque<Buffer> queue;
    int open = producers;
    std::vector<std::thread> threads;
    for (int p = 0; p < producers; p++) {
      threads.emplace_back([&, p] {
        for (int i = 0; i < each;) {
          result<Buffer> got = pool.try_acquire(1000);
          if (!got) {
            CHECK_RESULT(got.code(), SLICEPOOL_ERROR_EXHAUSTED);
            pool.flush_thread_cache();
            std::this_thread::yield();
            continue;
          }
          const auto stamp = static_cast<std::uint32_t>(p * each + i);
          std::memcpy(got->mapped(), &stamp, sizeof stamp);
          std::memcpy(got->bytes().data() + 900, &stamp, sizeof stamp);
          const std::lock_guard<std::mutex> lock(mutex);
          queue.push_back(std::move(*got));
          filled.notify_one();
          i++;
        }
        const std::lock_guard<std::mutex> lock(mutex);
        open--;
        filled.notify_all();
      });
    }
    std::vector<char> seen(static_cast<std::size_t>(producers * each));
    for (int c = 0; c < 2; c++) {
      threads.emplace_back([&] {
        for (;;) {
          Buffer buffer;
          std::uint32_t front = 0, back = 0;
          {
            std::unique_lock<std::mutex> lock(mutex);
            filled.wait(lock, [&] { return !queue.empty() || open == 0; });
            if (queue.empty()) return;
            buffer = std::move(queue.front());
            queue.pop_front();
            std::memcpy(&front, buffer.mapped(), sizeof front);
            std::memcpy(&back, buffer.bytes().data() + 900, sizeof back);
            CHECK(front == back && front < seen.size() && seen[front] == 0);
            seen[front] = 1;
          }
        }
      });
    }
    for (std::thread &thread : threads) thread.join();
    CHECK_EQ(std::count(seen.begin(), seen.end(), 1), producers * each);
    CHECK_EQ(pool.statistics().caches, 0);
    CHECK_EQ(pool.class_statistics(0).in_use, 0);
  }
  CHECK(counted.pages == 0 && counted.destroyed == 1);
}

/* ---- destructors that run after the thread's caches have gone */

static BufferPool &static_pool() {
  static BufferPool pool(host_memory{}, of_one_class(64));
  return pool;
}

static std::atomic<int> used_at_the_end{0};

struct uses_the_pool_at_the_end {
  Buffer kept;
  ~uses_the_pool_at_the_end() {
    kept.reset();
    Buffer another = static_pool().acquire(1000);
    CHECK(another);
    used_at_the_end++;
  }
};

static thread_local uses_the_pool_at_the_end first_made;
static thread_local uses_the_pool_at_the_end last_made;

static void a_static_pool_is_used_by_destructors_of_thread_locals() {
  const int before = used_at_the_end;
  std::thread([] {
    /* Destroyed in the opposite order: the caches go in between. */
    first_made.kept = Buffer();
    first_made.kept = static_pool().acquire(1000);
    last_made.kept = static_pool().acquire(1000);
    static_pool().acquire(1000).reset();
    CHECK(static_pool().class_statistics(0).cached > 0);
  }).join();
  CHECK_EQ(used_at_the_end, before + 2);
  CHECK_EQ(static_pool().statistics().caches, 0);
  CHECK_EQ(static_pool().class_statistics(0).in_use, 0);
  CHECK_EQ(static_pool().class_statistics(0).cached, 0);
  /* The main thread's end comes before the destructors of statics, and after this test: a failure there is seen as well. */
  first_made.kept = static_pool().acquire(1000);
  last_made.kept = static_pool().acquire(1000);
}

/* ---- refusals and modes */

static void a_refused_destruction_takes_caches_and_threads_get_new_ones() {
  BufferPool pool(host_memory{}, of_one_class(64));
  Buffer out = pool.acquire(1000);
  pool.acquire(1000).reset();
  BufferCache mine = pool.cache();
  mine.acquire(1000).reset();
  CHECK_EQ(pool.statistics().caches, 2);
  const auto refused = pool.try_destroy();
  CHECK_RESULT(refused.code(), SLICEPOOL_ERROR_BUSY);
  CHECK(refused.error().details().live == 1 && refused.error().details().in_flight == 0);
  CHECK_EQ(pool.statistics().caches, 0);
  out.reset();
  CHECK_EQ(pool.statistics().caches, 1);
  /* The other goes without from now on. */
  Buffer buffer = mine.acquire(1000);
  mine.flush();
  mine.release(buffer);
  CHECK(!buffer);
  CHECK_EQ(pool.statistics().caches, 1);
  pool.destroy();
}

static void caches_may_outlive_their_pool() {
  BufferCache late;
  {
    BufferPool pool(host_memory{}, of_one_class(64), thread_caches::none);
    late = pool.cache();
    Buffer buffer = late.acquire(1000);
    late.release(buffer);
    CHECK(pool.class_statistics(0).cached > 0);
    CHECK_EQ(pool.statistics().caches, 1);
    BufferCache other = pool.cache();
    other = std::move(late);
    late = std::move(other);
    CHECK_EQ(pool.statistics().caches, 1);
  }
  CHECK_RESULT(late.try_acquire(1000).code(), SLICEPOOL_ERROR_STALE_HANDLE);
  CHECK_RESULT(late.try_flush().code(), SLICEPOOL_ERROR_STALE_HANDLE);
  late = BufferCache();
  CHECK(!late);
}

static void threads_have_no_caches_where_they_are_not_wanted() {
  auto synchronized = of_one_class(64), disabled = of_one_class(64);
  synchronized.flags = SLICEPOOL_BUFFER_POOL_EXTERNALLY_SYNCHRONIZED;
  OK(slicepool_buffer_pool_config_with_thread_cache_disabled(&disabled));
  std::vector<BufferPool> pools;
  pools.emplace_back(host_memory{}, synchronized);
  pools.emplace_back(host_memory{}, disabled);
  pools.emplace_back(host_memory{}, of_one_class(64), thread_caches::none);
  for (BufferPool &pool : pools) {
    pool.acquire(1000).reset();
    CHECK_EQ(pool.statistics().caches, 0);
    const BufferCache explicit_one = pool.cache();
    CHECK_EQ(pool.statistics().caches, 1);
  }
}

static void a_closed_pool_gives_its_memory_back_when_its_threads_end() {
  counts counted;
  BufferPool pool(heap(counted), of_one_class(64));
  steps step;
  std::thread thread([&] {
    pool.acquire(1000).reset();
    step.reach(1);
    step.wait_for(2);
  });
  step.wait_for(1);
  pool.close();
  CHECK_EQ(counted.pages, 1);
  step.reach(2);
  thread.join();
  CHECK_EQ(counted.pages, 0);
}

/* ---- callbacks while a cache is given back */

struct curious : heap {
  using heap::heap;
  BufferPool **pool = nullptr;
  std::atomic<int> *asked = nullptr;
  curious(counts &counted, BufferPool **of, std::atomic<int> *at) : heap(counted), pool(of), asked(at) {}
  void deallocate(const slicepool_device_memory &memory) {
    heap::deallocate(memory);
    if (*pool == nullptr) return;
    CHECK_RESULT((*pool)->try_acquire(1000).code(), SLICEPOOL_ERROR_CLOSED);
    CHECK_RESULT((*pool)->try_destroy(SLICEPOOL_DESTROY_FORCE).code(), SLICEPOOL_ERROR_BUSY);
    flush_thread_caches();
    ++*asked;
  }
};

static void a_device_may_use_the_pool_while_a_thread_gives_its_cache_back() {
  counts counted;
  std::atomic<int> asked{0};
  BufferPool *at = nullptr;
  BufferPool pool(curious(counted, &at, &asked), of_one_class(64));
  at = &pool;
  std::thread([&] {
    pool.acquire(1000).reset();
    pool.close();
  }).join();
  CHECK_EQ(asked, 1);
  CHECK_EQ(counted.pages, 0);
  at = nullptr;
}

/* What a child does with the pool of its parent: it abandons it, uses one of its own, and ends by exit(). */
struct inherited {
  BufferPool &pool;
  std::vector<char> &block; /* of the books; empty if they are elsewhere */
};

static void abandon_and_exit(void *argument) {
  inherited &from = *static_cast<inherited *>(argument);
  OK(from.pool.try_abandon(SLICEPOOL_ABANDON_FORKED).code());
  /* The block is the caller's again. */
  std::fill(from.block.begin(), from.block.end(), '\xEE');
  flush_thread_caches();
  BufferPool own(host_memory{}, of_one_class(16));
  own.acquire(1000).reset();
  CHECK_EQ(own.statistics().caches, 1);
}

static void a_forked_child_abandons_pools_that_its_thread_had_caches_of() {
  for (const bool in_block : {false, true}) {
    counts counted;
    std::vector<char> block(in_block ? 100000 : 0);
    BufferPool pool = in_block ? BufferPool::create_in(block.data(), block.size(), heap(counted), of_one_class(64, 4))
                               : BufferPool(heap(counted), of_one_class(64, 4));
    BufferCache cache = pool.cache();
    cache.acquire(1000).reset();
    pool.acquire(1000).reset();
    /* Its cache may be going back at the fork. */
    std::atomic<bool> over{false};
    std::thread other([&] {
      while (!over) {
        pool.acquire(1000).reset();
        flush_thread_caches();
      }
    });
    inherited from{pool, block};
    for (std::uint64_t round = 0; round < rounds(400) + 10; round++) run_in_child("the child", 20, abandon_and_exit, &from);
    over = true;
    other.join();
  }
}

/* A device whose next deallocate() does something besides. */
class obliging : public heap {
 public:
  obliging(counts &at, std::function<void()> *next) : heap(at), next_(next) {}
  void deallocate(const slicepool_device_memory &memory) {
    heap::deallocate(memory);
    if (*next_) std::exchange(*next_, nullptr)();
  }

 private:
  std::function<void()> *next_;
};

static void a_pool_is_not_destroyed_in_a_callback_of_its_own_whichever_way_that_is_reached() {
  for (const bool by_way_of_another : {false, true}) {
    counts counted;
    std::function<void()> of_one, of_other;
    BufferPool one(obliging(counted, &of_one), of_one_class(8)), other(obliging(counted, &of_other), of_one_class(8));
    one.acquire(1).reset();
    other.acquire(1).reset();
    OK(one.try_close().code());
    OK(other.try_close().code());
    slicepool_result code = SLICEPOOL_OK;
    const auto destroy_one = [&] { code = one.try_destroy().code(); };
    if (by_way_of_another) {
      of_other = destroy_one;
      of_one = [&] { other.flush_thread_cache(); };
    } else {
      of_one = destroy_one;
    }
    one.flush_thread_cache();
    CHECK_RESULT(code, SLICEPOOL_ERROR_BUSY);
    OK(one.try_destroy().code());
    OK(other.try_destroy().code());
    CHECK_EQ(counted.pages, 0);
  }
}

static const struct test tests[] = {
    TEST(a_thread_keeps_what_it_releases_until_it_ends),
    TEST(a_pool_may_go_before_its_threads),
    TEST(a_thread_gets_a_new_cache_for_the_pool_that_takes_the_place_of_another),
    TEST(a_thread_may_use_many_pools),
    TEST(threads_that_end_and_pools_that_go_meet_without_harm),
    TEST(threads_exchange_buffers),
    TEST(a_static_pool_is_used_by_destructors_of_thread_locals),
    TEST(a_refused_destruction_takes_caches_and_threads_get_new_ones),
    TEST(caches_may_outlive_their_pool),
    TEST(threads_have_no_caches_where_they_are_not_wanted),
    TEST(a_closed_pool_gives_its_memory_back_when_its_threads_end),
    TEST(a_device_may_use_the_pool_while_a_thread_gives_its_cache_back),
    TEST(a_forked_child_abandons_pools_that_its_thread_had_caches_of),
    TEST(a_pool_is_not_destroyed_in_a_callback_of_its_own_whichever_way_that_is_reached),
};

TEST_MAIN(tests)
