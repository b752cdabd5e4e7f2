/*
 * Devices from objects.
 *
 * A device is an object of any class with the two functions
 *
 *     slicepool_device_memory allocate(const slicepool_page_request &request);     (slicepool::page() makes one)
 *     void deallocate(const slicepool_device_memory &memory);
 *
 * `allocate` may also answer std::optional<slicepool_device_memory> (none: out of device memory) or
 * result<slicepool_device_memory>, or fill its page in as in C: slicepool_result allocate(request, slicepool_device_memory &).
 * Where void stands, here and below, a function may answer slicepool_result, result<void> or bool (false: failed) instead.
 *
 * And as many of these as it has; each does what the callback of its name in slicepool_device does:
 *
 *     void *map(const slicepool_device_memory &memory);    NULL: failed; or result<void *>. Together with
 *     void unmap(const slicepool_device_memory &memory);
 *     void flush(const slicepool_cache_range &range);      together with
 *     void invalidate(const slicepool_cache_range &range);
 *     void fill(const slicepool_fill_request &request);    or with slicepool_point &point behind it, to be set
 *     std::optional<slicepool_heap_budget> heap_budget(std::uint32_t heap);       none: not known; or the struct itself
 *     std::optional<std::uint64_t> completed(std::uint32_t timeline);             none: not known; or the number itself
 *     bool out_of_memory(const slicepool_shortage &shortage);                     true: try again
 *     void event(const slicepool_event &event);
 *
 * They are called by any thread that uses the owner, several at a time, and may call back into it, but not destroy it. All may
 * throw: see the top of slicepool.hpp. What unmap() and event() throw is lost; heap_budget() and completed() that throw do not
 * know; out_of_memory() that throws has its request refused, which throws that exception.
 */
#ifndef SLICEPOOL_DEVICE_HPP
#define SLICEPOOL_DEVICE_HPP

#include "call.hpp"

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

namespace slicepool {
inline namespace SLICEPOOL_UNITS {

/** In place of a device: pages are host memory of the C library, mapped where they lie. */
struct host_memory {};

namespace detail {
/* ---- which functions a device has */

template <template <class...> class Operation, class = void, class... Arguments>
struct detector : std::false_type {};
template <template <class...> class Operation, class... Arguments>
struct detector<Operation, std::void_t<Operation<Arguments...>>, Arguments...> : std::true_type {};
template <template <class...> class Operation, class... Arguments>
inline constexpr bool has = detector<Operation, void, Arguments...>::value;

template <class D> using allocates = decltype(std::declval<D &>().allocate(std::declval<const slicepool_page_request &>()));
template <class D> using allocates_into = decltype(std::declval<D &>().allocate(
    std::declval<const slicepool_page_request &>(), std::declval<slicepool_device_memory &>()));
template <class D> using deallocates = decltype(std::declval<D &>().deallocate(std::declval<const slicepool_device_memory &>()));
template <class D> using maps = decltype(std::declval<D &>().map(std::declval<const slicepool_device_memory &>()));
template <class D> using unmaps = decltype(std::declval<D &>().unmap(std::declval<const slicepool_device_memory &>()));
template <class D> using flushes = decltype(std::declval<D &>().flush(std::declval<const slicepool_cache_range &>()));
template <class D> using invalidates = decltype(std::declval<D &>().invalidate(std::declval<const slicepool_cache_range &>()));
template <class D> using fills = decltype(std::declval<D &>().fill(std::declval<const slicepool_fill_request &>()));
template <class D> using fills_by = decltype(std::declval<D &>().fill(
    std::declval<const slicepool_fill_request &>(), std::declval<slicepool_point &>()));
template <class D> using budgets = decltype(std::declval<D &>().heap_budget(std::uint32_t{}));
template <class D> using completes = decltype(std::declval<D &>().completed(std::uint32_t{}));
template <class D> using evicts = decltype(std::declval<D &>().out_of_memory(std::declval<const slicepool_shortage &>()));
template <class D> using hears = decltype(std::declval<D &>().event(std::declval<const slicepool_event &>()));

/* A function of that name, whatever it takes: one that cannot be called as a callback is a mistake, not a coincidence. */
template <class D> using names_map = std::enable_if_t<std::is_member_function_pointer_v<decltype(&D::map)>>;
template <class D> using names_unmap = std::enable_if_t<std::is_member_function_pointer_v<decltype(&D::unmap)>>;
template <class D> using names_flush = std::enable_if_t<std::is_member_function_pointer_v<decltype(&D::flush)>>;
template <class D> using names_invalidate = std::enable_if_t<std::is_member_function_pointer_v<decltype(&D::invalidate)>>;
template <class D> using names_fill = std::enable_if_t<std::is_member_function_pointer_v<decltype(&D::fill)>>;
template <class D> using names_budget = std::enable_if_t<std::is_member_function_pointer_v<decltype(&D::heap_budget)>>;
template <class D> using names_completed = std::enable_if_t<std::is_member_function_pointer_v<decltype(&D::completed)>>;
template <class D> using names_shortage = std::enable_if_t<std::is_member_function_pointer_v<decltype(&D::out_of_memory)>>;
template <class D> using names_event = std::enable_if_t<std::is_member_function_pointer_v<decltype(&D::event)>>;

/* ---- what they answer */

template <class T> struct is_result : std::false_type {};
template <class T> struct is_result<result<T>> : std::true_type {};

/* The C answer of a function that answers nothing, whether it succeeded, or why not. */
template <class Body>
slicepool_result answer_of(Body &&body) {
  using Answer = std::decay_t<decltype(body())>;
  if constexpr (std::is_void_v<Answer>) {
    body();
    return SLICEPOOL_OK;
  } else if constexpr (std::is_same_v<Answer, bool>) {
    return body() ? SLICEPOOL_OK : SLICEPOOL_ERROR_DEVICE_FAILED;
  } else if constexpr (std::is_same_v<Answer, result<void>>) {
    return body().code();
  } else {
    static_assert(std::is_same_v<Answer, slicepool_result>,
                  "a device's function answers void, bool, slicepool_result or slicepool::result<void>");
    return body();
  }
}

inline void fill_in(slicepool_device_memory &memory, const slicepool_device_memory &from) noexcept {
  memory.handle = from.handle;
  memory.address = from.address;
  memory.mapped = from.mapped;
  memory.context = from.context;
}

template <class Device>
slicepool_result allocate_page(Device &device, const slicepool_page_request &request, slicepool_device_memory &memory) {
  if constexpr (has<allocates_into, Device>) {
    return answer_of([&] { return device.allocate(request, memory); });
  } else {
    using Answer = std::decay_t<allocates<Device>>;
    if constexpr (std::is_same_v<Answer, slicepool_device_memory>) {
      fill_in(memory, device.allocate(request));
      return SLICEPOOL_OK;
    } else if constexpr (is_result<Answer>::value) {
      auto answer = device.allocate(request);
      if (answer) {
        fill_in(memory, *answer);
      } else {
        memory.device_code = answer.error().details().device_code;
      }
      return answer.code();
    } else {
      static_assert(std::is_same_v<Answer, std::optional<slicepool_device_memory>>,
                    "a device's allocate() answers slicepool_device_memory, or a std::optional or slicepool::result of it");
      const auto answer = device.allocate(request);
      if (!answer) return SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY;
      fill_in(memory, *answer);
      return SLICEPOOL_OK;
    }
  }
}

/* The callbacks of a class of devices. */
template <class Device>
struct callbacks {
  static Device &at(void *user_data) noexcept { return *static_cast<Device *>(user_data); }

  template <class Body>
  static slicepool_result run([[maybe_unused]] void *user_data, Body &&body) noexcept {
    return guarded<slicepool_result>(body, [&]([[maybe_unused]] call *running, slicepool_result answer) noexcept {
#ifndef SLICEPOOL_NO_EXCEPTIONS
      if (running != nullptr) running->keep(user_data, answer, std::current_exception());
#endif
      return answer;
    });
  }

  /* What is thrown here makes no call fail. */
  template <class Body>
  static slicepool_result run_unheard(Body &&body) noexcept {
    return guarded<slicepool_result>(body, [](call *, slicepool_result answer) noexcept { return answer; });
  }

  static slicepool_result allocate(void *user_data, const slicepool_page_request *request,
                                   slicepool_device_memory *memory) noexcept {
    return run(user_data, [&] { return allocate_page(at(user_data), *request, *memory); });
  }

  static slicepool_result deallocate(void *user_data, const slicepool_device_memory *memory) noexcept {
    return run(user_data, [&] { return answer_of([&] { return at(user_data).deallocate(*memory); }); });
  }

  static slicepool_result map(void *user_data, const slicepool_device_memory *memory, void **mapped) noexcept {
    return run(user_data, [&]() -> slicepool_result {
      auto answer = at(user_data).map(*memory);
      if constexpr (is_result<decltype(answer)>::value) {
        if (answer) *mapped = *answer;
        return answer.code();
      } else {
        *mapped = answer;
        return answer != nullptr ? SLICEPOOL_OK : SLICEPOOL_ERROR_DEVICE_FAILED;
      }
    });
  }

  static void unmap(void *user_data, const slicepool_device_memory *memory) noexcept {
    run_unheard([&]() -> slicepool_result {
      at(user_data).unmap(*memory);
      return SLICEPOOL_OK;
    });
  }

  static slicepool_result flush(void *user_data, const slicepool_cache_range *range) noexcept {
    return run(user_data, [&] { return answer_of([&] { return at(user_data).flush(*range); }); });
  }

  static slicepool_result invalidate(void *user_data, const slicepool_cache_range *range) noexcept {
    return run(user_data, [&] { return answer_of([&] { return at(user_data).invalidate(*range); }); });
  }

  static slicepool_result fill(void *user_data, const slicepool_fill_request *request, slicepool_point *until) noexcept {
    return run(user_data, [&] {
      return answer_of([&] {
        if constexpr (has<fills_by, Device>) {
          return at(user_data).fill(*request, *until);
        } else {
          static_cast<void>(until);
          return at(user_data).fill(*request);
        }
      });
    });
  }

  static slicepool_result heap_budget(void *user_data, std::uint32_t heap, slicepool_heap_budget *budget) noexcept {
    return run_unheard([&]() -> slicepool_result {
      const std::optional<slicepool_heap_budget> known = at(user_data).heap_budget(heap);
      if (!known) return SLICEPOOL_ERROR_NOT_SUPPORTED;
      budget->usage = known->usage;
      budget->budget = known->budget;
      return SLICEPOOL_OK;
    });
  }

  static slicepool_result completed(void *user_data, std::uint32_t timeline, std::uint64_t *value) noexcept {
    return run_unheard([&]() -> slicepool_result {
      const std::optional<std::uint64_t> known = at(user_data).completed(timeline);
      if (!known) return SLICEPOOL_ERROR_NOT_SUPPORTED;
      *value = *known;
      return SLICEPOOL_OK;
    });
  }

  static std::int32_t out_of_memory(void *user_data, const slicepool_shortage *shortage) noexcept {
    return guarded<std::int32_t>(
        [&]() -> std::int32_t {
          const bool again = at(user_data).out_of_memory(*shortage);
          return again ? SLICEPOOL_SHORTAGE_RETRY : SLICEPOOL_SHORTAGE_REFUSE;
        },
        [&]([[maybe_unused]] call *running, slicepool_result) noexcept -> std::int32_t {
#ifndef SLICEPOOL_NO_EXCEPTIONS
          if (running != nullptr) running->keep_shortage(user_data, shortage->result, std::current_exception());
#endif
          return SLICEPOOL_SHORTAGE_REFUSE;
        });
  }

  static void event(void *user_data, const slicepool_event *what) noexcept {
    run_unheard([&]() -> slicepool_result {
      at(user_data).event(*what);
      return SLICEPOOL_OK;
    });
  }

  static slicepool_device table(Device *device) noexcept {
    static_assert(has<allocates, Device> || has<allocates_into, Device>,
                  "a device has allocate(const slicepool_page_request &)");
    static_assert(has<deallocates, Device>, "a device has deallocate(const slicepool_device_memory &)");
    static_assert(has<maps, Device> || !has<names_map, Device>,
                  "map() has to take const slicepool_device_memory &");
    static_assert(has<unmaps, Device> || !has<names_unmap, Device>, "unmap() has to take const slicepool_device_memory &");
    static_assert(has<flushes, Device> || !has<names_flush, Device>, "flush() has to take const slicepool_cache_range &");
    static_assert(has<invalidates, Device> || !has<names_invalidate, Device>,
                  "invalidate() has to take const slicepool_cache_range &");
    static_assert(has<fills, Device> || has<fills_by, Device> || !has<names_fill, Device>,
                  "fill() has to take const slicepool_fill_request &");
    static_assert(has<budgets, Device> || !has<names_budget, Device>, "heap_budget() has to take std::uint32_t");
    static_assert(has<completes, Device> || !has<names_completed, Device>, "completed() has to take std::uint32_t");
    static_assert(has<evicts, Device> || !has<names_shortage, Device>,
                  "out_of_memory() has to take const slicepool_shortage &");
    static_assert(has<hears, Device> || !has<names_event, Device>, "event() has to take const slicepool_event &");
    static_assert(has<maps, Device> == has<unmaps, Device>, "a device has map() and unmap(), or neither");
    static_assert(has<flushes, Device> == has<invalidates, Device>, "a device has flush() and invalidate(), or neither");

    auto table = defaults<slicepool_device>();
    table.user_data = const_cast<void *>(static_cast<const volatile void *>(device));
    table.allocate = allocate;
    table.deallocate = deallocate;
    if constexpr (has<completes, Device>) table.completed = completed;
    if constexpr (has<evicts, Device>) table.out_of_memory = out_of_memory;
    if constexpr (has<fills, Device> || has<fills_by, Device>) table.fill = fill;
    if constexpr (has<budgets, Device>) table.heap_budget = heap_budget;
    if constexpr (has<maps, Device>) {
      table.map = map;
      table.unmap = unmap;
    }
    if constexpr (has<flushes, Device>) {
      table.flush = flush;
      table.invalidate = invalidate;
    }
    if constexpr (has<hears, Device>) table.event = event;
    return table;
  }
};

/* ---- who keeps the device */

struct kept_device {
  slicepool_device table;
  void *kept;                     /* the device itself, or a share of it; NULL if it is borrowed */
  void (*destroy)(void *) noexcept;

  void drop() noexcept {
    if (kept != nullptr) destroy(kept);
    kept = nullptr;
  }
};

template <class Kept>
void destroy_kept(void *kept) noexcept { delete static_cast<Kept *>(kept); }

template <class T> struct is_reference : std::false_type {};
template <class T> struct is_reference<std::reference_wrapper<T>> : std::true_type {};
template <class T> struct is_share : std::false_type {};
template <class T> struct is_share<std::shared_ptr<T>> : std::true_type {};

/* What an owner is told about its device, whichever way it gets it. */
template <class Device>
result<kept_device> keep(Device &&device) {
  using Given = std::remove_cv_t<std::remove_reference_t<Device>>;
  if constexpr (std::is_same_v<Given, slicepool_device>) {
    return kept_device{device, nullptr, nullptr};
  } else if constexpr (std::is_same_v<Given, host_memory>) {
    auto table = defaults<slicepool_device>();
    const slicepool_result code = slicepool_host_device(&table);
    if (code != SLICEPOOL_OK) return failure(code);
    return kept_device{table, nullptr, nullptr};
  } else if constexpr (is_reference<Given>::value) {
    return kept_device{callbacks<typename Given::type>::table(&device.get()), nullptr, nullptr};
  } else if constexpr (is_share<Given>::value) {
    if (device == nullptr) return failure(SLICEPOOL_ERROR_INVALID_ARGUMENT);
    const slicepool_device table = callbacks<typename Given::element_type>::table(device.get());
    auto *const kept = new (std::nothrow) Given(std::forward<Device>(device));
    if (kept == nullptr) return failure(SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY);
    return kept_device{table, kept, destroy_kept<Given>};
  } else {
    static_assert(!std::is_lvalue_reference_v<Device>,
                  "hand the device over with std::move(device), or have it borrowed with std::ref(device)");
    static_assert(std::is_class_v<Given>, "a device is an object with allocate() and deallocate()");
    auto *const kept = new (std::nothrow) Given(std::move(device));
    if (kept == nullptr) return failure(SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY);
    return kept_device{callbacks<Given>::table(kept), kept, destroy_kept<Given>};
  }
}
}  // namespace detail

}  // inline namespace
}  // namespace slicepool

#endif
