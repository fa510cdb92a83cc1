/* A child process that outlives a killed launcher: it ends the launcher's process groups and removes its files. */
#ifndef LT_LAUNCH_GUARD_H
#define LT_LAUNCH_GUARD_H

#include "lather/status.h"

#include <stddef.h>
#include <sys/types.h>

/* Starts as {0}. */
typedef struct lt_guard {
    pid_t pid;             /* 0: not started */
    volatile pid_t *group; /* [count] process groups to end, or 0; shared with the guard */
    size_t count;
} lt_guard;

/* Starts the guard. After this process has died it sends the groups SIGTERM, grace seconds later SIGKILL, and calls
 * clean. Errors: LT_E_NOMEM, LT_E_IO. */
LT_MUST_CHECK lt_status lt_guard_open(lt_guard *guard, size_t count, double grace,
                                      void (*clean)(const void *context), const void *context);
/* Ends the guard, which does nothing then. A guard that was not started is fine. */
void lt_guard_close(lt_guard *guard);

#endif
