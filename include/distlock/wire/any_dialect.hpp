// A dialect of any type: what the engine speaks about one lock.
//
//   class any_dialect  // the functions of concept dialect, queueing_dialect and telling_dialect
//   template <dialect D> class any_dialect_of : public any_dialect;  // made as D is
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/dialect.hpp>
#include <distlock/wire/enter_mode.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock {

/// The question of an owner that lost its lock: whether an operator took it.
class any_forced_question {
  public:
    virtual ~any_forced_question() = default;
    /// The question must outlive the command.
    virtual command forced() const = 0;
    virtual bool was_forced(const reply& answer, const token& owner) const noexcept = 0;
};

/// See the concepts dialect, queueing_dialect and telling_dialect. The engine is compiled
/// once for all of them.
class any_dialect {
  public:
    any_dialect() = default;
    any_dialect(const any_dialect&) = delete;
    any_dialect& operator=(const any_dialect&) = delete;
    virtual ~any_dialect() = default;

    virtual const std::string& name() const noexcept = 0;
    virtual std::chrono::milliseconds lease() const = 0;
    virtual std::string_view stored_as() const noexcept = 0;
    /// Returns: what messages call it: a lock, or a semaphore.
    virtual std::string_view noun() const noexcept = 0;

    virtual command acquire(const token& owner) const = 0;
    /// Returns: what takes a lock that nobody has, for an owner that assumes that nobody waits then; answered
    /// as acquire(), but by nil where somebody has it. None of a dialect that has no cheaper command for
    /// that. `room`: 64 bytes that it is a view into, too.
    virtual std::optional<command> acquire_unqueued(const token& owner, std::span<char> room) const = 0;
    virtual command look(const token& owner) const = 0;
    virtual command renew(const token& owner) const = 0;
    /// `milliseconds`: decimal digits, which outlive the command.
    /// Returns: renew(), for so long and not for the lease; a dialect without that renews for its lease.
    virtual command renew_for(const token& owner, std::string_view milliseconds) const = 0;
    /// Returns: how long a lock lasts by renew_for(), which was to last so long.
    virtual std::chrono::milliseconds renewed_for(std::chrono::milliseconds wanted) const noexcept = 0;
    virtual command release(const token& owner) const = 0;
    virtual command release_minimal(const token& owner) const = 0;
    virtual acquire_outcome read_acquire(const reply& answer) const = 0;
    virtual acquire_outcome read_look(const reply& answer) const = 0;
    virtual renew_outcome read_renew(const reply& answer) const = 0;
    virtual release_verdict read_release(const reply& answer) const = 0;

    virtual bool acquire_is_script() const = 0;
    virtual bool allows_local_fences() const = 0;
    /// Returns: whether a token is granted beside others: a grant says nothing of what was released before.
    virtual bool is_shared() const = 0;

    /// Returns: whether waiters are queued on the server; else the next six are not called.
    virtual bool hands_over() const = 0;
    virtual command enter(const token& owner, enter_mode mode) const = 0;
    virtual acquire_outcome read_enter(const reply& answer) const = 0;
    virtual std::optional<handover> read_message(std::string_view text) const = 0;
    /// The same, but nothing of a message about another lock: an operator may have copied a queue.
    /// Preconditions: `text` is the whole message.
    virtual std::optional<handover> read_own_message(std::string_view text) const = 0;
    /// Returns: what tells its messages from those of others.
    virtual const void* kind() const noexcept = 0;
    /// Returns: the same dialect about the lock that a message names.
    virtual std::shared_ptr<const any_dialect> about(std::string_view message) const = 0;

    /// Returns: what takes a lock for `owner` that `from`, which is ours, has in another manner; answered as
    /// look(). A dialect without that looks.
    virtual command exchange(const token& owner, const token& from) const = 0;

    /// Returns: where releases are told to all who listen; none: they are not told.
    virtual std::optional<std::string> channel() const = 0;

    /// Returns: the question about the lock of that key.
    virtual std::unique_ptr<const any_forced_question> forced(const std::string& key) const = 0;
};

template <class D>
inline constexpr char kind_of_dialect = 0;

template <dialect D>
class any_dialect_of final : public any_dialect {
  public:
    template <class... Arguments>
    explicit any_dialect_of(Arguments&&... arguments) : it_(std::forward<Arguments>(arguments)...) {}

    const std::string& name() const noexcept override { return it_.name(); }
    std::chrono::milliseconds lease() const override { return it_.lease(); }
    std::string_view stored_as() const noexcept override { return D::stored_as; }
    std::string_view noun() const noexcept override {
        if constexpr (requires { D::noun; }) return D::noun;
        return "lock";
    }

    command acquire(const token& owner) const override { return it_.acquire(owner); }
    std::optional<command> acquire_unqueued([[maybe_unused]] const token& owner,
                                            [[maybe_unused]] std::span<char> room) const override {
        if constexpr (requires { it_.acquire_unqueued(owner, room); })
            return it_.acquire_unqueued(owner, room);
        return std::nullopt;
    }
    command look(const token& owner) const override { return it_.look(owner); }
    command renew(const token& owner) const override { return it_.renew(owner); }
    command renew_for(const token& owner, [[maybe_unused]] std::string_view milliseconds) const override {
        if constexpr (requires { it_.renew(owner, milliseconds); }) return it_.renew(owner, milliseconds);
        return it_.renew(owner);
    }
    std::chrono::milliseconds renewed_for(
        [[maybe_unused]] std::chrono::milliseconds wanted) const noexcept override {
        if constexpr (requires(const token& t) { it_.renew(t, std::string_view()); }) return wanted;
        return it_.lease();
    }
    command release(const token& owner) const override { return it_.release(owner); }
    command release_minimal(const token& owner) const override { return it_.release_minimal(owner); }
    acquire_outcome read_acquire(const reply& answer) const override { return it_.read_acquire(answer); }
    acquire_outcome read_look(const reply& answer) const override { return it_.read_look(answer); }
    renew_outcome read_renew(const reply& answer) const override { return it_.read_renew(answer); }
    release_verdict read_release(const reply& answer) const override { return it_.read_release(answer); }

    bool acquire_is_script() const override { return it_.acquire_is_script(); }
    bool allows_local_fences() const override {
        if constexpr (requires { it_.allows_local_fences(); }) return it_.allows_local_fences();
        return true;
    }

    bool is_shared() const override {
        if constexpr (requires { it_.is_shared(); }) return it_.is_shared();
        return false;
    }

    bool hands_over() const override {
        if constexpr (queueing_dialect<D>) return it_.hands_over();
        return false;
    }
    command enter(const token& owner, [[maybe_unused]] enter_mode mode) const override {
        if constexpr (queueing_dialect<D>) return it_.enter(owner, mode);
        return it_.look(owner);
    }
    acquire_outcome read_enter(const reply& answer) const override {
        if constexpr (queueing_dialect<D>) return it_.read_enter(answer);
        return it_.read_look(answer);
    }
    std::optional<handover> read_message([[maybe_unused]] std::string_view text) const override {
        if constexpr (queueing_dialect<D>) return D::read_message(text);
        return std::nullopt;
    }
    std::optional<handover> read_own_message([[maybe_unused]] std::string_view text) const override {
        if constexpr (queueing_dialect<D>) {
            if (name() == D::name_in(text)) return D::read_message(text);
        }
        return std::nullopt;
    }
    const void* kind() const noexcept override { return &kind_of_dialect<D>; }
    [[gnu::cold]] std::shared_ptr<const any_dialect> about(
        [[maybe_unused]] std::string_view message) const override {
        if constexpr (queueing_dialect<D>)
            return std::make_shared<const any_dialect_of>(std::string(D::name_in(message)), lock_options{});
        return nullptr;
    }

    command exchange(const token& owner, [[maybe_unused]] const token& from) const override {
        if constexpr (requires { it_.exchange(owner, from); }) return it_.exchange(owner, from);
        return it_.look(owner);
    }

    std::optional<std::string> channel() const override {
        if constexpr (telling_dialect<D>) return std::string(std::string_view(it_.channel()));
        return std::nullopt;
    }

    [[gnu::cold]] std::unique_ptr<const any_forced_question> forced(const std::string& key) const override {
        return std::make_unique<const question>(inspector_of(key));
    }

  private:
    using inspector = typename D::inspector;

    struct question final : any_forced_question {
        explicit question(inspector i) : about(std::move(i)) {}
        [[gnu::cold]] command forced() const override { return about.forced(); }
        [[gnu::cold]] bool was_forced(const reply& answer, const token& owner) const noexcept override {
            try {
                return about.was_forced(answer, owner);
            } catch (...) {
                return false;  // without memory for the answer the observer is told without it
            }
        }
        const inspector about;
    };
    static inspector inspector_of(const std::string& key) {
        if constexpr (requires { inspector::of_key(key); }) {
            return inspector::of_key(key);
        } else {
            return inspector(key);
        }
    }

    const D it_;
};

}  // namespace distlock
