/* Ranges of bytes that the CPU sees. */
#ifndef SLICEPOOL_BYTES_HPP
#define SLICEPOOL_BYTES_HPP

#include "base.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#if __cplusplus >= 202002L
#include <span>
#endif

namespace slicepool {
inline namespace SLICEPOOL_UNITS {

/** A range of bytes, like std::span<std::byte>, to which it converts where that exists. Owns nothing. */
class byte_span {
 public:
  using element_type = std::byte;
  using iterator = std::byte *;

  constexpr byte_span() noexcept = default;
  constexpr byte_span(std::byte *data, std::size_t size) noexcept : data_(data), size_(size) {}

  constexpr std::byte *data() const noexcept { return data_; }
  constexpr std::size_t size() const noexcept { return size_; }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr std::byte *begin() const noexcept { return data_; }
  constexpr std::byte *end() const noexcept { return data_ + size_; }
  constexpr std::byte &operator[](std::size_t index) const noexcept { return data_[index]; }

  /** The first `count` bytes, or all if there are fewer. */
  constexpr byte_span first(std::size_t count) const noexcept { return {data_, std::min(count, size_)}; }

#ifdef __cpp_lib_span
  constexpr operator std::span<std::byte>() const noexcept { return {data_, size_}; }
#endif

 private:
  std::byte *data_ = nullptr;
  std::size_t size_ = 0;
};

namespace detail {
inline byte_span bytes_at(void *mapped, std::uint64_t size) noexcept {
  if (mapped == nullptr) return {};
  return {static_cast<std::byte *>(mapped), static_cast<std::size_t>(size)};
}
}  // namespace detail

}  // inline namespace
}  // namespace slicepool

#endif
