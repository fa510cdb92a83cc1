/** A whole training run out of a program's own C: epochs of steps, evaluations, records, checkpoints, resume. */
#ifndef LATHER_TRAIN_H
#define LATHER_TRAIN_H

#include "lather/checkpoint.h"
#include "lather/data.h"
#include "lather/detail/run.h"
#include "lather/schedule.h"
#include "lather/stragglers.h"
#include "lather/train_step.h"

/** What a run works with and what it does. All borrowed; zero fields mean what their comments say. */
typedef struct lt_train_config {
    lt_device *device;
    const lt_params *params; /**< of the model that the task calls */
    lt_optim
        *optim; /**< lt_optim_average(): evaluations, checkpoints, weights and averages are of x */
    lt_task task;
    lt_comm *comm; /**< of several ranks, each of which calls lt_train(); NULL: one */
    const lt_local_steps_config *local_steps; /**< NULL: all ranks average each gradient */
    lt_share
        *share; /**< of all ranks: steps and evaluations take turns on the device; NULL: none */
    int ranks_per_node; /**< with local_steps: of a group; 0: those of a node, as in lt_comm_nodes() */
    const lt_straggler_config
        *stragglers;         /**< what is done about slow ranks; NULL: they are waited for */
    lt_dataset *train, *val; /**< val NULL: evaluations are of train */
    /** Of training; rank, size, drop_last and max_batches (whole steps) are set. Evaluations have its
     *  batch, threads, transform, limit and max_bad, in order and without augmentation. */
    lt_loader_config loader;
    lt_schedule schedule; /**< of steps; steps_per_epoch is set */
    int64_t
        max_steps; /**< the run ends there at the latest; 0: schedule.epochs say it. One is needed */
    int64_t grad_accum; /**< micro-batches of a step; 0: 1 */
    lt_dtype dtype;     /**< lt_pass.dtype of the task's tape; LT_F16 scales the loss */
    lt_recompute recompute;
    bool graph; /**< as in lt_train_step_config */
    /** Records have noise_scale (lather/detail/noise_scale.h): of several ranks, or grad_accum above 1; without local_steps. */
    bool gradient_noise;
    double clip_norm;   /**< of the gradient; 0: none */
    double ema_decay;   /**< evaluations and weights are of a moving average; 0: none */
    bool skip_nan;      /**< a gradient that is not finite skips a step instead of ending the run */
    int64_t eval_every; /**< epochs; 0: at the end of the run alone; below: never */
    int64_t checkpoint_every; /**< steps; 0: at the end of epochs alone */
    int keep;                 /**< newest checkpoints to keep; 0: all */
    double target;            /**< of the task's best metric, which ends the run; 0: none */
    const char *output;       /**< run folder; NULL: nothing is written */
    bool resume;              /**< go on from the newest checkpoint in output, if there is one */
    /** A resume within an epoch of other data begins that epoch again; false: it is an error. */
    bool data_may_change;
    lt_progress progress;
    const lt_metadata *metadata; /**< metadata of the weights */
    size_t metadata_count;
    /** Asked behind each step and each batch of an evaluation; then the run saves and ends. NULL: never. */
    bool (*stop)(void *context);
    void *context;
} lt_train_config;

/** Where the run ended. */
typedef struct lt_train_end {
    int64_t step, epoch;
    double best; /**< of the task's best metric; best_step 0: nothing was evaluated */
    int64_t best_step;
    bool stopped; /**< by config->stop, of any rank */
} lt_train_end;

/** Trains to the end, the target, or until it is told to stop. A run of output that goes on gives the same
 *  numbers as one that was not interrupted. end may be NULL. Collective; where
 *  it fails on one rank, comm is aborted. Errors: LT_E_ARG (fewer samples than a step has; a checkpoint of another run; a run in output that is not to
 *  be resumed; a gradient is not finite), LT_E_IO, LT_E_NOMEM, those of the task. */
LT_API LT_MUST_CHECK lt_status lt_train(const lt_train_config *config, lt_train_end *end);

#endif
