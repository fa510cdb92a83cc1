/* Scheduler of a session's turns on one device, in a file that the jobs of this machine map. */
#ifndef LT_DIST_SHARE_TURN_SCHEDULER_H
#define LT_DIST_SHARE_TURN_SCHEDULER_H

#include "lather/share.h"

typedef struct lt_turn_scheduler lt_turn_scheduler;

/* A job that joins. */
typedef struct lt_turn_job {
    int64_t id; /* id of the job: equal on all its ranks, unique among jobs */
    int64_t weight;
    int rank, ranks; /* number of the rank that uses this device, and number of ranks */
    const char *map; /* hosts and devices of all its ranks */
} lt_turn_job;

/* First half of joining. Until the second half, or the end of this process, no turn with a stamp of *bound or later
 * starts. Errors: as lt_share_open(). */
LT_MUST_CHECK lt_status lt_turn_begin_join(lt_turn_scheduler **out, const char *path,
                                           const lt_turn_job *job, int64_t *bound);
/* Second half; start: the largest bound of the job's ranks. */
LT_MUST_CHECK lt_status lt_turn_finish_join(lt_turn_scheduler *t, int64_t start);
/* Leaves the session and frees the scheduler; the last job deletes the file. */
void lt_turn_close(lt_turn_scheduler **scheduler);

/* Implement lt_share_begin() and lt_share_end(). */
LT_MUST_CHECK lt_status lt_turn_begin(lt_turn_scheduler *t, double deadline, lt_share_turn *turn);
LT_MUST_CHECK lt_status lt_turn_end(lt_turn_scheduler *t);

#endif
