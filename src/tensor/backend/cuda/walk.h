/* Walking over several views of one shape together: element number i of all of them. */
#ifndef LT_CUDA_WALK_H
#define LT_CUDA_WALK_H

#include "host_device.h"

#include "lather/detail/view.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LT_WALK_OPERANDS = 4 };

/* Extents from the outermost to the innermost; dimensions that lie without a gap in all operands
 * are one, those of extent 1 are left out. Plain numbers: kernels take it as a parameter. */
typedef struct lt_walk {
    int ndim, operands;
    int64_t count;
    int64_t dim[LT_MAX_DIMS];
    int64_t stride[LT_WALK_OPERANDS][LT_MAX_DIMS];
} lt_walk;

/* In the order of the first view's memory, which is the one that is written. */
void lt_walk_over(lt_walk *walk, const lt_view *const *view, int operands);
/* In row-major order of the logical index: i is that index. */
void lt_walk_logical(lt_walk *walk, const lt_view *const *view, int operands);

/* In the order that lt_walk_over() takes for the first view: order[0] is the outermost dimension.
 * Walks of several lists of views of one shape then agree in which element is number i. */
void lt_walk_order(const lt_view *first, int order[LT_MAX_DIMS]);
void lt_walk_in_order(lt_walk *walk, const lt_view *const *view, int operands,
                      const int order[LT_MAX_DIMS]);

/* True if elements 4 i to 4 i + 3 lie together in all operands, a multiple of 4 behind its begin. */
bool lt_walk_has_fours(const lt_walk *walk);

/* True if element i of all operands is at place i. */
bool lt_walk_is_dense(const lt_walk *walk);

int64_t lt_view_count(const lt_view *view);

enum {
    LT_COLUMNS = 32, /* outputs of a block in the columns' form; its other threads share chunks */
    LT_LINES = 8
};

/* How a sum over some dimensions is cut: outputs, the elements of one output, and chunks of those,
 * whose sums are added in the order of their index. The cut depends on sizes alone. */
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

/* offset[k]: where element i of operand k lies. */
LT_HD void lt_walk_offsets(const lt_walk *walk, int64_t i, int64_t offset[LT_WALK_OPERANDS])
{
    for (int k = 0; k < LT_WALK_OPERANDS; k++)
        offset[k] = 0;
    for (int d = walk->ndim - 1; d >= 0; d--) {
        int64_t at = i;
        if (d > 0 && walk->count <= UINT32_MAX) { /* short divisions are much faster */
            const uint32_t rest = (uint32_t)i / (uint32_t)walk->dim[d];
            at = (uint32_t)i - rest * (uint32_t)walk->dim[d];
            i = rest;
        } else if (d > 0) {
            at = i % walk->dim[d];
            i /= walk->dim[d];
        }
        for (int k = 0; k < LT_WALK_OPERANDS; k++)
            if (k < walk->operands)
                offset[k] += at * walk->stride[k][d];
    }
}

#endif
