/* Weight files, as checkpoints use them. */
#ifndef LT_TRAIN_WEIGHTS_H
#define LT_TRAIN_WEIGHTS_H

#include "lather/checkpoint.h"
#include "lather/safetensors.h"

typedef struct lt_weights_rules {
    const char *skip;       /* prefix of parameters to leave out; NULL: none */
    bool want_counts;       /* num_batches_tracked must be there */
    bool allow_nan;         /* a checkpoint stores whatever training made */
    lt_weights_fit_fn *fit; /* of lt_weights_config */
    const void *fit_context;
    const char *prefix;            /* of lt_weights_config */
    const char *const *unread;     /* of lt_weights_config */
    const lt_weights_alias *alias; /* of lt_weights_config */
} lt_weights_rules;

/* Whether the file fits the parameters; path is for messages. Errors: as lt_weights_load(). */
LT_MUST_CHECK lt_status lt_weights_check(const lt_safetensors *file, const char *path,
                                         const lt_params *params, const lt_weights_rules *rules);
/* Writes a checked file's values to the parameters. */
LT_MUST_CHECK lt_status lt_weights_apply(const lt_safetensors *file, const lt_params *params,
                                         const lt_weights_rules *rules);

/* An entry for a tensor, or for the box of it that place says; NULL: all of it. write false: whether it fits (else
 * LT_E_SHAPE, naming both shapes); true: converts its values to the tensor's dtype (f32, f64, i64) and writes them. */
LT_MUST_CHECK lt_status lt_entry_load(const lt_safetensors_entry *entry, const char *path,
                                      lt_tensor *tensor, const lt_place *place, bool write);
/* The same for the sum of count entries divided by parts; an entry of NULL is zeros. */
LT_MUST_CHECK lt_status lt_entry_load_share(const lt_safetensors_entry *const *entry, int count,
                                            int parts, const char *path, lt_tensor *tensor,
                                            bool write);

#endif
