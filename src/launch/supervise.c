/* Starts processes and threads, handles failures by the policy of the group, and ends the rest. */

#include "base/alloc.h"
#include "base/clock.h"
#include "base/os.h"
#include "launch/host_check.h"
#include "launch/spawn.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

typedef struct supervisor {
    lt_launch *launch;
    lt_process *process; /* [launch->tasks] */
    struct pollfd *poll; /* [2 * tasks] */
    lt_launch_node_threads *threads;
    bool stopping;
    double kill_at; /* lt_clock_seconds() of SIGKILL, while stopping */
    bool forced;    /* srun was asked to kill its tasks */
    double looked;  /* lt_clock_seconds() of the last heartbeat check */
    lt_status status;
    char why[512]; /* message of the first failure */
} supervisor;

static volatile sig_atomic_t asked;

static void on_signal(int signal_)
{
    asked = signal_;
}

static bool is_service(const lt_process *p)
{
    return p->task->group ? p->task->group->config.kind == LT_LAUNCH_NODE_SERVICE
                          : p->task->index == LT_LAUNCH_NODE_SERVICE;
}

static void log_text(const supervisor *s, const char *text)
{
    fprintf(s->launch->log, "launch| %s\n", text);
    fflush(s->launch->log);
}

double lt_launch_grace_seconds(const lt_launch *launch)
{
    const double usual = 5, given = launch->config->grace;
    return given > 0 ? given : usual;
}

static bool is_slurm(const supervisor *s)
{
    return s->launch->place.platform == LT_LAUNCH_SLURM;
}

/* Asks all processes to end. srun kills its tasks at once on SIGTERM but forwards SIGUSR1, which nodes handle. */
static void stop_all_processes(supervisor *s)
{
    if (s->stopping)
        return;
    s->stopping = true;
    s->kill_at = lt_clock_seconds() + lt_launch_grace_seconds(s->launch);
    for (size_t i = 0; i < s->launch->tasks; i++) {
        lt_process *p = &s->process[i];
        if (p->state == LT_PROCESS_RUNNING)
            kill(-p->pid, is_slurm(s) ? SIGUSR1 : SIGTERM);
        else
            p->state = LT_PROCESS_DONE;
    }
}

/* Ends the program; logs the first failure's message. */
static void fail_launch(supervisor *s, lt_status status)
{
    if (!s->status) {
        s->status = status;
        snprintf(s->why, sizeof s->why, "%s", lt_error_message());
        log_text(s, s->why);
    }
    stop_all_processes(s);
}

static const char *describe_exit(int status, char *out, size_t size)
{
    if (WIFSIGNALED(status))
        snprintf(out, size, "was killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(out, size, "ended with status %d", WEXITSTATUS(status));
    return out;
}

/* Schedules a restart with exponential backoff. by_host: the cause was a host, which does not count. */
static void restart_later(supervisor *s, lt_process *p, const char *what, bool by_host)
{
    enum { MOST_DOUBLINGS = 10 };
    const lt_launch_node_config *c = &p->task->group->config;
    char text[768];
    const int doublings = p->failures < MOST_DOUBLINGS ? p->failures : MOST_DOUBLINGS;
    const double wait = c->backoff * (double)(1 << doublings) / 2;
    p->state = LT_PROCESS_WAITING;
    p->start_at = lt_clock_seconds() + wait;
    if (by_host)
        snprintf(text, sizeof text, "%s; restart in %.2g s on the hosts that are left", what, wait);
    else
        snprintf(text, sizeof text, "%s; restart %d of %d in %.2g s", what, p->failures,
                 c->restarts, wait);
    log_text(s, text);
}

/* Plans a gang again; if plan fails, logs it and keeps the task unchanged. */
static void retune_gang(supervisor *s, lt_task *t, int most)
{
    char text[768];
    if (!t->group->config.plan || !lt_launch_autotune_gang(s->launch, t, most))
        return;
    snprintf(text, sizeof text, "%s; continuing with %d ranks", lt_error_message(), t->count);
    log_text(s, text);
}

/* Sets a gang's ranks to at most `limit`, as its hosts and its global batch permit. */
static lt_status resize_gang(supervisor *s, lt_process *p, int limit)
{
    lt_task *t = p->task;
    const char *label = t->group->config.label;
    const int before = t->count;
    char text[256];
    if (limit < 1)
        return lt_fail(LT_E_COMM, "launch: %s has no rank left", label);
    LT_TRY(lt_launch_fit_gang(s->launch, t, limit));
    retune_gang(s, t, t->count);
    if (t->count == before)
        return LT_OK;
    snprintf(text, sizeof text, "%s continues with %d ranks, grad-accum %" PRId64, label, t->count,
             t->grad_accum);
    log_text(s, text);
    lt_heartbeat_monitor_free(&p->monitor);
    return lt_heartbeat_monitor_new(&p->monitor, s->launch, t);
}

/* Result of an examination of the hosts. */
typedef struct host_changes {
    int lost; /* hosts of the gang's ranks that are now left out */
    int back; /* hosts that are no longer left out */
} host_changes;

/* Finds the hosts that have failed by a check, else by the process's heartbeats and messages, and puts spares in their
 * places. */
static lt_status examine_hosts(supervisor *s, const lt_process *p, host_changes *out)
{
    lt_launch_hosts *hosts = s->launch->hosts;
    const lt_task *t = p->task;
    *out = (host_changes){0};
    if (!hosts)
        return LT_OK;
    if (hosts->is_checked) {
        LT_TRY(lt_launch_hosts_check(s->launch, t, &out->back));
    } else if (p->lost_host >= 0) {
        lt_launch_hosts_leave_out(hosts, p->lost_host, "lost by heartbeats or mpirun's message");
        fprintf(s->launch->log, "launch| host %s is left out\n", hosts->host[p->lost_host].name);
    }
    lt_launch_hosts_use_spares(hosts, s->launch->log);
    for (int r = 0; t->host && r < t->count; r++)
        out->lost += hosts->host[t->host[r]].is_out && (!r || t->host[r] != t->host[r - 1]);
    return LT_OK;
}

/* Prepares a restart: a gang that shrinks has one rank fewer unless a host has failed, and all that its hosts permit if
 * one came back. */
static lt_status prepare_restart(supervisor *s, lt_process *p, const host_changes *hosts)
{
    lt_task *t = p->task;
    const lt_launch_node_config *c = &t->group->config;
    const bool shrinks = c->policy == LT_LAUNCH_NODE_SHRINK && !hosts->lost;
    if (c->kind == LT_LAUNCH_NODE_GANG && (shrinks || hosts->lost || hosts->back)) {
        t->most -= shrinks;
        LT_TRY(resize_gang(s, p, shrinks && !hosts->back ? t->count - 1 : t->most));
    }
    return shrinks || s->launch->hosts ? lt_launch_build_command(s->launch, t) : LT_OK;
}

/* Returns true if another node of the group is running or has succeeded. */
static bool has_other_live_node(const supervisor *s, const lt_process *but)
{
    for (size_t i = 0; i < s->launch->tasks; i++) {
        const lt_process *p = &s->process[i];
        if (p != but && p->task->group == but->task->group
            && (p->state != LT_PROCESS_DONE || !p->failures))
            return true;
    }
    return false;
}

/* Returns true if the policy allows to restart the process. */
static bool may_restart(const lt_process *p, int status)
{
    enum { WRONG_COMMAND_LINE = 2 };
    const lt_launch_node_config *c = p->task->group ? &p->task->group->config : NULL;
    if (!c || c->policy == LT_LAUNCH_NODE_FAIL_FAST)
        return false;
    if (!*p->hang.why && WIFEXITED(status) && WEXITSTATUS(status) == WRONG_COMMAND_LINE)
        return false;
    return c->policy == LT_LAUNCH_NODE_RESTART || c->kind == LT_LAUNCH_NODE_GANG;
}

/* Writes the node at a rank and its host: "trainer.2 on a". */
static void describe_node(const supervisor *s, const lt_process *p, int rank, char *out,
                          size_t size)
{
    const lt_task *t = p->task;
    lt_process_node_name(s->launch, p, rank, out, size);
    const size_t at = strlen(out);
    if (t->host && rank >= 0 && rank < t->count)
        snprintf(out + at, size - at, " on %s", s->launch->hosts->host[t->host[rank]].name);
}

/* Restarts a failed process if its policy allows; counts the failure unless a host was the cause. */
static void restart_or_fail(supervisor *s, lt_process *p, const char *what)
{
    host_changes hosts;
    lt_status st = examine_hosts(s, p, &hosts);
    p->failures += !hosts.lost;
    if (!st && p->failures > p->task->group->config.restarts)
        st = lt_fail(LT_E_COMM, "launch: %s, and may not be restarted again", what);
    if (!st) {
        st = prepare_restart(s, p, &hosts);
        if (st)
            log_text(s, what);
    }
    if (st)
        fail_launch(s, st);
    else
        restart_later(s, p, what, hosts.lost > 0);
}

/* Handles a failed process by the policy of its group. */
static void handle_failure(supervisor *s, lt_process *p, int status)
{
    char name[LT_LAUNCH_NAME + LT_HOST_NAME], how[96], what[512];
    describe_node(s, p, *p->hang.why ? p->hang.rank : p->guilty, name, sizeof name);
    describe_exit(status, how, sizeof how);
    if (*p->hang.why)
        snprintf(what, sizeof what, "%s %s", name, p->hang.why);
    else
        snprintf(what, sizeof what, "%s %s%s", name, p->guilty >= 0 ? "failed, its launcher " : "",
                 how);
    if (may_restart(p, status)) {
        restart_or_fail(s, p, what);
        return;
    }
    p->failures++;
    if (p->task->group && p->task->group->config.policy == LT_LAUNCH_NODE_SHRINK
        && has_other_live_node(s, p))
        log_text(s, what);
    else
        fail_launch(s, lt_fail(LT_E_COMM, "launch: %s", what));
}

static lt_status prepare_next_run(supervisor *s, lt_process *p)
{
    lt_task *t = p->task;
    const lt_launch_node_config *c = &t->group->config;
    const int slots = s->launch->config->slots;
    host_changes hosts;
    char text[256];
    LT_TRY(lt_launch_record_run(s->launch, t));
    t->run++;
    LT_TRY(examine_hosts(s, p, &hosts));
    if (s->launch->hosts)
        LT_TRY(resize_gang(s, p, t->most));
    else
        retune_gang(s, t, slots && slots < c->count ? slots : c->count);
    LT_TRY(lt_launch_build_command(s->launch, t));
    lt_heartbeat_monitor_free(&p->monitor);
    LT_TRY(lt_heartbeat_monitor_new(&p->monitor, s->launch, t));
    snprintf(text, sizeof text, "%s: run %d of %d, on %d ranks", c->label, t->run, c->runs,
             t->count);
    log_text(s, text);
    return LT_OK;
}

/* Prepares a gang that stopped after an epoch for all hosts that pass now. */
static lt_status prepare_growth(supervisor *s, lt_process *p)
{
    host_changes hosts;
    LT_TRY(examine_hosts(s, p, &hosts));
    LT_TRY(resize_gang(s, p, p->task->most));
    return lt_launch_build_command(s->launch, p->task);
}

/* Starts a process again at once, whose command has been prepared. */
static void start_again(supervisor *s, lt_process *p, lt_status st)
{
    p->start_at = 0;
    p->state = st ? LT_PROCESS_DONE : LT_PROCESS_WAITING;
    if (st)
        fail_launch(s, st);
}

static void handle_exit(supervisor *s, lt_process *p)
{
    enum { INTERRUPTED = 3 }; /* a trainer after a checkpoint */
    const int status = lt_process_finish(s->launch, p);
    lt_host_checks_free(&p->checks);
    const bool stopped = WIFEXITED(status) && WEXITSTATUS(status) == INTERRUPTED;
    if (s->stopping)
        return;
    if (p->grows && stopped && !*p->hang.why) {
        start_again(s, p, prepare_growth(s, p));
    } else if (status || *p->hang.why) {
        handle_failure(s, p, status);
    } else if (p->task->run && p->task->run < p->task->group->config.runs) {
        p->failures = 0;
        start_again(s, p, prepare_next_run(s, p));
    }
}

/* Starts processes that are due. *working: a function or a gang still runs, for which services continue; *running: any
 * process runs. */
static void start_due_processes(supervisor *s, bool *working, bool *running)
{
    int threads = 0;
    *working = *running = false;
    for (size_t i = 0; i < s->launch->tasks; i++) {
        lt_process *p = &s->process[i];
        if (p->state == LT_PROCESS_WAITING && p->start_at <= lt_clock_seconds()) {
            const lt_status st = lt_process_start(s->launch, p);
            if (st)
                p->state = LT_PROCESS_DONE;
            if (st)
                fail_launch(s, st);
        }
        *running = *running || p->state != LT_PROCESS_DONE;
        *working = *working || (p->state != LT_PROCESS_DONE && !is_service(p));
    }
    if (s->threads && lt_launch_node_threads_poll(s->threads, &threads))
        fail_launch(s, LT_E_COMM);
    *working = *working || threads;
}

/* For systems without descriptors of processes. */
static bool has_ended(const lt_process *p)
{
    return p->state == LT_PROCESS_RUNNING && p->pidfd < 0 && lt_os_child_has_ended(p->pid);
}

static void wait_for_events(supervisor *s, const sigset_t *mask)
{
    const double tick = 0.05;
    const size_t count = s->launch->tasks;
    for (size_t i = 0; i < count; i++) {
        const bool runs = s->process[i].state == LT_PROCESS_RUNNING;
        s->poll[2 * i] = (struct pollfd){.fd = runs ? s->process[i].pidfd : -1, .events = POLLIN};
        s->poll[2 * i + 1] =
            (struct pollfd){.fd = runs ? s->process[i].output : -1, .events = POLLIN};
    }
    if (lt_os_poll(s->poll, 2 * count, tick, mask) < 0)
        return;
    for (size_t i = 0; i < count; i++) {
        lt_process *p = &s->process[i];
        if (s->poll[2 * i + 1].revents & POLLIN)
            (void)lt_process_log_output(s->launch, p);
        if (s->poll[2 * i].revents || (!LT_LINUX && has_ended(p)))
            handle_exit(s, p);
    }
}

/* Takes the host of a hung rank for lost if all of its ranks are silent; of two beats per interval one may be due. */
static void find_silent_host(lt_process *p)
{
    const double intervals = 0.9;
    const lt_task *t = p->task;
    const double most = intervals * t->group->config.heartbeat;
    const int host = t->host[p->hang.rank];
    for (int r = 0; r < t->count; r++)
        if (t->host[r] == host && !lt_heartbeat_monitor_is_silent(&p->monitor, r, most))
            return;
    p->lost_host = host;
}

/* Ends a task with a hung node. SIGCONT lets a stopped process receive SIGTERM. */
static void terminate_hung_task(supervisor *s, lt_process *p)
{
    char name[LT_LAUNCH_NAME + LT_HOST_NAME], text[512];
    describe_node(s, p, p->hang.rank, name, sizeof name);
    snprintf(text, sizeof text, "%s %s; ending it", name, p->hang.why);
    log_text(s, text);
    if (p->task->host && p->hang.rank >= 0 && p->task->group->config.heartbeat > 0)
        find_silent_host(p);
    p->kill_at = lt_clock_seconds() + lt_launch_grace_seconds(s->launch);
    kill(-p->pid, SIGTERM);
    kill(-p->pid, SIGCONT);
}

/* Returns true if mpirun waits for a lost host's daemon after a rank failed; fills *out. */
static bool is_mpirun_stuck(const supervisor *s, const lt_process *p, lt_hang *out)
{
    const double most = 10;
    if (!s->launch->hosts || p->failed_at <= 0 || lt_clock_seconds() - p->failed_at < most)
        return false;
    out->rank = p->guilty;
    snprintf(out->why, sizeof out->why, "failed, and mpirun has not ended for %g s", most);
    return true;
}

/* Checks heartbeats after the output has been read, and whether gangs can grow; extends timeouts by the time that this
 * process did not run. */
static void check_heartbeats(supervisor *s)
{
    const double usual = 0.5, now = lt_clock_seconds();
    const double missed = s->looked > 0 && now - s->looked > usual ? now - s->looked : 0;
    s->looked = now;
    for (size_t i = 0; i < s->launch->tasks; i++) {
        lt_process *p = &s->process[i];
        if (p->state != LT_PROCESS_RUNNING || s->stopping)
            continue;
        lt_heartbeat_monitor_extend(&p->monitor, missed);
        if (*p->hang.why && now > p->kill_at)
            kill(-p->pid, SIGKILL);
        else if (!*p->hang.why
                 && (lt_heartbeat_monitor_find_hang(&p->monitor, s->launch, p->task, &p->hang)
                     || is_mpirun_stuck(s, p, &p->hang)))
            terminate_hung_task(s, p);
        else
            lt_process_poll_growth(s->launch, p);
    }
}

/* Kills processes after the grace period. srun is first asked to kill its tasks, which would survive it. */
static void kill_after_grace(supervisor *s)
{
    if (!s->stopping || lt_clock_seconds() < s->kill_at)
        return;
    const bool force = is_slurm(s) && !s->forced;
    for (size_t i = 0; i < s->launch->tasks; i++)
        if (s->process[i].state == LT_PROCESS_RUNNING)
            kill(-s->process[i].pid, force ? SIGTERM : SIGKILL);
    if (force)
        s->kill_at += LT_LAUNCH_SLURM_GRACE;
    s->forced = s->forced || force;
}

static void stop_threads(supervisor *s)
{
    if (lt_launch_node_threads_stop(&s->threads, lt_launch_grace_seconds(s->launch)))
        return;
    s->launch->program->is_in_use = true;
    log_text(s, "a hung thread did not stop within the grace period; it keeps running");
}

static void supervise_until_done(supervisor *s, const sigset_t *mask)
{
    bool working = true, running = true;
    for (;;) {
        start_due_processes(s, &working, &running);
        if (asked && !s->status)
            fail_launch(s, lt_fail(LT_E_COMM, "launch: ended by signal %d (%s)", (int)asked,
                                   strsignal(asked)));
        if (!working || s->stopping)
            stop_all_processes(s);
        if (s->stopping && s->threads)
            stop_threads(s);
        if (s->stopping && !running)
            return;
        wait_for_events(s, mask);
        check_heartbeats(s);
        kill_after_grace(s);
    }
}

static lt_status set_up_supervisor(supervisor *s)
{
    const size_t count = s->launch->tasks;
    LT_TRY(LT_ALLOC(&s->process, count + 1));
    LT_TRY(LT_ALLOC(&s->poll, 2 * count + 1));
    for (size_t i = 0; i < count; i++) {
        s->process[i].task = &s->launch->task[i];
        LT_TRY(lt_heartbeat_monitor_new(&s->process[i].monitor, s->launch, s->process[i].task));
    }
    return s->launch->place.platform == LT_LAUNCH_THREADS
               ? lt_launch_node_threads_start(&s->threads, s->launch)
               : LT_OK;
}

lt_status lt_launch_supervise(lt_launch *launch)
{
    supervisor s = {.launch = launch};
    sigset_t ours, before;
    struct sigaction old[2];
    const struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&ours);
    sigaddset(&ours, SIGINT);
    sigaddset(&ours, SIGTERM);
    asked = 0;
    pthread_sigmask(SIG_BLOCK, &ours, &before); /* unblocked by ppoll() only */
    sigaction(SIGINT, &action, &old[0]);
    sigaction(SIGTERM, &action, &old[1]);
    lt_status st = set_up_supervisor(&s);
    if (!st)
        supervise_until_done(&s, &before);
    stop_threads(&s);
    sigaction(SIGINT, &old[0], NULL);
    sigaction(SIGTERM, &old[1], NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!st && s.status)
        st = lt_fail(s.status, "%s", s.why);
    for (size_t i = 0; s.process && i < launch->tasks; i++)
        lt_heartbeat_monitor_free(&s.process[i].monitor);
    lt_free(s.process);
    lt_free(s.poll);
    return st;
}
