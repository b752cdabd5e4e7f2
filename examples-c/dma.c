/* Buffers in memory that is registered once: a network card that writes packets by itself.
 *
 * The card knows one region of memory, which is pinned and registered before the first packet and never again; it is told of
 * buffers by their offsets in there. A prefilled pool has one such region for each class. The buffers' handles travel through
 * the card's ring as cookies and come back with the packets, in any order; what the card makes up is refused.
 */
#include "slicepool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PACKETS 1000
#define RING 48
#define BUFFERS 64
#define BUFFER_BYTES 2048

/* ---- the card: in a driver, hardware behind an IOMMU */

typedef struct card {
  unsigned char *region; /* as it was registered */
  uint64_t region_bytes;
  uint32_t registrations;
  struct {
    uint64_t offset, bytes, cookie;
  } ring[RING];
  uint32_t posted;
  uint64_t packets, random;
} card;

static void card_register(card *it, void *memory, uint64_t bytes) {
  it->region = (unsigned char *)memory;
  it->region_bytes = bytes;
  it->registrations++;
}

static int card_post(card *it, uint64_t offset, uint64_t bytes, uint64_t cookie) {
  if (it->posted == RING || offset > it->region_bytes || bytes > it->region_bytes - offset) return 0;
  it->ring[it->posted].offset = offset;
  it->ring[it->posted].bytes = bytes;
  it->ring[it->posted].cookie = cookie;
  it->posted++;
  return 1;
}

/* Writes a packet into any of the buffers that were posted, and says which. */
static uint64_t card_receive(card *it, uint64_t *bytes) {
  it->random = it->random * UINT64_C(6364136223846793005) + 1442695040888963407;
  const uint32_t slot = (uint32_t)(it->random >> 33) % it->posted;
  const uint64_t cookie = it->ring[slot].cookie;
  *bytes = 64 + (it->random >> 40) % (it->ring[slot].bytes - 63);
  memset(it->region + it->ring[slot].offset, (int)(it->packets++ % 251), *bytes);
  it->ring[slot] = it->ring[--it->posted];
  return cookie;
}

/* ---- the program */

static void check(slicepool_result result, const char *what) {
  if (result != SLICEPOOL_OK) {
    fprintf(stderr, "%s: %s\n", what, slicepool_result_string(result));
    exit(1);
  }
}

/* Acquires a buffer and posts it. */
static slicepool_result post(slicepool_buffer_pool *pool, slicepool_buffer_cache *cache, uint64_t base, card *nic) {
  slicepool_buffer buffer = SLICEPOOL_BUFFER_INIT;
  slicepool_result result = slicepool_buffer_acquire(pool, cache, BUFFER_BYTES, 0, &buffer, NULL);
  if (result == SLICEPOOL_OK && !card_post(nic, buffer.offset - base, buffer.size, buffer.id)) {
    check(slicepool_buffer_release(pool, cache, buffer.id), "release");
    return SLICEPOOL_ERROR_BUSY;
  }
  return result;
}

int main(void) {
  /* A block that the system has pinned, say with hugepages; here it is a static array. */
  static unsigned char pinned[BUFFERS * BUFFER_BYTES + 8192];
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  slicepool_buffer_pool_config config = SLICEPOOL_BUFFER_POOL_CONFIG_INIT;
  config.failure = &failure;
  config.memory = pinned;
  config.memory_bytes = sizeof pinned;
  check(slicepool_buffer_pool_config_with_size_class_range(&config, BUFFER_BYTES, BUFFER_BYTES, BUFFERS), "classes");
  check(slicepool_buffer_pool_config_with_alignment(&config, BUFFER_BYTES), "alignment");
  check(slicepool_buffer_pool_config_with_prefill(&config, 1), "prefill");
  slicepool_buffer_pool *pool = NULL;
  slicepool_buffer_cache *cache = NULL;
  check(slicepool_buffer_pool_create(NULL, &config, &pool), "pool");
  check(slicepool_buffer_cache_create(pool, &cache), "cache");

  slicepool_buffer_region region = SLICEPOOL_BUFFER_REGION_INIT;
  uint32_t regions = 0;
  check(slicepool_buffer_pool_regions(pool, &region, 1, &regions), "regions");
  printf("regions: %" PRIu32 ", of %" PRIu64 " buffers of %" PRIu64 " bytes\n", regions,
         region.bytes / region.buffer_size, region.buffer_size);
  card nic = { 0 };
  card_register(&nic, region.mapped, region.bytes);

  while (post(pool, cache, region.base, &nic) == SLICEPOOL_OK) {}
  printf("posted: %" PRIu32 "\n", nic.posted);
  uint64_t right = 0, bytes = 0;
  for (uint64_t packet = 0; packet < PACKETS; packet++) {
    uint64_t size = 0;
    const uint64_t cookie = card_receive(&nic, &size);
    slicepool_buffer buffer = SLICEPOOL_BUFFER_INIT;
    check(slicepool_buffer_get(pool, cookie, &buffer), "the cookie of a packet");
    const unsigned char *data = (const unsigned char *)buffer.mapped;
    right += data[0] == packet % 251 && data[size - 1] == packet % 251;
    bytes += size;
    check(slicepool_buffer_release(pool, cache, buffer.id), "release");
    check(post(pool, cache, region.base, &nic), "post");
  }
  printf("packets: %" PRIu64 " of %d right, %s bytes\n", right, PACKETS, bytes > 1000 * 64 ? "many" : "few");

  /* A card that answers twice, or with a number of its own, does no harm. */
  uint64_t size = 0;
  const uint64_t last = card_receive(&nic, &size);
  check(slicepool_buffer_release(pool, cache, last), "release");
  printf("twice: %s\n", slicepool_result_string(slicepool_buffer_release(pool, cache, last)));
  printf("made up: %s\n", slicepool_result_string(slicepool_buffer_release(pool, cache, UINT64_C(0x1234567890))));

  while (nic.posted != 0) check(slicepool_buffer_release(pool, cache, card_receive(&nic, &size)), "release");
  slicepool_buffer_class_statistics figures = SLICEPOOL_BUFFER_CLASS_STATISTICS_INIT;
  check(slicepool_buffer_class_statistics_get(pool, 0, &figures), "statistics");
  printf("end: %" PRIu32 " registration, %" PRIu32 " in use, %" PRIu64 " hits of the cache\n", nic.registrations,
         figures.in_use, figures.hits);
  check(slicepool_buffer_cache_destroy(cache), "end of the cache");
  check(slicepool_buffer_pool_destroy(pool, 0, &failure), "destroy");
  return right == PACKETS ? 0 : 1;
}
