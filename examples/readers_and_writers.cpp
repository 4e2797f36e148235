// Readers together or one writer: four threads read and two write, and a line is drawn for each. Usage:
// readers_and_writers [URI]
//
// R: it reads, beside others. W: it writes, alone. A dot: it waits. A reader that comes after a
// waiting writer waits, too.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

using namespace std::chrono_literals;

namespace {

using clk = std::chrono::steady_clock;
using lock = distlock::shared_mutex<distlock::hiredis_connection>;

constexpr auto all_the_time = 400ms;
constexpr int readers = 4;
constexpr int writers = 2;

struct turn {
    clk::time_point asked;
    clk::time_point entered;
    clk::time_point left;
};
using history = std::vector<turn>;

// Each as a process of its own would: with its own connection and its own lock object.
history take_turns(const std::string& uri, bool writes, std::chrono::milliseconds work,
                   std::chrono::milliseconds rest, clk::time_point end) {
    distlock::hiredis_connection redis{uri};
    lock catalogue{redis, "catalogue", {.fencing = true}};
    history turns;
    while (clk::now() < end) {
        const auto asked = clk::now();
        if (writes) {
            const distlock::scoped_lock guard{catalogue};
            const auto entered = clk::now();
            std::this_thread::sleep_for(work);
            turns.push_back({asked, entered, clk::now()});
        } else {
            const distlock::shared_scoped_lock guard{catalogue};
            const auto entered = clk::now();
            std::this_thread::sleep_for(work);
            turns.push_back({asked, entered, clk::now()});
        }
        std::this_thread::sleep_for(rest);
    }
    return turns;
}

std::string drawn(const history& turns, char inside, clk::time_point begin) {
    constexpr std::size_t width = 100;
    std::string line(width, ' ');
    const auto column = [&](clk::time_point at) {
        const auto since =
            std::chrono::duration<double>(at - begin) / all_the_time * static_cast<double>(width);
        return static_cast<std::size_t>(std::clamp(since, 0.0, static_cast<double>(width)));
    };
    for (const turn& one : turns) {
        for (auto c = column(one.asked); c < column(one.entered); ++c) line[c] = '.';
        for (auto c = column(one.entered); c < column(one.left); ++c) line[c] = inside;
    }
    return line;
}

// Returns: how often a writer had it together with anybody else.
int overlaps(const std::vector<history>& all) {
    int found = 0;
    for (std::size_t w = readers; w < all.size(); ++w) {
        for (const turn& mine : all[w]) {
            for (std::size_t other = 0; other < all.size(); ++other) {
                if (other == w) continue;
                found +=
                    static_cast<int>(std::count_if(all[other].begin(), all[other].end(), [&](const turn& t) {
                        return t.entered < mine.left && mine.entered < t.left;
                    }));
            }
        }
    }
    return found;
}

int draw(const std::string& uri) {
    std::vector<history> all(readers + writers);
    const auto begin = clk::now();
    std::vector<std::future<history>> threads;
    for (int i = 0; i < readers + writers; ++i) {
        const bool writes = i >= readers;
        threads.push_back(std::async(std::launch::async, [&, i, writes] {
            return writes ? take_turns(uri, true, 8ms, 45ms + 13ms * i, begin + all_the_time)
                          : take_turns(uri, false, 20ms + 3ms * i, 4ms + 2ms * i, begin + all_the_time);
        }));
    }
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = threads[i].get();
    for (int i = 0; i < readers + writers; ++i) {
        const bool writes = i >= readers;
        std::printf("%s %d |%s|\n", writes ? "writer" : "reader", writes ? i - readers + 1 : i + 1,
                    drawn(all[static_cast<std::size_t>(i)], writes ? 'W' : 'R', begin).c_str());
    }
    const int found = overlaps(all);
    std::printf("%d times a writer was not alone\n", found);
    return found == 0 ? 0 : 1;
}

// What there is beside the guards.
void change_of_mind(distlock::hiredis_connection& redis) {
    lock prices{redis, "prices"};
    prices.lock();
    std::puts("written");
    prices.downgrade();  // others may read what was written, and nobody wrote in between
    std::puts("read again");
    if (prices.try_upgrade()) {
        std::puts("written once more, since nobody else reads");
        prices.unlock();
    } else {
        prices.unlock_shared();
    }
}

void show(std::uint64_t version) { std::printf("version %llu\n", static_cast<unsigned long long>(version)); }
void change(std::uint64_t version) { show(version); }

void in_turn(distlock::hiredis_connection& redis) {
    distlock::shared_mutex catalogue(redis, "catalogue", {.fencing = true});
    {
        const distlock::shared_scoped_lock reading(catalogue);
        show(reading.fencing_token());  // of the last writer
    }
    {
        const distlock::scoped_lock writing(catalogue);
        change(writing.fencing_token());
    }
}

}  // namespace

int main(int argc, char** argv) {
    try {
        std::optional<distlock::testing::redis_server> server;
        if (argc < 2) server.emplace();
        const std::string uri = argc < 2 ? server->uri() : argv[1];
        distlock::hiredis_connection redis{uri};
        in_turn(redis);
        change_of_mind(redis);
        return draw(uri);
    } catch (const std::exception& failed) {
        std::fprintf(stderr, "%s\n", failed.what());
        return 1;
    }
}
