// The same with hiredis, which is found with its header and its library.
#include <distlock/hiredis.hpp>

#ifdef EXPECT_HIREDIS_OF_THIS_TREE
#if !defined(HIREDIS_OF_THIS_TREE) || !defined(READ_OF_THIS_TREE)
#error "another hiredis.h, or read.h, than that of the tree was found"
#endif
#endif

int main() {
    redisContext* nobody = redisConnect("127.0.0.1", 1);
    const bool refused = nobody && nobody->err != 0;
    redisFree(nobody);
    return refused ? 0 : 1;
}
