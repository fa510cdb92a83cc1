/* Elementwise expressions of optimizers (lt_vec_op): formulas, and batches as a kernel's parameter. */
#ifndef LT_CUDA_VEC_H
#define LT_CUDA_VEC_H

#include "tensor/backend/cuda/element.h"
#include "tensor/backend/cuda/strided_iter.h"

#include "lather/detail/vec_kernels.h"

enum {
    LT_VEC_JOBS = 64,        /* jobs per launch: the kernel's parameter, 24 KiB */
    LT_VEC_LIST_LENGTH = 16, /* jobs of one list */
    LT_VEC_BLOCK = 4096      /* elements of a block */
};

typedef struct lt_vec_expression {
    lt_vec_op op;
    lt_dtype dtype[3];
    bool fours;   /* vector access: y, b are f32, a f32 or 16 bits, and four of each are aligned */
    uint8_t held; /* LT_VEC_HELD_...: operands in scratch that are kept in registers */
    double alpha, beta, gamma, delta;
    lt_vec_factor factor;
    void *data[3]; /* y, a, b; b NULL: absent */
    void *cast;    /* cached cast of y, updated too; or NULL */
    lt_dtype cast_dtype;
    lt_iter iter;
} lt_vec_expression;

/* y is not written; the old y, a, b: computed by an earlier expression of the list. */
enum { LT_VEC_HELD_Y = 1, LT_VEC_HELD_OLD = 2, LT_VEC_HELD_A = 4, LT_VEC_HELD_B = 8 };

/* Lists of expressions on the same elements: those of list i begin at expression[first]. */
typedef struct lt_vec_batch {
    int lists, expressions, blocks;
    struct {
        int first, length;
        int64_t first_block;
        const void *scratch;
    } list[LT_VEC_JOBS];
    lt_vec_expression expression[LT_VEC_JOBS];
} lt_vec_batch;

/* An expression whose norm is computed, not its values: block b has elements [b', b' + 1) * LT_VEC_NORM_BLOCK,
 * b' = b - first_block. The struct is sent in words of 8 bytes. */
enum { LT_VEC_NORM_BLOCK = 8192 };
typedef struct lt_vec_norm {
    lt_vec_expression expression; /* y's data is NULL; fours: a is f32 */
    int64_t first_block, blocks;
    double *out;
} lt_vec_norm;

/* alpha to delta of this step: lt_vec_alpha(), lt_vec_beta(). */
typedef struct lt_vec_numbers {
    double alpha, beta, gamma, delta;
} lt_vec_numbers;

LT_HD lt_vec_numbers lt_vec_resolve_numbers(const lt_vec_expression *s, const lt_scalars *scalars)
{
    const lt_vec_factor *f = &s->factor;
    const bool corrects_beta = s->op == LT_VEC_RSQRT || s->op == LT_VEC_POW;
    lt_vec_numbers n;
    n.alpha = s->alpha;
    n.beta = s->beta;
    n.gamma = s->gamma;
    n.delta = s->delta;
    if (f->lr)
        n.alpha *= scalars->lr;
    if (f->grad_scale)
        n.alpha *= scalars->grad_scale;
    if (f->over)
        n.alpha *= *f->over / (*f->under + 1e-16);
    if (f->bias > 0) {
        const double steps = (double)(scalars->applied - f->lag) - (f->missed ? *f->missed : 0);
        const double bias = 1 - f->bias * pow(f->base, steps);
        n.alpha = corrects_beta ? n.alpha : n.alpha / bias;
        n.beta = corrects_beta ? n.beta / bias : n.beta;
    }
    return n;
}

#ifdef __cplusplus
extern "C" {
#endif

/* Moves lists into the batch while they fit and returns their number in *taken. Errors: LT_E_UNSUPPORTED for a list
 * longer than LT_VEC_LIST_LENGTH. */
lt_status lt_vec_fill_batch(lt_vec_batch *batch, const lt_vec_list *list, size_t count,
                            size_t *taken);
/* Sets `held` of lists whose scratch is accessed by fours only; scratch of other lists is in memory. */
void lt_vec_hold_scratch(lt_vec_batch *batch);

/* Describes the norm of the job's y, written to *out; first_block: its first block. */
lt_vec_norm lt_vec_make_norm(const lt_vec_job *job, double *out, int64_t first_block);

#ifdef __cplusplus
}
#endif

#endif
