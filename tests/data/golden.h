/* Reads the expected results in tests/golden: text files with bytes in hexadecimal. */
#ifndef LT_TESTS_GOLDEN_H
#define LT_TESTS_GOLDEN_H

#include <stdint.h>
#include <stdio.h>

/* Returns the path of tests/golden/NAME; free() it. */
char *golden_path(const char *name);
/* Opens it and skips the first line, which names the generator. */
FILE *open_golden(const char *name);
/* Reads the next bytes; free() it. */
uint8_t *read_hex(FILE *file, size_t bytes);

#endif
