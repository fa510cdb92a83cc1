/** A whole training run from a program's own C: epochs of steps, evaluations, records, checkpoints, resume. */
#ifndef LATHER_TRAIN_H
#define LATHER_TRAIN_H

#include "lather/checkpoint.h"
#include "lather/data.h"
#include "lather/detail/run.h"
#include "lather/schedule.h"
#include "lather/stragglers.h"
#include "lather/train_hooks.h"
#include "lather/train_step.h"

/** Parts and settings of a run. All borrowed; the comments define zero fields. */
typedef struct lt_train_config {
    lt_device *device;
    const lt_params *params; /**< parameters of the model that the task calls */
    /** with lt_optim_start_averaging(): evaluations, checkpoints, weights and averages use x */
    lt_optim *optim;
    lt_task task;
    lt_comm *comm; /**< communicator of all ranks, each of which calls lt_train(); NULL: one */
    const lt_local_steps_config *local_steps; /**< local steps; NULL: ranks average each gradient */
    /** shared by all ranks: steps and evaluations take time slices of the device; NULL: not shared */
    lt_share *share;
    /** with local_steps: ranks of a group; 0: those of a node, as in lt_comm_nodes() */
    int ranks_per_node;
    /** handling of slow ranks; NULL: wait for them */
    const lt_straggler_config *stragglers;
    lt_dataset *train, *val; /**< training and validation data; val NULL: evaluations use train */
    /** Loader of training; rank, size, drop_last and max_batches (whole steps) are set. Evaluations use its batch,
     *  threads, transform, limit and max_bad, in order and without augmentation. */
    lt_loader_config loader;
    lt_schedule schedule; /**< learning-rate schedule in steps; steps_per_epoch is set */
    /** latest end of the run; 0: schedule.epochs determines it. One of them is required */
    int64_t max_steps;
    int64_t grad_accum; /**< micro-batches per step; 0: 1 */
    lt_dtype dtype;     /**< lt_pass.dtype of the task's tape; LT_F16 scales the loss */
    lt_recompute recompute;
    bool graph; /**< run steps as captured graphs, as in lt_train_step_config */
    /** Records have noise_scale (lather/detail/noise_scale.h): needs several ranks or grad_accum above 1; not with
     *  local_steps. */
    bool gradient_noise;
    /** Steps between measurements of what the optimizer does: optim_stats.bin in output and events in the records
     *  (docs/guides/optim-stats.md); 0: none. */
    int64_t optim_stats;
    /** Regular expressions (POSIX extended) that select parameters to measure; none: all. */
    const char *const *optim_stats_pattern;
    size_t optim_stats_patterns;
    double clip_norm; /**< largest global gradient norm; 0: no clipping */
    double ema_decay; /**< decay of an EMA for evaluations and weights; 0: none */
    bool skip_nan;    /**< a gradient that is not finite skips a step instead of ending the run */
    int64_t
        eval_every; /**< epochs between evaluations; 0: only at the end of the run; negative: never */
    int64_t checkpoint_every; /**< steps between checkpoints; 0: only at the end of epochs */
    int keep;                 /**< newest checkpoints to keep; 0: all */
    int save_top; /**< best checkpoints to keep, at most LT_CHECKPOINT_TOP; below 2: the best one */
    double target;      /**< value of the task's best metric at which the run ends; 0: none */
    const char *output; /**< run folder; NULL: nothing is written */
    bool resume;        /**< resume from the newest checkpoint in output, if there is one */
    /** A resume within an epoch of other data restarts that epoch; false: it is an error. */
    bool data_may_change;
    lt_progress progress;
    const lt_metadata *metadata; /**< metadata to save with the weights */
    size_t metadata_count;
    const lt_train_hooks *hooks; /**< hooks, called before registered ones; NULL if absent */
    /** Called after each step and each batch of an evaluation; true: the run saves and ends. NULL: never. */
    bool (*stop)(void *context);
    void *context;
} lt_train_config;

/** Result of a run. */
typedef struct lt_train_end {
    int64_t step, epoch;
    double best; /**< value of the task's best metric; best_step 0: no evaluation */
    int64_t best_step;
    bool stopped;         /**< true: config->stop of a rank ended the run */
    const char *ended_by; /**< name of the hooks that ended the run; NULL if none did. Borrowed */
} lt_train_end;

/** Trains to the end, the target, or until config->stop or a hook ends it. A resumed run of output gives the same numbers as
 *  an uninterrupted one. end may be NULL. Collective; a failure on one rank aborts comm. Errors: LT_E_ARG (fewer
 *  samples than a step has; a checkpoint of another run; a run in output without resume; a gradient is not
 *  finite), LT_E_IO, LT_E_NOMEM, those of the task. */
LT_API LT_MUST_CHECK lt_status lt_train(const lt_train_config *config, lt_train_end *end);

#endif
