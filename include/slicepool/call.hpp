/* Where calls get their failures from, and the exceptions of their callbacks. */
#ifndef SLICEPOOL_CALL_HPP
#define SLICEPOOL_CALL_HPP

#include "result.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

namespace slicepool {
inline namespace SLICEPOOL_UNITS {

namespace detail {
/* Where a call of this header gets its failure from. One lives on the stack of each call that a callback may fail. */
class call {
 public:
  explicit call([[maybe_unused]] const void *device) noexcept {
    /* Clearing the struct would cost more than some of the calls: the library fills in all it knows when it fails. */
    details_.struct_size = std::min(static_cast<std::uint32_t>(sizeof details_), slicepool_sizeof_failure());
    details_.result = SLICEPOOL_OK;
#ifndef SLICEPOOL_NO_EXCEPTIONS
    device_ = device;
    outer_ = std::exchange(current, this);
#endif
  }

  call(const call &) = delete;
  call &operator=(const call &) = delete;

  ~call() {
#ifndef SLICEPOOL_NO_EXCEPTIONS
    current = outer_;
#endif
  }

  slicepool_failure *details() noexcept { return &details_; }

  /* What became of the call that was given details(). */
  failure failed(slicepool_result code) noexcept {
    auto told = defaults<slicepool_failure>();
    if (details_.result == code) std::memcpy(&told, &details_, details_.struct_size);
    told.struct_size = static_cast<std::uint32_t>(sizeof told);
    told.result = code;
    failure why(told);
#ifndef SLICEPOOL_NO_EXCEPTIONS
    if (shortage_ && code == shortage_code_) return why.caused_by(std::move(shortage_));
    if (code == SLICEPOOL_ERROR_DEVICE_FAILED && failed_) return why.caused_by(std::move(failed_));
    if ((code == SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY || code == SLICEPOOL_ERROR_MAPPING_FAILED) && out_of_memory_) {
      return why.caused_by(std::move(out_of_memory_));
    }
#endif
    return why;
  }

#ifndef SLICEPOOL_NO_EXCEPTIONS
  /* Of several exceptions with one answer the last is kept: what came before it was tried again. */
  void keep(const void *device, slicepool_result answer, std::exception_ptr exception) noexcept {
    if (device != device_) return;
    (answer == SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY ? out_of_memory_ : failed_) = std::move(exception);
  }

  /* The same of out_of_memory(): the request will be refused with this code because of it. */
  void keep_shortage(const void *device, slicepool_result code, std::exception_ptr exception) noexcept {
    if (device != device_) return;
    shortage_ = std::move(exception);
    shortage_code_ = code;
  }

  /* The call of this thread whose callback may run next; none while one runs, so that calls of its own do not count. */
  static inline thread_local call *current = nullptr;

 private:
  const void *device_ = nullptr;
  call *outer_ = nullptr;
  std::exception_ptr failed_, out_of_memory_, shortage_;
  slicepool_result shortage_code_ = SLICEPOOL_OK;
#endif

 private:
  slicepool_failure details_;
};

/* Runs what a callback does; nothing that it throws goes further. `caught` gets the call, or NULL, and the answer. */
template <class Answer, class Body, class Caught>
Answer guarded(Body &&body, [[maybe_unused]] Caught &&caught) noexcept {
#ifdef SLICEPOOL_NO_EXCEPTIONS
  return body();
#else
  call *const running = std::exchange(call::current, nullptr);
  Answer answer{};
  try {
    answer = body();
  } catch (const std::bad_alloc &) {
    answer = caught(running, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  } catch (const error &thrown) {
    const bool short_of_memory = thrown.code() == SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY;
    answer = caught(running, short_of_memory ? SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY : SLICEPOOL_ERROR_DEVICE_FAILED);
  } catch (...) {
    answer = caught(running, SLICEPOOL_ERROR_DEVICE_FAILED);
  }
  call::current = running;
  return answer;
#endif
}
}  // namespace detail

}  // inline namespace
}  // namespace slicepool

#endif
