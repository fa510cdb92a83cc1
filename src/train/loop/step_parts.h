/* Private parts of a training step: step.c calls capture.c, which calls terms.c and noise.c. */
#ifndef LT_TRAIN_STEP_PARTS_H
#define LT_TRAIN_STEP_PARTS_H

#include "tensor/statistics.h"

#include "lather/detail/readback.h"
#include "lather/train_step.h"

/* Checks a task. Errors: LT_E_ARG (no forward, too many counts or metrics, a metric without a value, an invalid
 * best metric). */
lt_status lt_task_check(const lt_task_ops *task);

/* Results that are summed over ranks: loss, samples, stop, counts. */
enum { STEP_LOSS, STEP_SAMPLES, STEP_STOP, STEP_COUNTS, STEP_SUMS = STEP_COUNTS + LT_TASK_COUNTS };
enum { STEP_NOISE = STEP_SUMS }; /* with gradient_noise one more: samples x |g|^2 */

/* Scalars of terms.c, f64 [] on the device. */
enum {
    TERMS_COUNTED, /* number of terms in the step so far */
    TERMS_SPARE,
    TERMS_WEIGHT, /* weight of this micro-batch, in the loss's dtype */
    TERMS_SEED,   /* weight times loss scale: the gradient that backward starts from */
    TERMS_MEAN,   /* mean over ranks and micro-batches */
    TERMS_SCALE,  /* mean times loss scale: divisor of the gradients */
    TERMS_ONE,
    TERMS
};

typedef struct lt_shards lt_shards;

struct lt_train_step {
    lt_train_step_config config;
    int rank, ranks;   /* this rank and the number of ranks with different samples */
    bool is_counted;   /* as lt_ranks.is_counted */
    lt_shards *shards; /* tree of sums of a reproducible device; NULL: none, or one shard */
    double divisor;    /* number of micro-batches, with shards that of all ranks */
    lt_graph *graph;
    lt_statistics *statistics; /* running statistics of batch norm; NULL if the model has none */
    lt_tensor *loss;           /* loss [] of the last micro-batch, times its weight */
    lt_tensor *counts;         /* counts of the step, i64; NULL if the task has none */
    lt_readback *numbers[2];   /* losses and counts of alternate steps */
    lt_tensor *sums;           /* f64 [STEP_SUMS], being summed over ranks */
    lt_request *summing;
    lt_tensor *number[TERMS]; /* scalars TERMS_...; NULL: all micro-batches have equal weights */
    lt_request *averaging;    /* collective on TERMS_MEAN, between begin and end */
    double labels;            /* number of labels in a micro-batch */
    double row_labels;        /* number of labels in a sample */
    int64_t computed;         /* micro-batches of this step computed so far */
    int64_t left;             /* micro-batches whose data next() has not returned yet */
    double finished;          /* time at which the last step's results arrived */
    uint64_t bytes;           /* bytes that the communicator had sent before this step */
    uint64_t parallel;        /* bytes that passes had sent within the replica before this step */
    uint64_t between;         /* gradient bytes sent to other nodes before this step */
    uint64_t eager_bytes;     /* bytes sent in the last step that was not replayed */
    uint64_t eager_between;   /* gradient bytes among eager_bytes sent to other nodes */
    int64_t replays;          /* graph replays before this step */
    lt_tensor *norms;         /* f64 norms of a part's gradient; NULL: not measured */
    bool owns_norms;          /* norms are of the first micro-batch; else they are dp's */
    double loss_scale;        /* loss scale of the step to finish next; 0: not read yet */
    double exposed;           /* seconds waited for sharded parameters before this step */
    int64_t profiled;         /* step captured by the device's profiler; 0: none */
};

/* Phases of the optimizer that share a graph with the last micro-batch's backward. */
typedef enum optim_phases {
    PHASES_NONE,  /* none: the optimizer runs eagerly, after the graph */
    PHASES_ALL,   /* all: the whole update */
    PHASES_FIRST, /* first: up to its host phase; PHASES_SECOND is then a separate graph */
    PHASES_SECOND
} optim_phases;

/* Decision on how a step is captured. */
typedef struct capture_plan {
    optim_phases with_backward; /* phases in backward's graph: NONE, ALL or FIRST */
    bool sums_last;             /* sums over ranks are sent after the optimizer, not before it */
} capture_plan;

/* Decides which optimizer phases share backward's graph in the step that the optimizer is prepared for. */
capture_plan lt_step_plan_capture(const lt_train_step *step);
/* Runs forward and backward of a micro-batch; after the last one, the planned phases of the optimizer, too. */
lt_status lt_step_run_micro_batch(lt_train_step *step, const lt_batch *batch, int64_t micro,
                                  int64_t attempt, capture_plan plan);
/* Call after the last micro-batch of the step: ends the time slice of the device and averages gradients over
 * ranks. */
lt_status lt_step_end_backward(lt_train_step *step);
/* Runs the phases of the optimizer that are not in backward's graph. */
lt_status lt_step_run_optimizer(lt_train_step *step, capture_plan plan);

/* terms.c: weights of micro-batches; all 1 if the task's losses are means over samples. */
lt_status lt_step_open_loss_weights(lt_train_step *step);
void lt_step_close_loss_weights(lt_train_step *step);
/* Sets step->loss to the loss times its weight. Call between forward and backward. Collective in the last
 * micro-batch. */
lt_status lt_step_weigh_loss(lt_train_step *step, const lt_tensor *loss, bool is_first,
                             bool is_last);
/* Ends the weighting of losses. Call after the last backward, before the optimizer. Collective. */
lt_status lt_step_finish_loss_weights(lt_train_step *step);
/* Returns the mean weight of the samples: the fraction of labels that count. */
double lt_step_mean_weight(const lt_train_step *step, const lt_task_sums *sums);

/* shards.c: sums over micro-batches in the fixed order of a reproducible device; else as backward adds them. */
lt_status lt_step_open_shards(lt_train_step *step);
void lt_step_close_shards(lt_train_step *step);
/* Call before the forward and after the backward pass of a micro-batch. */
lt_status lt_step_begin_shard(lt_train_step *step, int64_t micro);
lt_status lt_step_add_shard(lt_train_step *step, int64_t micro);
/* Makes running statistics those of all shards. Call after the last backward, before the optimizer. Collective. */
lt_status lt_step_finish_shards(lt_train_step *step);
/* Returns the sum of losses, in the loss's dtype. */
double lt_step_sum_losses(const lt_train_step *step, const char *losses, int64_t count);

/* noise.c: measurements for the gradient noise scale; no-ops if it is off. */
lt_status lt_step_open_noise(lt_train_step *step);
void lt_step_close_noise(lt_train_step *step);
/* Reads the initial loss scale. Call before the first step is queued. */
lt_status lt_step_read_loss_scale(lt_train_step *step);
/* Measures the gradients of the first micro-batch, before others are added. */
lt_status lt_step_measure_grad_norms(const lt_train_step *step);
/* Returns |g|^2 of this part from the norms that were read back; still scaled by the loss scale. */
double lt_step_squared_norm(const lt_train_step *step, const void *norms);
/* Completes result->noise, whose small_square is the scaled mean over the parts, weighted by samples. */
void lt_step_fill_noise_sample(lt_train_step *step, lt_train_result *result);

#endif
