/* Private declarations of checkpoints: their files, state.json, and the state of groups and reducers. */
#ifndef LT_TRAIN_CHECKPOINT_H
#define LT_TRAIN_CHECKPOINT_H

#include "base/encoding/json.h"
#include "entry.h"
#include "gather.h"
#include "train/run/folder.h"

#include "lather/checkpoint.h"

enum { LT_CHECKPOINT_PREFIX = 32 };
/* Writes the prefix of the entries of a group: "group.2.", or "" for the first group and without local steps. Returns
 * prefix. */
const char *lt_checkpoint_prefix(int group, char prefix[LT_CHECKPOINT_PREFIX]);
/* Adds to rank 0's list the tensors that the groups after the first send: each group's entries, its optimizer's numbers
 * and its loss scale. Collective. */
LT_MUST_CHECK lt_status lt_gather_add_group_tensors(lt_shard_gather *gather,
                                                    const lt_checkpoint_contents *parts,
                                                    const lt_checkpoint_state *state);

/* The local-steps state of a checkpoint, and which of its entries this rank reads. */
typedef struct lt_checkpoint_groups {
    int64_t stored,
        since; /* groups, 0 if trained without; inner steps since their last outer step */
    bool same; /* this run has as many groups: each group continues with its state */
    char prefix[LT_CHECKPOINT_PREFIX]; /* prefix of this rank's entries */
    lt_numbers number; /* numbers of this rank's group; item NULL: those of state.json */
} lt_checkpoint_groups;
/* Reads which groups the checkpoint holds. Errors: LT_E_ARG (saved within a round, and this run has other groups),
 * LT_E_FORMAT. */
LT_MUST_CHECK lt_status lt_checkpoint_find_groups(lt_checkpoint_groups *out, const char *path,
                                                  const lt_safetensors *file,
                                                  const lt_json_value *numbers,
                                                  const lt_checkpoint_contents *parts,
                                                  int64_t step);
/* Reads the loss scale of this rank's group into state. */
LT_MUST_CHECK lt_status lt_checkpoint_load_scaling(const lt_checkpoint_groups *groups,
                                                   const lt_reading *reading,
                                                   lt_checkpoint_state *state);
/* Returns true if an entry of optim.safetensors belongs to the outer step or to a group after the first. */
bool lt_checkpoint_is_of_groups(const lt_checkpoint_groups *groups, const char *name);

/* Counts while the reducer's state is loaded. */
typedef struct lt_checkpoint_reducer {
    int nodes;    /* number of terms of a sum in this run, one per node */
    size_t taken; /* number of entries of the file that were read */
    size_t missing, regrouped;
    int stored; /* number of terms of the last sum that was redistributed */
} lt_checkpoint_reducer;
/* Zeroes the counts and counts the nodes of the reducer's sums; dp NULL: no reducer. */
LT_MUST_CHECK lt_status lt_checkpoint_begin_reducer(lt_checkpoint_reducer *out,
                                                    lt_data_parallel *dp);
/* Loads an entry of the gradient reducer's state; only checks it in the first pass. */
LT_MUST_CHECK lt_status lt_checkpoint_load_reducer(lt_checkpoint_reducer *reducer,
                                                   const lt_reading *reading,
                                                   const lt_state_entry *entry);
/* Logs how many entries of the reducer were dropped, missing, or redistributed over other nodes. */
void lt_checkpoint_report_reducer(const lt_checkpoint_reducer *reducer, const lt_reading *reading);
/* Returns true if an entry of optim.safetensors belongs to the reducer. */
bool lt_checkpoint_is_of_reducer(const char *name);
/* Loads the sum of `stored` terms, of nodes or groups, divided by `parts`, as lt_entry_load_mean(). */
LT_MUST_CHECK lt_status lt_checkpoint_load_sum_share(const lt_reading *reading,
                                                     const lt_state_entry *entry, int stored,
                                                     int parts);

/* Computes the size and the CRC-32C of a file. Errors: LT_E_IO, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_checkpoint_sum_file(const char *path, int64_t *bytes, uint32_t *crc);
/* Writes {"bytes", "crc32c"} under the name of a file. */
void lt_checkpoint_put_sum(lt_json_writer *w, const char *name, int64_t bytes, uint32_t crc);
/* Writes FOLDER/state.json: counters, the optimizer's numbers, and size and checksum of the other files, which
 * must be complete. */
LT_MUST_CHECK lt_status lt_checkpoint_write_state(const char *folder,
                                                  const lt_checkpoint_contents *parts,
                                                  const lt_checkpoint_state *state);
/* Reads and checks state.json and the files that it names. The caller frees *json. */
LT_MUST_CHECK lt_status lt_checkpoint_read_state(const char *folder, lt_json **json,
                                                 lt_checkpoint_state *state);

/* Writes the state's members of state.json. Errors: LT_E_ARG (a task's name collides with another member). */
LT_MUST_CHECK lt_status lt_checkpoint_put_fields(lt_json_writer *w,
                                                 const lt_checkpoint_state *state);
/* Reads and checks the state's members of state.json; *state must be zeroed. Errors: LT_E_FORMAT. */
LT_MUST_CHECK lt_status lt_checkpoint_get_fields(const lt_json_value *root,
                                                 lt_checkpoint_state *state);
/* Checks that each field is in its range. Errors: LT_E_FORMAT, naming the first one that is not, and its range. */
LT_MUST_CHECK lt_status lt_checkpoint_check_state(const lt_checkpoint_state *state);
LT_MUST_CHECK lt_status lt_checkpoint_check_range(const char *key, int64_t value, int64_t low,
                                                  int64_t high);

/* Removes temporary folders and links that a killed save left in a folder of checkpoints. */
void lt_checkpoint_clean_in(const char *checkpoints);
/* Points `latest` (and `best`) to the state's step, and removes checkpoints of its run beyond the newest
 * policy->keep. */
LT_MUST_CHECK lt_status lt_checkpoint_link_and_prune(const char *checkpoints,
                                                     const lt_checkpoint_state *state,
                                                     const lt_checkpoint_policy *policy);
/* Lists the steps of a run folder's checkpoints, newest first, up to `latest`; the list may be empty. Free with
 * lt_free(). Errors: LT_E_IO, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_checkpoint_list(const char *folder, int64_t **out, size_t *count);
#endif
