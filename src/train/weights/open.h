/* Weights of run folders, and of other libraries. */
#ifndef LT_TRAIN_WEIGHTS_OPEN_H
#define LT_TRAIN_WEIGHTS_OPEN_H

#include "lather/safetensors.h"

/* Finds what lt_weights_open() opens, to be freed with lt_free(): in a run folder its best checkpoint, the final weights
 * or the latest checkpoint; otherwise path. Errors: LT_E_NOMEM, LT_E_IO. */
LT_MUST_CHECK lt_status lt_weights_find(char **found, const char *path);

/* Changes the entries of timm's, HuggingFace's and nanoGPT's files to the names and layouts of the models here. Errors: LT_E_FORMAT
 * (two entries with one name; parts that differ), LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_weights_rename(lt_safetensors *file);

#endif
