/* Names of state in optim.safetensors. */
#ifndef LT_TRAIN_CHECKPOINT_NAMES_H
#define LT_TRAIN_CHECKPOINT_NAMES_H

#include "lather/safetensors.h"
#include "lather/state.h"

/* Between a parameter's name and that of its state: of optimizers, of the reducer of gradients. */
#define LT_CHECKPOINT_OF_OPTIM   '#'
#define LT_CHECKPOINT_OF_REDUCER '@'

/* "PREFIX[conv1.weight]#block.B.NAME", or "PREFIX[conv1.weight]#NAME" for state of the whole parameter; NULL: no memory. */
char *lt_checkpoint_name(const char *prefix, const lt_state_entry *entry, char mark);

/* The tensor of that name in a file; NULL: it has none. Errors: LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_checkpoint_find(const lt_safetensors *file, const char *prefix,
                                           const lt_state_entry *entry, char mark,
                                           const lt_safetensors_entry **out);

/* "offset [0,0] shape [64,147]"; NULL: no memory. */
char *lt_checkpoint_note(const lt_state_entry *entry);

#endif
