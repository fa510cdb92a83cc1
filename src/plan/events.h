/* A simulation by events: resources that their users share alike, and notices of what is done. */
#ifndef LT_PLAN_EVENTS_H
#define LT_PLAN_EVENTS_H

#include "lather/status.h"

/* Called with the id of what is done, at lt_events_now(); may begin more. */
typedef void (*lt_events_notice)(void *context, int id);

typedef struct lt_events lt_events;

/* A piece of work: so many seconds of a resource that it has to itself. When it is done, `done` is told at once and
 * `there` so much later; -1: nothing is told. */
typedef struct lt_events_job {
    int resource;
    double seconds, latency;
    int done, there;
} lt_events_job;

/* resources: their number; each serves one job at full speed. */
LT_MUST_CHECK lt_status lt_events_new(lt_events **out, int resources, lt_events_notice notice,
                                      void *context);
void lt_events_free(lt_events **events);

/* So many jobs at once have full speed: the cores of a node. */
void lt_events_widen(lt_events *e, int resource, double width);
/* A token bucket: after a pause so many seconds' worth of it, at most as long as the pause was, is done at once. It
 * begins full. */
void lt_events_save_up(lt_events *e, int resource, double burst);
/* No memory: lt_events_run() says so. */
void lt_events_begin(lt_events *e, const lt_events_job *job);
void lt_events_tell(lt_events *e, double at, int id);
double lt_events_now(const lt_events *e);
/* Until nothing is left to happen. */
LT_MUST_CHECK lt_status lt_events_run(lt_events *e);

#endif
