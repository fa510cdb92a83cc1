/* Profiler of entries, LATHER_PROFILE_EVENTS=FILE: device time of each entry in the step of LATHER_PROFILE_STEP, by a
 * pair of events around its work on the main stream. Writes a tab-separated table: milliseconds, calls, entry.
 * docs/adr/0073. */
#ifndef LT_CUDA_EVENT_PROFILER_H
#define LT_CUDA_EVENT_PROFILER_H

#include "cuda.h"

/* Starts the profiler if the variable is set. Errors: LT_E_NOMEM. */
lt_status lt_cuda_profiler_start(lt_cuda *c);
/* Synchronizes the stream and writes the table. Errors: LT_E_IO names the file; those of queued work. */
lt_status lt_cuda_profiler_stop(lt_cuda *c);

/* Begin and end an entry's interval. An entry that another one calls interrupts its interval. No-ops during a
 * capture. */
lt_status lt_cuda_profiler_begin(lt_cuda *c, const char *entry);
lt_status lt_cuda_profiler_end(lt_cuda *c);

#endif
