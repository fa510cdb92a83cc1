/* Processes of tasks: started, seen to end, their lines read. */
#ifndef LT_LAUNCH_SPAWN_H
#define LT_LAUNCH_SPAWN_H

#include "launch/heartbeat_monitor.h"

#include <sys/types.h>

enum { LT_SPAWN_LINE = 4096 };

typedef enum lt_process_state {
    LT_PROCESS_WAITING,
    LT_PROCESS_RUNNING,
    LT_PROCESS_DONE
} lt_process_state;

typedef struct lt_process {
    lt_task *task;
    lt_process_state state;
    double start_at; /* seconds of the monotonic clock, while it waits */
    int failures;
    pid_t pid; /* leads a process group of its own */
    int pidfd, output;
    int guilty; /* rank that the launcher named; -1: none */
    lt_beats beats;
    lt_hang hang;   /* why "": it does not */
    double kill_at; /* of one that hangs */
    size_t bytes;
    char line[LT_SPAWN_LINE];
} lt_process;

/* Starts task. Errors: LT_E_IO. */
LT_MUST_CHECK lt_status lt_process_start(const lt_launch *launch, lt_process *process);
/* Reads what is there, writes whole lines to the log; false: the output is closed. */
bool lt_process_read(const lt_launch *launch, lt_process *process);
/* After pidfd is readable: reaps it, kills what is left of its group, reads the rest, closes. The wait status. */
int lt_process_finish(const lt_launch *launch, lt_process *process);
/* Name of a node that a launcher's rank is. Returns out. */
const char *lt_process_node(const lt_launch *launch, const lt_process *process, int rank, char *out,
                            size_t size);

#endif
