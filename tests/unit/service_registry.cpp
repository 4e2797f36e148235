// The service registry of a connection: what lives as long as it.
#include <atomic>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <distlock/net/service_registry.hpp>

#include "support/catch.hpp"

namespace service_registry_tests {

namespace {

using distlock::service_registry;

struct counted {
    explicit counted(int& ends) : ended(ends) {}
    counted(const counted&) = delete;
    counted& operator=(const counted&) = delete;
    ~counted() { ++ended; }
    int& ended;
};

}  // namespace

TEST_CASE("a service in a registry is made once, and is the same for all callers") {
    service_registry home;
    int made = 0;
    const auto make = [&] {
        ++made;
        return std::make_shared<std::string>("one");
    };
    const auto first = home.get<std::string>(make);
    CHECK(home.get<std::string>(make) == first);
    CHECK(made == 1);
    CHECK(*first == "one");
}

TEST_CASE("each type has its own place in a service registry") {
    service_registry home;
    const auto number = home.get<int>([] { return std::make_shared<int>(1); });
    const auto text = home.get<std::string>([] { return std::make_shared<std::string>("x"); });
    const auto other = home.get<unsigned>([] { return std::make_shared<unsigned>(2U); });
    CHECK(*home.get<int>([] { return std::make_shared<int>(9); }) == 1);
    CHECK(*home.get<unsigned>([] { return std::make_shared<unsigned>(9U); }) == 2U);
    CHECK(home.get<std::string>([] { return std::make_shared<std::string>("y"); }) == text);
    CHECK(*number == 1);
    CHECK(*other == 2U);
}

TEST_CASE("two service registries share nothing") {
    service_registry one;
    service_registry two;
    const auto make = [] { return std::make_shared<int>(1); };
    CHECK(one.get<int>(make) != two.get<int>(make));
}

TEST_CASE("a service in a registry ends with it, unless somebody keeps it") {
    int ended = 0;
    const auto make = [&] { return std::make_shared<counted>(ended); };
    {
        service_registry home;
        home.get<counted>(make);
        CHECK(ended == 0);  // nobody else has it
    }
    CHECK(ended == 1);
    std::shared_ptr<counted> kept;
    {
        service_registry home;
        kept = home.get<counted>(make);
    }
    CHECK(ended == 1);
    kept.reset();
    CHECK(ended == 2);
}

TEST_CASE("a service that could not be made is made the next time") {
    service_registry home;
    CHECK_THROWS_AS(home.get<int>([]() -> std::shared_ptr<int> { throw std::bad_alloc(); }), std::bad_alloc);
    CHECK(*home.get<int>([] { return std::make_shared<int>(3); }) == 3);
}

TEST_CASE("threads that ask at once get the same, made once") {
    service_registry home;
    std::atomic<int> made{0};
    std::vector<std::shared_ptr<int>> got(8);
    {
        std::vector<std::jthread> threads;
        for (auto& mine : got) {
            threads.emplace_back([&] {
                mine = home.get<int>([&] {
                    ++made;
                    return std::make_shared<int>(1);
                });
            });
        }
    }
    CHECK(made == 1);
    for (const auto& one : got) CHECK(one == got.front());
}

}  // namespace service_registry_tests
