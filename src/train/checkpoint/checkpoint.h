/* The files inside a checkpoint: shared by saving, loading, and choosing. */
#ifndef LT_TRAIN_CHECKPOINT_H
#define LT_TRAIN_CHECKPOINT_H

#include "base/encoding/json.h"
#include "entry.h"
#include "gather.h"
#include "train/run/folder.h"

#include "lather/checkpoint.h"

enum { LT_CHECKPOINT_PREFIX = 32 };
/* The prefix of names of state that this rank's group has for itself: "group.2."; "" for the first group, and without
 * groups. Returns prefix. */
const char *lt_checkpoint_prefix(const lt_local_steps *local, char prefix[LT_CHECKPOINT_PREFIX]);
/* Adds to rank 0's list what the groups after the first send: what each one's first rank listed from number own on, its
 * optimizer's numbers and its loss scale. Collective. */
LT_MUST_CHECK lt_status lt_checkpoint_list_groups(lt_gather *gather,
                                                  const lt_checkpoint_parts *parts,
                                                  const lt_checkpoint_state *state, size_t own);

/* The state of local steps in a checkpoint, and the entries that this rank takes. */
typedef struct lt_checkpoint_groups {
    int64_t stored, since;             /* groups; 0: trained without. Inner steps since they met */
    bool same;                         /* this run has as many: each continues its own */
    char prefix[LT_CHECKPOINT_PREFIX]; /* of this rank's entries */
    int64_t *number; /* the optimizer's, of this rank's group; NULL: those of state.json. Owned */
    size_t numbers;
} lt_checkpoint_groups;
/* Errors: LT_E_ARG (within a round, and this run has other groups), LT_E_FORMAT. */
LT_MUST_CHECK lt_status lt_checkpoint_find_groups(lt_checkpoint_groups *out, const char *path,
                                                  const lt_safetensors *file,
                                                  const lt_json_value *numbers,
                                                  const lt_checkpoint_parts *parts, int64_t step);
void lt_checkpoint_clear_groups(lt_checkpoint_groups *groups);
/* Checks what the file has for parts->local, or writes it there. Between lt_local_steps_unfold() and _fold(). */
LT_MUST_CHECK lt_status lt_checkpoint_load_groups(const lt_checkpoint_groups *groups,
                                                  const lt_reading *reading,
                                                  const lt_checkpoint_parts *parts);
/* The loss scale of this rank's group. */
LT_MUST_CHECK lt_status lt_checkpoint_load_scaling(const lt_checkpoint_groups *groups,
                                                   const lt_reading *reading,
                                                   lt_checkpoint_state *state);
/* True if an entry of optim.safetensors belongs to the outer step or to a group after the first. */
bool lt_checkpoint_is_of_groups(const lt_checkpoint_groups *groups, const char *name);
/* True if name is such an entry of optim.safetensors. */
bool lt_checkpoint_is_of_reducer(const char *name);
/* Checks what the file has for the reducer of parts->dp (NULL: none), or writes it and says what did not fit. */
LT_MUST_CHECK lt_status lt_checkpoint_load_reducer(const lt_reading *reading,
                                                   const lt_checkpoint_parts *parts);

/* Writes FOLDER/state.json: counters, the optimizer's numbers, and size and checksum of the other
 * files there, which are complete. */
LT_MUST_CHECK lt_status lt_checkpoint_write_state(const char *folder,
                                                  const lt_checkpoint_parts *parts,
                                                  const lt_checkpoint_state *state);
/* Reads it and checks it and the files it names. json is the caller's to free. */
LT_MUST_CHECK lt_status lt_checkpoint_read_state(const char *folder, lt_json **json,
                                                 lt_checkpoint_state *state);

/* Writes the members of state.json that are the state's. Errors: LT_E_ARG (a name that a task gave is one of others). */
LT_MUST_CHECK lt_status lt_checkpoint_put_fields(lt_json_writer *w,
                                                 const lt_checkpoint_state *state);
/* Reads and checks them; *state is zeros. Errors: LT_E_FORMAT. */
LT_MUST_CHECK lt_status lt_checkpoint_get_fields(const lt_json_value *root,
                                                 lt_checkpoint_state *state);
/* Errors: LT_E_FORMAT, naming the first field out of its range, and the range. */
LT_MUST_CHECK lt_status lt_checkpoint_check_state(const lt_checkpoint_state *state);
LT_MUST_CHECK lt_status lt_checkpoint_check_integer(const char *key, int64_t value, int64_t low,
                                                    int64_t high);

/* lt_checkpoint_clean() of the folder of checkpoints. */
void lt_checkpoint_clean_in(const char *checkpoints);
/* Points `latest` (and `best`) to the state's step, and removes those of its run beyond the newest keep. */
LT_MUST_CHECK lt_status lt_checkpoint_point(const char *checkpoints,
                                            const lt_checkpoint_state *state,
                                            const lt_checkpoint_policy *policy);
/* Steps of the checkpoints of the run in a folder, up to `latest`, the newest first; for lt_free(). There may be none.
 * Errors: LT_E_IO, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_checkpoint_list(const char *folder, int64_t **out, size_t *count);
#endif
