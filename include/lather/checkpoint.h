/** Checkpoints and weight files. */
#ifndef LATHER_CHECKPOINT_H
#define LATHER_CHECKPOINT_H

#include "lather/comm.h"
#include "lather/optim.h"
#include "lather/safetensors.h"

/** A further tensor to save and load: {"ema.conv1.weight", tensor}. Borrowed. */
typedef struct lt_checkpoint_tensor {
    const char *name;
    lt_tensor *tensor;
} lt_checkpoint_tensor;

/** A text to keep with weights, in the metadata of their file: {"class_names", "cat\ndog"}. Borrowed;
 *  lt_safetensors_metadata() reads it. */
typedef struct lt_weights_note {
    const char *key, *value;
} lt_weights_note;

/** What is saved and loaded. All borrowed. */
typedef struct lt_checkpoint_parts {
    const lt_params *params;           /**< model.safetensors */
    lt_optim *optim;                   /**< optim.safetensors; NULL: none */
    const lt_checkpoint_tensor *extra; /**< in optim.safetensors too */
    size_t extra_count;
    lt_comm *comm;               /**< all ranks; NULL: this one alone */
    const lt_weights_note *note; /**< of model.safetensors */
    size_t note_count;
} lt_checkpoint_parts;

enum { LT_CHECKPOINT_NAME = 64 };

/** Where the run is: state.json. Random numbers are counter-based, so seed and counters are all. */
typedef struct lt_checkpoint_state {
    int64_t step;         /**< attempts done, skipped ones included */
    int64_t epoch, batch; /**< next batch: of this epoch, this index */
    int64_t images;       /**< seen since the start */
    uint64_t seed;
    double loss_scale;
    int loss_good_steps; /**< steps since the scale last changed; -1: it is fixed */
    double best_top1;    /**< percent; negative: none yet */
    int64_t best_step;
    double seconds; /**< trained so far */
    /** Sums over the epoch so far, so that its record comes out the same after a resume. */
    double epoch_loss, epoch_correct, epoch_seconds;
    int64_t epoch_images;
    int epoch_recorded; /**< 1: nothing was trained since the last record of an epoch; 0: something
                           was; -1: unknown, in files of earlier versions */
    int64_t ema_updates;
    char run[LT_CHECKPOINT_NAME]; /**< lt_run_new_id(); "": none, as in files of earlier versions */
    char arch[LT_CHECKPOINT_NAME], optim[LT_CHECKPOINT_NAME];
    char network[LT_CHECKPOINT_NAME]; /**< what arch leaves open, in the program's words */
    int classes;
    int64_t global_batch; /**< pictures of an update, all ranks together; 0: unknown */
    int ranks, threads;   /**< ranks 0: 1. Bit-equal resume needs the same */
} lt_checkpoint_state;

typedef struct lt_checkpoint_policy {
    int keep;     /**< newest checkpoints of this run to keep, besides best; 0: all */
    bool is_best; /**< this one becomes `best` */
} lt_checkpoint_policy;

/** Writes FOLDER/checkpoints/step-N complete or not at all, whatever kills the process; then `latest`
 *  (and `best`) point to it, and old ones of its run are removed. policy NULL: keep all. Collective: rank 0
 *  writes, the others send what only they have; what fails on one rank fails on all. The files do
 *  not depend on the number of ranks.
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
 *  each what it owns. Says once if machine, threads or ranks differ. */
LT_API LT_MUST_CHECK lt_status lt_checkpoint_load(const char *path,
                                                  const lt_checkpoint_parts *parts,
                                                  lt_checkpoint_state *state);

/** Removes what interrupted saves of dead processes left. lt_checkpoint_save() does it too. */
LT_API void lt_checkpoint_clean(const char *folder);
/** The same, and points `latest` and `best` to the checkpoints that a state names, if they are there:
 *  a save may have ended between the checkpoint and its links. Errors: LT_E_IO, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_checkpoint_mend(const char *folder,
                                                  const lt_checkpoint_state *state);

/** Writes torchvision's keys in OIHW order as f32 (num_batches_tracked: i64, 0-D).
 *  Errors: LT_E_IO, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_weights_save(const char *path, const lt_params *params);
/** The same with notes. Errors: LT_E_ARG (a key twice, or "format"). */
LT_API LT_MUST_CHECK lt_status lt_weights_save_with(const char *path, const lt_params *params,
                                                    const lt_weights_note *note, size_t notes);

typedef struct lt_weights_config {
    const char *skip; /**< leaves out parameters whose name begins so: "fc."; NULL: none */
} lt_weights_config;

/** Opens a file of weights by the names that models use: without the "module." of PyTorch's
 *  DataParallel and the "_orig_mod." of torch.compile in front of all. Errors: as lt_safetensors_open(). */
LT_API LT_MUST_CHECK lt_status lt_weights_open(lt_safetensors **out, const char *path);

/** Reads weights of f32, f64, f16 or bf16 into the parameters; num_batches_tracked may be missing.
 *  Changes nothing unless all is right. config NULL: all parameters. Errors: LT_E_IO; LT_E_FORMAT
 *  (no safetensors file, a NaN, names that are missing or not in the model); LT_E_SHAPE, naming the
 *  tensor and both shapes. */
LT_API LT_MUST_CHECK lt_status lt_weights_load(const char *path, const lt_params *params,
                                               const lt_weights_config *config);

#endif
