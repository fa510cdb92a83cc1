/* Operands of the libraries' calls, which want certain dtypes and layouts: a view as it is, a copy of
 * it in work memory, or a weight's copy that is kept for a version; and the fastest of several ways
 * to do a thing. */
#ifndef LT_CUDA_OPERANDS_H
#define LT_CUDA_OPERANDS_H

#include "cuda.h"

typedef struct lt_operand {
    const lt_view *view; /* NULL, or without data: absent */
    lt_dtype dtype;      /* wanted */
    bool fits;           /* its layout is as wanted */
    bool written;        /* else read */
    bool keeps;          /* a weight: its copy is kept while view->version does not change */
    bool refresh;        /* but made again in a capture, where versions stand still */
    lt_view use;         /* out: what the call reads or writes */
} lt_operand;

/* Gives each operand memory, casts what is read, and gives extra bytes of work memory behind the
 * copies, aligned to 256. A copy of four dimensions is channels-last, else row-major. */
lt_status lt_operands_open(lt_cuda *c, lt_operand *operand, int count, size_t extra,
                           void **workspace);
/* Casts what was written back to where it belongs. */
lt_status lt_operands_close(lt_cuda *c, const lt_operand *operand, int count);
/* What is kept of weights. */
extern const lt_weight_ops lt_cuda_weights;
/* A view that the libraries can use without a copy, but for its layout. */
bool lt_operand_aligned(const lt_view *view);

/* Runs candidate number i once, on the main queue. */
typedef lt_status lt_cuda_try_fn(void *context, int i);
/* The fastest of count, at most 32, by the median of rounds over all of them, there and back, after one that warms
 * up; those that fail are left out.
 * Where the device was opened deterministic: the first that runs, as times differ from run to run.
 * milliseconds: out, of each candidate; 0 not timed, < 0 did not run; NULL: not asked.
 * Errors: the last one's, if all fail. */
lt_status lt_cuda_fastest(lt_cuda *c, int count, lt_cuda_try_fn *run, void *context,
                          float *milliseconds, int *best);

#endif
