/* Iterator over the elements of several strided views of one shape, as PyTorch's TensorIterator: offset of element i
 * in each. */
#ifndef LT_CUDA_STRIDED_ITER_H
#define LT_CUDA_STRIDED_ITER_H

#include "host_device.h"

#include "lather/detail/view.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LT_ITER_OPERANDS = 4 };

/* Sizes from the outermost to the innermost dimension. Dimensions that are contiguous in all operands are merged,
 * those of size 1 dropped. A plain struct: kernels take it as a parameter. */
typedef struct lt_iter {
    int ndim, operands;
    int64_t count;
    int64_t dim[LT_MAX_DIMS];
    int64_t stride[LT_ITER_OPERANDS][LT_MAX_DIMS];
} lt_iter;

/* Iterates in memory order of the first view, which is the output. */
void lt_iter_memory_order(lt_iter *iter, const lt_view *const *view, int operands);
/* Iterates in row-major order: i is the logical index. */
void lt_iter_logical_order(lt_iter *iter, const lt_view *const *view, int operands);

/* Returns the order of dimensions that lt_iter_memory_order() uses for this first view, outermost first. Iterators over
 * several lists of views of one shape, built in the same order, number elements equally. */
void lt_iter_sort_dims(const lt_view *first, int order[LT_MAX_DIMS]);
/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
void lt_iter_given_order(lt_iter *iter, const lt_view *const *view, int operands,
                         const int order[LT_MAX_DIMS]);

/* Returns whether elements 4 i to 4 i + 3 are adjacent in all operands, at an offset that is a multiple of 4. */
bool lt_iter_has_aligned_fours(const lt_iter *iter);

/* Sets the strides of a contiguous view: channels-last if it is 4-D, else row-major. */
void lt_view_set_dense_strides(lt_view *v);

/* Returns whether element i of all operands is at offset i. */
bool lt_iter_is_dense(const lt_iter *iter);

enum {
    LT_COLUMNS =
        32, /* outputs of a block if they are adjacent in memory; threads share their chunks */
    LT_LINES = 8
};

/* Partition of a sum over some dimensions: outputs, elements of an output, and chunks of these, whose sums are added
 * in index order. Depends on sizes only. */
typedef struct lt_reduction {
    lt_iter out;    /* over outputs: operands x, at the output's first element, and y */
    lt_iter in;     /* over elements of one output: operand x */
    bool columns;   /* adjacent elements belong to different outputs */
    int64_t length; /* elements of a chunk */
    int64_t chunks;
} lt_reduction;

/* Sizes of y: those of x, or 1. */
void lt_reduction_plan(lt_reduction *plan, const lt_view *x, const lt_view *y);

#ifdef __cplusplus
}
#endif

/* Returns in offset[k] the offset of element i in operand k. */
LT_HD void lt_iter_offsets(const lt_iter *iter, int64_t i, int64_t offset[LT_ITER_OPERANDS])
{
    for (int k = 0; k < LT_ITER_OPERANDS; k++)
        offset[k] = 0;
    for (int d = iter->ndim - 1; d >= 0; d--) {
        int64_t at = i;
        if (d > 0 && iter->count <= UINT32_MAX) { /* short divisions are much faster */
            const uint32_t rest = (uint32_t)i / (uint32_t)iter->dim[d];
            at = (uint32_t)i - rest * (uint32_t)iter->dim[d];
            i = rest;
        } else if (d > 0) {
            at = i % iter->dim[d];
            i /= iter->dim[d];
        }
        for (int k = 0; k < LT_ITER_OPERANDS; k++)
            if (k < iter->operands)
                offset[k] += at * iter->stride[k][d];
    }
}

#endif
