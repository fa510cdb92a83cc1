/* Reads the expected results in tests/golden. */

#include "golden.h"

#include <stdlib.h>

char *golden_path(const char *name)
{
    const char *root = getenv("LATHER_TEST_SOURCE");
    char *path = NULL;
    if (asprintf(&path, "%s/tests/golden/%s", root ? root : ".", name) < 0)
        abort();
    return path;
}

FILE *open_golden(const char *name)
{
    char *path = golden_path(name);
    FILE *file = fopen(path, "r");
    if (!file) {
        perror(path);
        abort();
    }
    free(path);
    int c;
    do
        c = getc(file);
    while (c != '\n' && c != EOF);
    return file;
}

uint8_t *read_hex(FILE *file, size_t bytes)
{
    uint8_t *out = malloc(bytes);
    for (size_t i = 0; i < bytes; i++) {
        unsigned byte;
        if (!out || fscanf(file, "%2x", &byte) != 1)
            abort();
        out[i] = (uint8_t)byte;
    }
    return out;
}
