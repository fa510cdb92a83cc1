/* Private declarations of Shampoo. A step is a list of batched kernels, each of which is one backend
 * call with a job per block:
 *
 *   gather        G = gradient (+ weight_decay * W)                     step.c
 *   factors       F_k = beta2 F_k + w G_k G_k^T                         factor.c
 *   roots         R_k = (F_k / c2)^(-e_k), when due                     refresh.c, root/, async.c,
 *                                                                       failure.c
 *   precondition  P = filtered G times R_k along each dimension,        precondition.c
 *                 or its orthogonal factor, or signs                    spectral.c
 *   grafting      P *= |graft(u)| / |P|                                 graft.c
 *   update        decay, momentum, W -= lr P                            update.c
 *
 * A step processes batches of blocks, so that its workspace is small: step.c. The other files have
 * their own headers. */
#ifndef LT_OPTIM_SHAMPOO_SHAMPOO_H
#define LT_OPTIM_SHAMPOO_SHAMPOO_H

#include "optim/methods/orthogonal.h"
#include "optim/shampoo/partition.h"
#include "optim/shampoo/settings.h"
#include "optim/shampoo/shampoo.h"
#include "optim/sharding/shard.h"

#include "lather/detail/shampoo_report.h"

/* State of one dimension of a block; tensors are NULL if the dimension has no factor. */
typedef struct lt_factor {
    double exponent;
    lt_tensor *gram;     /* F [n,n], the factor matrix */
    lt_tensor *root;     /* R [n,n], the inverse root, or the eigenbasis */
    lt_tensor *power;    /* eigenvalues^(-e) [n]; only with eigendecomposed kinds */
    bool is_matrix;      /* the factor is a matrix, on this rank or at its owner */
    bool is_diagonal;    /* the factor is a diagonal */
    lt_tensor *diagonal; /* diagonal v, shaped like the block, in place of gram, root: diagonal.c */
    int64_t failures;    /* consecutive refreshes without a new root */
    double residual;     /* residual of the last root by its solver; < 0: not measured */

    /* Results of a refresh on the worker thread: async.c. */
    lt_tensor *pending, *pending_power; /* new roots, once computed */
    int64_t pending_status;             /* lt_status of the computation of the new roots */

    /* Stores from which gram, root and diagonal are dequantized when used: state_store.c. NULL if absent. */
    struct lt_quantized *gram_store, *root_store, *diagonal_store;
} lt_factor;

/* One block: its state, in logical order and made before the first step, and its views in a step. */
typedef struct lt_block {
    lt_slot *slot;                 /* slot of the block's parameter */
    int index;                     /* index of the block within the parameter */
    size_t number;                 /* index of the block among all blocks of all ranks */
    int owner;                     /* rank that has the state of the block */
    const lt_partition *partition; /* partition of its parameter into blocks */
    int part;                      /* index of the part, if the parameter is a joined one */
    lt_region region;
    lt_factor factor[LT_MAX_DIMS];
    lt_tensor *m, *graft, *momentum, *corrected; /* moments, shaped like the block, or NULL */
    struct lt_quantized *m_store, *graft_store, *momentum_store,
        *corrected_store;   /* stores of these moments, or NULL */
    int64_t failures;       /* consecutive refreshes of the block that failed */
    bool refreshed, failed; /* in the refresh to which the failure policy is applied; it failed */
    int64_t root_step;      /* step whose factors its roots were computed from; 0: no roots yet */
    int64_t phase;          /* index among the f steps of the staggered timing */
    int64_t swap;           /* step that swaps in its pending roots; 0: nothing pending */

    /* Owner buffer: the block's elements of the parameter and of the gradient, if they are not in their tensors;
     * else without data. */
    lt_view value, grad;

    bool due; /* its roots are refreshed in this step */

    /* Views of the block's merged shape, valid during a step. */
    bool active;       /* the parameter has a gradient */
    int64_t scratch;   /* offset of the block in the workspace tensors */
    lt_view g, u, p;   /* gradient, filtered gradient, preconditioned gradient */
    lt_view buffer[2]; /* memory that p alternates between */
    lt_view update;    /* sharded state: receives -lr * p instead of the parameter */
    int output;        /* index of the buffer that p is not in */
} lt_block;

/* Range of blocks, block[begin] to block[end - 1], that a step processes together. */
typedef struct lt_block_batch {
    size_t begin, end;
} lt_block_batch;

/* One matrix of a refresh: a factor of a block. */
typedef struct lt_root_task {
    lt_block *block;
    int dim;
    int64_t n;
    lt_status status; /* out: LT_OK, or the reason for which the old root is kept */
    bool retried;     /* out: the root was computed in double */
} lt_root_task;

enum { LT_SCRATCH_G, LT_SCRATCH_U, LT_SCRATCH_A, LT_SCRATCH_B, LT_SCRATCHES };

typedef struct lt_shampoo {
    lt_optim base;
    lt_shampoo_config config; /* the configuration, with all defaults resolved */
    lt_partition *partition;  /* [slots] partition of each parameter */
    lt_block *block;          /* blocks of this rank by number, then those of other ranks */
    size_t count, total;      /* blocks of this rank, which a step updates; all blocks */
    size_t *spec;             /* index in block[] of each block number */
    lt_block_batch *batch;
    size_t batches;
    bool has_diagonals;               /* some block is diagonal */
    bool begun;                       /* the first refresh, of all blocks, was due */
    bool ready;                       /* state, batches and workspace are allocated */
    lt_tensor *scratch[LT_SCRATCHES]; /* workspace; U only with beta1 */
    lt_tensor *norms;                 /* f64 norms, one per block and dimension */
    lt_tensor *one;                   /* [1]: the number 1 */
    /* Workspace: one job per block and dimension. */
    lt_vec_job *vec;
    lt_vec_list *list;
    lt_view *view;
    lt_gram_job *gram;
    lt_mode_product_job *product;
    lt_orthogonal *spectral; /* workspace of spectral descent; NULL before its first use */
    lt_orthogonal_job *spectral_job;
    lt_shampoo_stats stats; /* statistics of step number stats_step */
    int64_t stats_step;
    struct lt_async *async; /* refresh in progress on the worker thread, or NULL */
    /* the worker thread's device; kept for the next refresh if opening it waits for a GPU */
    lt_device *async_device;
    double pending_seconds;  /* duration of the pending refresh, for the step that swaps it in */
    int64_t pending_retries; /* roots of the pending refresh that were recomputed in double */
} lt_shampoo;

/* Returns the block of that number, 0 <= number < total. */
static inline lt_block *lt_shampoo_block_number(const lt_shampoo *s, size_t number)
{
    return &s->block[s->spec[number]];
}

/* Returns the bias correction of moving averages: division by c2, the sum of their weights. */
static inline lt_vec_factor lt_shampoo_bias_correction(const lt_shampoo *s, const lt_block *b)
{
    const lt_shampoo_config *c = &s->config;
    if (!c->use_bias_correction || c->beta2 >= 1 || c->drop_weighting)
        return (lt_vec_factor){0};
    return (lt_vec_factor){
        .bias = 1, .base = c->beta2, .missed = lt_optim_missed_steps(&s->base, b->slot)};
}

/* Returns the bias correction of factors, which see one gradient in factor_frequency. */
static inline lt_vec_factor lt_shampoo_factor_bias(const lt_shampoo *s, const lt_block *b)
{
    lt_vec_factor f = lt_shampoo_bias_correction(s, b);
    f.lag = (int)(s->base.attempt % s->config.factor_frequency);
    return f;
}

/* Returns true before start_preconditioning_step, when there are no inverse roots. */
static inline bool lt_shampoo_is_before_start(const lt_shampoo *s)
{
    return s->base.attempt < s->config.start_preconditioning_step;
}

void lt_shampoo_start_stats(lt_shampoo *s);
/* Adds the time since begin to *seconds and to the profile; returns the current time. */
int64_t lt_shampoo_add_time(int64_t begin, double *seconds, const char *name);

#endif
