/* Private declarations of job graphs: groups, placeholders, nodes, tasks. */
#ifndef LT_LAUNCH_LAUNCH_H
#define LT_LAUNCH_LAUNCH_H

#include "launch/guard.h"

#include "lather/launch.h"

#include <stdint.h>

enum { LT_LAUNCH_PATH = 4096, LT_LAUNCH_NAME = 96, LT_LAUNCH_MOST_NODES = 4096 };
/* Seconds to wait for srun's tasks to end; Slurm's KillWait is 30. */
enum { LT_LAUNCH_SLURM_GRACE = 40 };

struct lt_launch_handle {
    struct lt_launch_handle *next;
    const lt_job_graph *program;
    lt_launch_node_config config; /* strings are owned; config.uses is unused */
    char *uses;                   /* labels of services, comma-separated; owned, or NULL */
};

struct lt_job_graph {
    char *name;
    double heartbeat; /* seconds; default of its groups */
    bool is_in_use;   /* a hung thread still uses it: not freed */
    lt_launch_handle *first, *last;
};

/* Returns the group with this label, or NULL. */
lt_launch_handle *lt_program_graph_find(const lt_job_graph *program, const char *label,
                                        size_t bytes);
/* Validates labels, placeholders and cycles of all groups. Errors: LT_E_ARG. */
LT_MUST_CHECK lt_status lt_program_graph_check(const lt_job_graph *program);
/* Reads a job graph from an open file; path: its name, for messages and relative paths of modules. */
LT_MUST_CHECK lt_status lt_program_graph_read(lt_job_graph **out, FILE *file, const char *path);
/* Writes groups with commands or modules as INI text to a new file of mode 0600. Errors: LT_E_IO, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_program_graph_save(const lt_job_graph *program, const char *path);

/* Platform and folders of a launch, through which nodes find each other. */
typedef struct lt_launch_place {
    lt_launch_platform platform;
    char folder[LT_LAUNCH_PATH]; /* folder of the launch: value of ${folder} */
    char files[LT_LAUNCH_PATH];  /* folder of this launch's files: inside folder, or the same */
} lt_launch_place;

/* Writes the address at which a service listens: inproc or ipc by its name, or tcp with port 0. */
void lt_launch_make_listen_address(const lt_launch_place *place, const char *label, int index,
                                   char *out, size_t size);
/* Writes the path of the file in which a service publishes its actual address. */
void lt_launch_address_path(const lt_launch_place *place, const char *label, int index, char *out,
                            size_t size);
/* Opens a file in the launch's folder for reading. Errors: LT_E_IO with errno, EPERM if it is not a regular file of
 * this user. */
LT_MUST_CHECK lt_status lt_launch_open_file(FILE **out, const char *path);
/* Publishes a service's address. Errors: LT_E_IO, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_launch_publish_address(const lt_launch_place *place, const char *label,
                                                  int index, const char *address);
/* Waits for a published address. Errors: LT_E_COMM (none within `timeout` seconds), LT_E_IO (another user's file). */
LT_MUST_CHECK lt_status lt_launch_wait_for_address(const lt_launch_place *place, const char *label,
                                                   int index, double timeout, char *out,
                                                   size_t size);

/* Splits a command line into a NULL-terminated argv, one allocation for lt_free(). Errors: LT_E_ARG (open quote). */
LT_MUST_CHECK lt_status lt_launch_split_argv(char ***out, const char *text);

/* A parsed placeholder of an argument. */
typedef struct lt_placeholder {
    const lt_launch_handle *service; /* service whose address it is; NULL: it is a value */
    int index;                       /* node of the service whose address it is; -1: all */
    const char *value; /* value of index, count, folder, run or grad-accum; borrowed */
} lt_placeholder;

/* Values of one node's placeholders. */
typedef struct lt_launch_values {
    const lt_job_graph *program;
    const lt_launch_handle *group;
    const lt_launch_place *place; /* platform and folders; NULL: only validates */
    int index, count;
    int rank; /* rank in the output stream that the launcher reads */
    int run;  /* number of the gang's run, from 1 */
    int64_t grad_accum;
} lt_launch_values;

/* Replaces placeholders in text; waits for addresses. *out is for lt_free(). Errors: LT_E_ARG, LT_E_COMM. */
LT_MUST_CHECK lt_status lt_launch_expand_placeholders(const lt_launch_values *values,
                                                      const char *text, char **out);
/* Calls visit for each service whose address is in text. Errors: LT_E_ARG (unknown placeholder). */
LT_MUST_CHECK lt_status lt_launch_visit_used_services(
    const lt_launch_values *values, const char *text,
    void (*visit)(void *context, const lt_launch_handle *service), void *context);

/* Finds ranks and grad-accum of a gang: the most ranks, at most config->count and slots (0: unlimited), that keep the
 * global batch. Errors: LT_E_ARG with the three numbers. */
LT_MUST_CHECK lt_status lt_launch_compute_gang_size(const lt_launch_node_config *config, int slots,
                                                    int *ranks, int64_t *grad_accum);

typedef struct lt_launch_gang_threads lt_launch_gang_threads;
/* Opens a node. gang: shared by ranks that are threads, or NULL. Errors: LT_E_NOMEM, LT_E_IO. */
LT_MUST_CHECK lt_status lt_launch_node_open(lt_launch_node **out, const lt_launch_values *values,
                                            lt_launch_gang_threads *gang);
/* Binds and publishes a service, expands the node's arguments, then runs entry. */
LT_MUST_CHECK lt_status lt_launch_node_run(lt_launch_node *node, lt_launch_node_entry entry,
                                           void *context);
/* Asks the node to end with the program. Async-signal-safe. */
void lt_launch_node_request_end(lt_launch_node *node);
void lt_launch_node_close(lt_launch_node **node);
/* Returns the number of lt_launch_node_progress() calls. */
long long lt_launch_node_progress_count(const lt_launch_node *node);
/* Creates the rendezvous at which a gang's ranks that are threads open their communicators. */
LT_MUST_CHECK lt_status lt_launch_gang_threads_new(lt_launch_gang_threads **out, int size);
void lt_launch_gang_threads_free(lt_launch_gang_threads **gang);
/* Loads the function FILE.so:NAME. Errors: LT_E_IO, LT_E_ARG. */
LT_MUST_CHECK lt_status lt_launch_load_module(const char *module, lt_launch_node_entry *entry);

/* A process to start: one node, or a launcher (mpirun, srun) of several. */
typedef struct lt_task {
    const lt_launch_handle *group; /* group of the nodes; NULL: nodes of several groups */
    int index, count;              /* first node; number of nodes */
    int64_t grad_accum;
    int run;     /* number of the gang's run, from 1 */
    char *ended; /* output folders of the gang's successful runs, one per line; owned, or NULL */
    char **argv; /* command line, for lt_free(); NULL: the entry runs in a forked child */
    int most;    /* ranks that a gang may have; it has fewer while hosts are left out */
    int *host;   /* [count] host of each rank of a gang, for lt_free(); NULL: chosen by mpirun */
} lt_task;

typedef struct lt_launch {
    struct lt_launch_hosts *hosts; /* owned; NULL: chosen by mpirun */
    lt_job_graph *program;
    const lt_launch_config *config;
    lt_launch_place place;
    FILE *log;
    lt_task *task;
    size_t tasks;
    lt_guard guard; /* guard of the process groups, indexed by task */
} lt_launch;

/* Sets ranks (at most `most`), grad-accum and flags of a gang by its command's `plan`, and logs the choice. Errors:
 * LT_E_COMM (plan's last line), LT_E_ARG, LT_E_IO, LT_E_FORMAT; the task is then unchanged. */
LT_MUST_CHECK lt_status lt_launch_autotune_gang(const lt_launch *launch, lt_task *task, int most);
/* Adds a gang's successful run to the next plan's input. */
LT_MUST_CHECK lt_status lt_launch_record_run(const lt_launch *launch, lt_task *task);
/* Writes the path of the file with the flags that plan chose, one per line. */
void lt_launch_flags_path(const lt_launch_place *place, const char *label, char *out, size_t size);

/* Sets a gang's ranks, at most `limit`, and grad-accum to what the slots of its hosts permit. Errors: LT_E_ARG (the global
 * batch), LT_E_COMM (the gang may not have fewer ranks, or no slot is left), naming the hosts that are left out. */
LT_MUST_CHECK lt_status lt_launch_fit_gang(const lt_launch *launch, lt_task *task, int limit);

/* Returns the text after a flag in a group's command or arguments, or NULL. */
const char *lt_launch_find_flag(const lt_launch_handle *group, const char *flag);
/* Creates the tasks of all groups that are not threads. */
LT_MUST_CHECK lt_status lt_launch_create_tasks(lt_launch *launch);
/* Builds a task's command line, replacing an earlier one. */
LT_MUST_CHECK lt_status lt_launch_build_command(const lt_launch *launch, lt_task *task);
/* Writes a task's name: "producer.2", or "trainer" for a gang. Returns out. */
const char *lt_task_name(const lt_task *task, char *out, size_t size);
/* Environment variable of all processes of a task on given hosts; its value is the launch and the task. */
#define LT_TASK_MARK "LATHER_LAUNCH"
/* Writes the variable's value. Returns out. */
const char *lt_task_mark(const lt_launch *launch, const lt_task *task, char *out, size_t size);
/* Returns the group of one of a task's ranks and sets *index (may be NULL) to its index there; NULL past the last. */
const lt_launch_handle *lt_task_group_of_rank(const lt_launch *launch, const lt_task *task,
                                              int rank, int *index);
/* Returns the seconds between SIGTERM and SIGKILL. */
double lt_launch_grace_seconds(const lt_launch *launch);
/* Starts and supervises threads and processes until the program has ended. */
LT_MUST_CHECK lt_status lt_launch_supervise(lt_launch *launch);

/* Runs the entries of groups as threads of the launcher. */
typedef struct lt_launch_node_threads lt_launch_node_threads;
LT_MUST_CHECK lt_status lt_launch_node_threads_start(lt_launch_node_threads **out,
                                                     const lt_launch *launch);
/* Sets *running to the functions and gang ranks that still run. Returns each failure once, naming the node. */
LT_MUST_CHECK lt_status lt_launch_node_threads_poll(lt_launch_node_threads *threads, int *running);
/* Asks all threads to end, waits for them and frees. Returns false if a hung thread did not end within the grace
 * period; it still uses the program. */
bool lt_launch_node_threads_stop(lt_launch_node_threads **threads, double grace);

#endif
