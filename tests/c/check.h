/* What the C tests share: checks that name file and line, a main() that runs tests by name, forked children, random
 * numbers. To be included first: it asks for POSIX. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "slicepool.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * 1024)
#define GIB (MIB * 1024)

/* ---- checks */

#define FAIL(...)                                         \
  do {                                                    \
    fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);       \
    fprintf(stderr, __VA_ARGS__);                         \
    fputc('\n', stderr);                                  \
    exit(1);                                              \
  } while (0)

#define CHECK(condition)                                  \
  do {                                                    \
    if (!(condition)) FAIL("%s does not hold", #condition); \
  } while (0)

#define CHECK_EQ(actual, expected)                                                                          \
  do {                                                                                                      \
    uint64_t check_actual = (uint64_t)(actual), check_expected = (uint64_t)(expected);                      \
    if (check_actual != check_expected)                                                                     \
      FAIL("%s is %" PRIu64 " (%" PRIx64 "), not %" PRIu64 " (%s)", #actual, check_actual, check_actual,    \
           check_expected, #expected);                                                                      \
  } while (0)

#define CHECK_LE(actual, bound)                                                                             \
  do {                                                                                                      \
    uint64_t check_actual = (uint64_t)(actual), check_bound = (uint64_t)(bound);                            \
    if (check_actual > check_bound)                                                                         \
      FAIL("%s is %" PRIu64 ", above %" PRIu64 " (%s)", #actual, check_actual, check_bound, #bound);        \
  } while (0)

#define CHECK_RESULT(call, expected)                                                                        \
  do {                                                                                                      \
    slicepool_result check_result = (call), check_wanted = (expected);                                      \
    if (check_result != check_wanted)                                                                       \
      FAIL("%s answers %d (%s), not %d (%s)", #call, check_result, slicepool_result_string(check_result),   \
           check_wanted, slicepool_result_string(check_wanted));                                            \
  } while (0)

#define OK(call) CHECK_RESULT(call, SLICEPOOL_OK)

#define CHECK_TEXT(actual, expected)                                                                        \
  do {                                                                                                      \
    const char *check_actual = (actual), *check_expected = (expected);                                      \
    if (check_actual == NULL || strcmp(check_actual, check_expected) != 0)                                  \
      FAIL("%s is \"%s\", not \"%s\"", #actual, check_actual == NULL ? "NULL" : check_actual, check_expected); \
  } while (0)

/* ---- tests by name */

struct test {
  const char *name;
  void (*run)(void);
};

#define TEST(function) { #function, function }

/* Full numbers of rounds are divided by this. */
static uint64_t divide_by = 1;

static inline uint64_t rounds(uint64_t full) {
  uint64_t few = full / divide_by;
  return few == 0 ? 1 : few;
}

/* Run by a tool that makes everything slow: less will do. */
static inline bool is_slow(void) { return divide_by > 100; }

/* A shared library for tests that load one themselves. */
static const char *library_path = NULL;

/* program [--divide N] [--library PATH] [--list | name...]: all tests if none is named. */
static inline int run_tests(const struct test *tests, size_t count, int argc, char **argv) {
  bool named = false;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--list") == 0) {
      for (size_t t = 0; t < count; t++) puts(tests[t].name);
      return 0;
    }
    if (strcmp(argv[i], "--divide") == 0 && i + 1 < argc) {
      divide_by = strtoull(argv[++i], NULL, 10);
      if (divide_by == 0) divide_by = 1;
      continue;
    }
    if (strcmp(argv[i], "--library") == 0 && i + 1 < argc) {
      library_path = argv[++i];
      continue;
    }
    named = true;
    size_t t = 0;
    while (t < count && strcmp(tests[t].name, argv[i]) != 0) t++;
    if (t == count) FAIL("there is no test %s", argv[i]);
    tests[t].run();
  }
  for (size_t t = 0; !named && t < count; t++) {
    tests[t].run();
    printf("ok %s\n", tests[t].name);
    fflush(stdout);
  }
  return 0;
}

#define TEST_MAIN(tests)                                                    \
  int main(int argc, char **argv) {                                         \
    return run_tests(tests, sizeof(tests) / sizeof((tests)[0]), argc, argv); \
  }

/* ---- children */

/* Waits for a child and says how it ended: its exit code, or -signal. */
static inline int end_of_child(pid_t child) {
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Runs something in a forked child, which must end normally within `seconds`: a crash or an endless loop there is a
 * failure here. */
static inline void run_in_child(const char *what, unsigned seconds, void (*body)(void *), void *argument) {
  fflush(stdout);
  fflush(stderr);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(seconds);
    body(argument);
    exit(0);
  }
  int end = end_of_child(child);
  if (end < 0) FAIL("%s: the child was killed by signal %d (%s)", what, -end, strsignal(-end));
  if (end != 0) FAIL("%s: the child failed with %d", what, end);
}

/* ---- the rest */

/* splitmix64: the same numbers every time. */
static inline uint64_t random_next(uint64_t *state) {
  uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
  z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
  return z ^ (z >> 31);
}

/* A number from `low` to `high`, both included. */
static inline uint64_t random_between(uint64_t *state, uint64_t low, uint64_t high) {
  uint64_t span = high - low + 1;
  return span == 0 ? random_next(state) : low + random_next(state) % span;
}

static inline double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#endif
