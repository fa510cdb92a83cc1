/** Error reporting for code that extends the library. */
#ifndef LATHER_EXT_FAIL_H
#define LATHER_EXT_FAIL_H

#include "lather/status.h"

/** Records the message for this thread and returns status, so that a check is one statement:
 *  `return lt_fail(LT_E_SHAPE, "conv2d: x has %d dims, want 4", ndim);` */
LT_API lt_status lt_fail(lt_status status, const char *fmt, ...) LT_PRINTF(2, 3);

#ifdef __clang_analyzer__ /* the analyzer does not know that lt_fail() returns its first argument */
#define lt_fail(status, ...) ((void)(lt_fail)(status, __VA_ARGS__), (status))
#endif

/** Returns from the enclosing function if expr failed. The only macro that hides control
 *  flow; where cleanup is needed, write the goto. */
#define LT_TRY(expr)                \
    do {                            \
        lt_status try_st_ = (expr); \
        if (try_st_)                \
            return try_st_;         \
    } while (0)

/** Prints expression, file and line, and aborts. Called by LT_ASSERT. */
LT_API void lt_assert_failed(const char *file, int line, const char *expr)
    __attribute__((noreturn));

/** Checks an invariant of the library, not an argument of the caller; in every build type. */
#define LT_ASSERT(cond) ((cond) ? (void)0 : lt_assert_failed(__FILE__, __LINE__, #cond))

#endif
