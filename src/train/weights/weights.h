/* Private declarations of weight files: checking and loading entries, for checkpoints too. */
#ifndef LT_TRAIN_WEIGHTS_H
#define LT_TRAIN_WEIGHTS_H

#include "lather/checkpoint.h"
#include "lather/safetensors.h"

typedef struct lt_weights_rules {
    lt_weights_config config;
    bool is_checkpoint; /* requires num_batches_tracked, and accepts NaN */
} lt_weights_rules;

/* Checks that the file fits the parameters; path is for messages. Errors: as lt_weights_load(). */
LT_MUST_CHECK lt_status lt_weights_check(const lt_safetensors *file, const char *path,
                                         const lt_params *params, const lt_weights_rules *rules);
/* Writes a checked file's values to the parameters. */
LT_MUST_CHECK lt_status lt_weights_apply(const lt_safetensors *file, const lt_params *params,
                                         const lt_weights_rules *rules);

/* Loads an entry into a tensor, or into the shard of it that spec describes; NULL: the whole. write false: only
 * checks that it fits (LT_E_SHAPE, naming both shapes); true: converts its values to the tensor's dtype (f32, f64,
 * i64) and writes them. */
LT_MUST_CHECK lt_status lt_entry_load(const lt_safetensors_entry *entry, const char *path,
                                      lt_tensor *tensor, const lt_shard_spec *spec, bool write);
/* Loads the sum of `count` entries divided by `parts`; a NULL entry counts as zeros. */
LT_MUST_CHECK lt_status lt_entry_load_mean(const lt_safetensors_entry *const *entry, int count,
                                           int parts, const char *path, lt_tensor *tensor,
                                           bool write);

#endif
