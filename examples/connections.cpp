// The ways to connect, and how other clients come in. Usage: connections [URI]
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>

using namespace std::chrono_literals;

namespace {

// Stands for the Redis client a service already has.
struct legacy_client {
    struct answer {
        char type;  // as the protocol marks it, and '_' for a nil
        std::string text;
        std::int64_t number;
        std::vector<answer> elements;
    };
    bool connected = false;
    // Returns: none when no answer came in time.
    static std::optional<answer> run(std::span<const std::string_view> words, distlock::clock::time_point) {
        return answer{'+', std::string(words[0]), 0, {}};
    }
};

struct my_connection {
    legacy_client& client;

    distlock::reply execute(const distlock::command& cmd) {
        if (!client.connected) return distlock::reply::not_sent(distlock::errc::unreachable, "legacy client");
        const auto answer = client.run(cmd.argv(), cmd.deadline());  // any byte may stand in an argument
        if (!answer)
            return distlock::reply::no_answer(distlock::errc::no_reply, "legacy client");  // may be applied
        return converted(*answer);
    }

  private:
    static distlock::reply converted(const legacy_client::answer& answer) {
        using distlock::reply;
        switch (answer.type) {
            case '$':
                return reply::string(answer.text);
            case ':':
                return reply::integer(answer.number);
            case '+':
                return reply::status(answer.text);
            case '-':
                return reply::error(answer.text);
            case '_':
                return reply::nil();
            case '*': {  // what the server answers when somebody else has the lock
                std::vector<reply> elements;
                for (const auto& element : answer.elements) elements.push_back(converted(element));
                return reply::array(std::move(elements));
            }
        }
        return reply::no_answer(distlock::errc::protocol_error, "legacy client");
    }
};
static_assert(distlock::check_connection<my_connection>());  // says in a sentence what is missing

void show(const std::string& where) {
    distlock::hiredis_connection redis{where};
    auto traced = [&redis](const distlock::command& cmd) {
        std::printf("-> %.*s\n", static_cast<int>(cmd.argv()[0].size()), cmd.argv()[0].data());
        return redis.execute(cmd);
    };
    distlock::mutex orders{traced, "orders:42"};
    const distlock::scoped_lock guard{orders};
}

void masters() {
    distlock::hiredis_connection server{"redis://host:6379"};
    distlock::sentinel_connection master{"redis+sentinel://s1:26379,s2:26379,s3:26379/mymaster"};
    distlock::cluster_connection cluster{"redis+cluster://n1:7000,n2:7000"};
}

void addresses() {
    distlock::hiredis_connection tcp{"redis://worker:secret@cache.internal:6379/2?command_timeout=100ms"};
    distlock::hiredis_connection v6{"redis://[::1]:6379"};
    distlock::hiredis_connection local{"unix:///run/redis/redis.sock?db=2"};
}

}  // namespace

int main(int argc, char** argv) {
    try {
        masters();
        addresses();
        show(argc > 1 ? argv[1] : "redis://127.0.0.1:6379");
    } catch (const distlock::error& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
