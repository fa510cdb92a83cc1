/* A task's process: posix_spawn in a separate process group, watched by a pidfd, with its output in one pipe. */

#include "launch/spawn.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/os.h"
#include "launch/hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int lt_spawn_argv(char *const *argv, int output, pid_t *pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, output, 1);
    posix_spawn_file_actions_adddup2(&files, output, 2);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF
                                              | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setsigmask(&attributes, &none);
    const int why = posix_spawnp(pid, argv[0], &files, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return why;
}

static lt_launch_node *node_of_child;

static void on_signal(int signal_)
{
    (void)signal_;
    if (node_of_child)
        lt_launch_node_request_end(node_of_child);
}

/* Runs an entry of this program in a forked child. */
static void run_child(const lt_launch *launch, const lt_task *task, int output)
{
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART},
                           usual = {.sa_handler = SIG_DFL};
    const lt_launch_node_config *c = &task->group->config;
    const lt_launch_values values = {.program = launch->program,
                                     .group = task->group,
                                     .place = &launch->place,
                                     .index = task->index,
                                     .count = c->count};
    sigset_t none;
    sigemptyset(&none);
    setpgid(0, 0);
    lt_os_die_with_parent(SIGKILL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &usual, NULL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    dup2(output, 1);
    dup2(output, 2);
    lt_status st = lt_launch_node_open(&node_of_child, &values, NULL);
    if (!st)
        st = lt_launch_node_run(node_of_child, c->entry, c->context);
    if (st)
        fprintf(stderr, "error: %s\n", lt_error_message());
    fflush(NULL);
    _exit(st ? 1 : 0);
}

static int start_process(const lt_launch *launch, const lt_task *task, int output, pid_t *pid)
{
    if (task->argv)
        return lt_spawn_argv(task->argv, output, pid);
    fflush(NULL); /* otherwise the child would write buffered text again */
    *pid = fork();
    if (!*pid)
        run_child(launch, task, output);
    if (*pid > 0)
        setpgid(*pid, *pid);
    return *pid < 0 ? errno : 0;
}

lt_status lt_process_start(const lt_launch *launch, lt_process *process)
{
    int ends[2];
    char name[LT_LAUNCH_NAME];
    lt_task_name(process->task, name, sizeof name);
    if (lt_os_pipe(ends))
        return lt_fail(LT_E_IO, "launch: %s: pipe: %s", name, strerror(errno));
    const int why = start_process(launch, process->task, ends[1], &process->pid);
    close(ends[1]);
    if (why) {
        close(ends[0]);
        return lt_fail(LT_E_IO, "launch: %s: %s cannot be started: %s", name,
                       process->task->argv ? process->task->argv[0] : "a process", strerror(why));
    }
    launch->guard.group[process->task - launch->task] = process->pid;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    process->output = ends[0];
    const bool opened = lt_os_process_open(&process->pidfd, process->pid);
    process->guilty = process->lost_host = -1;
    process->failed_at = 0;
    process->bytes = 0;
    *process->hang.why = 0;
    lt_heartbeat_monitor_reset(&process->monitor);
    process->grows = false;
    process->check_at = lt_clock_seconds() + LT_GROWTH_SECONDS;
    process->state = LT_PROCESS_RUNNING;
    return opened ? LT_OK : lt_fail(LT_E_IO, "launch: %s: pidfd_open: %s", name, strerror(errno));
}

const char *lt_process_node_name(const lt_launch *launch, const lt_process *process, int rank,
                                 char *out, size_t size)
{
    int index = 0;
    const lt_launch_handle *h =
        rank < 0 ? NULL : lt_task_group_of_rank(launch, process->task, rank, &index);
    if (!h)
        return lt_task_name(process->task, out, size);
    snprintf(out, size, "%s.%d", h->config.label, index);
    return out;
}

/* Parses the rank from the prefix that mpirun or srun adds to a line, and advances *text past it. Returns -1 without a
 * prefix. */
static int parse_rank_prefix(const lt_launch *launch, const char **text)
{
    int rank = -1, bytes = 0;
    /* NOLINTBEGIN(cert-err34-c): programs of MPI and Slurm write these numbers */
    if (sscanf(*text, "[%*d,%d]<%*[a-z]>:%n", &rank, &bytes) >= 1 && bytes > 0) {
        *text += bytes;
        return rank;
    }
    bytes = 0;
    if (launch->place.platform == LT_LAUNCH_SLURM && sscanf(*text, "%d: %n", &rank, &bytes) >= 1
        && bytes > 0) {
        *text += bytes;
        return rank;
    }
    /* NOLINTEND(cert-err34-c) */
    return -1;
}

/* Parses the rank that failed first from messages of Open MPI and Slurm: "process rank 2 with PID 7", "Process name:
 * [[7,1],2]", "srun: error: HOST: task 2: Killed". */
static void find_failed_rank(lt_process *p, const char *text)
{
    static const char *const marks[] = {"process rank ", "Process name: [[", ": task "};
    for (size_t i = 0; p->guilty < 0 && i < sizeof marks / sizeof *marks; i++) {
        const char *at = strstr(text, marks[i]);
        const char *inner = at && i == 1 ? strstr(at, "],") : NULL;
        if (at && (i != 1 || inner))
            p->guilty = (int)strtol(inner ? inner + 2 : at + strlen(marks[i]), NULL, 10);
    }
}

static void write_line(const lt_launch *launch, lt_process *p)
{
    char name[LT_LAUNCH_NAME];
    const char *text = p->line;
    p->line[p->bytes] = 0;
    const int rank = parse_rank_prefix(launch, &text);
    if (rank < 0)
        find_failed_rank(p, text);
    if (rank < 0 && p->failed_at <= 0
        && (p->guilty >= 0 || strstr(text, "MPI_ABORT was invoked on rank ")))
        p->failed_at = lt_clock_seconds();
    if (rank < 0 && launch->hosts && p->lost_host < 0)
        p->lost_host = lt_launch_hosts_find_lost(launch->hosts, text);
    fprintf(launch->log, "%s| %s\n", lt_process_node_name(launch, p, rank, name, sizeof name),
            text);
    fflush(launch->log);
    p->bytes = 0;
}

/* Returns true if the line consists only of a launcher's prefix, which is left over from a heartbeat. */
static bool is_bare_prefix(const lt_launch *launch, lt_process *p)
{
    const char *text = p->line;
    p->line[p->bytes] = 0;
    return parse_rank_prefix(launch, &text) >= 0 && !*text;
}

bool lt_process_log_output(const lt_launch *launch, lt_process *process)
{
    char buffer[LT_SPAWN_LINE];
    for (;;) {
        const ssize_t got = read(process->output, buffer, sizeof buffer);
        if (got <= 0)
            return got < 0 && (errno == EAGAIN || errno == EINTR);
        for (ssize_t i = 0; i < got; i++) {
            bool whole = false;
            if (lt_heartbeat_monitor_read_byte(&process->monitor, buffer[i], &whole)) {
                if (whole && is_bare_prefix(launch, process))
                    process->bytes = 0;
                continue;
            }
            if (buffer[i] == '\n' || process->bytes == sizeof process->line - 1)
                write_line(launch, process);
            if (buffer[i] != '\n')
                process->line[process->bytes++] = buffer[i];
        }
    }
}

int lt_process_finish(const lt_launch *launch, lt_process *process)
{
    enum { TIMEOUT_MS = 2000 };
    char mark[2 * LT_LAUNCH_NAME];
    const int status = lt_os_wait(process->pid);
    kill(-process->pid, SIGKILL); /* ends its remaining children */
    if (launch->hosts) /* shells of mpirun that wait for a dead host, ranks in separate groups */
        lt_os_kill_marked(LT_TASK_MARK, lt_task_mark(launch, process->task, mark, sizeof mark));
    launch->guard.group[process->task - launch->task] = 0;
    struct pollfd open_ = {.fd = process->output, .events = POLLIN};
    while (lt_process_log_output(launch, process) && poll(&open_, 1, TIMEOUT_MS) > 0) {
    }
    if (process->bytes)
        write_line(launch, process);
    close(process->output);
    if (process->pidfd >= 0)
        close(process->pidfd);
    process->pid = 0;
    process->state = LT_PROCESS_DONE;
    return status;
}
