/* A training step and its phases: step.c runs those of capture.c, which run terms.c and noise.c. */
#ifndef LT_TRAIN_STEP_PARTS_H
#define LT_TRAIN_STEP_PARTS_H

#include "tensor/statistics.h"

#include "lather/detail/readback.h"
#include "lather/train_step.h"

/* Errors: LT_E_ARG (no forward, too many counts or metrics, a metric without a value, a best one that is not there). */
lt_status lt_task_check(const lt_task_ops *task);

/* Of ranks in one sum: loss, samples, stop, counts. */
enum { STEP_LOSS, STEP_SAMPLES, STEP_STOP, STEP_COUNTS, STEP_SUMS = STEP_COUNTS + LT_TASK_COUNTS };
enum { STEP_NOISE = STEP_SUMS }; /* one more with gradient_noise: samples x |g|^2 */

/* terms.c: f64 [] on the device. */
enum {
    TERMS_COUNTED, /* in the step so far */
    TERMS_SPARE,
    TERMS_WEIGHT, /* weight of this micro-batch, in the loss's dtype */
    TERMS_SEED,   /* times the loss scale: what backward begins with */
    TERMS_MEAN,   /* over ranks and micro-batches */
    TERMS_SCALE,  /* times the loss scale: what gradients are divided by */
    TERMS_ONE,
    TERMS
};

struct lt_train_step {
    lt_train_step_config config;
    int rank, ranks; /* of those that have other samples */
    bool is_counted; /* as in lt_ranks */
    lt_graph *graph;
    lt_statistics *statistics; /* running statistics of batch norm; NULL if the model has none */
    lt_tensor *loss;           /* [] of the last micro-batch, times its weight */
    lt_tensor *counts;         /* i64, of the step; NULL: the task has none */
    lt_readback *numbers[2];   /* of steps by turns: losses and counts */
    lt_tensor *sums;           /* f64 [STEP_SUMS], on the way to the other ranks */
    lt_request *summing;
    lt_tensor *number[TERMS]; /* NULL: micro-batches weigh the same */
    lt_request *averaging;    /* TERMS_MEAN, between begin and end */
    double labels;            /* number of labels in a micro-batch */
    double row_labels;        /* number of labels in a sample */
    int64_t computed;         /* micro-batches of this step */
    int64_t left;             /* of its data: not taken from next yet */
    double finished;          /* when the last step's results were there */
    uint64_t bytes;           /* that the communicator had sent before this step */
    uint64_t parallel;        /* that passes sent within the copy of the model, before it */
    uint64_t between;         /* gradients sent to other nodes before it */
    uint64_t eager_bytes;     /* sent in the last step that was not replayed */
    uint64_t eager_between;   /* of that, gradients to other nodes */
    int64_t replays;          /* before this step */
    lt_tensor *norms;         /* f64: of parts of the step's gradient; NULL: not measured */
    bool owns_norms;          /* of the first micro-batch; else dp's */
    double loss_scale;        /* of the step that is finished next; 0: not read yet */
    double exposed;           /* seconds waited for divided parameters before it */
    int64_t profiled;         /* the step that a device's profiler looks at; 0: none */
};

/* Which phases of the optimizer share a graph with the last micro-batch's backward. */
typedef enum optim_phases {
    PHASES_NONE,  /* the optimizer runs behind the graph, eagerly */
    PHASES_ALL,   /* its whole update */
    PHASES_FIRST, /* up to its host phase; PHASES_SECOND is then a graph of its own */
    PHASES_SECOND
} optim_phases;

/* How a step is captured. */
typedef struct capture_plan {
    optim_phases with_backward; /* NONE, ALL or FIRST */
    bool sums_last; /* sums over ranks are sent behind the optimizer, not in front of it */
} capture_plan;

/* capture.c: of the step that the optimizer is prepared for. */
capture_plan lt_step_plan_capture(const lt_train_step *step);
/* Forward and backward of micro-batch number micro; in the last one, the phases of the plan too. */
lt_status lt_step_run_micro_batch(lt_train_step *step, const lt_batch *batch, int64_t micro,
                                  int64_t attempt, capture_plan plan);
/* No micro-batch of the step follows: its turn of the device ends, gradients become the mean over ranks. */
lt_status lt_step_end_backward(lt_train_step *step);
/* The phases of the optimizer that the plan leaves for behind the last micro-batch. */
lt_status lt_step_run_optimizer(lt_train_step *step, capture_plan plan);

/* terms.c: what micro-batches weigh; 1 each where the task's losses are means over samples. */
lt_status lt_step_open_terms(lt_train_step *step);
void lt_step_close_terms(lt_train_step *step);
/* After a forward pass, before its backward: step->loss becomes the loss times its weight. Collective in the last one. */
lt_status lt_step_weigh(lt_train_step *step, const lt_tensor *loss, bool is_first, bool is_last);
/* After the last backward, before the optimizer. Collective. */
lt_status lt_step_end_terms(lt_train_step *step);
/* The mean weight of sums' samples: the share of labels that count. */
double lt_step_weight(const lt_train_step *step, const lt_task_sums *sums);

/* noise.c: what the gradient noise scale takes. Does nothing without it. */
lt_status lt_step_open_noise(lt_train_step *step);
void lt_step_close_noise(lt_train_step *step);
/* Before the first step is queued. */
lt_status lt_step_begin_noise(lt_train_step *step);
/* The first micro-batch's gradients are all that there are. */
lt_status lt_step_note_gradients(const lt_train_step *step);
/* norms as they were read back: |g|^2 of the part, still scaled. */
double lt_step_square(const lt_train_step *step, const void *norms);
/* result->noise, of which small_square is known: the mean over the parts, weighted by samples, scaled. */
void lt_step_finish_noise(lt_train_step *step, lt_train_result *result);

#endif
