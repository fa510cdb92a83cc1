/* Sets of ranks that contributed gradients to the steps of a run, read from its metrics.jsonl. */
#ifndef LT_TRAIN_CONTRIBUTORS_H
#define LT_TRAIN_CONTRIBUTORS_H

#include "lather/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct lt_contributors lt_contributors;

/* Reads the records {"event":"contributors","step":12,"ranks":"0 2 3"} of a file; the last one of a step counts.
 * Errors: LT_E_IO, LT_E_FORMAT (a set of other than `needed` ranks), LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_contributors_read(lt_contributors **out, const char *path, int ranks,
                                             int needed);
void lt_contributors_free(lt_contributors **contributors);
/* Returns the set of a step, [ranks]; NULL if absent. */
const bool *lt_contributors_of(const lt_contributors *c, int64_t step);
const char *lt_contributors_path(const lt_contributors *c);

#endif
