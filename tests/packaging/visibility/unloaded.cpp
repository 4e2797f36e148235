// A shared library that is unloaded while a thread of its own ends a first reply, as that of renewals may.
#include <thread>

#include <distlock/wire/reply.hpp>

namespace {

struct background {
    ~background() {
        std::thread([] { static_cast<void>(distlock::reply::nil()); }).join();
    }
};
const background of_the_library;

}  // namespace
