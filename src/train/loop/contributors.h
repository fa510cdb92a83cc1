/* Sets of ranks whose gradients made the steps of a run, as its metrics.jsonl has them. */
#ifndef LT_TRAIN_CONTRIBUTORS_H
#define LT_TRAIN_CONTRIBUTORS_H

#include "lather/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct lt_contributors lt_contributors;

/* Reads {"event":"contributors","step":12,"ranks":"0 2 3"} of a file; of two for one step the later one counts.
 * Errors: LT_E_IO, LT_E_FORMAT (a set that is not needed of ranks), LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_contributors_read(lt_contributors **out, const char *path, int ranks,
                                             int needed);
void lt_contributors_free(lt_contributors **contributors);
/* [ranks] of a step; NULL: there is none. */
const bool *lt_contributors_of(const lt_contributors *c, int64_t step);
const char *lt_contributors_path(const lt_contributors *c);

#endif
