// Fencing tokens, the consumer's side, in Redis: a key that refuses the late write of an
// owner that lost its lock.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "fencing/story.hpp"

namespace {

// One hash holds the value and the fence, so that one key is enough, in a cluster, too. Lua's numbers are
// exact up to 2^53; tokens grow by the microsecond and get there in the year 2255.
constexpr distlock::script fenced{R"(-- KEYS: account. ARGV: fence, the new balance or ''.
-- Returns the balance. Nil: there was a larger fence.
local last = redis.call('hget', KEYS[1], 'fence') or '1' -- 0 comes of a lock without .fencing
if tonumber(last) > tonumber(ARGV[1]) then return false end
redis.call('hset', KEYS[1], 'fence', ARGV[1])
if ARGV[2] ~= '' then redis.call('hset', KEYS[1], 'balance', ARGV[2]) end
return redis.call('hget', KEYS[1], 'balance'))"};

// Any client would do; often the data are on another server than the locks.
class redis_account {
  public:
    redis_account(distlock::hiredis_connection& redis, std::int64_t balance) : redis_(redis) {
        write(1, balance);
    }

    std::optional<std::int64_t> read(std::uint64_t fence) { return run(fence, ""); }
    bool write(std::uint64_t fence, std::int64_t balance) {
        return run(fence, std::to_string(balance)).has_value();
    }

  private:
    std::optional<std::int64_t> run(std::uint64_t fence, const std::string& balance) {
        const std::string token = std::to_string(fence);
        const auto answer = distlock::execute(redis_, {fenced, {"data:account:7"}, {token, balance}});
        if (answer.is(distlock::reply_kind::nil)) return std::nullopt;
        if (!answer.is(distlock::reply_kind::string)) throw std::runtime_error(answer.text());
        return std::stoll(answer.text());
    }

    distlock::hiredis_connection& redis_;
};

}  // namespace

int main() {
    try {
        distlock::testing::redis_server server;
        distlock::hiredis_connection redis{server.uri()};
        redis_account account{redis, 100};
        fencing::narrator teller;
        std::puts("A hash in Redis that refuses older tokens.");
        fencing::play(teller, server.uri(), account);
        return teller.failures();
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
