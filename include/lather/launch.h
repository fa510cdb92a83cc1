/** Program graphs: nodes in labelled groups, services that others call, gangs of ranks; and starting them. */
#ifndef LATHER_LAUNCH_H
#define LATHER_LAUNCH_H

#include "lather/launch_node.h"

#include <stdio.h>

typedef struct lt_program_graph lt_program_graph;
/** A group of a program, for its other groups. Borrowed: valid until the program is freed. */
typedef struct lt_handle lt_handle;

typedef enum lt_launch_node_kind {
    LT_LAUNCH_NODE_FUNCTION, /**< runs to its end */
    LT_LAUNCH_NODE_SERVICE,  /**< has an address; ends when no function and no gang runs any more */
    LT_LAUNCH_NODE_GANG      /**< ranks with a communicator, started and ended together */
} lt_launch_node_kind;

typedef enum lt_launch_node_policy {
    LT_LAUNCH_NODE_FAIL_FAST, /**< a failure of a node ends the program */
    LT_LAUNCH_NODE_RESTART,   /**< it is started again, restarts times at most */
    LT_LAUNCH_NODE_SHRINK /**< the group goes on without it; a gang is started again with a rank less */
} lt_launch_node_policy;

enum { LT_LAUNCH_NODE_MAX_USES = 16 };

/** A group of like nodes. Strings are copied. One of entry, module, command. */
typedef struct lt_launch_node_config {
    const char *label; /**< of a-z, A-Z, 0-9, '-', '_' */
    lt_launch_node_kind kind;
    int count; /**< nodes of a group, ranks of a gang; 0: 1 */
    lt_launch_node_entry
        entry; /**< a function of this program; as a process a fork: launch before there are threads */
    void *context;      /**< for entry, borrowed */
    const char *module; /**< "FILE.so:NAME": a function of a shared object */
    const char *
        command; /**< a command line, words as a shell has them with quotes and backslashes, nothing more */
    /** Arguments, for a command behind it. ${LABEL.address} is the address of a service, of several with commas between;
     *  ${LABEL.N.address} of one of them; ${self.address} one's own; ${index} ${count} ${folder}; ${grad-accum} and ${run} a gang's. */
    const char *arguments;
    const lt_handle *uses
        [LT_LAUNCH_NODE_MAX_USES]; /**< services whose clients it makes by lt_launch_node_client() */
    lt_launch_node_policy policy;
    int restarts;       /**< of LT_LAUNCH_NODE_RESTART and of a gang that shrinks; 0: 3 */
    double backoff;     /**< seconds before the first restart, twice that before the next; 0: 0.1 */
    int64_t batch_size; /**< of a gang's rank and micro-batch, and */
    int64_t
        global_batch; /**< samples of an update, on any number of ranks: grad-accum is what keeps it; 0: as it may be */
    /** Of a gang whose command is a training program: flags of its `plan`, which says on how many ranks, at most count, and with
     *  which of the varied flags each run starts; runs that ended well are its --from. NULL: count ranks. */
    const char *plan;
    int runs; /**< of a gang: it is started so often, one run behind the other; ${run} is a run's number, from 1; 0: 1 */
    double
        heartbeat; /**< seconds; a node that does not run for two of them hangs, which is a failure; 0: not watched */
    double
        progress; /**< seconds between two calls of lt_launch_node_progress(); more: it hangs; 0: as many as it wants */
} lt_launch_node_config;

/** Owns: *out is the caller's. Errors: LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_program_graph_new(lt_program_graph **out, const char *name);
/** From an INI file: a section is a group, [program] has `name`; keys are those of lt_launch_node_config: kind (function, service,
 *  gang), count or ranks, entry (the module, relative to the file), command, arguments, uses (labels with commas),
 *  supervise (`fail-fast`, `restart 3`, `shrink`), backoff, batch-size, global-batch, plan (`auto` and flags of plan), runs, heartbeat
 *  (which [program] may have for all groups), progress.
 *  Owns: *out is the caller's. Errors: LT_E_IO, LT_E_FORMAT and LT_E_ARG, naming file, line or group. */
LT_API LT_MUST_CHECK lt_status lt_program_graph_load(lt_program_graph **out, const char *path);
/** Adds a group; *out is its handle, or NULL may be given. Errors: LT_E_ARG: a label that is taken, a handle of
 *  another program or of no service, nothing to run or two things. */
LT_API LT_MUST_CHECK lt_status lt_program_graph_add(lt_program_graph *program,
                                                    const lt_launch_node_config *config,
                                                    const lt_handle **out);
LT_API void lt_program_graph_free(lt_program_graph **program);

typedef enum lt_launch_platform {
    LT_LAUNCH_THREADS, /**< entries are threads of this process, inproc://; commands are processes */
    LT_LAUNCH_LOCAL,   /**< processes of this machine, ipc://; a gang by mpirun */
    LT_LAUNCH_MPIRUN, /**< all groups by one mpirun, tcp://; a gang, or a group that is restarted, by one of its own */
    LT_LAUNCH_SLURM /**< each group a step of srun, tcp:// */
} lt_launch_platform;

typedef struct lt_launch_config {
    lt_launch_platform platform;
    int slots; /**< ranks that a gang may have; 0: as many as it wants */
    const char *
        folder; /**< in which nodes find each other, on a file system that all see; must be this user's, and
                 *   not writable by others; NULL: a temporary one */
    const char *program; /**< that runs nodes as processes; NULL: `lather`, as PATH has it */
    FILE *log;           /**< lines of nodes with their labels in front; NULL: stdout. Borrowed */
    double grace;        /**< seconds between asking a node to end and killing it; 0: 5 */
    bool dry_run;        /**< writes to log what would be started, and where; makes no file */
} lt_launch_config;

/**
 * Binds addresses, starts all nodes and waits until functions and gangs have ended; then services end. SIGINT and
 * SIGTERM to this process end the program; on threads only lt_launch_node_stop() of nodes does.
 *
 * Errors  LT_E_COMM: a node failed, by its name and how; LT_E_ARG: unknown placeholders, commands that wait for each
 *         other's addresses, a gang larger than the slots or whose global batch cannot be divided, an empty program;
 *         LT_E_IO, LT_E_UNSUPPORTED
 * Threads one launch at a time in a process
 */
LT_API LT_MUST_CHECK lt_status lt_program_graph_launch(lt_program_graph *program,
                                                       const lt_launch_config *config);

/** Main function of a process that is one node: `lather node FOLDER LABEL INDEX`. Returns the exit status. */
LT_API int lt_launch_node_main(int argc, char *const *argv);

#endif
