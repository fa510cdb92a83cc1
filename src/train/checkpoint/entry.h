/* Entries of optim.safetensors: their names, and reading them. */
#ifndef LT_TRAIN_CHECKPOINT_ENTRY_H
#define LT_TRAIN_CHECKPOINT_ENTRY_H

#include "lather/detail/state.h"
#include "lather/safetensors.h"

/* Between a parameter's name and that of its state: of optimizers, of the reducer of gradients. */
#define LT_CHECKPOINT_OF_OPTIM   '#'
#define LT_CHECKPOINT_OF_REDUCER '@'

/* "PREFIX[conv1.weight]#block.B.NAME", or "PREFIX[conv1.weight]#NAME" for state of the whole parameter; NULL: no memory. */
char *lt_checkpoint_name(const char *prefix, const lt_state_entry *entry, char mark);

/* The tensor of that name in a file; NULL: it has none. Errors: LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_checkpoint_find(const lt_safetensors *file, const char *prefix,
                                           const lt_state_entry *entry, char mark,
                                           const lt_safetensors_entry **out);

/* Reads a file in one of two passes. */
typedef struct lt_reading {
    const char *path; /* of the file */
    const lt_safetensors *file;
    bool write; /* false: only checks */
} lt_reading;
/* The tensor of that name into the entry's, which may be a box, quantized, or another rank's; *found: whether the file
 * has it. Errors: as lt_entry_load(). */
LT_MUST_CHECK lt_status lt_reading_take(const lt_reading *r, const char *prefix,
                                        const lt_state_entry *entry, char mark, bool *found);

/* "offset [0,0] shape [64,147]"; NULL: no memory. */
char *lt_checkpoint_note(const lt_state_entry *entry);

#endif
