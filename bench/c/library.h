/* The shared library, as programs open it at run time. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include "slicepool.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void need(int condition, const char *what) {
  if (condition) return;
  fprintf(stderr, "%s\n", what);
  exit(1);
}

/* NULL if it is not there. */
static inline void *open_library(const char *path) { return dlopen(path, RTLD_NOW); }

/* Sets a pointer to a function of the library by its name. Pointers to data and to functions have the same size where
 * there are shared libraries. */
#define FUNCTION(library, name, to)                  \
  do {                                               \
    void *function_found = dlsym(library, name);     \
    need(function_found != NULL, name);              \
    memcpy(&(to), &function_found, sizeof(to));      \
  } while (0)

#endif
