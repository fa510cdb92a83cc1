/* Options of any training program, a struct for each group. The ranks' are in ranks.h, those of schedule and
 * parameter groups in program.h. */
#ifndef LT_TRAIN_OPTIONS_H
#define LT_TRAIN_OPTIONS_H

#include "lather/averaging.h"
#include "lather/cautious.h"
#include "lather/options.h"

/* Indices of the choices, in the order of the rows. */
enum { AMP_OFF, AMP_BF16, AMP_F16, AMP_TF32 };
enum { RECOMPUTE_OFF, RECOMPUTE_CHEAP, RECOMPUTE_AUTO };
enum { ON_NAN_ABORT, ON_NAN_SKIP };
enum { TF32_OFF, TF32_ON };
enum { DATA_CHANGED_ERROR, DATA_CHANGED_CONTINUE };
enum { STATE_MEMORY_ANY, STATE_MEMORY_ADAM };

typedef struct loader_options {
    int64_t workers; /* loader threads; the rows of this and shuffle are in arguments.c */
    int64_t limit_train_batches, limit_eval_batches, overfit_batches;
    bool shuffle;
} loader_options;

typedef struct training_options {
    int64_t grad_accum, max_steps, seed;
    double epochs, clip_grad, ema_decay;
    int amp, recompute, on_nan, state_dtype, state_memory;
    bool gradient_noise, deterministic, reproducible;
} training_options;

typedef struct evaluation_options {
    bool eval;
    const char *watch, *early_stop;
    double watch_wait; /* seconds to wait for the run of --watch to begin */
    int64_t eval_every, update_bn;
} evaluation_options;

typedef struct output_options {
    const char *output, *resume, *profile;
    int64_t checkpoint_every, keep, save_top, log_every, hash_every, optim_stats;
    lt_option_list optim_stats_params;
    int progress, data_changed;
    bool verbose, tensorboard, overwrite;
} output_options;

typedef struct machine_options {
    const char *device;
    int64_t threads;
    int tf32, fused, run_ahead;
    bool graph;
} machine_options;

lt_option_table lt_loader_option_table(loader_options *o);
lt_option_table lt_training_option_table(training_options *o);
/* Returns the last row of the table of training options, for commands without the others. */
lt_option_table lt_reproducible_option_table(training_options *o);
lt_option_table lt_averaging_option_table(lt_averaging_config *o);
lt_option_table lt_cautious_option_table(lt_cautious_config *o);
lt_option_table lt_evaluation_option_table(evaluation_options *o);
lt_option_table lt_output_option_table(output_options *o);
lt_option_table lt_machine_option_table(machine_options *o);

#endif
