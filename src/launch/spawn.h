/* Processes of tasks: start, output, end. */
#ifndef LT_LAUNCH_SPAWN_H
#define LT_LAUNCH_SPAWN_H

#include "launch/heartbeat_monitor.h"

#include <sys/types.h>

enum {
    LT_SPAWN_LINE = 4096,
    LT_GROWTH_SECONDS = 10 /* between checks of hosts that are left out */
};

typedef enum lt_process_state {
    LT_PROCESS_WAITING,
    LT_PROCESS_RUNNING,
    LT_PROCESS_DONE
} lt_process_state;

typedef struct lt_process {
    lt_task *task;
    lt_process_state state;
    double start_at; /* while waiting: time of the (re)start in lt_clock_seconds() */
    int failures;
    pid_t pid; /* id of the process, the leader of its group */
    int pidfd, output;
    int guilty; /* failed rank named by mpirun or srun, or -1 */
    lt_heartbeat_monitor monitor;
    double failed_at;              /* time of mpirun's message that a rank failed; 0: none */
    int lost_host;                 /* host that is lost by heartbeats or messages, or -1 */
    lt_hang hang;                  /* the hung node; hang.why is "" if none hangs */
    double kill_at;                /* time of SIGKILL if a node hangs, in lt_clock_seconds() */
    struct lt_host_checks *checks; /* checks of hosts that are left out, or NULL */
    double check_at;               /* time of the next checks */
    bool grows; /* it was asked to stop after its epoch, as more hosts are there; see growth.c */
    size_t bytes;
    char line[LT_SPAWN_LINE];
} lt_process;

/* Starts a command in a separate process group, its output going to a descriptor. Returns 0 or an errno. */
int lt_spawn_argv(char *const *argv, int output, pid_t *pid);
/* Starts the task's process. Errors: LT_E_IO. */
LT_MUST_CHECK lt_status lt_process_start(const lt_launch *launch, lt_process *process);
/* Reads available output and logs complete lines. Returns false if the output is closed. */
bool lt_process_log_output(const lt_launch *launch, lt_process *process);
/* Call when pidfd is readable: reaps the process, kills the rest of its group, reads remaining output, closes. Returns
 * the wait status. */
int lt_process_finish(const lt_launch *launch, lt_process *process);
/* Call often while the process runs: if it is a gang with fewer ranks than it was given and can be resumed, its policy
 * permitting restarts and its command having --resume, checks the hosts that are left out every 10 s without waiting, and
 * asks it to stop after its epoch if it could have more ranks with those that pass. */
void lt_process_poll_growth(const lt_launch *launch, lt_process *process);
/* Writes the name of the node at a rank (-1: the task's). Returns out. */
const char *lt_process_node_name(const lt_launch *launch, const lt_process *process, int rank,
                                 char *out, size_t size);

#endif
