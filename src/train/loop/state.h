/* What a checkpoint stores of a run, and the checkpoint to go on from. */
#ifndef LT_TRAIN_STATE_H
#define LT_TRAIN_STATE_H

#include "ranks.h"
#include "train/run/processor.h"

#include "lather/averaging.h"
#include "lather/checkpoint.h"
#include "lather/data.h"
#include "lather/ema.h"
#include "lather/train_step.h"

enum {
    OUTPUT_BYTES = 900
}; /* of a run folder's path at most: with the names of files in it, 1024 hold it */

typedef struct lt_train_state {
    lt_checkpoint_state now;
    lt_ema *ema;                 /* NULL: no moving average */
    lt_checkpoint_tensor *extra; /* of the moving average, and of averaged iterates */
    size_t extras;
    char folder[1024];                 /* checkpoint to resume; "": none */
    lt_checkpoint_state found;         /* its state, as it stands there */
    char processor[LT_PROCESSOR_TEXT]; /* what was otherwise there: lt_processor_compare() */
    bool save_failed;                  /* the last checkpoint was not written */
    bool data_changed;                 /* the data is not what found had */
    int64_t offset; /* step - epoch * steps per epoch; not 0 after epochs of another length */
} lt_train_state;

/* The state of a new run: nothing counted, what the task counts and its best metric by their names. batch: samples of
 * a micro-batch on each rank. */
void lt_train_state_begin(lt_train_state *state, const lt_task_ops *task, const lt_optim *optim,
                          const lt_ranks *ranks, int64_t batch, int64_t grad_accum);
void lt_train_state_close(lt_train_state *state);

/* Errors: LT_E_ARG, LT_E_NOMEM. */
lt_status lt_train_state_open_ema(lt_train_state *state, const lt_params *params, double decay);
/* Where the optimizer averages iterates, theirs are saved too. Behind the moving average. Errors: LT_E_NOMEM. */
lt_status lt_train_state_open_iterates(lt_train_state *state, const lt_params *params,
                                       lt_optim *optim);
/* Averages and weights change places; again: back. */
lt_status lt_train_state_swap_ema(lt_train_state *state);
/* The model gets what is evaluated: the optimizer's evaluation sequence, or the average of it. Whatever happens in
 * between, it is given back. */
lt_status lt_train_state_eval(lt_train_state *state, lt_optim *optim);
lt_status lt_train_state_train(lt_train_state *state, lt_optim *optim);

/* The tensors of averages and iterates go into parts. */
void lt_train_state_parts(const lt_train_state *state, lt_checkpoint_parts *parts);

/* --- Resume and save --- */

/* Records the count and fingerprint of the training data, which go into checkpoints. */
void lt_train_state_set_data(lt_train_state *state, const lt_dataset *train);
/* Compares it with what found had. Data that changed within an epoch is an error, or with may_continue found becomes
 * the beginning of that epoch. Before lt_train_state_check(). Errors: LT_E_ARG, naming both. */
lt_status lt_train_state_check_data(lt_train_state *state, bool may_continue);
/* Whether this run can go on from found: batches of an epoch are of grad_accum to a step.
 * Errors: LT_E_ARG, LT_E_FORMAT (numbers in state.json contradict each other). */
lt_status lt_train_state_check(const lt_train_state *state, const lt_ranks *ranks,
                               int64_t grad_accum, int64_t batches_per_epoch);
/* After that: now, model, optimizer and averages become the checkpoint's, and offset is set. Collective. */
lt_status lt_train_state_load(lt_train_state *state, const lt_checkpoint_parts *parts,
                              const lt_ranks *ranks, int64_t grad_accum, int64_t batches_per_epoch);
/* The optimizer's loss scale, if it has one: where the checkpoint's run had it, or from the start. */
lt_status lt_train_state_scale_loss(lt_train_state *state, lt_optim *optim, bool is_scaled);
/* A checkpoint in output; NULL: none. Collective. */
lt_status lt_train_state_save(const lt_train_state *state, const lt_checkpoint_parts *parts,
                              const char *output, const lt_checkpoint_policy *policy);
/* OUTPUT/model.safetensors: the weights, averaged if there are averages. */
lt_status lt_train_state_save_weights(lt_train_state *state, const lt_checkpoint_parts *parts,
                                      const char *output);

/* --- Counting --- */

/* A step of grad_accum micro-batches was queued; its results come later. */
void lt_train_state_queued(lt_train_state *state, int64_t grad_accum);
void lt_train_state_count(lt_train_state *state, const lt_task_ops *task,
                          const lt_train_result *result);
/* Turns on the gradient noise scale, before a checkpoint is loaded: a run that goes on with it off drops what was
 * found. What a step measured of it: nothing if it is off, or the step was not applied. */
void lt_train_state_measure_noise(lt_train_state *state);
lt_status lt_train_state_add_noise(lt_train_state *state, const lt_train_result *result);
/* In samples; NaN: off, or unknown. */
double lt_train_state_noise_scale(const lt_train_state *state);
/* Of the epoch so far; those counts alone that checkpoints keep. */
lt_task_sums lt_train_state_sums(const lt_train_state *state, const lt_task_ops *task);
void lt_train_state_next_epoch(lt_train_state *state);
/* Whether an evaluation's value is the best so far; then it is from now on. NaN never is. */
bool lt_train_state_is_best(lt_train_state *state, const lt_task_ops *task, double value);

#endif
