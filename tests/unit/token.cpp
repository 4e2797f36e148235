// Owner tokens: their form, that no two are the same, and that a weak one is never made.
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>
#include <unordered_set>
#include <vector>

#include <distlock/base/token.hpp>

#include "support/catch.hpp"

namespace token_tests {

namespace {

using distlock::errc;
using distlock::token;

/// An entropy source that does what its script says: n > 0 gives that many bytes counting up from 0, 0 none,
/// and a negative number fails with that errno.
class scripted_entropy {
  public:
    explicit scripted_entropy(std::vector<int> script) : script_(std::move(script)) {}

    ssize_t operator()(void* into, std::size_t size) {
        REQUIRE(next_ < script_.size());
        const int now = script_[next_++];
        if (now < 0) {
            errno = -now;
            return -1;
        }
        errno = EINTR;  // left over from something else: must mean nothing when bytes came, or none
        REQUIRE(static_cast<std::size_t>(now) <= size);
        for (int i = 0; i < now; ++i) static_cast<unsigned char*>(into)[i] = byte_++;
        return now;
    }
    std::size_t calls() const { return next_; }

  private:
    std::vector<int> script_;
    std::size_t next_ = 0;
    unsigned char byte_ = 0;
};

constexpr std::string_view counted_up = "000102030405060708090a0b0c0d0e0f";

struct borrowed_entropy {
    scripted_entropy* source;
    ssize_t operator()(void* into, std::size_t size) const { return (*source)(into, size); }
};

std::string generate_from(scripted_entropy& source) {
    return std::string(token::generate(borrowed_entropy{&source}).view());
}

void check_no_entropy(std::vector<int> script) {
    scripted_entropy source(std::move(script));
    try {
        const auto made = generate_from(source);
        FAIL("made the token " << made);
    } catch (const distlock::error& e) {
        CHECK(e.code() == errc::no_entropy);
    }
}

}  // namespace

TEST_CASE("a token is 32 lower-case hexadecimal digits") {
    const auto made = token::generate();
    CHECK(made.view().size() == 32);
    CHECK(made.view().find_first_not_of("0123456789abcdef") == std::string_view::npos);
    CHECK_FALSE(made.empty());
}

TEST_CASE("a token spells the bytes of the system in their order") {
    scripted_entropy source({16});
    CHECK(generate_from(source) == counted_up);
}

TEST_CASE("every bit of the system's bytes is in the token") {
    for (std::size_t bit = 0; bit < 128; ++bit) {
        const auto one_bit = [bit](void* into, std::size_t size) {
            std::memset(into, 0, size);
            static_cast<unsigned char*>(into)[bit / 8] = static_cast<unsigned char>(1U << (bit % 8));
            return static_cast<ssize_t>(size);
        };
        std::string expected(32, '0');
        expected[bit / 8 * 2 + (bit % 8 < 4 ? 1 : 0)] = "1248"[bit % 4];
        CHECK(token::generate(one_bit).view() == expected);
    }
}

TEST_CASE("a default-constructed token is empty and unlike every other") {
    const token none;
    CHECK(none.empty());
    CHECK(none.view().empty());
    CHECK(none == token{});
    CHECK_FALSE(none == token::generate());
}

TEST_CASE("a copy of a token is equal to it and reads its own digits") {
    const token made = token::generate();
    const token copy = made;
    CHECK(copy == made);
    CHECK(copy.view().data() != made.view().data());
}

TEST_CASE("a token says the largest fencing token that was used under it, and is the same token") {
    token one = token::generate();
    CHECK(one.fence().empty());
    const token same = one;
    for (const std::uint64_t used : {std::uint64_t{1}, std::uint64_t{1763718245123456}, ~std::uint64_t{0}}) {
        one.fence(used);
        CHECK(one.fence() == std::to_string(used));
        CHECK(one == same);
        CHECK(token(one).fence() == one.fence());
    }
}

TEST_CASE("no two of a hundred thousand tokens are the same") {
    std::unordered_set<std::string> seen;
    constexpr std::size_t many = 100'000;
    for (std::size_t i = 0; i < many; ++i) seen.emplace(token::generate().view());
    CHECK(seen.size() == many);
}

TEST_CASE("parent and child after fork make different tokens") {
    constexpr std::size_t many = 64;
    static_cast<void>(token::generate());  // whatever could be buffered is buffered now
    std::array<int, 2> pipe_ends{};
    REQUIRE(::pipe(pipe_ends.data()) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        for (std::size_t i = 0; i < many; ++i) {
            const auto made = token::generate();
            if (::write(pipe_ends[1], made.view().data(), 32) != 32) ::_exit(1);
        }
        ::_exit(0);
    }
    ::close(pipe_ends[1]);
    std::unordered_set<std::string> seen;
    for (std::size_t i = 0; i < many; ++i) seen.emplace(token::generate().view());
    std::string from_child;
    std::array<char, 4096> chunk{};
    for (ssize_t got = 0; (got = ::read(pipe_ends[0], chunk.data(), chunk.size())) > 0;) {
        from_child.append(chunk.data(), static_cast<std::size_t>(got));
    }
    ::close(pipe_ends[0]);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(from_child.size() == many * 32);
    for (std::size_t i = 0; i < many; ++i) seen.emplace(from_child.substr(i * 32, 32));
    CHECK(seen.size() == 2 * many);
}

TEST_CASE("bytes that come in pieces make one token") {
    scripted_entropy source({1, 7, 3, 5});
    CHECK(generate_from(source) == counted_up);
    CHECK(source.calls() == 4);
}

TEST_CASE("an interrupted system call is made again") {
    scripted_entropy source({-EINTR, -EINTR, 9, -EINTR, 7});
    CHECK(generate_from(source) == counted_up);
    CHECK(source.calls() == 5);
}

TEST_CASE("an entropy source that fails gives an error instead of a token") {
    check_no_entropy({-ENOSYS});
    check_no_entropy({-EAGAIN});
    check_no_entropy({-EFAULT});
    check_no_entropy({15, -EIO});
    check_no_entropy({-EINTR, -EPERM});
}

TEST_CASE("an entropy source that gives no bytes gives an error instead of a token") {
    check_no_entropy({0});
    check_no_entropy({15, 0});
}

TEST_CASE("a token from a server's text is that text, if it is 32 lower-case hexadecimal digits") {
    const token made = token::generate();
    CHECK(token::from(made.view()) == made);
    CHECK(token::from(counted_up).view() == counted_up);
    static_assert(token::from("0123456789abcdef0123456789abcdef").view().size() == 32);
}

TEST_CASE("any other text from a server gives the empty token") {
    const std::string good(counted_up);
    std::vector<std::string> others{"",
                                    good.substr(1),
                                    good + "0",
                                    " " + good.substr(1),
                                    "G" + good.substr(1),
                                    "0x" + good.substr(2),
                                    std::string(32, '\0')};
    for (const char bad : {'A', 'F', 'g', '/', ':', '`', '@', '-', ' ', '\n', '\0', '\xff'}) {
        for (const std::size_t at : {std::size_t{0}, std::size_t{31}}) {
            others.push_back(good);
            others.back()[at] = bad;
        }
    }
    for (const std::string& text : others) {
        INFO(text);
        CHECK(token::from(text).empty());
        CHECK(token::from(text) == token{});
    }
}

}  // namespace token_tests
