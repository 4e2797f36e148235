// The ways to wait that are compared: distlock's, polling, and publish/subscribe in its plainest form.
#pragma once

#include <atomic>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>

#include "redis_client.hpp"

namespace bench {

/// One client's lock.
class contender {
  public:
    virtual ~contender() = default;
    /// Returns: false when `stop` came true first. A way whose waiters are all served may ignore it.
    virtual bool lock(const std::atomic<bool>& stop) = 0;
    virtual void unlock() = 0;
};

class distlock_contender final : public contender {
  public:
    distlock_contender(const std::string& where, const std::string& name)
        : redis_(where), mutex_(redis_, name) {}
    bool lock(const std::atomic<bool>&) override {
        mutex_.lock();
        return true;
    }
    void unlock() override { mutex_.unlock(); }

  private:
    distlock::hiredis_connection redis_;
    distlock::mutex<distlock::hiredis_connection> mutex_;
};

/// SET NX by which a rival takes the lock; its token is its process number.
class plain_key {
  public:
    plain_key(const std::string& where, std::string name, std::string_view release)
        : client_(where), name_(std::move(name)), release_(client_.load(release)) {}
    bool take() {
        return client_.run({"SET", name_, token_, "NX", "PX", "30000"})->type == REDIS_REPLY_STATUS;
    }
    void free() {
        if (client_.run({"EVALSHA", release_, "1", name_, token_})->integer != 1)
            throw std::runtime_error("a rival's lock was not its own any more");
    }

  private:
    redis_client client_;
    std::string name_;
    std::string release_;
    std::string token_ = std::to_string(::getpid());
};

/// Tries again and again, after half to one and a half pauses.
class polling_contender final : public contender {
  public:
    polling_contender(const std::string& where, const std::string& name, nanoseconds between)
        : key_(where, name, compare_and_delete),
          between_(between.count() / 2, between.count() * 3 / 2),
          random_(static_cast<std::minstd_rand::result_type>(::getpid())) {}
    bool lock(const std::atomic<bool>& stop) override {
        while (!key_.take()) {
            if (stop) return false;
            pause(nanoseconds{between_(random_)});
        }
        return true;
    }
    void unlock() override { key_.free(); }

  private:
    plain_key key_;
    std::uniform_int_distribution<nanoseconds::rep> between_;
    std::minstd_rand random_;
};

/// Tries again when the release is published, or after 500 ms. It stays subscribed, which spares it commands.
class subscribing_contender final : public contender {
  public:
    subscribing_contender(const std::string& where, const std::string& name)
        : key_(where, name, delete_and_publish), channel_(where) {
        channel_.run({"SUBSCRIBE", name});
    }
    bool lock(const std::atomic<bool>& stop) override {
        for (;;) {
            while (channel_.pushed(nanoseconds{0})) continue;  // of releases before this try
            if (key_.take()) return true;
            if (stop) return false;
            channel_.pushed(now() + 500ms);
        }
    }
    void unlock() override { key_.free(); }

  private:
    static constexpr std::string_view delete_and_publish =
        "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end "
        "redis.call('del', KEYS[1]) redis.call('publish', KEYS[1], '') return 1";
    plain_key key_;
    redis_client channel_;
};

/// A way to wait: its name, and how a client of it is made.
struct way {
    std::string name;
    std::unique_ptr<contender> (*make)(const std::string& where, const std::string& name);
};

template <int Milliseconds>
std::unique_ptr<contender> make_polling(const std::string& where, const std::string& name) {
    return std::make_unique<polling_contender>(where, name, std::chrono::milliseconds{Milliseconds});
}
template <class Contender>
std::unique_ptr<contender> make_contender(const std::string& where, const std::string& name) {
    return std::make_unique<Contender>(where, name);
}

inline const way ours{"distlock", make_contender<distlock_contender>};
inline const way published{"publish/subscribe", make_contender<subscribing_contender>};
inline const way polling_1{"polling, 1 ms", make_polling<1>};
inline const way polling_5{"polling, 5 ms", make_polling<5>};
inline const way polling_100{"polling, 100 ms", make_polling<100>};

}  // namespace bench
