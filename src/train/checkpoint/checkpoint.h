/* The files inside a checkpoint: shared by saving, loading, and choosing. */
#ifndef LT_TRAIN_CHECKPOINT_H
#define LT_TRAIN_CHECKPOINT_H

#include "base/encoding/json.h"
#include "train/run/run_folder.h"

#include "lather/checkpoint.h"
#include "lather/ext/place.h"

/* "PARAM#block.B.NAME", or "PARAM#NAME" for state of the whole parameter; NULL: no memory. */
char *lt_checkpoint_entry_name(const lt_state_entry *entry);

/* What rank 0 writes of other ranks' state, in the order of visiting. Starts as {0}. */
typedef struct lt_checkpoint_queue {
    lt_comm *comm;
    const lt_local_steps *local; /* NULL: none */
    size_t groups_at; /* entries from here on are other groups', with their whole name in `name` */
    char *names;      /* where those are; owned */
    lt_tensor *numbers,
        *scaling; /* what this group stores of its own: lt_checkpoint_list_group(); NULL: nothing */
    lt_state_entry *entry; /* owner, dtype and extent are read */
    size_t count, capacity, done;
    const lt_params *params; /* of which map says who holds what; NULL: all ranks have all */
    lt_place_map *map;
    struct lt_checkpoint_boxes *boxes; /* what is gathered, in the order of adding */
    size_t box_count;
} lt_checkpoint_queue;

/* Where some parameters are boxes: finds all ranks' boxes; up to as many tensors as params, and extra ones,
 * will be added. Collective if there are any. Errors: LT_E_ARG (a box, and no other ranks: names both). */
LT_MUST_CHECK lt_status lt_checkpoint_find_boxes(lt_checkpoint_queue *queue,
                                                 const lt_params *params, size_t extra);
/* On rank 0: lists what others hold of a tensor that is cut as param is; nothing of a whole one. */
LT_MUST_CHECK lt_status lt_checkpoint_list_boxes(lt_checkpoint_queue *queue, const lt_param *param,
                                                 lt_dtype dtype);
/* On the others: this rank's box, if it is the one to send it. */
LT_MUST_CHECK lt_status lt_checkpoint_send_boxes(const lt_checkpoint_queue *queue,
                                                 const lt_param *param, const lt_tensor *own);
/* The whole tensor, to the writer; f64 may become f32. */
LT_MUST_CHECK lt_status lt_checkpoint_add_boxes(lt_checkpoint_queue *queue,
                                                lt_safetensors_writer *writer, const char *name,
                                                const lt_tensor *own, const lt_param *param,
                                                lt_dtype dtype);

/* Collective, before saving: makes missing state, shares the numbers of parts, and lists on rank 0
 * what it will get. Errors: what failed on any rank. */
LT_MUST_CHECK lt_status lt_checkpoint_meet(const lt_checkpoint_parts *parts,
                                           const lt_checkpoint_state *state,
                                           lt_checkpoint_queue *queue);
/* On the others, while rank 0 writes: sends what it wants. */
LT_MUST_CHECK lt_status lt_checkpoint_send(const lt_checkpoint_parts *parts,
                                           const lt_checkpoint_queue *queue);
/* A lt_safetensors_source on rank 0: the next one of the queue. */
LT_MUST_CHECK lt_status lt_checkpoint_receive(void *queue, void *host, size_t bytes);
/* What was not written must be taken all the same, as the others send it. Clears the queue. */
void lt_checkpoint_drain(lt_checkpoint_queue *queue);

/* Behind the queue's own end: what the ranks of the other groups have, on rank 0 into queue->entry. Collective. */
LT_MUST_CHECK lt_status lt_checkpoint_meet_groups(const lt_checkpoint_parts *parts,
                                                  const lt_checkpoint_state *state,
                                                  lt_checkpoint_queue *queue);
/* On the ranks of other groups: what is theirs beyond the optimizer's state. */
LT_MUST_CHECK lt_status lt_checkpoint_send_group(const lt_checkpoint_parts *parts,
                                                 const lt_checkpoint_queue *queue);
/* What a checkpoint says of local steps, and what this rank takes of it. */
typedef struct lt_checkpoint_groups {
    int64_t stored, since; /* groups; 0: trained without. Inner steps since they met */
    bool same;             /* this run has as many: each goes on with its own */
    char prefix[32];       /* of this rank's entries: "", "group.2." */
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
                                                  const char *path, const lt_safetensors *file,
                                                  const lt_checkpoint_parts *parts, bool write);
/* The loss scale of this rank's group. */
LT_MUST_CHECK lt_status lt_checkpoint_load_scaling(const lt_checkpoint_groups *groups,
                                                   const char *path, const lt_safetensors *file,
                                                   lt_checkpoint_state *state);
/* Whether an entry of optim.safetensors is of the outer step, or of another group than the first. */
bool lt_checkpoint_is_of_groups(const lt_checkpoint_groups *groups, const char *name);
/* "PARAM@NAME": state of the reducer; NULL: no memory. */
char *lt_checkpoint_reducer_name(const lt_state_entry *entry);
/* Whether that is a name in optim.safetensors of such. */
bool lt_checkpoint_is_of_reducer(const char *name);
/* Checks what the file has for the reducer of parts->dp (NULL: none), or writes it and says what did not fit. */
LT_MUST_CHECK lt_status lt_checkpoint_take_reducer(const char *path, const lt_safetensors *file,
                                                   const lt_checkpoint_parts *parts, bool write);

/* "offset [0,0] shape [64,147]"; NULL: no memory. */
char *lt_checkpoint_entry_note(const lt_state_entry *entry);

/* Writes FOLDER/state.json: counters, the optimizer's numbers, and size and checksum of the other
 * files there, which are complete. */
LT_MUST_CHECK lt_status lt_checkpoint_write_state(const char *folder,
                                                  const lt_checkpoint_parts *parts,
                                                  const lt_checkpoint_state *state);
/* Reads it and checks it and the files it names. json is the caller's to free. */
LT_MUST_CHECK lt_status lt_checkpoint_read_state(const char *folder, lt_json **json,
                                                 lt_checkpoint_state *state);

enum { LT_CHECKPOINT_KEY = LT_CHECKPOINT_NAME + 8 };
/* The key of the samples' count: "images", "epoch_images". Returns key. */
const char *lt_checkpoint_count_key(const lt_checkpoint_state *state, bool of_epoch,
                                    char key[LT_CHECKPOINT_KEY]);

/* Errors: LT_E_FORMAT, naming the first counter out of its range, and the range. */
LT_MUST_CHECK lt_status lt_checkpoint_check_state(const lt_checkpoint_state *state);
/* The same for the optimizer's numbers behind so many steps; step is in its range. NULL: none. */
LT_MUST_CHECK lt_status lt_checkpoint_check_numbers(const lt_json_value *numbers, int64_t step);

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
