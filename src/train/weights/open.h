/* Weights of run folders. */
#ifndef LT_TRAIN_WEIGHTS_OPEN_H
#define LT_TRAIN_WEIGHTS_OPEN_H

#include "lather/status.h"

/* Finds what lt_weights_open() opens, to be freed with lt_free(): in a run folder its best checkpoint, the final weights
 * or the latest checkpoint; otherwise path. Errors: LT_E_NOMEM, LT_E_IO. */
LT_MUST_CHECK lt_status lt_weights_find(char **found, const char *path);

#endif
