/* Guard: a child process that, if the launcher is killed, ends its process groups and removes its files. */
#ifndef LT_LAUNCH_GUARD_H
#define LT_LAUNCH_GUARD_H

#include "lather/status.h"

#include <stddef.h>
#include <sys/types.h>

/* The guard process, as seen by the launcher; initialise with {0}. */
typedef struct lt_guard {
    pid_t pid;             /* id of the guard's process; 0: not started */
    volatile pid_t *group; /* [count] process groups to end, or 0; shared with the guard */
    size_t count;
} lt_guard;

/* Starts the guard. When this process dies, it sends SIGTERM to the groups, after grace seconds SIGKILL, and calls
 * clean. Errors: LT_E_NOMEM, LT_E_IO. */
LT_MUST_CHECK lt_status lt_guard_open(lt_guard *guard, size_t count, double grace,
                                      void (*clean)(const void *context), const void *context);
/* Kills the guard; no-op if it was not started. */
void lt_guard_close(lt_guard *guard);

#endif
