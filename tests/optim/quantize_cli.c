/* For quantized_formats.py: codes arrays of f32 from stdin, one after the other into the same memory, and
 * writes that memory and what it decodes to.
 *
 *     quantize_cli KIND DTYPE ELEMENTS COUNT [KEY]        numbers of lt_quantized_kind and lt_state_dtype; KEY:
 *                                                         rounded stochastically, in steps from 1 */

#include "optim/quantized_formats.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    if (argc != 5 && argc != 6)
        return 2;
    const lt_quantized_format format = {(lt_quantized_kind)strtol(argv[1], NULL, 10),
                                        (lt_state_dtype)strtol(argv[2], NULL, 10)};
    const size_t elements = (size_t)strtol(argv[3], NULL, 10);
    const size_t bytes = (size_t)lt_quantized_bytes(format, (int64_t)elements);
    float *x = calloc(elements, sizeof *x);
    unsigned char *memory = calloc(1, bytes);
    bool ok = x && memory;
    lt_quantized_rounding rounding = {.stochastic = argc == 6};
    if (rounding.stochastic)
        rounding.key = strtoull(argv[5], NULL, 10);
    for (long left = strtol(argv[4], NULL, 10); left > 0 && ok; left--) {
        rounding.step++;
        ok = fread(x, sizeof *x, elements, stdin) == elements;
        if (ok)
            lt_quantized_encode(format, x, (int64_t)elements, memory, false, rounding);
    }
    if (ok) {
        lt_quantized_decode(format, memory, (int64_t)elements, true, x);
        ok = fwrite(memory, 1, bytes, stdout) == bytes
             && fwrite(x, sizeof *x, elements, stdout) == elements;
    }
    free(memory);
    free(x);
    return ok ? 0 : 1;
}
