/* Entries of optim.safetensors: their names, and how they are read. */
#ifndef LT_TRAIN_CHECKPOINT_ENTRY_H
#define LT_TRAIN_CHECKPOINT_ENTRY_H

#include "lather/detail/state.h"
#include "lather/safetensors.h"

/* Separators between the names of a parameter and its state: the optimizer's, the gradient reducer's. */
#define LT_CHECKPOINT_OF_OPTIM   '#'
#define LT_CHECKPOINT_OF_REDUCER '@'

/* Returns "PREFIX[conv1.weight]#block.B.NAME", or "PREFIX[conv1.weight]#NAME" for state of the whole parameter;
 * NULL without memory. */
char *lt_checkpoint_name(const char *prefix, const lt_state_entry *entry, char mark);

/* Finds the tensor of that name; NULL if absent. Errors: LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_checkpoint_find(const lt_safetensors *file, const char *prefix,
                                           const lt_state_entry *entry, char mark,
                                           const lt_safetensors_entry **out);

/* One of the two passes over a file. */
typedef struct lt_reading {
    const char *path; /* path of the file, for messages */
    const lt_safetensors *file;
    bool write; /* false: checks only */
} lt_reading;
/* Reads the tensor of that name into the entry's, which may be a shard, quantized, or on another rank. *found: the
 * file has it. Errors: as lt_entry_load(). */
LT_MUST_CHECK lt_status lt_reading_take(const lt_reading *r, const char *prefix,
                                        const lt_state_entry *entry, char mark, bool *found);

/* Returns "offset [0,0] shape [64,147]", which identifies a block; NULL without memory. */
char *lt_checkpoint_note(const lt_state_entry *entry);

/* Functions of a lt_state_visitor that ignore entries, and numbers. */
lt_status lt_skip_entry(void *context, const lt_state_entry *entry);
lt_status lt_skip_number(void *context, const char *name, int64_t *value);

#endif
