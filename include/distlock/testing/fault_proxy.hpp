// A proxy in front of a server that does to a conversation what networks do: cuts it at any byte, delays,
// holds, slices, rewrites.
//
//   class fault_proxy : public fault_plan {                // which says what is done
//     explicit fault_proxy(std::string socket_path);       // of the server; or its loopback port
//     std::string uri(options) const;  std::uint16_t port() const;
//     void deliver();  // what a cut delayed: the server gets it, nobody its reply
//   };
#pragma once

#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <iterator>
#include <list>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/detail/system_io.hpp>
#include <distlock/testing/child_process.hpp>
#include <distlock/testing/fault_plan.hpp>
#include <distlock/testing/paced_bytes.hpp>
#include <distlock/testing/raw_client.hpp>
#include <distlock/testing/request_framing.hpp>

namespace distlock::testing {

/// One thread does everything. A request, and a reply, is looked at when the whole of it has come; therefore
/// what a rule cuts, and where, does not depend on how the bytes travel. Bytes that are no array of strings
/// make a connection pass whatever comes on it. All members may be called from several threads.
class fault_proxy final : public fault_plan {
  public:
    /// Throws: error(errc::invalid_option) for a path or port that no server can have;
    /// error(errc::no_server) when there is no port for the proxy; std::system_error when there is no
    /// descriptor or no thread.
    explicit fault_proxy(std::string socket_path) : socket_path_(std::move(socket_path)) { start(); }
    explicit fault_proxy(std::uint16_t server_port) : server_port_(server_port) { start(); }
    fault_proxy(const fault_proxy&) = delete;
    fault_proxy& operator=(const fault_proxy&) = delete;
    /// Effects: ends every connection.
    ~fault_proxy() {
        ending_ = true;
        heed();
        thread_.join();
    }

    std::uint16_t port() const noexcept { return port_; }
    /// Returns: the proxy's URI, and `options` behind it, such as "?command_timeout=1s".
    std::string uri(const std::string& options = "") const {
        return "redis://127.0.0.1:" + std::to_string(port_) + options;
    }

    /// Effects: what ending::delay kept reaches the server; nobody gets the replies.
    void deliver() {
        delivering_ = true;
        heed();
    }

  private:
    using time_point = clock::time_point;

    void heed() noexcept override { wake_.set(); }

    // A conversation: two sockets, and what has come and not gone yet.
    struct line {
        int number = 0;
        std::uint64_t calms = 0;
        int client = -1;
        int server = -1;
        bool connecting = true;  // the server has not accepted it yet
        std::string request;     // not whole yet
        impl::frame_end request_end;
        std::string reply;  // not whole yet
        impl::frame_end reply_end;
        impl::paced_bytes to_server;
        impl::paced_bytes to_client;
        std::string late;  // kept by a cut
        std::deque<words> unanswered;
        std::uint64_t requests = 0;  // so far
        std::uint64_t replies = 0;
        std::uint64_t messages = 0;
        bool opaque = false;        // passed as it comes
        bool subscribed = false;    // messages may come between the replies
        bool client_ended = false;  // it will send no more
        bool server_ended = false;
        bool told_server = false;   // that the client will send no more
        std::optional<ending> cut;  // is due as soon as what may still pass has passed
        bool dead = false;          // it was cut; only the client's end is waited for
    };

    void start() {
        if (server_port_ == 0 &&
            (socket_path_.empty() || socket_path_.size() > detail::longest_socket_path)) {
            throw error(errc::invalid_option, "fault proxy: a server's socket has a path of 1 to " +
                                                  std::to_string(detail::longest_socket_path) +
                                                  " bytes, or a port that is not 0");
        }
        listener_ = detail::open_socket(AF_INET, detail::when_busy::fail);
        sockaddr_in address = loopback(0);
        socklen_t size = sizeof address;
        auto* const any = reinterpret_cast<sockaddr*>(&address);
        if (::bind(listener_.get(), any, size) != 0 || ::getsockname(listener_.get(), any, &size) != 0 ||
            ::listen(listener_.get(), 128) != 0) {
            throw error(errc::no_server, "no fault proxy: " + std::generic_category().message(errno));
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
            polled.assign({{wake_.fd(), POLLIN, 0}, {listener_.get(), POLLIN, 0}});
            const auto now = clock::now();
            const paces now_at = present();
            time_point next = time_point::max();
            for (line& l : links_) {
                hurry(l, now_at);
                if (l.connecting) {
                    polled.push_back({-1, 0, 0});
                    polled.push_back({is_by_port() ? l.server : -1, POLLOUT, 0});
                    next = std::min(next, next_dial_);
                    continue;
                }
                const bool to_client = l.to_client.due(now, now_at.replies, next);
                const bool to_server = l.to_server.due(now, now_at.requests, next);
                // An ended descriptor reports that again and again.
                const bool client_over = l.client_ended && !to_client;
                polled.push_back({client_over ? -1 : l.client, wanted(!l.client_ended, to_client), 0});
                const bool server_over = (l.server_ended || l.dead) && !to_server;
                polled.push_back(
                    {server_over ? -1 : l.server, wanted(!l.server_ended && !l.dead, to_server), 0});
            }
            if (::poll(polled.data(), detail::cast_where_needed<nfds_t>(polled.size()),
                       milliseconds_to(next, now)) < 0)
                continue;  // EINTR
            if (polled[0].revents != 0 && !answer_bell()) break;
            const auto then = clock::now();
            const bool dials = then >= next_dial_;
            if (dials) next_dial_ = then + dial_pause;
            std::size_t at = 2;
            for (auto l = links_.begin(); l != links_.end(); at += 2) {
                const bool server_ready = polled[at + 1].revents != 0;
                const bool refused = l->connecting && (server_ready || dials) && !dial(*l);
                const bool over =
                    refused || (!l->connecting && !step(*l, polled[at].revents != 0, server_ready));
                if (over) hang_up(*l, refused);
                l = over ? links_.erase(l) : std::next(l);
            }
            if (polled[1].revents != 0) accept_one();
        }
        for (line& l : links_) hang_up(l, false);
    }

    static int milliseconds_to(time_point when, time_point now) {
        if (when == time_point::max()) return -1;
        using namespace std::chrono_literals;
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(when - now);
        return static_cast<int>(std::clamp<std::chrono::milliseconds>(left, 0ms, 1h).count());
    }

    // Returns: false when the end has come.
    bool answer_bell() {
        wake_.reset();
        if (delivering_.exchange(false)) {
            for (line& l : links_) l.to_server.add(std::exchange(l.late, {}), {});
        }
        return !ending_;
    }

    static short wanted(bool reading, bool writing) {
        return static_cast<short>((reading ? POLLIN : 0) | (writing ? POLLOUT : 0));
    }

    void accept_one() {
        line l;
        l.client = detail::accept_socket(listener_.get()).release();
        if (l.client < 0) return impl::nap(std::chrono::milliseconds{1});  // EMFILE: it is there still
        no_delay(l.client);
        l.number = count_connection();
        if (!dial(l)) return hang_up(l, true);
        links_.push_back(std::move(l));
    }

    // Effects: asks the server for a connection, or whether it is there: one that stands still must not hold
    // the other lines. Returns: false when there will be none.
    bool dial(line& l) const {
        if (l.server < 0) l.server = open_socket();
        l.connecting = !connect(l.server);
        if (l.connecting && errno == EALREADY) {  // TCP itself would try again after seconds
            ::close(l.server);
            l.server = open_socket();
            l.connecting = !connect(l.server);
        }
        if (!l.connecting && is_by_port()) no_delay(l.server);
        return !l.connecting || errno == EINPROGRESS || errno == EALREADY || errno == EAGAIN ||
               errno == EINTR;
    }
    bool is_by_port() const noexcept { return socket_path_.empty(); }
    // Returns: one that does not wait; -1 where there is no descriptor.
    int open_socket() const noexcept {
        return detail::open_socket(is_by_port() ? AF_INET : AF_UNIX, detail::when_busy::fail).release();
    }
    // Returns: whether there is a connection; else see errno.
    bool connect(int socket) const {
        sockaddr_un by_path{};
        by_path.sun_family = AF_UNIX;
        std::memcpy(by_path.sun_path, socket_path_.data(), socket_path_.size());
        const sockaddr_in by_port = loopback(server_port_);
        const auto* const where = is_by_port() ? reinterpret_cast<const sockaddr*>(&by_port)
                                               : reinterpret_cast<const sockaddr*>(&by_path);
        return ::connect(socket, where, is_by_port() ? sizeof by_port : sizeof by_path) == 0 ||
               errno == EISCONN;
    }

    // Before anything is added by these paces: what comes after leave_alone() may be delayed anew.
    static void hurry(line& l, const paces& by) {
        if (std::exchange(l.calms, by.calms) == by.calms) return;
        l.to_client.hurry();
        l.to_server.hurry();
    }

    static void no_delay(int fd) {
        const int on = 1;
        ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }

    // Returns: false when the conversation is over.
    bool step(line& l, bool client_ready, bool server_ready) {
        const paces now_at = present();
        hurry(l, now_at);
        std::string from_client;
        std::string from_server;
        if (client_ready && !l.client_ended) l.client_ended = !receive(l.client, from_client);
        if (l.dead) {
            return l.to_server.send_to(l.server, now_at.requests) &&
                   !(l.client_ended && l.late.empty() && l.to_server.empty());
        }
        if (server_ready && !l.server_ended) l.server_ended = !receive(l.server, from_server);
        take_requests(l, from_client, now_at.requests.delay);
        take_replies(l, from_server, now_at.replies.delay);
        // Bytes that the server sent before it went still pass.
        if (!l.to_server.send_to(l.server, now_at.requests)) l.to_server.clear();
        if (!l.to_client.send_to(l.client, now_at.replies)) return false;
        const bool delivered = l.to_server.empty() && l.to_client.empty();
        if (l.cut && delivered && l.unanswered.empty()) return end(l);
        if (l.server_ended && l.to_client.empty() && !now_at.replies.held) return false;
        if (l.client_ended && l.to_server.empty() && l.late.empty() && !now_at.requests.held &&
            !std::exchange(l.told_server, true)) {
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

    void take_requests(line& l, std::string_view came, clock::duration later) {
        l.request += came;
        while (!l.opaque && !l.request.empty() && !l.cut) {
            words command;
            std::size_t size = l.request_end.in(l.request);
            if (size == impl::not_whole) break;
            l.request_end = impl::frame_end();
            if (size != impl::not_ours) size = impl::framed(l.request, 0, command);
            l.opaque = size == impl::not_ours || command.empty();
            if (l.opaque) break;
            const auto cut = judge(l.number, ++l.requests, part::request, command, size);
            l.to_server.add(l.request.substr(0, cut ? cut->passes : size), later);
            if (cut && cut->how == ending::delay) l.late = l.request.substr(cut->passes, size - cut->passes);
            l.request.erase(0, size);
            l.subscribed = l.subscribed || impl::subscribes(command[0]);
            if (cut) {
                l.cut = cut->how;
            } else {
                l.unanswered.push_back(std::move(command));
            }
        }
        if (l.cut) l.request.clear();
        if (l.opaque || l.client_ended) l.to_server.add(std::exchange(l.request, {}), later);
    }

    // After a cut of a request, replies to those before it still pass.
    void take_replies(line& l, std::string_view came, clock::duration later) {
        l.reply += came;
        const auto awaited = [&] {
            return !l.unanswered.empty() || l.subscribed || l.reply.starts_with('>');
        };
        while (!l.opaque && !l.reply.empty() && awaited() && !(l.cut && l.unanswered.empty())) {
            const std::size_t size = l.reply_end.in(l.reply);
            if (size == impl::not_whole) break;
            l.reply_end = impl::frame_end();
            l.opaque = size == impl::not_ours;
            if (l.opaque) break;
            std::string bytes = l.reply.substr(0, size);
            l.reply.erase(0, size);
            words about;
            const bool tells = l.subscribed && impl::is_message(bytes, about);
            const part of = tells ? part::message : part::reply;
            // One more to the same request, or what was not asked for.
            if (of == part::reply && (l.unanswered.empty() || impl::is_unasked(bytes))) {
                l.to_client.add(std::move(bytes), later);
                continue;
            }
            if (of == part::reply) {
                about = std::move(l.unanswered.front());
                l.unanswered.pop_front();
            }
            bytes = rewritten(about, std::move(bytes));
            auto& nth = of == part::reply ? l.replies : l.messages;
            const auto cut = l.cut ? std::nullopt : judge(l.number, ++nth, of, about, bytes.size());
            if (cut) bytes.resize(cut->passes);
            l.to_client.add(std::move(bytes), later);
            if (!cut) continue;
            l.cut = cut->how;
            l.unanswered.clear();
        }
        if (l.cut && l.unanswered.empty()) l.reply.clear();
        if (l.opaque || !awaited() || l.server_ended) l.to_client.add(std::exchange(l.reply, {}), later);
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

    const std::string socket_path_;
    const std::uint16_t server_port_ = 0;
    detail::file_descriptor listener_;
    detail::wake_event wake_;
    std::uint16_t port_ = 0;

    static constexpr std::chrono::milliseconds dial_pause{50};

    // The thread's alone:
    std::list<line> links_;
    time_point next_dial_{};
    std::atomic<bool> delivering_{false};
    std::atomic<bool> ending_{false};
    std::thread thread_;
};

}  // namespace distlock::testing
