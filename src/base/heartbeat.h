/* Heartbeats of a process to the launcher that reads its output: lines on standard error that the launcher takes out.
 *
 *     "\001beat RANK COUNT\n"
 *
 * RANK is the process's among those whose output the launcher reads together; COUNT rises with the process's progress,
 * or is one of the numbers below. */
#ifndef LT_BASE_BEAT_H
#define LT_BASE_BEAT_H

#include "lather/status.h"

#include <stdatomic.h>
#include <sys/types.h>

/* In place of a count: progress is not known; the process has ended. */
enum { LT_BEAT_ALIVE = -1, LT_BEAT_END = -2 };

typedef struct lt_beat lt_beat;

void lt_beat_send(int rank, long long count);
/* Beats every so many seconds from a thread of its own; progress is borrowed. Errors: LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_beat_open(lt_beat **out, int rank, double interval,
                                     const atomic_llong *progress);
/* The last beat is LT_BEAT_END. */
void lt_beat_close(lt_beat **beat);
/* Starts a process that beats while this one, also under another program, is neither stopped nor gone. */
LT_MUST_CHECK lt_status lt_beat_watch(pid_t process, int rank, double interval);

/* What a program reads by which lt_beat_here() reports: "RANK INTERVAL". */
#define LT_BEAT_VARIABLE "LATHER_BEAT"
/* This process has made progress. Does nothing where LATHER_BEAT does not ask for it. Any thread. */
void lt_beat_here(void);
/* The same, and its count rises to that at least: counts of processes that do the same can be compared from there. */
void lt_beat_here_from(long long count);

#endif
