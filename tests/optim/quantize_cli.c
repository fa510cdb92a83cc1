/* For quantized_formats.py: quantizes f32 arrays into the same memory, one after the other, and writes that memory
 * and the dequantized array. Each request on stdin is a line, then the arrays:
 *
 *     KIND DTYPE ELEMENTS COUNT KEY       numbers of lt_quantized_kind and lt_state_dtype; KEY: rounded stochastically,
 *                                         in steps from 1, or 0: to nearest */

#include "optim/low_precision/quantized_formats.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static bool answer(lt_quantized_format format, size_t elements, int count, uint64_t key)
{
    const size_t bytes = (size_t)lt_quantized_bytes(format, (int64_t)elements);
    lt_quantized_rounding rounding = {.stochastic = key != 0, .key = key};
    float *x = calloc(elements, sizeof *x);
    unsigned char *memory = calloc(1, bytes);
    bool ok = x && memory;
    for (; count > 0 && ok; count--) {
        rounding.step++;
        ok = fread(x, sizeof *x, elements, stdin) == elements;
        if (ok)
            lt_quantized_encode(format, x, (int64_t)elements, memory, false, rounding);
    }
    if (ok) {
        lt_quantized_decode(format, memory, (int64_t)elements, true, x);
        ok = fwrite(&bytes, sizeof bytes, 1, stdout) == 1
             && fwrite(memory, 1, bytes, stdout) == bytes
             && fwrite(x, sizeof *x, elements, stdout) == elements && fflush(stdout) == 0;
    }
    free(memory);
    free(x);
    return ok;
}

int main(void)
{
    char line[128];
    int kind, dtype, count;
    size_t elements;
    uint64_t key;
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "%d %d %zu %d %" SCNu64, &kind, &dtype, &elements, &count, &key) != 5)
            return 2;
        const lt_quantized_format format = {(lt_quantized_kind)kind, (lt_state_dtype)dtype};
        if (!answer(format, elements, count, key))
            return 1;
    }
    return 0;
}
