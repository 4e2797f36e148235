// The one place where the library's templates are instantiated: any_lock.hpp.
#include "model/simulator/any_lock.hpp"

#include <distlock/mutex.hpp>
#include <distlock/scoped_lock.hpp>
#include <distlock/wire/handoff.hpp>
#include <distlock/wire/plain.hpp>

namespace sim {

namespace {

template <class Dialect>
class lock_of final : public any_lock {
    using mutex = distlock::mutex<link, Dialect>;
    using access = distlock::detail::guard_access;

  public:
    lock_of(link& over, const std::string& name, const distlock::lock_options& options,
            std::shared_ptr<distlock::lease_observer> observer)
        : mutex_(over, name, options, std::move(observer)) {}

    nanos valid_until(std::uint64_t serial) const override {
        return access::valid_until(mutex_, serial).time_since_epoch();
    }
    bool lock(std::stop_token stop, std::error_code& ec) override { return mutex_.lock(stop, ec); }
    bool try_lock(std::error_code& ec) override { return mutex_.try_lock(ec); }
    bool try_lock_for(nanos span, std::stop_token stop, std::error_code& ec) override {
        return mutex_.try_lock_for(span, stop, ec);
    }
    std::uint64_t lock_guarded(std::stop_token stop) override { return access::lock(mutex_, stop).serial; }
    void unlock_guarded(std::uint64_t serial) override { access::unlock(mutex_, serial); }
    distlock::release_outcome unlock() override { return mutex_.unlock(); }
    std::stop_token lost(std::uint64_t serial) override { return access::lost(mutex_, serial); }
    bool owns_lock() const override { return mutex_.owns_lock(); }
    std::uint64_t fence() const override { return mutex_.fencing_token(); }
    nanos residual() const override { return mutex_.residual(); }

  private:
    mutex mutex_;
};

}  // namespace

std::unique_ptr<any_lock> make_lock(link& over, const std::string& name, const lock_plan& how,
                                    std::shared_ptr<distlock::lease_observer> observer) {
    if (how.handoff)
        return std::make_unique<lock_of<distlock::handoff>>(over, name, how.options, std::move(observer));
    return std::make_unique<lock_of<distlock::plain>>(over, name, how.options, std::move(observer));
}

}  // namespace sim
