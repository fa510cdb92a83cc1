/* The guard is a fork in a separate session, so that it does not receive signals to the launcher's process group. It
 * waits for the launcher's end by a pidfd and reads the process groups from shared memory (ADR 0035). */

#include "launch/guard.h"

#include "base/os.h"

#include "lather/ext/fail.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Signals all groups. Returns true if a process of any group exists. */
static bool signal_groups(const lt_guard *guard, int signal_)
{
    bool left = false;
    for (size_t i = 0; i < guard->count; i++) {
        const pid_t group = guard->group[i];
        left = (group > 0 && !kill(-group, signal_)) || left;
    }
    return left;
}

/* Ends all groups: SIGTERM first, by which mpirun and srun end ranks on other machines too; after grace SIGKILL. */
static void terminate_groups(const lt_guard *guard, double grace)
{
    enum { TICK_MS = 20, MS_NS = 1000000 };
    const double ms = 1e3;
    const struct timespec tick = {.tv_nsec = (long)TICK_MS * MS_NS};
    signal_groups(guard, SIGTERM);
    signal_groups(guard, SIGCONT);
    for (int waited = 0; signal_groups(guard, 0) && waited < ms * grace; waited += TICK_MS)
        nanosleep(&tick, NULL);
    signal_groups(guard, SIGKILL);
}

/* Waits in the guard process. Keeps only standard output and error open, whose readers see end of file once the nodes
 * have ended: any other open descriptor would keep files locked. */
static void wait_for_launcher_exit(int fd, pid_t launcher)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    lt_os_process_name("lather-guard");
    if (fd >= 0)
        dup2(fd, STDIN_FILENO);
    lt_os_close_from(STDERR_FILENO + 1);
    (void)lt_os_process_wait(STDIN_FILENO, launcher, (double)INFINITY);
}

lt_status lt_guard_open(lt_guard *guard, size_t count, double grace,
                        void (*clean)(const void *context), const void *context)
{
    const size_t bytes = (count + 1) * sizeof *guard->group;
    void *groups = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (groups == MAP_FAILED)
        return lt_fail(LT_E_NOMEM, "launch: no memory for %zu processes", count);
    lt_guard g = {.group = groups, .count = count};
    int self;
    const pid_t launcher = getpid();
    g.pid = lt_os_process_open(&self, launcher) ? fork() : -1;
    if (!g.pid) {
        wait_for_launcher_exit(self, launcher);
        terminate_groups(&g, grace);
        clean(context);
        _exit(0);
    }
    const int why = errno;
    if (self >= 0)
        close(self);
    if (g.pid < 0) {
        munmap(groups, bytes);
        return lt_fail(LT_E_IO, "launch: cannot start the guard process: %s", strerror(why));
    }
    *guard = g;
    return LT_OK;
}

void lt_guard_close(lt_guard *guard)
{
    if (!guard->pid)
        return;
    kill(guard->pid, SIGKILL);
    lt_os_wait(guard->pid);
    munmap((void *)(size_t)guard->group, (guard->count + 1) * sizeof *guard->group);
    *guard = (lt_guard){0};
}
