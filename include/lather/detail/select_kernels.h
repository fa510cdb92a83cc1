/** Kernels of reductions, selection by index, and interpolation: signatures and formulas. */
#ifndef LATHER_DETAIL_SELECT_KERNELS_H
#define LATHER_DETAIL_SELECT_KERNELS_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/entry.h"
#include "lather/ops/image.h"

typedef enum lt_reduce_kind {
    LT_REDUCTION_MAX, /**< NaN if one is NaN */
    LT_REDUCTION_MIN,
    LT_REDUCTION_PROD,
    LT_REDUCTION_LOGSUMEXP,
    LT_REDUCTION_VAR, /**< formula: lt_var() */
    LT_REDUCTION_STD
} lt_reduce_kind;

typedef struct lt_reduce_how {
    lt_reduce_kind kind;
    double correction; /**< VAR, STD: subtracted from the count */
} lt_reduce_how;

/** y[j] = reduction of x over the dimensions in which y has size 1 and x does not; equal ndim. */
LT_ENTRY(reduce, void *ctx, const lt_reduce_how *how, const lt_view *x, const lt_view *y);
/** dx[i] = dy[j] times the derivative of y[j] by x[i]. MAX, MIN: dy[j] / count where x[i] equals y[j]; STD: 0
 *  where y[j] is 0. */
LT_ENTRY(reduce_grad, void *ctx, const lt_reduce_how *how, const lt_view *dy, const lt_view *x,
         const lt_view *y, const lt_view *dx);
/** y[a,i,b] = sum over j <= i, or j >= i if from_end, of x[a,j,b]; x, y [A,n,B]. */
LT_ENTRY(cumsum, void *ctx, bool from_end, const lt_view *x, const lt_view *y);
/** index[n,j] = column of the j-th largest element of x[n]; NaN is largest, of equal ones the first. x [N,K],
 *  index i32 [N,k]. */
LT_ENTRY(topk, void *ctx, const lt_view *x, const lt_view *index);

/** y[i] = mask[i] ? a[i] : b[i]; mask u8. Any strides; a stride of 0 repeats. */
LT_ENTRY(where, void *ctx, const lt_view *mask, const lt_view *a, const lt_view *b,
         const lt_view *y);
/** Indices of the kernels below: i32 [A,m,B], in 0..n-1. */
typedef struct lt_index {
    const char *name; /**< operation that messages name */
    lt_view index;
    bool ignore; /**< LT_IGNORED_LABEL is allowed: it reads 0 and adds nothing */
} lt_index;
/** y[a,i,b] = x[a, index[a,i,b], b]; x [A,n,B], y [A,m,B]. Errors: LT_E_ARG (an index outside). */
LT_ENTRY(gather_by_index, void *ctx, const lt_index *index, const lt_view *x, const lt_view *y);
/** y[a, index[a,i,b], b] += x[a,i,b], in ascending order of i; x [A,m,B], y [A,n,B]. Errors: as gather_by_index. */
LT_ENTRY(scatter_add, void *ctx, const lt_index *index, const lt_view *x, const lt_view *y);

/** Formula: lt_upsample(); x [N,C,H,W], y [N,C,h,w]. */
LT_ENTRY(upsample, void *ctx, const lt_upsample_config *config, const lt_view *x, const lt_view *y);
LT_ENTRY(upsample_grad, void *ctx, const lt_upsample_config *config, const lt_view *dy,
         const lt_view *dx);

/** List of the kernels above; columns as in detail/entry.h. */
#define LT_SELECT_ENTRIES(X)      \
    X(reduce, HOST, OWN)          \
    X(reduce_grad, HOST, OWN)     \
    X(cumsum, HOST, OWN)          \
    X(topk, HOST, OWN)            \
    X(where, HOST, OWN)           \
    X(gather_by_index, HOST, OWN) \
    X(scatter_add, HOST, OWN)     \
    X(upsample, HOST, OWN)        \
    X(upsample_grad, HOST, OWN)

#endif
