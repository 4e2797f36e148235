// The language that the headers are written in, or one sentence, before its compiler says a thousand.
#pragma once

#if __cplusplus < 202002L
#error "distlock needs C++20: compile with -std=c++20"
#endif
