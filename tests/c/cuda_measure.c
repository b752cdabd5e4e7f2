/* Measures slices of CUDA memory against what the driver itself takes, and counts the words that are wrong afterwards.
 * Run by tests/cuda.sh.
 *
 *     cuda_measure --probe   says what the driver is; exit code 3 if there is none that works
 *     cuda_measure           measures; exit code 1 if anything is wrong
 *
 * The library of the driver is libcuda.so.1, or what SLICEPOOL_CUDA_LIBRARY names.
 */
#include "check.h"

#define SLICEPOOL_CUDA_OPEN
#include "slicepool_cuda.h"

enum {
  PAIRS = 1000,        /* of the driver, of each size */
  BATCHES = 201,       /* of as many pairs of ours: one is too short for a clock */
  CHURN = 100000,      /* pairs of ours */
  DRIVER_CHURN = 2000, /* the same ones of the driver */
  LIVE = 256
};

/* Neither takes longer than this, whatever the driver does. */
#define SECONDS_AT_MOST 20.0

static slicepool_cuda_functions driver;
static slicepool_cuda cuda;
static slicepool_allocator *allocator;

#define CUDA(call)                                                            \
  do {                                                                        \
    slicepool_cuda_result cuda_code = (call);                                 \
    if (cuda_code != 0) FAIL("%s answers the CUresult %d", #call, cuda_code); \
  } while (0)

/* ---- the driver */

static int probe(int *device) {
  const char *missing = NULL;
  char name[128] = "";
  int version = 0;
  size_t bytes = 0;
  slicepool_result result = slicepool_cuda_open(&driver, getenv("SLICEPOOL_CUDA_LIBRARY"), NULL, &missing);
  if (result != SLICEPOOL_OK) {
    printf("no CUDA driver: %s%s\n", missing == NULL ? "its library cannot be loaded" : "its library lacks ",
           missing == NULL ? "" : missing);
    return 3;
  }
  slicepool_cuda_result code = driver.init(0);
  if (code == 0) code = driver.device_get(device, 0);
  if (code != 0) {
    const char *text = NULL;
    if (driver.get_error_name != NULL) driver.get_error_name(code, &text);
    printf("no CUDA driver that works: %s (%d)\n", text == NULL ? "CUresult" : text, code);
    return 3;
  }
  CUDA(driver.device_get_name(name, (int)sizeof name, *device));
  CUDA(driver.driver_get_version(&version));
  CUDA(driver.device_total_mem(&bytes, *device));
  printf("device: %s\nmemory: %" PRIu64 " MiB\ndriver: CUDA %d.%d\n", name, (uint64_t)bytes / MIB, version / 1000,
         version % 1000 / 10);
  return 0;
}

static slicepool_slice take(uint64_t size) {
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  request.size = size;
  OK(slicepool_allocate(allocator, &request, &slice));
  return slice;
}

/* ---- pairs of one size */

static int compare(const void *left, const void *right) {
  const double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

static double median(double *values, size_t count) {
  qsort(values, count, sizeof *values, compare);
  return values[count / 2];
}

static void measure_pairs(const char *name, uint64_t size) {
  static double ours[BATCHES], theirs[PAIRS];
  size_t pairs = 0;
  for (size_t batch = 0; batch < BATCHES; batch++) {
    const double begin = seconds_now();
    for (int i = 0; i < 1000; i++) OK(slicepool_free(allocator, take(size).id));
    ours[batch] = (seconds_now() - begin) * 1e6;
  }
  for (const double begin = seconds_now(); pairs < PAIRS && seconds_now() - begin < SECONDS_AT_MOST; pairs++) {
    slicepool_cuda_pointer memory = 0;
    const double start = seconds_now();
    CUDA(driver.mem_alloc(&memory, size));
    CUDA(driver.mem_free(memory));
    theirs[pairs] = (seconds_now() - start) * 1e9;
  }
  const double our = median(ours, BATCHES), their = median(theirs, pairs);
  printf("pair of %s: slicepool %.0f ns, driver %.0f ns, ratio %.0f (medians of %d x 1000 and of %zu)\n", name, our,
         their, their / our, BATCHES, pairs);
  fflush(stdout);
}

/* ---- pairs of many sizes */

/* From 256 bytes to 4 MiB, every power of two as often as the next. */
static uint64_t random_size(uint64_t *state) {
  const uint64_t power = UINT64_C(256) << random_between(state, 0, 13);
  return random_between(state, power, 2 * power);
}

static slicepool_slice slices[LIVE];

static void measure_churn(void) {
  uint64_t state = 1;
  double begin = seconds_now();
  for (int i = 0; i < CHURN; i++) {
    const uint64_t at = random_between(&state, 0, LIVE - 1);
    OK(slicepool_free(allocator, slices[at].id));
    slices[at] = take(random_size(&state));
  }
  const double our = (seconds_now() - begin) * 1e9 / CHURN;

  static slicepool_cuda_pointer memories[LIVE];
  int pairs = 0;
  state = 1;
  begin = seconds_now();
  for (; pairs < DRIVER_CHURN && seconds_now() - begin < SECONDS_AT_MOST; pairs++) {
    const uint64_t at = random_between(&state, 0, LIVE - 1);
    if (memories[at] != 0) CUDA(driver.mem_free(memories[at]));
    CUDA(driver.mem_alloc(&memories[at], random_size(&state)));
  }
  const double their = (seconds_now() - begin) * 1e9 / pairs;
  for (int at = 0; at < LIVE; at++)
    if (memories[at] != 0) CUDA(driver.mem_free(memories[at]));
  printf("churn of mixed sizes: slicepool %.0f ns a pair, driver %.0f ns, ratio %.0f (%d and %d pairs)\n", our, their,
         their / our, CHURN, pairs);
  slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
  OK(slicepool_statistics_get(allocator, &figures));
  printf("held after the churn: %" PRIu64 " KiB for %" PRIu64 " KiB in %" PRIu32 " slices, %" PRIu64
         " pages ever taken\n",
         figures.reserved_bytes / KIB, figures.in_use_bytes / KIB, figures.slices, figures.device_allocations);
  fflush(stdout);
}

/* ---- bytes */

static uint32_t word_of(uint32_t slice, uint64_t word) {
  return slice % 2 == 0 ? slice << 22 | (uint32_t)word : slice * UINT32_C(0x01010101);
}

/* The slices are filled one after the other, by copies and by the device, then read back. One that is filled one
 * granule too far, `overlap`, damages its neighbour. */
static uint64_t wrong_words(uint64_t *words, int overlap) {
  static uint32_t bytes[9 * MIB / 4];
  uint64_t wrong = 0;
  *words = 0;
  for (uint32_t i = 0; i < LIVE; i++) {
    const uint64_t size = slices[i].size + ((int)i == overlap ? 256 : 0);
    CHECK_LE(size, sizeof bytes);
    if (i % 2 == 0) {
      for (uint64_t word = 0; word < size / 4; word++) bytes[word] = word_of(i, word);
      CUDA(driver.memcpy_htod(slices[i].address, bytes, size));
    } else {
      CUDA(driver.memset_d8_async(slices[i].address, (unsigned char)i, size, NULL));
    }
  }
  for (uint32_t i = 0; i < LIVE; i++) {
    CUDA(driver.memcpy_dtoh(bytes, slices[i].address, slices[i].size));
    for (uint64_t word = 0; word < slices[i].size / 4; word++) wrong += bytes[word] != word_of(i, word);
    *words += slices[i].size / 4;
  }
  return wrong;
}

/* A slice that lies right before one that is filled earlier; -1 if there is none. */
static int find_overlap(void) {
  for (int i = 0; i < LIVE; i++)
    for (int other = 0; other < i; other++)
      if (slices[other].address == slices[i].address + slices[i].size) return i;
  return -1;
}

int main(int argc, char **argv) {
  int device = 0;
  void *context = NULL;
  const int found = probe(&device);
  if (found != 0 || (argc > 1 && strcmp(argv[1], "--probe") == 0)) return found;
  CUDA(driver.device_primary_ctx_retain(&context, device));
  OK(slicepool_cuda_init(&cuda, &driver, context, SLICEPOOL_CUDA_DEVICE));
  slicepool_device table = SLICEPOOL_DEVICE_INIT;
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  slicepool_cuda_device(&cuda, &table);
  slicepool_cuda_describe(&cuda, &config);
  OK(slicepool_allocator_create(&table, &config, &allocator));
  CUDA(slicepool_cuda_enter(&cuda));

  measure_pairs("4 KiB", 4 * KIB);
  measure_pairs("1 MiB", MIB);
  measure_pairs("64 MiB", 64 * MIB);
  measure_churn();

  uint64_t words = 0;
  for (uint32_t i = 0; i < LIVE; i++)
    if (slices[i].id == 0) slices[i] = take(4096);
  const uint64_t wrong = wrong_words(&words, -1);
  printf("wrong words: %" PRIu64 " of %" PRIu64 "\n", wrong, words);
  /* Whether that would have been seen. */
  const int overlap = find_overlap();
  CHECK(overlap >= 0);
  const uint64_t seen = wrong_words(&words, overlap);
  printf("wrong words after a slice was written 256 bytes too far: %" PRIu64 ", 64 expected\n", seen);

  for (uint32_t i = 0; i < LIVE; i++) OK(slicepool_free(allocator, slices[i].id));
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
  CUDA(slicepool_cuda_leave(&cuda));
  CUDA(driver.device_primary_ctx_release(device));
  return wrong == 0 && seen == 64 ? 0 : 1;
}
