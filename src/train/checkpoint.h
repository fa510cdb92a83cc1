/* The files inside a checkpoint: shared by saving, loading, and choosing. */
#ifndef LT_TRAIN_CHECKPOINT_H
#define LT_TRAIN_CHECKPOINT_H

#include "base/json.h"

#include "lather/checkpoint.h"

#define LT_CHECKPOINT_MODEL "model.safetensors"
#define LT_CHECKPOINT_OPTIM "optim.safetensors"
#define LT_CHECKPOINT_STATE "state.json"

/* "PARAM#block.B.NAME", or "PARAM#NAME" for state of the whole parameter; NULL: no memory. */
char *lt_checkpoint_entry_name(const lt_state_entry *entry);

/* What rank 0 writes of other ranks' state, in the order of visiting. Starts as {0}. */
typedef struct lt_checkpoint_queue {
    lt_comm *comm;
    lt_state_entry *entry; /* owner, dtype and extent are read */
    size_t count, capacity, done;
} lt_checkpoint_queue;

/* Collective, before saving: makes missing state, shares the numbers of parts, and lists on rank 0
 * what it will get. Errors: what failed on any rank. */
LT_MUST_CHECK lt_status lt_checkpoint_meet(const lt_checkpoint_parts *parts,
                                           lt_checkpoint_queue *queue);
/* On the others, while rank 0 writes: sends what it wants. */
LT_MUST_CHECK lt_status lt_checkpoint_send(const lt_checkpoint_parts *parts);
/* A lt_safetensors_source on rank 0: the next one of the queue. */
LT_MUST_CHECK lt_status lt_checkpoint_receive(void *queue, void *host, size_t bytes);
/* What was not written must be taken all the same, as the others send it. Clears the queue. */
void lt_checkpoint_drain(lt_checkpoint_queue *queue);

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

/* Points `latest` (and `best`) to the state's step, and removes those of its run beyond the newest keep. */
LT_MUST_CHECK lt_status lt_checkpoint_point(const char *checkpoints,
                                            const lt_checkpoint_state *state,
                                            const lt_checkpoint_policy *policy);
/* The step of a name "step-12", or -1. */
int64_t lt_checkpoint_step_of(const char *name);

#endif
