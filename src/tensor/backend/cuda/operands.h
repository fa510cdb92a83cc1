/* Operands in the dtype and layout that a library requires: the view itself, a copy in the workspace, or a weight's
 * cached cast; and autotuning, the choice of the fastest candidate. */
#ifndef LT_CUDA_OPERANDS_H
#define LT_CUDA_OPERANDS_H

#include "cuda.h"

typedef struct lt_operand {
    const lt_view *view; /* NULL, or without data: absent */
    lt_dtype dtype;      /* required by the library */
    bool fits;           /* the view's layout is as required */
    bool written;        /* an output; else an input */
    bool keeps;          /* a weight: its cast is cached until view->version changes */
    bool refresh;        /* but repeated during a capture, when versions do not change */
    lt_view use;         /* out: the view to pass to the library */
} lt_operand;

/* Assigns memory to each operand, casts inputs, and returns `extra` bytes of workspace after the copies, aligned to
 * 256. A 4-D copy is channels-last, any other row-major. */
lt_status lt_operands_open(lt_cuda *c, lt_operand *operand, int count, size_t extra,
                           void **workspace);
/* Casts copies of outputs back to their views. */
lt_status lt_operands_close(lt_cuda *c, const lt_operand *operand, int count);
/* Cached casts of weights. */
extern const lt_weight_ops lt_cuda_weights;
/* Returns whether the view's data is aligned as the libraries require. */
bool lt_operand_is_aligned(const lt_view *view);

/* Runs candidate i once, on the main stream. */
typedef lt_status lt_cuda_candidate_fn(void *context, int i);
/* Finds the fastest of count candidates, at most 32: after a warm-up round, by the median time of rounds in
 * alternating direction. Candidates that fail are skipped. On a deterministic device: the first that runs, because
 * times vary. milliseconds: out, the candidates' times, 0: not timed, < 0: failed; may be NULL. Errors: that of the
 * last candidate if all fail. */
lt_status lt_cuda_find_fastest(lt_cuda *c, int count, lt_cuda_candidate_fn *run, void *context,
                               float *milliseconds, int *best);

#endif
