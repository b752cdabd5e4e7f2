/* A host side that watches what the library does: counts, notices misuse, and refuses on demand. */
#ifndef WATCHED_HOST_H
#define WATCHED_HOST_H

#include "check.h"

#include <pthread.h>

struct block {
  uint64_t size, alignment;
  void *raw;
};

/* Memory that is exactly as aligned as asked, full of garbage, counted, and refused on demand. */
struct watched_host {
  pthread_mutex_t mutex;
  pthread_mutex_t lock; /* the library's, of the kind that notices misuse */
  uint64_t fail_at;     /* the how-manieth allocation fails, 0: none */
  bool fail_from_then_on;
  uint64_t refusals;
  uint64_t allocations, deallocations, live, bytes;
  uint64_t locks, unlocks;
  uint64_t waits;
  uint32_t last_attempt;
  bool attempts_rise;
};

/* Whether this thread holds the library's lock. */
static _Thread_local int locks_held;

static inline void watched_init(struct watched_host *host) {
  memset(host, 0, sizeof *host);
  CHECK(pthread_mutex_init(&host->mutex, NULL) == 0);
  pthread_mutexattr_t attributes;
  CHECK(pthread_mutexattr_init(&attributes) == 0);
  CHECK(pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK) == 0);
  CHECK(pthread_mutex_init(&host->lock, &attributes) == 0);
  CHECK(pthread_mutexattr_destroy(&attributes) == 0);
  host->attempts_rise = true;
}

/* Everything has come back, and the lock is free. */
static inline void watched_end(struct watched_host *host) {
  CHECK_EQ(host->live, 0);
  CHECK_EQ(host->bytes, 0);
  CHECK_EQ(host->allocations, host->deallocations);
  CHECK_EQ(host->locks, host->unlocks);
  CHECK_EQ(locks_held, 0);
  CHECK(pthread_mutex_trylock(&host->lock) == 0);
  CHECK(pthread_mutex_unlock(&host->lock) == 0);
  CHECK(pthread_mutex_destroy(&host->lock) == 0);
  CHECK(pthread_mutex_destroy(&host->mutex) == 0);
}

static inline void *watched_allocate(void *user_data, uint64_t size, uint64_t alignment) {
  struct watched_host *host = user_data;
  CHECK_EQ(locks_held, 0);
  CHECK(size != 0 && alignment != 0 && (alignment & (alignment - 1)) == 0);
  CHECK(pthread_mutex_lock(&host->mutex) == 0);
  host->allocations++;
  const bool fails = host->fail_at != 0 && (host->fail_from_then_on ? host->allocations >= host->fail_at
                                                                     : host->allocations == host->fail_at);
  if (fails) {
    host->refusals++;
    host->allocations--;
    host->fail_at = host->fail_from_then_on ? host->fail_at : 0;
    CHECK(pthread_mutex_unlock(&host->mutex) == 0);
    return NULL;
  }
  host->live++;
  host->bytes += size;
  CHECK(pthread_mutex_unlock(&host->mutex) == 0);
  /* A block before the memory, which is a multiple of the alignment but not of twice that. */
  const uint64_t step = alignment < 16 ? 16 : alignment;
  unsigned char *raw = malloc(sizeof(struct block) + size + 3 * step);
  CHECK(raw != NULL);
  uintptr_t at = (uintptr_t)raw + sizeof(struct block) + step;
  at = (at + 2 * step - 1) & ~(uintptr_t)(2 * step - 1);
  at -= alignment;
  struct block *block = (struct block *)at - 1;
  /* The block may lie anywhere, its fields are copied. */
  const struct block record = { size, alignment, raw };
  memcpy(block, &record, sizeof record);
  memset((void *)at, 0xCD, size);
  return (void *)at;
}

static inline void watched_deallocate(void *user_data, void *memory, uint64_t size, uint64_t alignment) {
  struct watched_host *host = user_data;
  CHECK_EQ(locks_held, 0);
  CHECK(memory != NULL);
  struct block record;
  memcpy(&record, (struct block *)memory - 1, sizeof record);
  CHECK_EQ(size, record.size);
  CHECK_EQ(alignment, record.alignment);
  memset(memory, 0xDD, size);
  free(record.raw);
  CHECK(pthread_mutex_lock(&host->mutex) == 0);
  host->deallocations++;
  host->live--;
  host->bytes -= size;
  CHECK(pthread_mutex_unlock(&host->mutex) == 0);
}

static inline void watched_lock(void *user_data) {
  struct watched_host *host = user_data;
  /* EDEADLK if this thread holds it already. */
  CHECK_EQ(pthread_mutex_lock(&host->lock), 0);
  CHECK_EQ(locks_held, 0);
  locks_held++;
  host->locks++;
}

static inline void watched_unlock(void *user_data) {
  struct watched_host *host = user_data;
  CHECK_EQ(locks_held, 1);
  locks_held--;
  host->unlocks++;
  /* EPERM if another thread holds it. */
  CHECK_EQ(pthread_mutex_unlock(&host->lock), 0);
}

static inline void watched_wait(void *user_data, uint32_t attempt) {
  struct watched_host *host = user_data;
  CHECK_EQ(locks_held, 0);
  CHECK(pthread_mutex_lock(&host->mutex) == 0);
  if (attempt != 0 && attempt != host->last_attempt + 1) host->attempts_rise = false;
  host->last_attempt = attempt;
  host->waits++;
  CHECK(pthread_mutex_unlock(&host->mutex) == 0);
}

enum hooks { HOOK_MEMORY = 1, HOOK_LOCK = 2, HOOK_WAIT = 4 };

static inline slicepool_host watched_table(struct watched_host *host, int hooks) {
  slicepool_host table = SLICEPOOL_HOST_INIT;
  table.user_data = host;
  if (hooks & HOOK_MEMORY) {
    table.allocate = watched_allocate;
    table.deallocate = watched_deallocate;
  }
  if (hooks & HOOK_LOCK) {
    table.lock = watched_lock;
    table.unlock = watched_unlock;
  }
  if (hooks & HOOK_WAIT) table.wait = watched_wait;
  return table;
}

#endif
