/* The instructions that kernels use, as functions on memory: instruction_table.c, compiled with the compiler's
 * <immintrin.h> and with the emulated one. */
#ifndef LT_TESTS_CPU_INSTRUCTIONS_H
#define LT_TESTS_CPU_INSTRUCTIONS_H

#include "tensor/backend/cpu/isa.h"

enum { TILE_BYTES = 1024, ROW_BYTES = 64 };

typedef struct operands {
    _Alignas(64) uint8_t a[ROW_BYTES];
    _Alignas(64) uint8_t b[ROW_BYTES];
    _Alignas(64) uint8_t c[ROW_BYTES];
    _Alignas(64) uint8_t tile[3][TILE_BYTES];
    uint32_t mask;
} operands;

typedef struct result {
    _Alignas(64) uint8_t byte[TILE_BYTES];
} result;

typedef enum same {
    BITS,    /* every bit */
    NUMBERS, /* floats of the same bits, or both NaN: the compiler's order of operands decides which NaN propagates */
    VALUES   /* equal floats, unless an operand is NaN: sequences of the compiler */
} same;

typedef struct instruction {
    const char *name;
    lt_cpu_isa isa;
    same same;
    void (*run)(const operands *in, void *out);
} instruction;

extern const instruction real_instructions[],
    emulated_instructions[]; /* the same rows; the last has no name */

#endif
