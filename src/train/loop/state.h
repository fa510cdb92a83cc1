/* State of a run that checkpoints store, and the checkpoint to resume from. */
#ifndef LT_TRAIN_STATE_H
#define LT_TRAIN_STATE_H

#include "ranks.h"
#include "train/run/plugins.h"
#include "train/run/processor.h"

#include "lather/averaging.h"
#include "lather/checkpoint.h"
#include "lather/data.h"
#include "lather/detail/run.h"
#include "lather/ema.h"
#include "lather/train_step.h"

enum {
    OUTPUT_BYTES = 900
}; /* most bytes of a run folder's path: with the names of files in it, 1024 bytes hold it */

typedef struct lt_train_state {
    lt_checkpoint_state now;
    lt_ema *ema;                 /* EMA of the weights; NULL if absent */
    lt_checkpoint_tensor *extra; /* tensors of the EMA and of averaged weights */
    size_t extras;
    char folder[1024];                 /* folder of the checkpoint to resume; "" if none */
    lt_checkpoint_state found;         /* state of the checkpoint in `folder`, as stored */
    char processor[LT_PROCESSOR_TEXT]; /* differences of the processor: lt_processor_compare() */
    char plugins[LT_PLUGINS_TEXT];     /* plugins that differ from that checkpoint's */
    int save_top;                      /* checkpoints to keep for their metric; below 2: the best */
    bool save_failed;                  /* the last checkpoint was not written */
    bool data_changed;                 /* the data differ from those of that checkpoint */
    uint64_t fingerprint;              /* the training data's; now.data_hash: its upper 53 bits */
    int64_t offset; /* step - epoch * steps per epoch; not 0 after epochs of another length */
} lt_train_state;

/* Initializes the state of a new run: counters of 0, and the names of the task's counts and best metric. batch:
 * samples of a micro-batch on each rank. */
void lt_train_state_begin(lt_train_state *state, const lt_task_ops *task, const lt_optim *optim,
                          const lt_ranks *ranks, int64_t batch, int64_t grad_accum);
void lt_train_state_close(lt_train_state *state);

/* Adds an EMA of the weights. Errors: LT_E_ARG, LT_E_NOMEM. */
lt_status lt_train_state_open_ema(lt_train_state *state, const lt_params *params, double decay);
/* Adds the tensors of an averaging optimizer, so that they are saved, too. Call after lt_train_state_open_ema().
 * Errors: LT_E_NOMEM. */
lt_status lt_train_state_open_iterates(lt_train_state *state, const lt_params *params,
                                       lt_optim *optim);
/* Swaps EMA and weights; a second call swaps them back. */
lt_status lt_train_state_swap_ema(lt_train_state *state);
/* Switches the model to the evaluation weights: the optimizer's, or the EMA of them. lt_train_use_train_weights()
 * switches back, whatever happens in between. */
lt_status lt_train_use_eval_weights(lt_train_state *state, lt_optim *optim);
lt_status lt_train_use_train_weights(lt_train_state *state, lt_optim *optim);

/* Adds the tensors of EMA and averaged weights to parts. */
void lt_train_state_add_averages(const lt_train_state *state, lt_checkpoint_contents *parts);

/* --- Resume and save --- */

/* Stores the count and fingerprint of the training data, for checkpoints. */
void lt_train_state_set_fingerprint(lt_train_state *state, const lt_dataset *train);
/* Compares the data with the checkpoint's. Data that changed within an epoch is an error; may_continue: found becomes
 * the beginning of that epoch. Call before lt_train_state_check(). Errors: LT_E_ARG, naming both. */
lt_status lt_train_state_check_data(lt_train_state *state, bool may_continue);
/* Checks that this run can resume from found. Errors: LT_E_ARG, LT_E_FORMAT (numbers in state.json contradict each
 * other). */
lt_status lt_train_state_check(const lt_train_state *state, const lt_ranks *ranks,
                               int64_t grad_accum, int64_t batches_per_epoch);
/* Loads the checkpoint into now, model, optimizer and averages, and sets offset. Call after
 * lt_train_state_check(). Collective. */
lt_status lt_train_state_load(lt_train_state *state, const lt_checkpoint_contents *parts,
                              const lt_ranks *ranks, int64_t grad_accum, int64_t batches_per_epoch);
/* Sets the loss scale of the optimizer, if is_scaled: from the checkpoint, or the initial one. */
lt_status lt_train_state_init_loss_scale(lt_train_state *state, lt_optim *optim, bool is_scaled);
/* Saves a checkpoint in output; NULL: does nothing. Collective. */
lt_status lt_train_state_save(const lt_train_state *state, const lt_checkpoint_contents *parts,
                              const char *output, const lt_checkpoint_policy *policy);
/* Writes OUTPUT/model.safetensors: the evaluation weights. */
lt_status lt_train_state_save_weights(lt_train_state *state, const lt_checkpoint_contents *parts,
                                      const char *output);

/* Record the training data, and a hash of what lt_train_state_save() would store, of a reproducible run; do nothing for
 * others. The latter is collective; sharded parameters must be gathered. */
lt_status lt_train_state_record_data(const lt_train_state *state, lt_run *run);
lt_status lt_train_state_record_hash(const lt_train_state *state,
                                     const lt_checkpoint_contents *parts, lt_run *run);

/* --- Counting --- */

/* Counts a step of grad_accum micro-batches that was queued; its results come later. */
void lt_train_state_count_queued(lt_train_state *state, int64_t grad_accum);
void lt_train_state_count_results(lt_train_state *state, const lt_task_ops *task,
                                  const lt_train_result *result);
/* Turns on the gradient noise scale; call before loading a checkpoint, whose averages are otherwise dropped.
 * lt_train_add_noise_sample() adds a step's measurement, if there is one. */
void lt_train_enable_noise_scale(lt_train_state *state);
lt_status lt_train_add_noise_sample(lt_train_state *state, const lt_train_result *result);
/* Returns the noise scale in samples; NaN if off or unknown. */
double lt_train_state_noise_scale(const lt_train_state *state);
/* Returns the sums of the epoch so far, with the counts that checkpoints keep. */
lt_task_sums lt_train_state_sums(const lt_train_state *state, const lt_task_ops *task);
void lt_train_state_next_epoch(lt_train_state *state);
/* Returns true if value is the best so far, and remembers it. NaN never is. */
bool lt_train_state_update_best(lt_train_state *state, const lt_task_ops *task, double value);

#endif
