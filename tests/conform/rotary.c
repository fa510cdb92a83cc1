/* Rows of rotary positions, in both directions. */

#include "conform.h"

#include <math.h>

typedef struct rotary_row {
    const char *name;
    int64_t batch, tokens, heads, d;
    lt_rotary_config config;
    layout layout;
} rotary_row;

/* clang-format off */
static const rotary_row rows[] = {
    {"one token, one pair", 1, 1, 1, 2, {.base = 10000}, ROWS},
    {"halves", 2, 9, 3, 10, {.base = 10000}, ROWS},
    {"interleaved", 2, 9, 3, 10, {.base = 10000, .interleaved = true}, ROWS},
    {"halves of parts", 2, 7, 2, 64, {.base = 10000}, JOINED},
    {"interleaved parts", 2, 7, 2, 64, {.base = 500, .interleaved = true}, JOINED},
    {"a late position", 1, 3, 2, 8, {.base = 10000, .first = 100000}, ROWS},
    {"wide heads", 1, 2, 2, 600, {.base = 10000}, ROWS},
    {"gaps between features", 2, 5, 2, 6, {.base = 10000}, GAPS},
};
/* clang-format on */

enum { X, Y, OPERANDS };

static lt_status call(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                      bool absolute)
{
    (void)absolute;
    return be->rotary(ctx, &t->config.rotary.config, t->config.rotary.inverse, &v[X], &v[Y]);
}

/* Both features of the pair. */
static void magnitude(const test *t, double *const *want, double *const *magnitudes)
{
    (void)want;
    const int64_t d = t->operand[X].shape.dim[3];
    for (int64_t i = 0; i < operand_count(&t->operand[X]); i++) {
        const int64_t c = i % d, half = c < d / 2 ? i + d / 2 : i - d / 2;
        const int64_t other = t->config.rotary.config.interleaved ? i - c + (c ^ 1) : half;
        magnitudes[Y][i] = fabs(t->operand[X].value[i]) + fabs(t->operand[X].value[other]);
    }
}

bool rotary_tests(size_t i, test *t)
{
    if (i >= 2 * COUNT_OF(rows))
        return false;
    const rotary_row *r = &rows[i / 2];
    const lt_shape x = LT_SHAPE(r->batch, r->tokens, r->heads, r->d);
    *t = (test){.name = r->name, .entry = "rotary", .call = call, .magnitude = magnitude};
    t->config.rotary = (rotary_setting){r->config, i % 2};
    t->config.rotary.config.heads = (int)r->heads;
    t->operands = OPERANDS;
    t->operand[X] = (operand){IN, DATA, x, r->layout, KEEP, -1, 1, NULL};
    t->operand[Y] = (operand){OUT, DATA, x, r->layout, .absolute = KEEP};
    t->terms = 4;
    return true;
}
