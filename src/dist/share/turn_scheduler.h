/* Turns of a session on one device, in a file that the jobs of this machine map. */
#ifndef LT_DIST_SHARE_TURN_SCHEDULER_H
#define LT_DIST_SHARE_TURN_SCHEDULER_H

#include "lather/share.h"

typedef struct lt_turnstile lt_turnstile;

/* Which job wants to take part, and where its ranks are. */
typedef struct lt_turnstile_job {
    int64_t id; /* the same on all its ranks, of no other job */
    int64_t weight;
    int rank, ranks; /* of the rank that this device is */
    const char *map; /* hosts and devices of all its ranks */
} lt_turnstile_job;

/* Joins, in two halves. Until the second, or the end of this process, no turn is given out that comes at or behind
 * *bound. Errors: as lt_share_open(). */
LT_MUST_CHECK lt_status lt_turnstile_propose(lt_turnstile **out, const char *path,
                                             const lt_turnstile_job *job, int64_t *bound);
/* start: the largest bound of any of the job's ranks. */
LT_MUST_CHECK lt_status lt_turnstile_confirm(lt_turnstile *t, int64_t start);
/* Leaves. The last one deletes the file. */
void lt_turnstile_close(lt_turnstile **turnstile);

/* As lt_share_begin() and lt_share_end(). */
LT_MUST_CHECK lt_status lt_turnstile_take(lt_turnstile *t, double deadline, lt_share_turn *turn);
LT_MUST_CHECK lt_status lt_turnstile_give(lt_turnstile *t);

#endif
