// Fencing tokens, the consumer's side, in SQL: a row that refuses the late write of an
// owner that lost its lock.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <sqlite3.h>
#include <stdexcept>
#include <string>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "fencing/story.hpp"

namespace {

class sql_account {
  public:
    sql_account() {
        sqlite3* opened = nullptr;
        const int result = sqlite3_open(":memory:", &opened);
        db_.reset(opened);
        must(result == SQLITE_OK);
        must(sqlite3_exec(opened,
                          "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL,"
                          "                      fence INTEGER NOT NULL DEFAULT 1);"
                          "INSERT INTO account (id, balance) VALUES (7, 100)",
                          nullptr, nullptr, nullptr) == SQLITE_OK);
    }

    // Takes the token of the one who asks, if it is the largest so far. None: there was a larger one.
    std::optional<std::int64_t> read(std::uint64_t fence) {
        const auto update =
            prepare("UPDATE account SET fence = ?1 WHERE id = 7 AND fence <= ?1 RETURNING balance", fence);
        if (!step(update)) return std::nullopt;
        const std::int64_t balance = sqlite3_column_int64(update.get(), 0);
        while (step(update)) continue;  // the row comes first, the commit at the end
        return balance;
    }

    // Equal tokens pass: an owner may write more than once.
    bool write(std::uint64_t fence, std::int64_t balance) {
        const auto update =
            prepare("UPDATE account SET fence = ?1, balance = ?2 WHERE id = 7 AND fence <= ?1", fence);
        must(sqlite3_bind_int64(update.get(), 2, balance) == SQLITE_OK);
        step(update);
        return sqlite3_changes(db_.get()) == 1;  // no row changed: there was a larger token
    }

  private:
    using statement = std::unique_ptr<sqlite3_stmt, decltype(&sqlite3_finalize)>;

    // Tokens fit a signed column: they are below 2^63.
    statement prepare(const char* sql, std::uint64_t fence) {
        sqlite3_stmt* made = nullptr;
        must(sqlite3_prepare_v2(db_.get(), sql, -1, &made, nullptr) == SQLITE_OK);
        statement owned{made, &sqlite3_finalize};
        must(sqlite3_bind_int64(made, 1, static_cast<sqlite3_int64>(fence)) == SQLITE_OK);
        return owned;
    }

    // Returns: whether there is a row to look at.
    bool step(const statement& s) {
        const int result = sqlite3_step(s.get());
        must(result == SQLITE_ROW || result == SQLITE_DONE);
        return result == SQLITE_ROW;
    }

    void must(bool well) {
        if (!well) throw std::runtime_error(std::string("SQLite: ") + sqlite3_errmsg(db_.get()));
    }

    std::unique_ptr<sqlite3, decltype(&sqlite3_close)> db_{nullptr, &sqlite3_close};
};

// Returns: false if a later owner was here first.
bool deposit(distlock::mutex<distlock::hiredis_connection>& fenced, sql_account& account, int amount) {
    distlock::scoped_lock guard{fenced};       // made with .fencing
    const auto fence = guard.fencing_token();  // larger than any before
    const auto balance = account.read(fence);  // reads carry it, too
    return balance && account.write(fence, *balance + amount);
}

}  // namespace

int main() {
    try {
        distlock::testing::redis_server server;
        sql_account account;
        fencing::narrator teller;
        std::puts("A row in SQLite that refuses older tokens.");
        fencing::play(teller, server.uri(), account);

        distlock::hiredis_connection redis{server.uri()};
        distlock::mutex lock{redis, "account:7", {.fencing = true}};
        teller.tell("C deposits 25", deposit(lock, account, 25), true);
        return teller.failures();
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
