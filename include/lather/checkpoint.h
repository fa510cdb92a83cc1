/** Checkpoints and weight files. */
#ifndef LATHER_CHECKPOINT_H
#define LATHER_CHECKPOINT_H

#include "lather/comm.h"
#include "lather/data_parallel.h"
#include "lather/detail/noise_scale.h"
#include "lather/local_steps.h"
#include "lather/optim.h"
#include "lather/safetensors.h"
#include "lather/weights.h"

/** A further tensor to save and load: {.name = "ema.conv1.weight", .tensor = t}. Borrowed. */
typedef struct lt_checkpoint_tensor {
    const char *name;
    lt_tensor *tensor;
    /** parameter of `params` that tensor is sharded like; NULL: whole */
    const lt_param *param;
} lt_checkpoint_tensor;

/** The contents of a checkpoint. All borrowed. */
typedef struct lt_checkpoint_contents {
    const lt_params *params;           /**< parameters, saved in model.safetensors */
    lt_optim *optim;                   /**< optimizer, saved in optim.safetensors; NULL if absent */
    const lt_checkpoint_tensor *extra; /**< further tensors, saved in optim.safetensors */
    size_t extra_count;
    lt_comm *comm;               /**< communicator of all ranks; NULL: single rank */
    const lt_metadata *metadata; /**< metadata to save in model.safetensors */
    size_t metadata_count;
    /** local steps: their outer state and groups' state are saved in optim.safetensors; NULL without local steps */
    lt_local_steps *local;
    lt_data_parallel *dp; /**< its reducer's state is saved in optim.safetensors; NULL if absent */
} lt_checkpoint_contents;

enum { LT_CHECKPOINT_NAME = 64, LT_CHECKPOINT_SUMS = 8, LT_CHECKPOINT_FACTS = 8 };
enum { LT_CHECKPOINT_NUMBERS = 16, LT_CHECKPOINT_TOP = 16 };

/** A sum over the epoch so far: {"loss", 12.5} is "epoch_loss" in state.json; or a number of a hook. */
typedef struct lt_checkpoint_sum {
    char name[LT_CHECKPOINT_NAME];
    double value;
} lt_checkpoint_sum;

/** A description of the run by the program: {"arch", "resnet50"}, {"classes", .is_number = true, .number = 10}. In
 *  state.json texts come before numbers. */
typedef struct lt_checkpoint_fact {
    char key[LT_CHECKPOINT_NAME], text[LT_CHECKPOINT_NAME];
    int64_t number;
    bool is_number;
    bool later; /**< written after all other facts; files of earlier versions may lack it */
} lt_checkpoint_fact;

/** Position and counters of a run: state.json. As random numbers are counter-based, seed and counters are
 *  sufficient. A task's own numbers have names that it chooses. */
typedef struct lt_checkpoint_state {
    int64_t step;                  /**< attempted steps, skipped ones included */
    int64_t epoch, batch;          /**< current epoch; index of its next batch */
    int64_t samples;               /**< samples trained on since the start */
    char unit[LT_CHECKPOINT_NAME]; /**< plural name of samples: "images", "tokens"; "": "samples" */
    uint64_t seed;
    double loss_scale;
    int loss_good_steps; /**< steps since the scale last changed; -1: the scale is fixed */
    char best_name[LT_CHECKPOINT_NAME]; /**< metric of the best checkpoint; "" if none */
    double best;                        /**< value of the best metric, reached at best_step */
    int64_t best_step;                  /**< step of the best metric; 0 before an evaluation */
    /** steps of the checkpoints to keep for that metric, the best first, and its values */
    int64_t top_step[LT_CHECKPOINT_TOP];
    double top_value[LT_CHECKPOINT_TOP];
    double seconds; /**< seconds of training so far */
    /** Counters of the unfinished epoch, so that its record is the same after a resume. */
    double epoch_seconds;
    int64_t epoch_samples;
    /** further samples of the epoch, which no update used (lather/stragglers.h) */
    int64_t epoch_unused;
    double epoch_loss_missing; /**< samples of the epoch that the sum of losses leaves out */
    lt_checkpoint_sum sum[LT_CHECKPOINT_SUMS];
    int sums, facts, tops; /**< entries of sum, fact and top_step */
    /** 1: no step was trained since an epoch was last recorded; 0: some were; -1: unknown, in files of earlier
     *  versions */
    int epoch_recorded;
    int64_t ema_updates;
    /** Gradient noise scale; decay 0: not measured. If count is above 0, state.json has all fields but decay. */
    lt_noise_scale noise;
    char run[LT_CHECKPOINT_NAME]; /**< run id of lt_run_new_id(); "" in files of earlier versions */
    char optim[LT_CHECKPOINT_NAME];
    lt_checkpoint_fact fact[LT_CHECKPOINT_FACTS];
    int64_t global_batch; /**< samples per update of all ranks together; 0: unknown */
    /** Training data: lt_dataset_count(), 53 bits of lt_dataset_fingerprint(),
     *  and lt_dataset_bytes(); 0: unknown, as in files of earlier versions. */
    int64_t data_samples, data_hash, data_bytes;
    int ranks, threads; /**< number of ranks (0: 1), of threads; bitwise equal resume needs both */
    /** numbers of hooks (lather/train_hooks.h): {"early_stop.best", 0.5} is in "hooks" of state.json */
    lt_checkpoint_sum number[LT_CHECKPOINT_NUMBERS];
    int numbers;
    char ended_by[LT_CHECKPOINT_NAME]; /**< hook that ended the run at this step; "" if none did */
    bool reproducible;                 /**< the device is: lt_device_is_reproducible() */
} lt_checkpoint_state;

/** Returns the fact with this key, or NULL if absent. Borrowed from the state. */
LT_API const lt_checkpoint_fact *lt_checkpoint_find_fact(const lt_checkpoint_state *state,
                                                         const char *key);

/** Checks that a run with the units and metrics of `now` can resume from a state read from path. Errors: LT_E_ARG,
 *  naming the unit, the metric or the sum that differs. */
LT_API LT_MUST_CHECK lt_status lt_checkpoint_check_task(const char *path,
                                                        const lt_checkpoint_state *found,
                                                        const lt_checkpoint_state *now);

typedef struct lt_checkpoint_policy {
    int keep;     /**< newest checkpoints of this run to keep, with best and top; 0: all */
    bool is_best; /**< point `best` to this one */
} lt_checkpoint_policy;

/** Writes FOLDER/checkpoints/step-N atomically, whatever kills the process; then points `latest` (and `best`) to
 *  it, and removes old ones of its run. policy NULL: keep all. Collective: rank 0 writes, and each other rank
 *  its part of the state that only it has (docs/adr/0096-write-checkpoints-in-parts.md); a failure on one rank fails
 *  on all. The joined files depend neither on the number of ranks nor on who holds what. Errors: LT_E_IO (also a
 *  full disk; earlier checkpoints are kept, no partial one is left), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_checkpoint_save(const char *folder,
                                                  const lt_checkpoint_contents *parts,
                                                  const lt_checkpoint_state *state,
                                                  const lt_checkpoint_policy *policy);

/** Writes the path of the checkpoint that a run folder's `latest` points to, into path of size bytes. If its
 *  checksums do not match, takes the previous one of the same run, with a warning; without `latest`, the newest.
 *  Checkpoints without a run's id count as the folder's. LT_END: the folder has no checkpoint. Errors: LT_E_FORMAT
 *  (all are damaged), LT_E_IO, LT_E_ARG (path too small). */
LT_API LT_MUST_CHECK lt_status lt_checkpoint_newest(const char *folder, char *path, size_t size);

/** Checks the sizes and checksums of a checkpoint, and reads its state. path: a step-N folder, or a link to one.
 *  Errors: LT_E_IO, LT_E_FORMAT (damaged; names the file). */
LT_API LT_MUST_CHECK lt_status lt_checkpoint_verify(const char *path, lt_checkpoint_state *state);

/** Verifies and loads. state: on entry the threads and ranks of this run (0: not compared), and reproducible. Errors:
 *  as lt_checkpoint_verify(); LT_E_SHAPE (another architecture or class count: names the tensor and both shapes), and
 *  then nothing was changed; LT_E_FORMAT (missing or unknown state, blocks of other settings). Collective: all ranks
 *  read the folder, each the state that it owns. Logs if machine, threads or ranks differ, and if reducer state is
 *  missing, unknown, or from another number of nodes; in the last case it is redistributed equally. */
LT_API LT_MUST_CHECK lt_status lt_checkpoint_load(const char *path,
                                                  const lt_checkpoint_contents *parts,
                                                  lt_checkpoint_state *state);

/** Removes partial checkpoints of dead processes. lt_checkpoint_save() does so too. */
LT_API void lt_checkpoint_clean(const char *folder);
/** Does the same as lt_checkpoint_clean(), and points `latest` and `best` to the checkpoints that a state names,
 *  if they exist: a save may have ended between the checkpoint and its links. Errors: LT_E_IO, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_checkpoint_repair(const char *folder,
                                                    const lt_checkpoint_state *state);

#endif
