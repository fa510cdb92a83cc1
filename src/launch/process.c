/* Main function of a process that is one node: reads the job graph from the launch's folder, then runs an entry or
 * executes a command. */

#include "base/alloc.h"
#include "base/heartbeat.h"
#include "base/os.h"
#include "launch/heartbeat_monitor.h"
#include "launch/host_check.h"

#include "lather/ext/fail.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static lt_launch_node *node_of_process;
static volatile sig_atomic_t end_requested;

static void on_signal(int signal_)
{
    (void)signal_;
    end_requested = 1;
    if (node_of_process)
        lt_launch_node_request_end(node_of_process);
}

static int env_number(const char *const *names, int otherwise)
{
    for (; *names; names++) {
        const char *text = getenv(*names);
        if (text)
            return (int)strtol(text, NULL, 10);
    }
    return otherwise;
}

/* Arguments of the process; its index in the group is FIRST plus its rank minus OFFSET. */
typedef struct request {
    const char *label;
    int first, count, offset, run;
    int64_t grad_accum;
} request;

static pid_t command;

static void send_sigterm_to_command(int signal_)
{
    (void)signal_;
    if (command > 0)
        kill(command, SIGTERM);
}

/* Starts heartbeats for the process, if monitored. */
static lt_status start_heartbeats(const lt_launch_values *v, pid_t process)
{
    const double interval = lt_heartbeat_interval(&v->group->config);
    return interval > 0 ? lt_heartbeat_watch(process, v->rank, interval) : LT_OK;
}

static void set_variables(const lt_launch_values *v)
{
    const double interval = lt_heartbeat_interval(&v->group->config);
    char text[2 * LT_LAUNCH_PATH];
    lt_launch_address_path(v->place, v->group->config.label, v->index, text, sizeof text);
    setenv("LATHER_ADDRESS_FILE", text, 1);
    snprintf(text, sizeof text, "%d %g", v->rank, interval);
    if (interval > 0)
        setenv(LT_HEARTBEAT_VARIABLE, text, 1);
    else
        unsetenv(LT_HEARTBEAT_VARIABLE); /* it may be an outer launch's */
}

/* Runs the command as a child under srun, which kills its tasks on SIGTERM but forwards SIGUSR1: SIGUSR1 is translated
 * to SIGTERM for the child. */
static lt_status run_command_under_srun(char *const *words, const lt_launch_values *v)
{
    const struct sigaction action = {.sa_handler = send_sigterm_to_command, .sa_flags = SA_RESTART};
    command = fork();
    if (!command) {
        lt_os_die_with_parent(SIGKILL);
        signal(SIGUSR1, SIG_IGN); /* Slurm sends it to the whole task */
        execvp(words[0], words);
        fprintf(stderr, "error: launch: %s: %s\n", words[0], strerror(errno));
        _exit(1);
    }
    sigaction(SIGUSR1, &action, NULL);
    if (end_requested) /* it came before this handler was set */
        send_sigterm_to_command(SIGUSR1);
    LT_TRY(start_heartbeats(v, command));
    const int status = lt_os_wait(command);
    if (WIFSIGNALED(status)) {
        signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status)); /* for srun's message */
    }
    exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/* Executes the command; returns only on failure. */
static lt_status exec_words(const lt_launch_values *v, char *const *words)
{
    if (v->place->platform == LT_LAUNCH_SLURM)
        return run_command_under_srun(words, v);
    LT_TRY(start_heartbeats(v, getpid()));
    execvp(words[0], words);
    return lt_fail(LT_E_IO, "launch: %s: %s: %s", v->group->config.label, words[0],
                   strerror(errno));
}

/* Appends the flags that plan chose to the command. */
static lt_status append_plan_flags(const lt_launch_values *v, char **text)
{
    char path[LT_LAUNCH_PATH + 64], flag[LT_LAUNCH_PATH];
    lt_status st = LT_OK;
    lt_launch_flags_path(v->place, v->group->config.label, path, sizeof path);
    FILE *file = NULL;
    LT_TRY(lt_launch_open_file(&file, path));
    while (!st && fgets(flag, sizeof flag, file)) {
        flag[strcspn(flag, "\n")] = 0;
        char *longer = lt_format("%s '%s'", *text, flag);
        st = longer ? LT_OK : LT_E_NOMEM;
        if (longer) {
            lt_free(*text);
            *text = longer;
        }
    }
    fclose(file);
    return st;
}

/* Builds and executes the command line; returns only on failure. */
static lt_status exec_command(const lt_launch_values *v)
{
    const lt_launch_node_config *c = &v->group->config;
    char *text = NULL, *expanded = NULL, **words = NULL;
    text = c->arguments ? lt_format("%s %s", c->command, c->arguments) : lt_strdup(c->command);
    lt_status st = text ? lt_launch_expand_placeholders(v, text, &expanded) : LT_E_NOMEM;
    lt_free(text);
    if (!st && c->plan)
        st = append_plan_flags(v, &expanded);
    if (!st)
        st = lt_launch_split_argv(&words, expanded);
    lt_free(expanded);
    if (st)
        return st;
    set_variables(v);
    st = exec_words(v, words);
    lt_free((void *)words);
    return st;
}

static lt_status run_entry(const lt_launch_values *v)
{
    lt_launch_node_entry entry = NULL;
    lt_launch_node *node = NULL;
    LT_TRY(lt_launch_load_module(v->group->config.module, &entry));
    LT_TRY(lt_launch_node_open(&node, v, NULL));
    node_of_process = node;
    const lt_status st = lt_launch_node_run(node, entry, NULL);
    node_of_process = NULL;
    lt_launch_node_close(&node);
    return st;
}

static lt_status run_node(const request *r, const lt_launch_place *place)
{
    static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", NULL};
    lt_job_graph *program = NULL;
    char path[LT_LAUNCH_PATH + 16];
    snprintf(path, sizeof path, "%s/program.ini", place->files);
    FILE *file = NULL;
    LT_TRY(lt_launch_open_file(&file, path));
    lt_status st = lt_program_graph_read(&program, file, path);
    fclose(file);
    if (st)
        return st;
    lt_launch_values v = {.program = program,
                          .place = place,
                          .count = r->count,
                          .run = r->run,
                          .grad_accum = r->grad_accum};
    v.group = lt_program_graph_find(program, r->label, strlen(r->label));
    v.index = r->first + (r->offset < 0 ? 0 : env_number(ranks, r->offset) - r->offset);
    v.rank = v.index - r->first + (r->offset > 0 ? r->offset : 0);
    if (!v.group || v.index < 0 || v.index >= r->count)
        st = lt_fail(LT_E_ARG, "launch: unknown node %s.%d", r->label, v.index);
    else
        st = v.group->config.command ? exec_command(&v) : run_entry(&v);
    lt_job_graph_free(&program);
    return st;
}

/* Indices in argv of the arguments of `lather node`. */
enum { FOLDER = 1, FILES, PLATFORM, PARENT, LABEL, FIRST, COUNT, OFFSET, GRAD_ACCUM, RUN, WORDS };

int lt_launch_node_main(int argc, char *const *argv)
{
    lt_launch_place place = {0};
    if (argc > 1 && !strcmp(argv[1], "--check"))
        return lt_launch_host_check_main(argc, argv);
    if (argc != WORDS) {
        fprintf(
            stderr,
            "node: internal command of `lather launch`; want FOLDER FILES PLATFORM PARENT LABEL FIRST COUNT OFFSET GRAD_ACCUM RUN\n");
        return 2;
    }
    signal(SIGUSR2, SIG_IGN);       /* it must not end a command that does not handle it */
    lt_os_die_with_parent(SIGKILL); /* a node must not outlive its launcher */
    /* NOLINTBEGIN(cert-err34-c): the launcher writes these numbers */
    if (atoi(argv[PARENT]) && getppid() != atoi(argv[PARENT]))
        return 1; /* the launcher died before that */
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    const request r = {argv[LABEL],        atoi(argv[FIRST]), atoi(argv[COUNT]),
                       atoi(argv[OFFSET]), atoi(argv[RUN]),   atoll(argv[GRAD_ACCUM])};
    snprintf(place.folder, sizeof place.folder, "%s", argv[FOLDER]);
    snprintf(place.files, sizeof place.files, "%s", argv[FILES]);
    place.platform = (lt_launch_platform)atoi(argv[PLATFORM]);
    /* NOLINTEND(cert-err34-c) */
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    const lt_status st = run_node(&r, &place);
    if (st)
        fprintf(stderr, "error: %s\n", lt_error_message());
    return st ? 1 : 0;
}
