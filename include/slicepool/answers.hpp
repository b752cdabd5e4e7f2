/* What calls of slicepool.h answer, in the words of C++. */
#ifndef SLICEPOOL_ANSWERS_HPP
#define SLICEPOOL_ANSWERS_HPP

#include "call.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <type_traits>
#include <vector>

namespace slicepool {
inline namespace SLICEPOOL_UNITS {

namespace detail {
inline result<void> outcome(slicepool_result code) noexcept {
  if (code != SLICEPOOL_OK) return failure(code);
  return {};
}

inline result<void> outcome(slicepool_result code, call &of) noexcept {
  if (code != SLICEPOOL_OK) return of.failed(code);
  return {};
}

/* For a program that asked for the details in a struct of its own, which may be of another version. */
inline void copy_details(const failure &why, slicepool_failure &to) noexcept {
  const std::uint32_t size = std::min(to.struct_size, static_cast<std::uint32_t>(sizeof to));
  if (size <= sizeof size) return;
  std::memcpy(reinterpret_cast<char *>(&to) + sizeof size, reinterpret_cast<const char *>(&why.details()) + sizeof size,
              size - sizeof size);
}

/* A function of slicepool.h that fills in one struct. */
template <class Struct, class Get>
result<Struct> filled(Get &&get) noexcept {
  auto value = defaults<Struct>();
  const slicepool_result code = get(&value);
  if (code != SLICEPOOL_OK) return failure(code);
  return value;
}

/* A function of slicepool.h that lists pools. */
template <class Get>
result<std::vector<slicepool_pool_options>> listed_pools(Get &&get) {
  std::uint32_t count = 0;
  slicepool_result code = get(static_cast<slicepool_pool_options *>(nullptr), 0U, &count);
  if (code != SLICEPOOL_OK) return failure(code);
  std::vector<slicepool_pool_options> pools(count, defaults<slicepool_pool_options>());
  code = get(pools.data(), count, &count);
  if (code != SLICEPOOL_OK) return failure(code);
  return pools;
}

template <class Shown, class Visit>
struct visitor {
  Visit &visit;
#ifndef SLICEPOOL_NO_EXCEPTIONS
  std::exception_ptr thrown{};
#endif

  static std::int32_t show(void *user_data, const Shown *shown) noexcept {
    visitor &self = *static_cast<visitor *>(user_data);
#ifndef SLICEPOOL_NO_EXCEPTIONS
    try {
      return self.go_on(*shown);
    } catch (...) {
      self.thrown = std::current_exception();
      return SLICEPOOL_WALK_STOP;
    }
#else
    return self.go_on(*shown);
#endif
  }

  std::int32_t go_on(const Shown &shown) {
    using Answer = decltype(visit(shown));
    if constexpr (std::is_void_v<Answer>) {
      visit(shown);
      return SLICEPOOL_WALK_CONTINUE;
    } else {
      static_assert(std::is_same_v<Answer, bool>, "a function that is shown something answers void, or whether to go on");
      return visit(shown) ? SLICEPOOL_WALK_CONTINUE : SLICEPOOL_WALK_STOP;
    }
  }

  result<void> end(slicepool_result code) {
#ifndef SLICEPOOL_NO_EXCEPTIONS
    if (thrown) std::rethrow_exception(thrown);
#endif
    if (code != SLICEPOOL_OK) return failure(code);
    return {};
  }
};
}  // namespace detail

}  // inline namespace
}  // namespace slicepool

#endif
