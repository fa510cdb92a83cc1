/* How a sum over some dimensions is cut: outputs, the elements of one output, and chunks of those,
 * whose sums are added in the order of their index. The cut hangs on sizes alone. */
#ifndef LT_CUDA_REDUCE_H
#define LT_CUDA_REDUCE_H

#include "walk.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lt_reduction {
    lt_walk out;    /* over the outputs: operands x, at the output's first element, and y */
    lt_walk in;     /* over the elements of one output: operand x */
    bool columns;   /* neighbours in memory belong to different outputs */
    int64_t length; /* elements of an output in one chunk */
    int64_t chunks;
} lt_reduction;

/* y's extents are x's or 1. */
void lt_reduction_plan(lt_reduction *plan, const lt_view *x, const lt_view *y);

#ifdef __cplusplus
}
#endif

enum {
    LT_COLUMNS = 32, /* outputs of a block in the columns' form; its other threads share chunks */
    LT_LINES = 8
};

#endif
