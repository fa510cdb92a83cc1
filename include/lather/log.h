/** Log messages of the library: one callback, four levels, areas named after folders. */
#ifndef LATHER_LOG_H
#define LATHER_LOG_H

#include "lather/status.h"

typedef enum lt_log_level { LT_LOG_ERROR, LT_LOG_WARN, LT_LOG_INFO, LT_LOG_DEBUG } lt_log_level;

/** Gets one line, without a newline. Called on the thread that logs; must not call back. */
typedef void lt_log_fn(void *context, lt_log_level level, const char *area, const char *text);

/** Replaces the writer to stderr; fn NULL restores it. Threads: call before others start. */
LT_API void lt_log_set(lt_log_fn *fn, void *context);

/** Sets the levels that are shown: "info" or "warn,data=debug" (default: LATHER_LOG, else "info").
 *  Errors: LT_E_ARG, and the filter is unchanged. */
LT_API LT_MUST_CHECK lt_status lt_log_filter(const char *filter);

/** Sets the rank that prefixes every line when there are several ranks; -1 (the default): no prefix.
 *  Ranks above 0 show warnings and errors only. */
LT_API void lt_log_rank(int rank);

/** Logs one line. area: the folder's name, "data". */
LT_API void lt_log(lt_log_level level, const char *area, const char *fmt, ...) LT_PRINTF(3, 4);

#endif
