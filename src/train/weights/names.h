/* Names of weight files of other libraries. */
#ifndef LT_TRAIN_WEIGHTS_NAMES_H
#define LT_TRAIN_WEIGHTS_NAMES_H

#include "lather/safetensors.h"

/* Changes the entries of timm's, HuggingFace's and nanoGPT's files to the names and layouts of the models here. Errors: LT_E_FORMAT
 * (two entries with one name; parts that differ), LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_weights_rename(lt_safetensors *file);

#endif
