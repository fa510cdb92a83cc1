/* Private declarations of Shampoo. A step is a list of batched kernels, each of them one call of the
 * backend with a job per block:
 *
 *   gather     G = gradient (+ weight_decay * W)                    step.c
 *   factors    F_k = beta2 F_k + w G_k G_k^T                        factor.c
 *   roots      R_k = (F_k / c2)^(-e_k), when due                    refresh.c, root/, async.c,
 *                                                                   failure.c
 *   direction  P = filtered G times R_k along each dimension        precondition.c
 *              or its orthogonal factor, or signs          spectral.c
 *   grafting   P *= |graft(u)| / |P|                                graft.c
 *   update     decay, momentum, W -= lr P                           update.c
 *
 * A step goes by batches of blocks, so that scratch memory stays small: step.c. The other files have
 * headers of their own. */
#ifndef LT_OPTIM_SHAMPOO_SHAMPOO_H
#define LT_OPTIM_SHAMPOO_SHAMPOO_H

#include "optim/methods/orthogonal.h"
#include "optim/shampoo/partition.h"
#include "optim/shampoo/settings.h"
#include "optim/sharding/shard.h"

#include "lather/detail/shampoo_report.h"

/* State of one dimension of a block; all NULL if the dimension is left alone. */
typedef struct lt_factor {
    double exponent;
    lt_tensor *gram;     /* F [n,n] */
    lt_tensor *root;     /* R [n,n], or the eigenvectors */
    lt_tensor *power;    /* eigenvalues^(-e) [n]; only with eigendecomposed kinds */
    bool is_matrix;      /* F is a matrix, here or at its owner */
    bool is_diagonal;    /* or a vector */
    lt_tensor *diagonal; /* v [n] instead of all of these: diagonal.c */
    int64_t failures;    /* refreshes in a row without a new root */

    /* While new roots are computed: async.c. */
    lt_tensor *pending, *pending_power; /* the new roots, once computed */
    int64_t pending_status;             /* or the lt_status of why not */

    /* Quantized stores that gram, root and diagonal are opened from where they are used: state_store.c. NULL if absent. */
    struct lt_quantized *gram_store, *root_store, *diagonal_store;
} lt_factor;

/* One block: state in logical order, made before the first step, and where its data is in this step. */
typedef struct lt_block {
    lt_slot *slot;                 /* of its parameter */
    int index;                     /* within the parameter */
    size_t number;                 /* among all blocks */
    int owner;                     /* the rank that has the state */
    const lt_partition *partition; /* of its parameter */
    int part;                      /* of a joined parameter */
    lt_region region;
    lt_factor factor[LT_MAX_DIMS];
    lt_tensor *m, *graft, *momentum, *corrected; /* shaped like the block, or NULL */
    struct lt_quantized *m_store, *graft_store, *momentum_store,
        *corrected_store;   /* as kept_gram */
    int64_t failures;       /* refreshes in a row that failed */
    bool refreshed, failed; /* by the refresh that the failure policy is applied to */
    int64_t root_step;      /* the step whose factors its roots are of; 0: none yet */
    int64_t phase;          /* its turn among f steps of the staggered timing */
    int64_t swap;           /* the step that swaps in its pending roots; 0: it has none */

    /* At home: where its elements of the parameter and of the gradient are, if not in theirs; else no data. */
    lt_view value, grad;

    bool due; /* for new roots in this step */

    /* In a step: views of the block's merged shape. */
    bool active;       /* the parameter has a gradient */
    int64_t scratch;   /* where the block begins in the scratch tensors */
    lt_view g, u, p;   /* gradient, filtered gradient, direction */
    lt_view buffer[2]; /* what p moves between */
    lt_view update;    /* divided over ranks: what becomes -lr * p instead of the parameter */
    int output;        /* the buffer that p is not in */
} lt_block;

/* Blocks [begin, end). */
typedef struct lt_block_batch {
    size_t begin, end;
} lt_block_batch;

/* One matrix of a refresh. */
typedef struct lt_root_task {
    lt_block *block;
    int dim;
    int64_t n;
    lt_status status; /* out: LT_OK, or why the old root stays */
    bool retried;     /* out: solved in double */
} lt_root_task;

enum { LT_SCRATCH_G, LT_SCRATCH_U, LT_SCRATCH_A, LT_SCRATCH_B, LT_SCRATCHES };

typedef struct lt_shampoo {
    lt_optim base;
    lt_shampoo_config config; /* no default markers left */
    lt_partition *partition;  /* per slot */
    lt_block *block;          /* this rank's, by number, then those of other ranks */
    size_t count, total;      /* this rank's, which a step works on; all */
    size_t *place;            /* of each number in block[] */
    lt_block_batch *batch;
    size_t batches;
    bool has_diagonals;               /* some block keeps one */
    bool ready;                       /* state, batches and scratch are made */
    lt_tensor *scratch[LT_SCRATCHES]; /* U only with beta1 */
    lt_tensor *norms;                 /* f64, for each of count * LT_MAX_DIMS matrices */
    lt_tensor *one;                   /* [1]: the number 1 */
    /* Workspace: one per block and dimension. */
    lt_vec_job *vec;
    lt_vec_list *list;
    lt_view *view;
    lt_gram_job *gram;
    lt_mode_product_job *product;
    lt_orthogonal *spectral; /* NULL: not needed yet */
    lt_orthogonal_job *spectral_job;
    lt_shampoo_stats stats; /* of step number stats_step */
    int64_t stats_step;
    struct lt_async *async;  /* a refresh that runs on its own thread, or NULL */
    lt_device *async_device; /* its device; kept for the next one where opening waits for a GPU */
    double pending_seconds;  /* what it took; for the statistics of the step that swaps */
    int64_t pending_retries; /* in double */
} lt_shampoo;

/* The block of that number; 0 <= number < total. */
static inline lt_block *lt_shampoo_block_number(const lt_shampoo *s, size_t number)
{
    return &s->block[s->place[number]];
}

/* Divides by c2, what their weights sum to, if that is not 1. */
static inline lt_vec_factor lt_shampoo_bias(const lt_shampoo *s, const lt_block *b)
{
    const lt_shampoo_config *c = &s->config;
    if (!c->use_bias_correction || c->beta2 >= 1 || c->drop_weighting)
        return (lt_vec_factor){0};
    return (lt_vec_factor){
        .bias = 1, .base = c->beta2, .missed = lt_optim_missed(&s->base, b->slot)};
}

/* The same for factors: the weights' sum is that of the gradients they have seen. */
static inline lt_vec_factor lt_shampoo_factor_bias(const lt_shampoo *s, const lt_block *b)
{
    lt_vec_factor f = lt_shampoo_bias(s, b);
    f.lag = (int)(s->base.attempt % s->config.factor_frequency);
    return f;
}

/* Returns true before the first roots. */
static inline bool lt_shampoo_is_before_start(const lt_shampoo *s)
{
    return s->base.attempt < s->config.start_preconditioning_step;
}

#endif
