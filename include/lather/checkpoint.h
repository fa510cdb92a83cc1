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
    const lt_param
        *param; /**< one of params, of which tensor is a box as its value is; NULL: whole */
} lt_checkpoint_tensor;

/** What is saved and loaded. All borrowed. */
typedef struct lt_checkpoint_parts {
    const lt_params *params;           /**< model.safetensors */
    lt_optim *optim;                   /**< optim.safetensors; NULL: none */
    const lt_checkpoint_tensor *extra; /**< in optim.safetensors too */
    size_t extra_count;
    lt_comm *comm;               /**< all ranks; NULL: this one alone */
    const lt_metadata *metadata; /**< of model.safetensors */
    size_t metadata_count;
    lt_local_steps *
        local; /**< in optim.safetensors too, and what groups of ranks have of their own; NULL: none */
    lt_data_parallel *dp; /**< its reducer's state is in optim.safetensors too; NULL: none */
} lt_checkpoint_parts;

enum { LT_CHECKPOINT_NAME = 64, LT_CHECKPOINT_SUMS = 8, LT_CHECKPOINT_FACTS = 8 };

/** A sum over the epoch so far: {"loss", 12.5} is "epoch_loss" in state.json. */
typedef struct lt_checkpoint_sum {
    char name[LT_CHECKPOINT_NAME];
    double value;
} lt_checkpoint_sum;

/** What is trained, in the program's words: {"arch", "resnet50"}, {"classes", .is_number = true,
 *  .number = 10}. In state.json texts stand in front of numbers. */
typedef struct lt_checkpoint_fact {
    char key[LT_CHECKPOINT_NAME], text[LT_CHECKPOINT_NAME];
    int64_t number;
    bool is_number;
    bool later; /**< behind all others there: files of earlier versions may lack it */
} lt_checkpoint_fact;

/** Where the run is: state.json. Random numbers are counter-based, so seed and counters are all.
 *  A task's own numbers are there by names that it gives. */
typedef struct lt_checkpoint_state {
    int64_t step;                  /**< attempts done, skipped ones included */
    int64_t epoch, batch;          /**< next batch: of this epoch, this index */
    int64_t samples;               /**< seen since the start */
    char unit[LT_CHECKPOINT_NAME]; /**< of samples, plural: "images", "tokens"; "": "samples" */
    uint64_t seed;
    double loss_scale;
    int loss_good_steps;                /**< steps since the scale last changed; -1: it is fixed */
    char best_name[LT_CHECKPOINT_NAME]; /**< the metric that it goes by; "": none */
    double best;                        /**< its value at best_step */
    int64_t best_step;                  /**< 0: none yet */
    double seconds;                     /**< trained so far */
    /** Of the epoch so far, so that its record comes out the same after a resume. */
    double epoch_seconds;
    int64_t epoch_samples;
    int64_t
        epoch_unused; /**< besides: samples of the epoch that no update used (lather/stragglers.h) */
    double epoch_loss_missing; /**< samples of the epoch that the sum of losses leaves out */
    lt_checkpoint_sum sum[LT_CHECKPOINT_SUMS];
    int sums;
    int epoch_recorded; /**< 1: nothing was trained since the last record of an epoch; 0: something
                           was; -1: unknown, in files of earlier versions */
    int64_t ema_updates;
    /** decay 0: not measured. It is not in the file, which has the rest if count is above 0. */
    lt_noise_scale noise;
    char run[LT_CHECKPOINT_NAME]; /**< lt_run_new_id(); "": none, as in files of earlier versions */
    char optim[LT_CHECKPOINT_NAME];
    lt_checkpoint_fact fact[LT_CHECKPOINT_FACTS];
    int facts;
    int64_t global_batch; /**< samples of an update, all ranks together; 0: unknown */
    /** lt_dataset_count(), 53 bits of lt_dataset_fingerprint() and lt_dataset_bytes() of the training
     *  data; 0: unknown, as in files of earlier versions. */
    int64_t data_samples, data_hash, data_bytes;
    int ranks, threads; /**< ranks 0: 1. Bit-equal resume needs the same */
} lt_checkpoint_state;

/** The fact of that key, or NULL. Borrowed from the state. */
LT_API const lt_checkpoint_fact *lt_checkpoint_find_fact(const lt_checkpoint_state *state,
                                                         const char *key);

/** Whether a run that counts and measures as `now` says can go on from a state read from path.
 *  Errors: LT_E_ARG, naming the unit, the metric or the sum that is another. */
LT_API LT_MUST_CHECK lt_status lt_checkpoint_check_task(const char *path,
                                                        const lt_checkpoint_state *found,
                                                        const lt_checkpoint_state *now);

typedef struct lt_checkpoint_policy {
    int keep;     /**< newest checkpoints of this run to keep, besides best; 0: all */
    bool is_best; /**< this one becomes `best` */
} lt_checkpoint_policy;

/** Writes FOLDER/checkpoints/step-N complete or not at all, whatever kills the process; then `latest`
 *  (and `best`) point to it, and old ones of its run are removed. policy NULL: keep all. Collective: rank 0
 *  writes, the others send what only they have, state and boxes of parameters; what fails on one rank fails
 *  on all. The files do not depend on the number of ranks, nor on who holds what.
 *  Errors: LT_E_IO (also a full disk; earlier checkpoints stay, no rest is left), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_checkpoint_save(const char *folder,
                                                  const lt_checkpoint_parts *parts,
                                                  const lt_checkpoint_state *state,
                                                  const lt_checkpoint_policy *policy);

/** Path of the checkpoint that a run folder's `latest` points to, into path of size bytes. If its
 *  checksums do not hold, the one before it of the same run, with a warning; without `latest` the newest.
 *  Those that have no run's id count as the folder's. LT_END: there is none.
 *  Errors: LT_E_FORMAT (there are some, all damaged), LT_E_IO, LT_E_ARG (path too small). */
LT_API LT_MUST_CHECK lt_status lt_checkpoint_newest(const char *folder, char *path, size_t size);

/** Checks the sizes and checksums of a checkpoint, and reads where its run was. path: a step-N
 *  folder, or a link to one. Errors: LT_E_IO, LT_E_FORMAT (what is damaged). */
LT_API LT_MUST_CHECK lt_status lt_checkpoint_verify(const char *path, lt_checkpoint_state *state);

/** Verifies and loads. Errors: as lt_checkpoint_verify(); LT_E_SHAPE (another architecture or class
 *  count: names the tensor and both shapes), and then nothing was changed; LT_E_FORMAT (state that
 *  is missing or not asked for, blocks cut by other settings). Collective: all ranks read the folder,
 *  each what it owns. Says once if machine, threads or ranks differ, and if state of the reducer is
 *  missing, left over, or of another count of nodes: that of all nodes is divided equally then. */
LT_API LT_MUST_CHECK lt_status lt_checkpoint_load(const char *path,
                                                  const lt_checkpoint_parts *parts,
                                                  lt_checkpoint_state *state);

/** Removes what interrupted saves of dead processes left. lt_checkpoint_save() does it too. */
LT_API void lt_checkpoint_clean(const char *folder);
/** The same, and points `latest` and `best` to the checkpoints that a state names, if they are there:
 *  a save may have ended between the checkpoint and its links. Errors: LT_E_IO, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_checkpoint_mend(const char *folder,
                                                  const lt_checkpoint_state *state);

#endif
