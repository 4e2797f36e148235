// A gate that stays closed until a test opens it, or ends.
#pragma once

#include <atomic>
#include <thread>

class gate {
  public:
    gate() = default;
    gate(const gate&) = delete;
    gate& operator=(const gate&) = delete;
    ~gate() { open(); }
    void open() noexcept { open_ = true; }
    void close() noexcept { open_ = false; }
    /// Effects: waits until it is open.
    void pass() const noexcept {
        reached_ = true;
        while (!open_) std::this_thread::yield();
    }
    /// Returns: whether a thread has come to it.
    bool reached() const noexcept { return reached_; }

  private:
    std::atomic<bool> open_{false};
    mutable std::atomic<bool> reached_{false};
};
