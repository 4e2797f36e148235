// The scripts themselves, run by Lua 5.1 as the server runs them, over the data of the model server.
//
//   class script_machine {
//     reply run(const script&, dataset&, channels&, now, lua_spelling, keys, argv);
//   };
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <lua.hpp>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <distlock/wire/reply.hpp>
#include <distlock/wire/script.hpp>

#include "model/simulator/model_channels.hpp"
#include "model/simulator/model_data.hpp"
#include "model/simulator/model_text.hpp"

namespace sim {

class script_machine {
  public:
    using reply = distlock::reply;
    using wall = std::chrono::microseconds;

    script_machine() : lua_(luaL_newstate()) {
        if (!lua_) throw std::bad_alloc();
        for (const auto& [name, open] :
             {std::pair{"", &luaopen_base}, std::pair{"string", &luaopen_string},
              std::pair{"table", &luaopen_table}, std::pair{"math", &luaopen_math}}) {
            lua_pushcfunction(lua(), open);
            lua_pushstring(lua(), name);
            lua_call(lua(), 1, 0);
        }
        lua_newtable(lua());
        add("call", &script_machine::call);
        add("pcall", &script_machine::attempt);
        lua_pushcfunction(lua(), &script_machine::error_reply);
        lua_setfield(lua(), -2, "error_reply");
        lua_setglobal(lua(), "redis");
    }
    script_machine(const script_machine&) = delete;
    script_machine& operator=(const script_machine&) = delete;

    reply run(const distlock::script& which, dataset& data, channels& messages, wall now,
              lua_spelling spelling, std::span<const std::string_view> keys,
              std::span<const std::string_view> argv) {
        data_ = &data;
        messages_ = &messages;
        now_ = now;
        spelling_ = spelling;
        push_list(keys);
        lua_setglobal(lua(), "KEYS");
        push_list(argv);
        lua_setglobal(lua(), "ARGV");
        push_function(which);
        const bool failed = lua_pcall(lua(), 0, 1, 0) != 0;
        reply answer = to_reply(-1);
        if (failed && !answer.is(distlock::reply_kind::error))
            answer = reply::error("ERR " + (answer.text().empty() ? "a script failed" : answer.text()));
        lua_settop(lua(), 0);
        return answer;
    }

  private:
    struct closer {
        void operator()(lua_State* l) const { lua_close(l); }
    };

    lua_State* lua() const { return lua_.get(); }
    void add(const char* name, lua_CFunction what) {
        lua_pushlightuserdata(lua(), this);
        lua_pushcclosure(lua(), what, 1);
        lua_setfield(lua(), -2, name);
    }
    void push_list(std::span<const std::string_view> words) {
        lua_createtable(lua(), static_cast<int>(words.size()), 0);
        for (std::size_t i = 0; i < words.size(); ++i) {
            lua_pushlstring(lua(), words[i].data(), words[i].size());
            lua_rawseti(lua(), -2, static_cast<int>(i + 1));
        }
    }
    void push_function(const distlock::script& which) {
        const auto known = functions_.find(&which);
        if (known != functions_.end()) {
            lua_rawgeti(lua(), LUA_REGISTRYINDEX, known->second);
            return;
        }
        const auto text = which.text();
        if (luaL_loadbuffer(lua(), text.data(), text.size(), "@user_script") != 0) {
            std::fprintf(stderr, "a script is no Lua: %s\n", lua_tostring(lua(), -1));
            std::abort();
        }
        lua_pushvalue(lua(), -1);
        functions_[&which] = luaL_ref(lua(), LUA_REGISTRYINDEX);
    }

    // Lua leaves these two by longjmp where they fail: nothing that has a destructor may be alive then.
    static int call(lua_State* l) { return execute(l) ? 1 : lua_error(l); }
    static int attempt(lua_State* l) {
        execute(l);
        return 1;
    }
    static int error_reply(lua_State* l) {
        lua_newtable(l);
        lua_pushvalue(l, 1);
        lua_setfield(l, -2, "err");
        return 1;
    }

    // Effects: pushes the answer. Returns: whether it is no error.
    static bool execute(lua_State* l) {
        auto& mine = *static_cast<script_machine*>(lua_touserdata(l, lua_upvalueindex(1)));
        std::vector<std::string> words;
        bool all_texts = true;
        for (int i = 1; i <= lua_gettop(l); ++i) {
            if (lua_type(l, i) == LUA_TNUMBER) {
                words.push_back(lua_text(lua_tonumber(l, i), mine.spelling_));
            } else if (lua_type(l, i) == LUA_TSTRING) {
                std::size_t size = 0;
                const char* const text = lua_tolstring(l, i, &size);
                words.emplace_back(text, size);
            } else {
                all_texts = false;
            }
        }
        const reply answer =
            all_texts && !words.empty()
                ? mine.run_command({words.begin(), words.end()})
                : reply::error("ERR Lua redis lib command arguments must be strings or integers");
        push(l, answer);
        return !answer.is(distlock::reply_kind::error);
    }
    reply run_command(const std::vector<std::string_view>& words) {
        if (dataset::knows(words[0])) return data_->run(words, now_);
        if (messages_->publishes(words[0])) return messages_->publish(words);
        if (same_word(words[0], "pubsub")) return messages_->tell_count(words);
        std::fprintf(stderr, "the model server does not know the command %s\n",
                     std::string(words[0]).c_str());
        std::abort();
    }

    static void push(lua_State* l, const reply& what) {
        using kind = distlock::reply_kind;
        switch (what.kind()) {
            case kind::integer:
                lua_pushnumber(l, static_cast<lua_Number>(what.number()));
                break;
            case kind::string:
                lua_pushlstring(l, what.text().data(), what.text().size());
                break;
            case kind::status:
            case kind::error:
                lua_newtable(l);
                lua_pushlstring(l, what.text().data(), what.text().size());
                lua_setfield(l, -2, what.is(kind::error) ? "err" : "ok");
                break;
            case kind::array:
                lua_createtable(l, static_cast<int>(what.elements().size()), 0);
                for (std::size_t i = 0; i < what.elements().size(); ++i) {
                    push(l, what.elements()[i]);
                    lua_rawseti(l, -2, static_cast<int>(i + 1));
                }
                break;
            default:
                lua_pushboolean(l, 0);
                break;
        }
    }

    reply to_reply(int at) const {
        lua_State* const l = lua();
        switch (lua_type(l, at)) {
            case LUA_TSTRING: {
                std::size_t size = 0;
                const char* const text = lua_tolstring(l, at, &size);
                return reply::string({text, size});
            }
            case LUA_TNUMBER:
                return reply::integer(static_cast<std::int64_t>(lua_tonumber(l, at)));
            case LUA_TBOOLEAN:
                return lua_toboolean(l, at) != 0 ? reply::integer(1) : reply::nil();
            case LUA_TTABLE:
                return table_to_reply(at < 0 ? lua_gettop(l) + at + 1 : at);
            default:
                return reply::nil();
        }
    }
    reply table_to_reply(int at) const {
        lua_State* const l = lua();
        for (const char* const field : {"err", "ok"}) {
            lua_getfield(l, at, field);
            const bool is_text = lua_type(l, -1) == LUA_TSTRING;
            std::string text = is_text ? lua_tostring(l, -1) : "";
            lua_pop(l, 1);
            if (is_text)
                return *field == 'e' ? reply::error(std::move(text)) : reply::status(std::move(text));
        }
        std::vector<reply> elements;
        for (int i = 1;; ++i) {
            lua_rawgeti(l, at, i);
            const bool over = lua_isnil(l, -1);
            if (!over) elements.push_back(to_reply(-1));
            lua_pop(l, 1);
            if (over) return reply::array(std::move(elements));
        }
    }

    std::unique_ptr<lua_State, closer> lua_;
    std::unordered_map<const distlock::script*, int> functions_;
    dataset* data_ = nullptr;
    channels* messages_ = nullptr;
    wall now_{};
    lua_spelling spelling_{};
};

}  // namespace sim
