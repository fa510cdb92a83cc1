/* Inside of Shampoo. A step is a list of batched kernels, each of them one call of the
 * backend with a job per block:
 *
 *   gather     G = gradient (+ weight_decay * W)                    shampoo.c
 *   factors    F_k = beta2 F_k + w G_k G_k^T                        factor.c
 *   roots      R_k = (F_k / c2)^(-e_k), when due                    refresh.c, root/; stagger.c,
 *                                                                   async.c, failure.c
 *   direction  P = filtered G times R_k along each dimension        direction.c
 *   grafting   P *= |graft(u)| / |P|                                graft.c
 *   update     decay, momentum, W -= lr P                           update.c
 *
 * Phases that devices capture: capture.c. A step goes by batches of blocks, so that scratch memory stays
 * small. */
#ifndef LT_OPTIM_SHAMPOO_SHAMPOO_H
#define LT_OPTIM_SHAMPOO_SHAMPOO_H

#include "optim/shampoo/block.h"
#include "optim/shard.h"

#include "lather/ext/roots.h"
#include "lather/json.h"
#include "lather/shampoo_report.h"

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
} lt_factor;

/* One block: state in logical order, made before the first step, and where its data is in this step. */
typedef struct lt_block {
    lt_slot *slot; /* of its parameter */
    int index;     /* within the parameter */
    size_t number; /* among all blocks */
    int owner;     /* the rank that has the state */
    const lt_merged *merged;
    lt_box box;
    lt_factor factor[LT_MAX_DIMS];
    lt_tensor *m, *graft, *momentum, *corrected; /* shaped like the block, or NULL */
    int64_t failures;                            /* refreshes in a row that failed */
    bool refreshed, failed; /* by the refresh that the failure policy is applied to */
    int64_t rooted;         /* the step whose factors its roots are of; 0: none yet */
    int64_t phase;          /* its turn among f steps of the staggered timing */
    int64_t swap;           /* the step that swaps in its pending roots; 0: it has none */

    bool due; /* for new roots in this step */

    /* In a step: views of the block's merged shape. */
    bool active;       /* the parameter has a gradient */
    int64_t scratch;   /* where the block begins in the scratch tensors */
    lt_view g, u, p;   /* gradient, filtered gradient, direction */
    lt_view buffer[2]; /* what p moves between */
    lt_view update;    /* divided over ranks: what becomes -lr * p instead of the parameter */
    int spare;         /* the buffer that p is not in */
} lt_block;

/* Blocks [begin, end). */
typedef struct lt_block_batch {
    size_t begin, end;
} lt_block_batch;

enum { LT_SCRATCH_G, LT_SCRATCH_U, LT_SCRATCH_A, LT_SCRATCH_B, LT_SCRATCHES };

typedef struct lt_shampoo {
    lt_optim base;
    lt_shampoo_config config; /* no default markers left */
    lt_merged *merged;        /* per slot */
    lt_block *block;          /* this rank's, by number, then those of other ranks */
    size_t count, total;      /* this rank's, which a step works on; all */
    size_t *place;            /* of each number in block[] */
    lt_block_batch *batch;
    size_t batches;
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
    lt_shampoo_stats stats; /* of step number stats_step */
    int64_t stats_step;
    struct lt_async *async;  /* a refresh that runs on its own thread, or NULL */
    double pending_seconds;  /* what it took; for the statistics of the step that swaps */
    int64_t pending_retries; /* in double */
} lt_shampoo;

/* Makes the job of one block; false: nothing to do for it. */
typedef bool lt_vec_rule(const lt_shampoo *s, lt_block *block, lt_vec_job *job);
/* One batched kernel for all active blocks of a batch. */
lt_status lt_shampoo_vec(lt_shampoo *s, lt_block_batch batch, lt_vec_rule *rule);

/* The same for several rules, which see a block by turns: all elements pass once where the backend
 * can do that. Views of a block's jobs have one shape. A NULL is no rule. */
lt_status lt_shampoo_vecs(lt_shampoo *s, lt_block_batch batch, lt_vec_rule *const *rule,
                          size_t count);

/* p = p times a matrix of dimension dim, transposed or not, for blocks that have one there. */
lt_status lt_shampoo_product(lt_shampoo *s, lt_block_batch batch, int dim, bool transpose);
/* p times the roots of all dimensions but skip (-1: none). */
lt_status lt_shampoo_precondition(lt_shampoo *s, lt_block_batch batch, int skip);
/* p in the eigenbases of all dimensions, or back. */
lt_status lt_shampoo_rotate(lt_shampoo *s, lt_block_batch batch, bool back);

/* The block in the parameter's memory, and a tensor or view of the block's shape as the same
 * number of dimensions. */
lt_view lt_block_of(const lt_block *block, const lt_tensor *parameter);
lt_view lt_block_view(const lt_block *block, const lt_view *merged);
/* Strides of the block's vectors in its merged dimensions, dense; and giving them to its state. */
void lt_block_strides(const lt_block *block, int64_t *stride);
void lt_block_lay_out(lt_block *block);
/* Where a kernel that cannot work in place writes; lt_block_moved() makes it p. */
const lt_view *lt_block_spare(const lt_block *block);
void lt_block_moved(lt_block *block);

/* The gradient of a batch's blocks, and where they work: what all below reads. */
lt_status lt_shampoo_begin_batch(lt_shampoo *s, lt_block_batch batch);
/* Of a batch that was begun: the phases before and after its roots. */
lt_status lt_shampoo_before_roots(lt_shampoo *s, lt_block_batch batch);
lt_status lt_shampoo_after_roots(lt_shampoo *s, lt_block_batch batch);
/* What only a step needs, and only for this rank's blocks. */
lt_status lt_shampoo_prepare(lt_shampoo *s);

/* split.c: the step in pieces, and on devices that work while the host does something else. */
extern const lt_host_phase_ops lt_shampoo_host_phase;
bool lt_shampoo_is_capturable(const lt_optim *self);
lt_status lt_shampoo_queue_step(lt_shampoo *s);

lt_status lt_shampoo_update_factors(lt_shampoo *s, lt_block_batch batch);
/* Blocks that keep a diagonal: whether those of this shape do; its update; p times its power. */
bool lt_shampoo_is_diagonal(const lt_shampoo_config *config, lt_shape block);
lt_status lt_shampoo_diagonal_moment(lt_shampoo *s, lt_block_batch batch);
lt_status lt_shampoo_diagonal(lt_shampoo *s, lt_block_batch batch);
lt_status lt_shampoo_filter(lt_shampoo *s, lt_block_batch batch);
lt_status lt_shampoo_direction(lt_shampoo *s, lt_block_batch batch);
lt_status lt_shampoo_update(lt_shampoo *s, lt_block_batch batch);

/* The update of the method's own second moment, or NULL. */
lt_vec_rule *lt_shampoo_graft_moment(const lt_shampoo *s);
/* p = graft(u): before the first roots. */
lt_status lt_shampoo_graft_only(lt_shampoo *s, lt_block_batch batch);
/* p gets the norm of graft(u), block by block. */
lt_status lt_shampoo_graft_norm(lt_shampoo *s, lt_block_batch batch);

/* What the kinds of preconditioners have in common. */
static inline bool lt_shampoo_is_kl(const lt_shampoo_config *c)
{
    return c->preconditioner == LT_PRECONDITIONER_KL
           || c->preconditioner == LT_PRECONDITIONER_KL_EIGENDECOMPOSED;
}
static inline bool lt_shampoo_is_eigendecomposed(const lt_shampoo_config *c)
{
    return c->preconditioner == LT_PRECONDITIONER_EIGENDECOMPOSED
           || c->preconditioner == LT_PRECONDITIONER_KL_EIGENDECOMPOSED;
}

/* Whether this step is before the first roots. */
bool lt_shampoo_is_early(const lt_shampoo *s);
/* Which blocks get new roots inside this step: marks them. */
typedef enum lt_due { LT_DUE_NONE, LT_DUE_SOME, LT_DUE_ALL } lt_due;
lt_due lt_shampoo_plan(lt_shampoo *s);
/* Whether that is any. */
bool lt_shampoo_refreshes(const lt_shampoo *s);
/* New roots of the marked active blocks of a batch. */
lt_status lt_shampoo_refresh(lt_shampoo *s, lt_block_batch batch);

/* One matrix of a refresh. */
typedef struct lt_root_task {
    lt_block *block;
    int dim;
    int64_t n;
    lt_status status; /* out: LT_OK, or why the old root stays */
    bool retried;     /* out: solved in double */
} lt_root_task;
/* The matrices of the marked active blocks of a batch, large ones first; returns how many. tasks:
 * LT_MAX_DIMS for each block. */
size_t lt_shampoo_list_tasks(lt_shampoo *s, lt_block_batch batch, lt_root_task *tasks);
/* Where the batch ends that begins at begin: its memory stays within a limit. */
size_t lt_shampoo_tasks_end(const lt_root_task *tasks, size_t begin, size_t count);
/* Counts failures and applies the failure policy. step: of the factors.
 * Errors: LT_E_ARG (too many failures in a row), LT_E_NOMEM. */
lt_status lt_shampoo_apply_policy(lt_shampoo *s, const lt_root_task *tasks, size_t count,
                                  int64_t step);

/* Whether this step starts roots on the async thread. */
bool lt_shampoo_starts_async(const lt_shampoo *s);
/* Starts the roots of all active blocks on a thread; they are swapped in f steps from now. */
lt_status lt_shampoo_start_async(lt_shampoo *s);
/* Swaps in the roots that are due in this step; waits for them. */
lt_status lt_shampoo_swap(lt_shampoo *s);
/* Whether this step does. */
bool lt_shampoo_swaps(const lt_shampoo *s);
/* Waits for the thread, so that the pending roots are complete. Errors: the thread's; then nothing
 * is pending any more. */
lt_status lt_shampoo_wait_async(lt_shampoo *s);
/* Stops the thread at the next chance; its roots are lost. */
void lt_shampoo_cancel_async(lt_shampoo *s);
/* Gives every block its phase. Errors: LT_E_NOMEM. */
lt_status lt_shampoo_stagger(lt_shampoo *s);
/* Modelled cost of the block's roots, in n^3 of its factors. */
double lt_block_root_cost(const lt_block *block);

void lt_shampoo_start_stats(lt_shampoo *s);
/* Adds the time since begin to *seconds and to the profile; returns the clock. */
int64_t lt_shampoo_took(int64_t begin, double *seconds, const char *name);

/* Roots of these matrices, at once. Errors: LT_E_ARG (a factor is not finite), LT_E_NOMEM. */
lt_status lt_shampoo_run_tasks(lt_shampoo *s, lt_root_task *tasks, size_t count);
/* The same in two halves, for lt_root_run() at another time or place: jobs on bias-corrected copies
 * of the factors in one tensor, *copies, that read and write the blocks' own roots. */
lt_status lt_shampoo_root_jobs(lt_shampoo *s, const lt_root_task *tasks, size_t count,
                               lt_root_job *jobs, lt_tensor **copies);

bool lt_is_shampoo(const lt_optim *optim);
/* The block of that number; 0 <= number < total. */
lt_block *lt_shampoo_block_number(const lt_shampoo *s, size_t number);

/* State of this rank's blocks: zeros, identities. What is there already stays. */
lt_status lt_shampoo_make_state(lt_shampoo *s);
void lt_shampoo_free_state(lt_shampoo *s);
/* Frees pending tensors of blocks that have nothing pending. */
void lt_shampoo_drop_pending(lt_shampoo *s);
extern const lt_part_ops lt_shampoo_parts;
/* Modelled time of a step; reads the block's box and factors' kinds. */
double lt_block_nanoseconds(const lt_shampoo_config *config, const lt_block *block);
/* What it is made of: a step without roots, and all its roots once. */
double lt_block_step_nanoseconds(const lt_shampoo_config *config, const lt_block *block);
double lt_block_refresh_nanoseconds(const lt_block *block);
/* Whether its dimensions keep factors, and which exponents: by the config and its box. */
void lt_block_plan(const lt_shampoo_config *config, lt_block *block);
/* Bytes of its state, or of factors and roots only. */
int64_t lt_shampoo_block_bytes(const lt_shampoo *s, lt_block *block, bool factors);

/* For the table of the optimizer. */
lt_status lt_shampoo_visit(lt_optim *self, lt_state_visitor *visitor);
size_t lt_shampoo_state_bytes(const lt_optim *self);

/* Ranges of a config; replaces markers of defaults. Errors: LT_E_ARG, naming field and range. */
lt_status lt_shampoo_check(lt_shampoo_config *config);

/* exponents.c: values of inverse_exponent, ignored_basis_change_dims and target_dimensionality. */
lt_status lt_shampoo_set_exponents(void *config, const char *text);
lt_status lt_shampoo_set_ignored(void *config, const char *text);
lt_status lt_shampoo_read_exponents(void *config, const lt_json_value *v);
lt_status lt_shampoo_read_ignored(void *config, const lt_json_value *v);
lt_status lt_shampoo_read_dimensionality(void *config, const lt_json_value *v);

#endif
