/* LATHER_PROFILE_EVENTS=FILE: device time of each entry in the step that LATHER_PROFILE_STEP names, by a pair of events around its
 * work on the main queue, as a table of tabs: milliseconds, calls, entry. Where there is no ncu it tells what a host's clock cannot
 * without waiting for each entry: docs/adr/0073. */
#ifndef LT_CUDA_TIMES_H
#define LT_CUDA_TIMES_H

#include "cuda.h"

/* From here on, if the variable is set. Errors: LT_E_NOMEM. */
lt_status lt_cuda_times_start(lt_cuda *c);
/* Waits for the queue and writes the table. Errors: LT_E_IO names the file; what is queued failed. */
lt_status lt_cuda_times_stop(lt_cuda *c);

/* An entry begins; one that was running is interrupted, as by an entry that it calls. Not in a capture. */
lt_status lt_cuda_times_begin(lt_cuda *c, const char *entry);
lt_status lt_cuda_times_end(lt_cuda *c);

#endif
