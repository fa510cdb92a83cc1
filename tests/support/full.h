/* Rows that only ./check --full runs. */
#ifndef LT_TESTS_FULL_H
#define LT_TESTS_FULL_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Returns true if all rows run: LATHER_TEST_FULL=1. */
static inline bool test_full(void)
{
    const char *full = getenv("LATHER_TEST_FULL");
    return full && !strcmp(full, "1");
}

#endif
