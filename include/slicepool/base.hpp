/* What the other headers build on: the C header, the language, and whether there are exceptions. */
#ifndef SLICEPOOL_BASE_HPP
#define SLICEPOOL_BASE_HPP

#include "../slicepool.h"

#if defined(_MSVC_LANG) ? _MSVC_LANG < 201703L : __cplusplus < 201703L
#error "slicepool.hpp needs C++17"
#endif

#if !defined(SLICEPOOL_NO_EXCEPTIONS) && !defined(__cpp_exceptions) && !defined(_CPPUNWIND)
#define SLICEPOOL_NO_EXCEPTIONS 1
#endif

/* The two kinds of units have types of their own, so that the linker refuses to mix them. */
#ifdef SLICEPOOL_NO_EXCEPTIONS
#define SLICEPOOL_UNITS without_exceptions
#else
#define SLICEPOOL_UNITS with_exceptions
#endif

#endif
