/* Shared declarations of `inspect`. */
#ifndef TOOLS_INSPECT_H
#define TOOLS_INSPECT_H

#include "lather/checkpoint.h"

/* JSON: ,"key":value, null where JSON has no such number; and a string. */
void inspect_number(const char *key, double value);
void inspect_quoted(const char *text);
/* A checkpoint whose files and checksums were verified; in JSON its members. */
void inspect_state(const char *path, const lt_checkpoint_state *state, bool json);

/* inspect_run.c: a run folder: its settings and results, and its latest checkpoint.
 * Errors: LT_E_IO, LT_E_FORMAT (a damaged checkpoint), LT_E_NOMEM. */
LT_MUST_CHECK lt_status inspect_run(const char *folder, bool json);

/* inspect_optim.c: the optimizer's state in a checkpoint: rules, norms and spectra; in JSON two members. Errors: LT_E_IO,
 * LT_E_FORMAT, LT_E_NOMEM, LT_E_ARG (a factor is not finite). */
LT_MUST_CHECK lt_status inspect_optim(const char *checkpoint, const char *optim, bool json);

#endif
