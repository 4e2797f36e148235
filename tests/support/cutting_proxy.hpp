// A proxy in front of a server that passes every byte on, until it is told where to cut.
//
//   class cutting_proxy {
//     explicit cutting_proxy(std::string socket_path);     // of the server; or its loopback port
//     std::string uri(options) const;  std::uint16_t port() const;
//     void cut(rule);                                      // from now on, instead of any rule before
//     void leave_alone();                                  // no rule
//     void forget();                                       // no rule, and nothing counted yet
//     void deliver();                                      // what was delayed: the server gets it, nobody its reply
//     int connections() const;
//     std::vector<words> requests(which) const;            // whole ones that came, since the beginning
//     std::vector<made> cuts() const;                      // what was cut, in order
//   };
//
// One thread does everything. A request, and a reply, is looked at when the whole of it has come; therefore what a rule
// cuts, and where, does not depend on how the bytes travel. Bytes that are no array of strings make a connection pass
// whatever comes on it.
#pragma once

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

class cutting_proxy {
  public:
    using words = std::vector<std::string>;
    using which = std::function<bool(const words&)>;

    enum class part { request, reply };
    enum class ending {
        reset,    ///< RST to the client
        close,    ///< FIN to the client
        silence,  ///< the connection stays open, and nothing passes on it any more in either direction
        delay,  ///< as silence, but the rest of the request is kept, and reaches the server when the test says so
    };

    struct rule {
        part of = part::request;
        which command = {};     ///< whose request or reply; none: any. Called on the proxy's thread
        std::size_t after = 0;  ///< so many bytes of it still pass; more than it has: all of it
        ending how = ending::reset;
        int first = 1;  ///< of the requests or replies that match from now on, counted from 1
        int times = 1;  ///< so many in a row, each on whatever connection it comes
    };
    struct made {
        part of;
        words command;
        std::size_t size;    ///< of the request or reply, in bytes
        std::size_t passed;  ///< of them
    };

    explicit cutting_proxy(std::string socket_path) : socket_path_(std::move(socket_path)) { start(); }
    explicit cutting_proxy(std::uint16_t server_port) : server_port_(server_port) { start(); }
    cutting_proxy(const cutting_proxy&) = delete;
    cutting_proxy& operator=(const cutting_proxy&) = delete;
    /// Effects: ends every connection.
    ~cutting_proxy() {
        {
            const std::lock_guard guard(lock_);
            ending_ = true;
        }
        wake();
        thread_.join();
        ::close(listener_);
        ::close(bell_);
    }

    std::uint16_t port() const noexcept { return port_; }
    std::string uri(const std::string& options = "") const {
        return "redis://127.0.0.1:" + std::to_string(port_) + options;
    }

    void cut(rule r) {
        const std::lock_guard guard(lock_);
        rule_ = std::move(r);
    }
    void leave_alone() {
        const std::lock_guard guard(lock_);
        rule_.reset();
    }

    void forget() {
        const std::lock_guard guard(lock_);
        rule_.reset();
        connections_ = 0;
        requests_.clear();
        cuts_.clear();
    }
    void deliver() {
        {
            const std::lock_guard guard(lock_);
            delivering_ = true;
        }
        wake();
    }

    int connections() const {
        const std::lock_guard guard(lock_);
        return connections_;
    }
    std::vector<words> requests(const which& these = {}) const {
        const std::lock_guard guard(lock_);
        std::vector<words> out;
        for (const words& w : requests_) {
            if (!these || these(w)) out.push_back(w);
        }
        return out;
    }
    std::vector<made> cuts() const {
        const std::lock_guard guard(lock_);
        return cuts_;
    }

  private:
    // A conversation: two sockets, and what has come and not gone yet.
    struct line {
        int client = -1;
        int server = -1;
        std::string request;  // not whole yet
        std::string reply;    // not whole yet
        std::string to_server;
        std::string to_client;
        std::string late;  // delayed
        std::deque<words> unanswered;
        bool opaque = false;        // passed as it comes
        bool client_ended = false;  // it will send no more
        bool server_ended = false;
        bool told_server = false;   // that the client will send no more
        std::optional<ending> cut;  // is due as soon as what may still pass has passed
        bool dead = false;          // it was cut; only the client's end is waited for
    };

    static constexpr std::size_t not_whole = 0;
    static constexpr std::size_t not_ours = static_cast<std::size_t>(-1);

    void start() {
        listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        sockaddr_in address = loopback(0);
        socklen_t size = sizeof address;
        auto* const any = reinterpret_cast<sockaddr*>(&address);
        bell_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (::bind(listener_, any, size) != 0 || ::getsockname(listener_, any, &size) != 0 ||
            ::listen(listener_, 128) != 0 || bell_ < 0) {
            throw std::runtime_error("no cutting proxy");
        }
        port_ = ntohs(address.sin_port);
        thread_ = std::thread([this] { run(); });
    }

    static sockaddr_in loopback(std::uint16_t port) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.sin_port = htons(port);
        return address;
    }

    void run() {
        std::vector<pollfd> polled;
        for (;;) {
            polled.assign({{bell_, POLLIN, 0}, {listener_, POLLIN, 0}});
            for (const line& l : lines_) {
                // What has ended reports that again and again.
                const bool client_over = l.client_ended && l.to_client.empty();
                polled.push_back(
                    {client_over ? -1 : l.client, wanted(!l.client_ended, !l.to_client.empty()), 0});
                const bool server_over = l.server_ended || (l.dead && l.to_server.empty());
                polled.push_back({server_over ? -1 : l.server, wanted(!l.dead, !l.to_server.empty()), 0});
            }
            if (::poll(polled.data(), polled.size(), -1) < 0) continue;  // EINTR
            if (polled[0].revents != 0 && !answer_bell()) break;
            std::size_t at = 2;
            for (auto l = lines_.begin(); l != lines_.end(); at += 2) {
                const bool goes_on = step(*l, polled[at].revents != 0, polled[at + 1].revents != 0);
                if (!goes_on) hang_up(*l, false);
                l = goes_on ? std::next(l) : lines_.erase(l);
            }
            if (polled[1].revents != 0) accept_one();
        }
        for (line& l : lines_) hang_up(l, false);
    }

    void wake() {
        const std::uint64_t one = 1;
        [[maybe_unused]] const auto written = ::write(bell_, &one, sizeof one);
    }

    // Returns: false when the end has come.
    bool answer_bell() {
        std::uint64_t rung = 0;
        [[maybe_unused]] const auto read = ::read(bell_, &rung, sizeof rung);
        const std::lock_guard guard(lock_);
        if (std::exchange(delivering_, false)) {
            for (line& l : lines_) l.to_server += std::exchange(l.late, {});
        }
        return !ending_;
    }

    static short wanted(bool reading, bool writing) {
        return static_cast<short>((reading ? POLLIN : 0) | (writing ? POLLOUT : 0));
    }

    void accept_one() {
        line l;
        l.client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (l.client < 0) return;
        no_delay(l.client);
        l.server = connect_to_server();
        const std::lock_guard guard(lock_);
        ++connections_;
        if (l.server < 0) return hang_up(l, true);
        lines_.push_back(std::move(l));
    }

    int connect_to_server() const {
        const bool local = !socket_path_.empty();
        sockaddr_un by_path{};
        by_path.sun_family = AF_UNIX;
        std::memcpy(by_path.sun_path, socket_path_.data(),
                    std::min(socket_path_.size(), sizeof by_path.sun_path - 1));
        const sockaddr_in by_port = loopback(server_port_);
        const int fd = ::socket(local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const auto* const where =
            local ? reinterpret_cast<const sockaddr*>(&by_path) : reinterpret_cast<const sockaddr*>(&by_port);
        if (::connect(fd, where, local ? sizeof by_path : sizeof by_port) != 0) {
            ::close(fd);
            return -1;
        }
        if (!local) no_delay(fd);
        return fd;
    }

    static void no_delay(int fd) {
        const int on = 1;
        ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }

    // Returns: false when the conversation is over.
    bool step(line& l, bool client_ready, bool server_ready) {
        std::string from_client;
        std::string from_server;
        if (client_ready && !l.client_ended) l.client_ended = !receive(l.client, from_client);
        if (l.dead) {
            return pass_on(l.server, l.to_server) &&
                   !(l.client_ended && l.late.empty() && l.to_server.empty());
        }
        if (server_ready && !l.server_ended) l.server_ended = !receive(l.server, from_server);
        take_requests(l, from_client);
        take_replies(l, from_server);
        if (!pass_on(l.server, l.to_server)) l.to_server.clear();  // what it said before it went still passes
        if (!pass_on(l.client, l.to_client)) return false;
        const bool delivered = l.to_server.empty() && l.to_client.empty();
        if (l.cut && delivered && l.unanswered.empty()) return end(l);
        if (l.server_ended && l.to_client.empty()) return false;
        if (l.client_ended && l.to_server.empty() && !std::exchange(l.told_server, true)) {
            ::shutdown(l.server, SHUT_WR);
        }
        return true;
    }

    // Returns: false when nothing more will come.
    static bool receive(int fd, std::string& into) {
        char chunk[16384];
        const auto n = ::recv(fd, chunk, sizeof chunk, MSG_DONTWAIT);
        if (n > 0) into.assign(chunk, static_cast<std::size_t>(n));
        return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
    }

    static bool pass_on(int fd, std::string& bytes) {
        while (!bytes.empty()) {
            const auto n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n < 0) return errno == EAGAIN || errno == EINTR;
            bytes.erase(0, static_cast<std::size_t>(n));
        }
        return true;
    }

    void take_requests(line& l, std::string_view came) {
        l.request += came;
        while (!l.opaque && !l.request.empty() && !l.cut) {
            words command;
            const std::size_t size = length_of(l.request, 0, &command);
            if (size == not_whole) break;
            l.opaque = size == not_ours || command.empty();
            if (l.opaque) break;
            const auto passes = judge(part::request, command, size);
            l.to_server.append(l.request, 0, passes.value_or(size));
            if (passes && due_ == ending::delay) l.late = l.request.substr(*passes, size - *passes);
            l.request.erase(0, size);
            if (passes) {
                l.cut = due_;
            } else {
                l.unanswered.push_back(std::move(command));
            }
        }
        if (l.cut) l.request.clear();
        if (l.opaque || l.client_ended) l.to_server += std::exchange(l.request, {});
    }

    // After a cut of a request, replies to those before it still pass.
    void take_replies(line& l, std::string_view came) {
        l.reply += came;
        while (!l.opaque && !l.unanswered.empty() && !l.reply.empty()) {
            const std::size_t size = length_of(l.reply, 0, nullptr);
            if (size == not_whole) break;
            l.opaque = size == not_ours;
            if (l.opaque) break;
            const auto passes = l.cut ? std::nullopt : judge(part::reply, l.unanswered.front(), size);
            l.to_client.append(l.reply, 0, passes.value_or(size));
            l.reply.erase(0, size);
            l.unanswered.pop_front();
            if (!passes) continue;
            l.cut = due_;
            l.unanswered.clear();
        }
        if (l.cut && l.unanswered.empty()) l.reply.clear();
        if (l.opaque || l.unanswered.empty() || l.server_ended) l.to_client += std::exchange(l.reply, {});
    }

    // Returns: how many bytes pass before a cut; none when there is no cut.
    std::optional<std::size_t> judge(part of, const words& command, std::size_t size) {
        const std::lock_guard guard(lock_);
        if (of == part::request) requests_.push_back(command);
        if (!rule_ || rule_->of != of || (rule_->command && !rule_->command(command))) return std::nullopt;
        if (--rule_->first > 0) return std::nullopt;
        const std::size_t passes = std::min(rule_->after, size);
        due_ = rule_->how;
        cuts_.push_back({of, command, size, passes});
        if (--rule_->times <= 0) rule_.reset();
        return passes;
    }

    // Returns: whether there is a client left to wait for.
    static bool end(line& l) {
        switch (*l.cut) {
            case ending::reset:
                hang_up(l, true);
                return false;
            case ending::close:
                ::shutdown(l.client, SHUT_WR);
                ::close(std::exchange(l.server, -1));
                break;
            case ending::silence:
            case ending::delay:
                break;
        }
        l.dead = true;
        return !l.client_ended || !l.late.empty();
    }

    static void hang_up(line& l, bool reset) {
        const linger at_once{1, 0};
        if (reset) ::setsockopt(l.client, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        for (int* const fd : {&l.client, &l.server}) {
            if (*fd >= 0) ::close(std::exchange(*fd, -1));
        }
    }

    // Returns: the size of the reply, or request, that begins at `from`; not_whole or not_ours. `strings`: where to put those
    // of an array of nothing but strings; anything else is not ours then.
    static std::size_t length_of(std::string_view bytes, std::size_t from, words* strings) {
        const auto line_end = bytes.find("\r\n", from);
        if (from < bytes.size() && std::string_view("+-:$*").find(bytes[from]) == std::string_view::npos)
            return not_ours;
        if (strings != nullptr && from < bytes.size() && bytes[from] != '*') return not_ours;
        if (line_end == std::string_view::npos) return not_whole;
        std::size_t end = line_end + 2;
        const char kind = bytes[from];
        if (kind != '$' && kind != '*') return end;
        long long count = 0;
        const char* const digits_end = bytes.data() + line_end;
        const auto [stop, wrong] = std::from_chars(bytes.data() + from + 1, digits_end, count);
        if (wrong != std::errc{} || stop != digits_end) return not_ours;
        if (kind == '$') return with_string(bytes, end, count);
        for (long long i = 0; i < count; ++i) {
            if (strings != nullptr && end < bytes.size() && bytes[end] != '$') return not_ours;
            const std::size_t next = length_of(bytes, end, nullptr);
            if (next == not_whole || next == not_ours) return next;
            if (strings != nullptr) {
                const std::size_t text = bytes.find("\r\n", end) + 2;
                if (next < text + 2) return not_ours;  // nil
                strings->emplace_back(bytes.substr(text, next - 2 - text));
            }
            end = next;
        }
        return end;
    }
    static std::size_t with_string(std::string_view bytes, std::size_t from, long long count) {
        if (count < 0) return from;
        const std::size_t end = from + static_cast<std::size_t>(count) + 2;
        return end <= bytes.size() ? end : not_whole;
    }

    std::string socket_path_;
    std::uint16_t server_port_ = 0;
    int listener_ = -1;
    int bell_ = -1;
    std::uint16_t port_ = 0;

    std::list<line> lines_;  // the thread's alone
    ending due_{};           // the thread's alone: of the cut that was judged last

    mutable std::mutex lock_;
    std::optional<rule> rule_;
    bool delivering_ = false;
    bool ending_ = false;
    int connections_ = 0;
    std::vector<words> requests_;
    std::vector<made> cuts_;
    std::thread thread_;
};
