/* Heartbeats from a process to its launcher: lines on standard error that the launcher removes from the output.
 *
 *     "\001beat RANK COUNT\n"
 *
 * RANK is the process's rank in the output stream; COUNT is a progress counter or one of the values below. */
#ifndef LT_BASE_HEARTBEAT_H
#define LT_BASE_HEARTBEAT_H

#include "lather/status.h"

#include <stdatomic.h>
#include <sys/types.h>

/* Special counts: progress unknown; process ended. */
enum { LT_HEARTBEAT_ALIVE = -1, LT_HEARTBEAT_END = -2 };

typedef struct lt_heartbeat lt_heartbeat;

/* Starts a thread that sends *progress (borrowed) every `interval` seconds. Errors: LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_heartbeat_open(lt_heartbeat **out, int rank, double interval,
                                          const atomic_llong *progress);
/* Stops the thread and sends LT_HEARTBEAT_END. */
void lt_heartbeat_close(lt_heartbeat **beat);
/* Starts a process that sends heartbeats while `process` runs (also after exec) and is not stopped. Errors: LT_E_IO. */
LT_MUST_CHECK lt_status lt_heartbeat_watch(pid_t process, int rank, double interval);

/* Environment variable "RANK INTERVAL", by which the launcher requests lt_heartbeat_progress(). */
#define LT_HEARTBEAT_VARIABLE "LATHER_HEARTBEAT"
/* Increments this process's progress counter, which is sent if LATHER_HEARTBEAT is set. Thread-safe. */
void lt_heartbeat_progress(void);
/* Increments and raises the progress counter to at least count, so that equal processes can be compared. */
void lt_heartbeat_progress_at_least(long long count);

#endif
