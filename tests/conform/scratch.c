/* Rows that check writes past the scratch memory of a library: its memory is followed by a guard zone.
 * oneDNN 2.6.3 writes there in the weight gradient of strided 1x1 filters with fewer than 16 channels: a row
 * of conv_rules.c. */

#include "conform.h"
#include "tensor/backend/cpu/cpu.h"
#include "tensor/backend/cpu/internal.h"

#include <string.h>

enum { BLOCK = 4 << 20, PATTERN = 0xA5 };

typedef struct scratch_row {
    const char *name;
    int64_t c, h, w, k, filter;
    int stride;
} scratch_row;

/* The fault depends on how the work is split: with these sizes it shows for one, two and three threads with
 * AVX-512, for one and three with AVX2. */
static const scratch_row rows[] = {
    {"scratchpad: 8 to 16 channels, 1x1 stride 2", 8, 56, 56, 16, 1, 2},
    {"scratchpad: 8 to 32 channels, 1x1 stride 2", 8, 56, 56, 32, 1, 2},
    {"scratchpad: 8 to 64 channels, 1x1 stride 2", 8, 56, 56, 64, 1, 2},
    {"scratchpad: 3 to 64 channels, 1x1 stride 2", 3, 56, 56, 64, 1, 2},
    {"scratchpad: 15 to 8 channels, 1x1 stride 3", 15, 40, 37, 8, 1, 3},
    {"scratchpad: 16 channels, 1x1 stride 2", 16, 28, 28, 16, 1, 2},
    {"scratchpad: 8 channels, 1x1", 8, 28, 28, 16, 1, 1},
    {"scratchpad: 8 channels, 3x3 stride 2", 8, 28, 28, 16, 3, 2},
};

/* Returns the number of bytes written after the first `requested` ones. */
static size_t bytes_past_end(const unsigned char *block, size_t requested)
{
    size_t count = 0;
    for (size_t i = requested; i < BLOCK; i++)
        count += block[i] != PATTERN;
    return count;
}

static lt_status call_guarded(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                              bool absolute)
{
    (void)absolute;
    if (strcmp(be->name, "cpu") != 0)
        return be->conv2d_grad_w(ctx, &t->config.conv, &v[0], &v[1], &v[2]);
    lt_cpu_buffer *slot = &((lt_cpu *)ctx)->slot[LT_CPU_SCRATCHPAD];
    lt_free(slot->data);
    *slot = (lt_cpu_buffer){.data = lt_alloc_aligned(64, BLOCK), .bytes = BLOCK};
    LT_ASSERT(slot->data);
    memset(slot->data, PATTERN, BLOCK);
    LT_TRY(be->conv2d_grad_w(ctx, &t->config.conv, &v[0], &v[1], &v[2]));
    LT_ASSERT(slot->bytes == BLOCK); /* it was large enough */
    size_t past = bytes_past_end(slot->data, slot->requested);
    return past ? lt_fail(LT_E_DEVICE, "%zu bytes past the end of a scratchpad of %zu were written",
                          past, slot->requested)
                : LT_OK;
}

bool scratch_tests(size_t i, test *t)
{
    enum { BATCH = 1 };
    if (i >= COUNT_OF(rows))
        return false;
    const scratch_row *r = &rows[i];
    const int pad = (int)r->filter / 2;
    const int64_t h = (r->h + 2 * pad - r->filter) / r->stride + 1,
                  w = (r->w + 2 * pad - r->filter) / r->stride + 1;
    *t = (test){.entry = "conv2d_grad_w", .name = r->name, .call = call_guarded, .operands = 3};
    t->config.conv = (lt_conv2d_config){r->stride, r->stride, pad, pad, 1, 1, 1};
    t->operand[0] = (operand){IN, DATA, LT_SHAPE(BATCH, r->k, h, w), .absolute = PLUS};
    t->operand[1] = (operand){IN, DATA, LT_SHAPE(BATCH, r->c, r->h, r->w), .absolute = PLUS};
    t->operand[2] =
        (operand){OUT, MASTER, LT_SHAPE(r->k, r->c, r->filter, r->filter), .absolute = PLUS};
    t->terms = (double)(BATCH * h * w) + 2;
    return true;
}
