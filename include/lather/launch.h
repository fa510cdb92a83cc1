/** Job graphs: nodes in labelled groups, services that others call, gangs of ranks; and starting them. */
#ifndef LATHER_LAUNCH_H
#define LATHER_LAUNCH_H

#include "lather/launch_node.h"

#include <stdio.h>

typedef struct lt_job_graph lt_job_graph;
/** Refers to a group, for other groups of the program. Borrowed: valid until the program is freed. */
typedef struct lt_launch_handle lt_launch_handle;

typedef enum lt_launch_node_kind {
    LT_LAUNCH_NODE_FUNCTION, /**< runs until it returns */
    LT_LAUNCH_NODE_SERVICE,  /**< has an address; ends after all functions and gangs have ended */
    LT_LAUNCH_NODE_GANG      /**< ranks with a communicator, started and ended together */
} lt_launch_node_kind;

typedef enum lt_launch_node_policy {
    LT_LAUNCH_NODE_FAIL_FAST, /**< a failure of a node ends the program */
    LT_LAUNCH_NODE_RESTART,   /**< the node is restarted, at most `restarts` times */
    LT_LAUNCH_NODE_SHRINK /**< the group continues without the node; a gang restarts with one rank fewer */
} lt_launch_node_policy;

enum { LT_LAUNCH_NODE_MAX_USES = 16 };

/** A group of identical nodes. Strings are copied. Exactly one of entry, module and command is set. */
typedef struct lt_launch_node_config {
    const char *label; /**< name of the group: a-z, A-Z, 0-9, '-', '_' */
    lt_launch_node_kind kind;
    int count; /**< nodes of a group, ranks of a gang; 0: 1 */
    lt_launch_node_entry
        entry; /**< a function of this program; as a process it is a fork: launch before creating threads */
    void *context;      /**< argument of entry; borrowed */
    const char *module; /**< "FILE.so:NAME": a function of a shared object */
    const char *
        command; /**< a command line, split like in a shell with quotes and backslashes, without expansions */
    /** Arguments; they follow those of the command. ${LABEL.address} is the address of a service, or the addresses separated by
     *  commas; ${LABEL.N.address} that of node N; ${self.address} that of this node; ${index} ${count} ${folder}; gangs also have
     *  ${grad-accum} and ${run}. */
    const char *arguments;
    const lt_launch_handle *uses
        [LT_LAUNCH_NODE_MAX_USES]; /**< services that it connects to by lt_launch_node_client() */
    lt_launch_node_policy policy;
    int restarts;   /**< limit for LT_LAUNCH_NODE_RESTART and for a gang that shrinks; 0: 3 */
    double backoff; /**< seconds before the first restart, doubled for each further one; 0: 0.1 */
    int64_t batch_size; /**< gangs: micro-batch size of a rank */
    int64_t
        global_batch; /**< gangs: samples of an update for any number of ranks, kept constant by grad-accum; 0: not fixed */
    /** For a gang whose command is a training program: flags of its `plan` command, which chooses the number of ranks, at most count,
     *  and the varied flags of each run; successful runs are its --from. NULL: count ranks. */
    const char *plan;
    int runs; /**< gangs: the number of consecutive runs; ${run} is the number of a run, from 1; 0: 1 */
    double
        heartbeat; /**< interval in seconds; a node that misses two heartbeats hangs, which is a failure; 0: not watched */
    double
        progress; /**< the most seconds between two calls of lt_launch_node_progress(), else the node hangs; 0: no limit */
} lt_launch_node_config;

/** Owns: *out is the caller's. Errors: LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_job_graph_new(lt_job_graph **out, const char *name);
/** Loads an INI file: a section is a group, [program] has `name`; the keys are those of lt_launch_node_config: kind
 * (function, service, gang), count or ranks, entry (the module, relative to the file), command, arguments, uses
 * (labels separated by commas), supervise (`fail-fast`, `restart 3`, `shrink`), backoff, batch-size, global-batch,
 * plan (`auto` and flags of plan), runs, heartbeat (in [program]: for all groups), progress.
 * Owns: *out is the caller's. Errors: LT_E_IO, LT_E_FORMAT and LT_E_ARG, with the file, line or group. */
LT_API LT_MUST_CHECK lt_status lt_job_graph_load(lt_job_graph **out, const char *path);
/** Adds a group; *out is its handle; out may be NULL. Errors: LT_E_ARG: a duplicate label, a handle of another program
 *  or not of a service, not exactly one of entry, module and command. */
LT_API LT_MUST_CHECK lt_status lt_job_graph_add(lt_job_graph *program,
                                                const lt_launch_node_config *config,
                                                const lt_launch_handle **out);
LT_API void lt_job_graph_free(lt_job_graph **program);

typedef enum lt_launch_platform {
    LT_LAUNCH_THREADS, /**< entries are threads of this process, inproc://; commands are processes */
    LT_LAUNCH_LOCAL,   /**< processes of this machine, ipc://; a gang by mpirun */
    LT_LAUNCH_MPIRUN,  /**< one mpirun for all groups, tcp://; a further one per gang or restart */
    LT_LAUNCH_SLURM    /**< a step of srun for each group, tcp:// */
} lt_launch_platform;

typedef struct lt_launch_config {
    lt_launch_platform platform;
    int slots;           /**< the most ranks of a gang; 0: no limit */
    const char *folder;  /**< rendezvous folder on a file system that all nodes share; owned by this
                          *   user and not writable by others; NULL: a temporary one */
    const char *program; /**< program that runs nodes as processes; NULL: `lather` from PATH */
    FILE *log;           /**< gets the nodes' lines, prefixed by labels; NULL: stdout. Borrowed */
    double grace;        /**< seconds between asking a node to end and killing it; 0: 5 */
    bool dry_run;        /**< only writes the placement of all nodes to log; creates no file */
} lt_launch_config;

/** Machines of LT_LAUNCH_MPIRUN. A list is the name of a file with lines `NAME slots=N`, as Open MPI reads, or
 *  "NAME:SLOTS,NAME:SLOTS"; without a number a machine has one slot. Strings are borrowed for the call. */
typedef struct lt_launch_hosts_config {
    const char *
        hosts; /**< machines of ranks; NULL: the file named by the environment variable PBS_NODEFILE or
                          *  OMPI_MCA_orte_default_hostfile, else mpirun chooses */
    const char *spares; /**< machines that take the place of failed ones; NULL: none */
    bool no_check;      /**< does not check machines before ranks start on them */
} lt_launch_hosts_config;

/**
 * Binds addresses, starts all nodes and waits until functions and gangs have ended; then services end. SIGINT and
 * SIGTERM to this process end the program; with LT_LAUNCH_THREADS only lt_launch_node_stop() of nodes ends it.
 *
 * Errors  LT_E_COMM: a node failed, with its name and the cause; LT_E_ARG: unknown placeholders, commands whose
 *         addresses depend on each other, a gang with more ranks than slots or an indivisible global batch, an
 *         empty program; LT_E_IO, LT_E_UNSUPPORTED
 * Threads one launch at a time in a process
 */
LT_API LT_MUST_CHECK lt_status lt_job_graph_launch(lt_job_graph *program,
                                                   const lt_launch_config *config);
/** lt_job_graph_launch() on these machines; hosts: NULL: mpirun chooses. A gang that may be restarted continues without
 *  a machine that failed, or on a spare. Errors also: LT_E_ARG (a wrong list, fewer slots than ranks, a machine that does
 *  not resolve, another platform), LT_E_IO (no such file), LT_E_COMM (no machine is left). */
LT_API LT_MUST_CHECK lt_status lt_job_graph_launch_on(lt_job_graph *program,
                                                      const lt_launch_config *config,
                                                      const lt_launch_hosts_config *hosts);

/** Main function of a node's process: `lather node FOLDER LABEL INDEX`. Returns the exit status. */
LT_API int lt_launch_node_main(int argc, char *const *argv);

#endif
