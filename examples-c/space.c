/* The slicer alone, without a device: ranges of a descriptor table.
 *
 * A renderer has one table of 4,096 descriptors. Each material takes a contiguous range of it for as long as it lives.
 */
#include "slicepool.h"

#include <inttypes.h>
#include <stdio.h>

#define DESCRIPTORS 4096u
#define MATERIALS 6u

static int show(void *user_data, const slicepool_space_slice *piece) {
  (void)user_data;
  printf("  [%4" PRIu64 ", %4" PRIu64 ") %s\n", piece->offset, piece->offset + piece->size,
         piece->id != 0 ? "in use" : "free");
  return SLICEPOOL_WALK_CONTINUE;
}

static int fail(const char *what, slicepool_result result) {
  fprintf(stderr, "%s: %s\n", what, slicepool_result_string(result));
  return 1;
}

int main(void) {
  slicepool_space_config config = SLICEPOOL_SPACE_CONFIG_INIT;
  slicepool_space *table = NULL;
  slicepool_result result;
  config.size = DESCRIPTORS;
  result = slicepool_space_create(&config, &table);
  if (result != SLICEPOOL_OK) {
    return fail("create", result);
  }

  const uint64_t textures[MATERIALS] = {5, 12, 3, 64, 1, 7};
  slicepool_space_slice ranges[MATERIALS];
  for (unsigned i = 0; i < MATERIALS; i++) {
    /* The hardware wants ranges of more than eight descriptors to begin at a multiple of eight. */
    const uint64_t alignment = textures[i] > 8 ? 8 : 1;
    ranges[i] = (slicepool_space_slice)SLICEPOOL_SPACE_SLICE_INIT;
    result = slicepool_space_allocate(table, textures[i], alignment, &ranges[i], NULL);
    if (result != SLICEPOOL_OK) {
      return fail("allocate", result);
    }
    printf("material %u: descriptors %" PRIu64 " to %" PRIu64 "\n", i, ranges[i].offset,
           ranges[i].offset + ranges[i].size - 1);
  }

  /* Material 1 goes; its range serves another. */
  slicepool_space_free(table, ranges[1].id);
  slicepool_space_slice other = SLICEPOOL_SPACE_SLICE_INIT;
  result = slicepool_space_allocate(table, 10, 1, &other, NULL);
  if (result != SLICEPOOL_OK) {
    return fail("allocate", result);
  }
  printf("another material: descriptors %" PRIu64 " to %" PRIu64 "\n", other.offset, other.offset + other.size - 1);

  /* More than is left in one piece is refused, and the failure says how much there is. */
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  uint64_t largest = 0;
  result = slicepool_space_allocate(table, DESCRIPTORS, 1, &other, &failure);
  slicepool_space_largest_free(table, &largest);
  printf("all %u at once: %s, the largest free range has %" PRIu64 "\n", DESCRIPTORS,
         slicepool_result_string(result), largest);

  /* The table doubles; what is in it stays where it is. */
  slicepool_space_grow(table, DESCRIPTORS);
  printf("the whole table:\n");
  slicepool_space_walk(table, show, NULL);

  slicepool_space_clear(table);
  slicepool_space_statistics figures = SLICEPOOL_SPACE_STATISTICS_INIT;
  slicepool_space_statistics_get(table, &figures);
  printf("cleared: %" PRIu64 " of %" PRIu64 " free in %u piece\n", figures.free, figures.size, figures.free_ranges);
  slicepool_space_destroy(table);
  const int reused = other.offset == ranges[1].offset;
  return reused && result == SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED && figures.free == 2 * DESCRIPTORS ? 0 : 1;
}
