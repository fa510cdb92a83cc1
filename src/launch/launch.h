/* Program graphs, inside: groups, their text, and what of them is started. */
#ifndef LT_LAUNCH_LAUNCH_H
#define LT_LAUNCH_LAUNCH_H

#include "launch/guard.h"

#include "lather/launch.h"

#include <stdint.h>

enum { LT_LAUNCH_PATH = 4096, LT_LAUNCH_NAME = 96, LT_LAUNCH_MOST_NODES = 4096 };
/* Seconds until srun's tasks have ended; Slurm's KillWait is 30. */
enum { LT_LAUNCH_SLURM_GRACE = 40 };

struct lt_handle {
    struct lt_handle *next;
    const lt_program_graph *program;
    lt_launch_node_config config; /* strings are owned; uses are not read, but: */
    char *uses;                   /* labels, with commas between; owned, or NULL */
};

struct lt_program_graph {
    char *name;
    double heartbeat; /* of groups that say nothing else */
    bool is_in_use;   /* by a thread that hangs: it stays */
    lt_handle *first, *last;
};

lt_handle *lt_program_graph_find(const lt_program_graph *program, const char *label, size_t bytes);
/* Placeholders and cycles of all groups. Errors: LT_E_ARG. */
LT_MUST_CHECK lt_status lt_program_graph_check(const lt_program_graph *program);
/* lt_program_graph_load() of a file that is open; path is its name. */
LT_MUST_CHECK lt_status lt_program_graph_read(lt_program_graph **out, FILE *file, const char *path);
/* The program as INI text in a new file of mode 0600, of commands and modules. Errors: LT_E_IO, LT_E_UNSUPPORTED: an entry that is a function. */
LT_MUST_CHECK lt_status lt_program_graph_save(const lt_program_graph *program, const char *path);

/* Where this launch's nodes are, and how they find each other. */
typedef struct lt_launch_place {
    lt_launch_platform platform;
    char folder[LT_LAUNCH_PATH]; /* value of ${folder} */
    char files[LT_LAUNCH_PATH];  /* for this launch's files: in folder, or the same */
} lt_launch_place;

/* Where a service listens: inproc or ipc of its name, or tcp with port 0. */
void lt_launch_listen_address(const lt_launch_place *place, const char *label, int index, char *out,
                              size_t size);
/* The file in which it publishes what it got. */
void lt_launch_address_file(const lt_launch_place *place, const char *label, int index, char *out,
                            size_t size);
/* Opens a file of the launch's folder for reading. Errors: LT_E_IO, with errno; EPERM: no regular file of this user. */
LT_MUST_CHECK lt_status lt_launch_open(FILE **out, const char *path);
LT_MUST_CHECK lt_status lt_launch_publish(const lt_launch_place *place, const char *label,
                                          int index, const char *address);
/* Waits for a published address. Errors: LT_E_COMM: none within `patience` seconds; LT_E_IO: another user's file. */
LT_MUST_CHECK lt_status lt_launch_resolve(const lt_launch_place *place, const char *label,
                                          int index, double patience, char *out, size_t size);

/* Words of a command line; out is NULL-terminated, and it and its words are one allocation, for lt_free(). */
LT_MUST_CHECK lt_status lt_launch_words(char ***out, const char *text);

/* One placeholder that was read. */
typedef struct lt_placeholder {
    const lt_handle *service; /* of an address; NULL: a value */
    int index;                /* of the service; -1: all */
    const char *value;        /* index, count, folder, run, grad-accum; borrowed */
} lt_placeholder;

/* What placeholders of one node stand for. */
typedef struct lt_launch_values {
    const lt_program_graph *program;
    const lt_handle *group;
    const lt_launch_place *place; /* NULL: only checked */
    int index, count;
    int rank; /* among those whose output a launcher reads together */
    int run;  /* of a gang, from 1 */
    int64_t grad_accum;
} lt_launch_values;

/* Text with placeholders replaced; waits for addresses. Owns: *out is for lt_free(). Errors: LT_E_ARG, LT_E_COMM. */
LT_MUST_CHECK lt_status lt_launch_expand(const lt_launch_values *values, const char *text,
                                         char **out);
/* Calls visit for each service whose address text holds. Errors: LT_E_ARG: an unknown placeholder. */
LT_MUST_CHECK lt_status lt_launch_placeholders(const lt_launch_values *values, const char *text,
                                               void (*visit)(void *context,
                                                             const lt_handle *service),
                                               void *context);

/* Ranks and grad-accum of a gang on so many slots (0: no limit): the most ranks, at most wanted, that keep the global
 * batch. Errors: LT_E_ARG with the three numbers. */
LT_MUST_CHECK lt_status lt_launch_gang(const lt_launch_node_config *config, int slots, int *ranks,
                                       int64_t *grad_accum);

/* A node as its entry sees it. */
typedef struct lt_launch_gang_threads lt_launch_gang_threads;
LT_MUST_CHECK lt_status lt_launch_node_open(lt_launch_node **out, const lt_launch_values *values,
                                            lt_launch_gang_threads *gang);
/* Runs entry; the node's arguments are expanded first, and a service is bound and published before that. */
LT_MUST_CHECK lt_status lt_launch_node_run(lt_launch_node *node, lt_launch_node_entry entry,
                                           void *context);
/* The program ends. Safe in a signal handler. */
void lt_launch_node_end(lt_launch_node *node);
void lt_launch_node_close(lt_launch_node **node);
/* How many calls of lt_launch_node_progress() there were. */
long long lt_launch_node_progressed(const lt_launch_node *node);
/* Ranks of a gang in threads meet here. */
LT_MUST_CHECK lt_status lt_launch_gang_threads_new(lt_launch_gang_threads **out, int size);
void lt_launch_gang_threads_free(lt_launch_gang_threads **gang);
/* The function of FILE.so:NAME. Errors: LT_E_IO, LT_E_ARG. */
LT_MUST_CHECK lt_status lt_launch_module(const char *module, lt_launch_node_entry *entry);

/* What is started as one process: a node, or several of a launcher. */
typedef struct lt_task {
    const lt_handle *group; /* NULL: nodes of several groups */
    int index, count;       /* first node, and how many */
    int64_t grad_accum;
    int run;     /* of a gang, from 1 */
    char *ended; /* folders of its runs that ended well, a line each; owned, or NULL */
    char **argv; /* for lt_free(); NULL: entry, in a child process */
} lt_task;

typedef struct lt_launch {
    lt_program_graph *program;
    const lt_launch_config *config;
    lt_launch_place place;
    FILE *log;
    int slots; /* left */
    lt_task *task;
    size_t tasks;
    lt_guard guard; /* process groups by index of task */
} lt_launch;

/* gang_autotune.c: chooses ranks (at most `most`), grad-accum and flags of a gang by its command's own plan, and logs the choice with
 * its reasons. Errors: LT_E_COMM (the last line of plan's output), LT_E_ARG, LT_E_IO, LT_E_FORMAT: the task is unchanged. */
LT_MUST_CHECK lt_status lt_launch_choose(const lt_launch *launch, lt_task *task, int most);
/* A run of a gang ended well: the next plan reads it. */
LT_MUST_CHECK lt_status lt_launch_note_end(const lt_launch *launch, lt_task *task);
/* The file with the flags that the plan chose, a line each. */
void lt_launch_flags_file(const lt_launch_place *place, const char *label, char *out, size_t size);

/* Makes the tasks of all groups that are not threads. */
LT_MUST_CHECK lt_status lt_launch_plan(lt_launch *launch);
/* The command line of a task's ranks or nodes; in place of what it had. */
LT_MUST_CHECK lt_status lt_launch_command(const lt_launch *launch, lt_task *task);
/* "producer.2", or "trainer" of a gang. Returns out. */
const char *lt_task_name(const lt_task *task, char *out, size_t size);
/* The group of one of a task's ranks, and its index there (NULL: not wanted). NULL: there is no such rank. */
const lt_handle *lt_task_group(const lt_launch *launch, const lt_task *task, int rank, int *index);
/* Seconds between SIGTERM and SIGKILL. */
double lt_launch_grace(const lt_launch *launch);
/* Runs threads and processes until the program has ended. */
LT_MUST_CHECK lt_status lt_launch_supervise(lt_launch *launch);

/* Entries as threads. */
typedef struct lt_launch_node_threads lt_launch_node_threads;
LT_MUST_CHECK lt_status lt_launch_node_threads_start(lt_launch_node_threads **out,
                                                     const lt_launch *launch);
/* Functions that still run. A failure is returned once, with the node's name in its message. */
LT_MUST_CHECK lt_status lt_launch_node_threads_poll(lt_launch_node_threads *threads, int *running);
/* Tells all to end, waits for them, and frees. false: one that hangs did not end in grace seconds; it goes on to use the
 * program. */
bool lt_launch_node_threads_stop(lt_launch_node_threads **threads, double grace);

#endif
