/* What a call came to: a value, or a failure, which is thrown where there are exceptions. */
#ifndef SLICEPOOL_RESULT_HPP
#define SLICEPOOL_RESULT_HPP

#include "structs.hpp"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>

namespace slicepool {
inline namespace SLICEPOOL_UNITS {

/** std::error_code in terms of SLICEPOOL_ERROR_ codes; compares with std::errc where there is a counterpart. */
inline const std::error_category &category() noexcept {
  class codes final : public std::error_category {
   public:
    const char *name() const noexcept override { return "slicepool"; }
    std::string message(int code) const override { return slicepool_result_string(code); }
    std::error_condition default_error_condition(int code) const noexcept override {
      switch (code) {
        case SLICEPOOL_ERROR_INVALID_ARGUMENT: return std::errc::invalid_argument;
        case SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY:
        case SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY: return std::errc::not_enough_memory;
        case SLICEPOOL_ERROR_DEVICE_FAILED: return std::errc::io_error;
        case SLICEPOOL_ERROR_BUSY: return std::errc::device_or_resource_busy;
        case SLICEPOOL_ERROR_NOT_SUPPORTED: return std::errc::not_supported;
        case SLICEPOOL_ERROR_EXHAUSTED: return std::errc::no_buffer_space;
        default: return {code, *this};
      }
    }
  };
  static const codes instance;
  return instance;
}

/** Why a call failed: a code, details, and the device's exception if that was the cause. */
class failure {
 public:
  /** A code without details; also what a device may answer, with its own code. */
  explicit failure(slicepool_result code, std::int32_t device_code = 0) noexcept
      : details_(defaults<slicepool_failure>()) {
    details_.result = code;
    details_.device_code = device_code;
  }

  /** What a function of slicepool.h has told. */
  explicit failure(const slicepool_failure &details) noexcept : details_(details) {}

  /** A SLICEPOOL_ERROR_ code. */
  slicepool_result code() const noexcept { return details_.result; }

  /** Sizes, limits, the device's own code; fields that say nothing about this failure are 0. */
  const slicepool_failure &details() const noexcept { return details_; }

  /** The code for functions that take std::error_code. */
  std::error_code error_code() const noexcept { return {details_.result, category()}; }

  /** A short English text with the most telling details. */
  std::string message() const {
    std::string text = slicepool_result_string(details_.result);
    add(text, "size", details_.size);
    add(text, "limit", details_.limit);
    add(text, "in use", details_.in_use);
    add(text, "pending", details_.pending);
    add(text, "live", details_.live);
    add(text, "in flight", details_.in_flight);
    if (details_.field != nullptr) text.append(", ").append(details_.field).append(" is ") += std::to_string(details_.value);
    if (details_.device_code != 0) text.append(", device code ") += std::to_string(details_.device_code);
    return text;
  }

#ifndef SLICEPOOL_NO_EXCEPTIONS
  /** The exception of the device's callback that made the call fail; empty if there was none. */
  const std::exception_ptr &exception() const noexcept { return exception_; }

  /** The same failure with the exception that caused it. */
  failure caused_by(std::exception_ptr exception) const noexcept {
    failure with = *this;
    with.exception_ = std::move(exception);
    return with;
  }

  /** Throws the device's exception if there is one, otherwise a slicepool::error. */
  [[noreturn]] void raise() const;

 private:
  std::exception_ptr exception_;
#endif

 private:
  static void add(std::string &text, const char *name, std::uint64_t figure) {
    if (figure != 0) text.append(", ").append(name).append(" ") += std::to_string(figure);
  }

  slicepool_failure details_;
};

#ifndef SLICEPOOL_NO_EXCEPTIONS
/** What functions without try_ throw. */
class error : public std::runtime_error {
 public:
  explicit error(const failure &why) : std::runtime_error("slicepool: " + why.message()), why_(why) {}

  /** A SLICEPOOL_ERROR_ code. */
  slicepool_result code() const noexcept { return why_.code(); }

  /** As failure::details(). */
  const slicepool_failure &details() const noexcept { return why_.details(); }

  /** The same as a value. */
  const failure &why() const noexcept { return why_; }

 private:
  failure why_;
};

inline void failure::raise() const {
  if (exception_) std::rethrow_exception(exception_);
  throw error(*this);
}
#endif

namespace detail {
[[noreturn]] inline void refuse([[maybe_unused]] const failure &why) {
#ifndef SLICEPOOL_NO_EXCEPTIONS
  why.raise();
#else
  std::fprintf(stderr, "slicepool: the value of a failed result was asked for: %s\n", slicepool_result_string(why.code()));
  std::abort();
#endif
}
}  // namespace detail

/** What a try_ function came to: a value, or a failure. */
template <class Value>
class [[nodiscard]] result {
 public:
  result(Value value) noexcept(std::is_nothrow_move_constructible_v<Value>)
      : state_(std::in_place_index<0>, std::move(value)) {}
  result(failure why) noexcept : state_(std::in_place_index<1>, std::move(why)) {}

  bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  /** SLICEPOOL_OK if there is a value. */
  slicepool_result code() const noexcept { return has_value() ? SLICEPOOL_OK : error().code(); }

  /** Why there is no value; not to be called if there is one. */
  const failure &error() const noexcept { return *std::get_if<1>(&state_); }

  /** The value. Throws failure::raise() if there is none; without exceptions that ends the process. */
  Value &value() & { return checked(); }
  const Value &value() const & { return const_cast<result *>(this)->checked(); }
  Value &&value() && { return std::move(checked()); }

  /** The value; not to be called if there is none. */
  Value &operator*() & noexcept { return *std::get_if<0>(&state_); }
  const Value &operator*() const & noexcept { return *std::get_if<0>(&state_); }
  Value &&operator*() && noexcept { return std::move(*std::get_if<0>(&state_)); }
  Value *operator->() noexcept { return std::get_if<0>(&state_); }
  const Value *operator->() const noexcept { return std::get_if<0>(&state_); }

  /** The value, or another if there is none. */
  template <class Other>
  Value value_or(Other &&other) && {
    return has_value() ? std::move(**this) : static_cast<Value>(std::forward<Other>(other));
  }

 private:
  Value &checked() {
    if (!has_value()) detail::refuse(error());
    return *std::get_if<0>(&state_);
  }

  std::variant<Value, failure> state_;
};

/** What a try_ function without a value came to. */
template <>
class [[nodiscard]] result<void> {
 public:
  result() noexcept = default;
  result(failure why) noexcept : why_(std::move(why)) {}

  bool has_value() const noexcept { return !why_.has_value(); }
  explicit operator bool() const noexcept { return has_value(); }

  /** SLICEPOOL_OK, or why not. */
  slicepool_result code() const noexcept { return why_.has_value() ? why_->code() : SLICEPOOL_OK; }

  /** Why it failed; not to be called if it did not. */
  const failure &error() const noexcept { return *why_; }

  /** Throws failure::raise() if it failed; without exceptions that ends the process. */
  void value() const {
    if (why_.has_value()) detail::refuse(*why_);
  }

 private:
  std::optional<failure> why_;
};

/**
 * Is told of failures that a destructor cannot throw: `where` is the type that was destroyed. SLICEPOOL_ERROR_BUSY says that
 * slices, buffers (`live`), pending slices (`pending`) or caches (`in_flight`) were left. Must not throw; runs on the thread
 * of the destructor.
 */
using failure_handler = void (*)(const char *where, const failure &why);

namespace detail {
inline void print_failure(const char *where, const failure &why) {
  const slicepool_failure &details = why.details();
  std::fprintf(stderr, "%s: %s (live %llu, pending %llu)\n", where, slicepool_result_string(why.code()),
               static_cast<unsigned long long>(details.live), static_cast<unsigned long long>(details.pending));
}

inline std::atomic<failure_handler> handler{print_failure};

inline void report(const char *where, const failure &why) noexcept {
  if (const failure_handler tell = handler.load(std::memory_order_acquire)) tell(where, why);
}
}  // namespace detail

/** Sets who is told, and answers who was before; at first that prints a line to stderr. NULL: nobody. Any thread. */
inline failure_handler set_failure_handler(failure_handler handler) noexcept {
  return detail::handler.exchange(handler, std::memory_order_acq_rel);
}

}  // inline namespace
}  // namespace slicepool

#endif
