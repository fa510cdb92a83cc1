/** Profiler: a trace for Perfetto or chrome://tracing, and a table. */
#ifndef LATHER_PROFILE_H
#define LATHER_PROFILE_H

#include "lather/status.h"

#include <stdint.h>
#include <stdio.h>

/** Category of a span: a row of the table, a colour of the trace. */
typedef enum lt_profile_kind {
    LT_PROFILE_FORWARD,
    LT_PROFILE_BACKWARD,
    LT_PROFILE_OPTIM,
    LT_PROFILE_LOADER,
    LT_PROFILE_COMM,
    LT_PROFILE_COPY,
    LT_PROFILE_PROGRAM /**< the program's own: "step", "evaluate", "checkpoint" */
} lt_profile_kind;

/** Starts recording, on all threads. path: the trace that lt_profile_finish() writes, NULL: only the
 *  table. events: the number of newest spans that the trace keeps, 0: 262144; the table counts all.
 *  One profile at a time. Errors: LT_E_ARG (already recording), LT_E_IO (path cannot be written),
 *  LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_profile_start(const char *path, int64_t events);

/** Stops recording, writes the trace, and prints the table to summary, unless that is NULL. No other
 *  thread may be inside a span. Does nothing if not recording. Errors: LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_profile_finish(FILE *summary);

/** A span of the program: lt_profile_end() takes the result of begin. Negligible cost when not recording.
 *  name is a literal, or lives until the profile is finished. */
LT_API int64_t lt_profile_begin(void);
LT_API void lt_profile_end(int64_t begin, lt_profile_kind kind, const char *name, int64_t bytes);

/** Names the calling thread in the trace: "loader 2". Copied, at most 31 bytes. */
LT_API void lt_profile_thread(const char *name);

#endif
