// A function as an argument, where a template would be compiled for each caller.
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

namespace distlock::detail {

template <class>
class function_ref;

/// A view of something to call, which outlives it. Needs no memory.
template <class Result, class... Arguments>
class function_ref<Result(Arguments...)> {
  public:
    template <class F>
        requires(!std::same_as<std::remove_cvref_t<F>, function_ref>)
    function_ref(F&& f)
    noexcept
        : what_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
          call_([](void* what, Arguments... arguments) -> Result {
              return (*static_cast<std::remove_reference_t<F>*>(what))(std::forward<Arguments>(arguments)...);
          }) {}

    Result operator()(Arguments... arguments) const {
        return call_(what_, std::forward<Arguments>(arguments)...);
    }

  private:
    void* what_;
    Result (*call_)(void*, Arguments...);
};

}  // namespace distlock::detail
