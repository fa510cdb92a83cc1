/* Reading of golden vectors below tests/golden. */
#ifndef LT_TESTS_GOLDEN_H
#define LT_TESTS_GOLDEN_H

#include <stdint.h>
#include <stdio.h>

/* tests/golden/NAME, to free(). */
char *golden_path(const char *name);
/* Opens it and passes its first line, which says who made it. */
FILE *open_golden(const char *name);
/* The next line as bytes, to free(). */
uint8_t *read_hex(FILE *file, size_t bytes);

#endif
