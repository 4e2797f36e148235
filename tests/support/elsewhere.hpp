// Work for another thread. std::jthread is compiled anew for each lambda, which takes 20 ms: this is compiled
// once.
#pragma once

#include <memory>
#include <thread>
#include <utility>

#include <distlock/detail/function_ref.hpp>

/// Effects: calls `what` on a thread of its own, to the end.
inline void run_elsewhere(distlock::detail::function_ref<void()> what) {
    std::jthread([what] { what(); }).join();
}

/// Something to call, once, whatever it is.
class work {
  public:
    template <class What>
    explicit work(What what) : what_(std::make_unique<holder_of<What>>(std::move(what))) {}
    void operator()() { what_->call(); }

  private:
    struct holder {
        virtual ~holder() = default;
        virtual void call() = 0;
    };
    template <class What>
    struct holder_of final : holder {
        explicit holder_of(What w) : what(std::move(w)) {}
        void call() override { what(); }
        What what;
    };

    std::unique_ptr<holder> what_;
};
