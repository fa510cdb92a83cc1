/* Closeness checks with a computed bound; a NaN never passes. */
#ifndef LT_TESTS_NEAR_H
#define LT_TESTS_NEAR_H

/* cmocka.h needs the four before it. */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>
/* clang-format on */

#include "lather/ext/fail.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* A test of a table's row, which is its state. */
static inline struct CMUnitTest row_test(const char *name, CMUnitTestFunction test, const void *row)
{
    return (struct CMUnitTest){name, test, NULL, NULL, (void *)(uintptr_t)row};
}

/* Fails the test unless |a - b| <= bound. */
#define assert_near(a, b, bound)                                                                  \
    do {                                                                                          \
        double near_a_ = (double)(a), near_b_ = (double)(b), near_t_ = (double)(bound);           \
        if (!(fabs(near_a_ - near_b_) <= near_t_))                                                \
            fail_msg("%s = %.17g, %s = %.17g: apart by %g, allowed %g", #a, near_a_, #b, near_b_, \
                     fabs(near_a_ - near_b_), near_t_);                                           \
    } while (0)

/* Fails the test with the library's message unless expr is LT_OK. */
#define assert_ok(expr)                                                                \
    do {                                                                               \
        lt_status ok_st_ = (expr);                                                     \
        if (ok_st_)                                                                    \
            fail_msg("%s: %s: %s", #expr, lt_status_name(ok_st_), lt_error_message()); \
    } while (0)

/* Fails the test unless expr gives this status. */
#define assert_status(expr, want)                                                              \
    do {                                                                                       \
        lt_status got_st_ = (expr);                                                            \
        if (got_st_ != (want))                                                                 \
            fail_msg("%s: %s, want %s", #expr, lt_status_name(got_st_), lt_status_name(want)); \
    } while (0)

/* Fails the test unless the last call gave this status, with part in its message. */
#define assert_failed(status, want, part)                                            \
    do {                                                                             \
        assert_status(status, want);                                                 \
        if (!strstr(lt_error_message(), part))                                       \
            fail_msg("the message is '%s', without '%s'", lt_error_message(), part); \
    } while (0)

/* The same of expr, a call; a message that an earlier one left does not count. */
#define assert_fails(expr, want, part)                      \
    do {                                                    \
        (void)lt_fail(LT_E_ARG, "that of an earlier call"); \
        const lt_status fails_st_ = (expr);                 \
        assert_failed(fails_st_, want, part);               \
    } while (0)

#endif
