/* Processes: their end, names and paths, and restarts. */

#include "base/clock.h"
#include "base/os.h"

#include "lather/device.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if LT_LINUX
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

bool lt_os_process_open(int *fd, pid_t pid)
{
#if LT_LINUX
    *fd = (int)syscall(SYS_pidfd_open, pid, 0);
    return *fd >= 0;
#else
    *fd = -1;
    return !kill(pid, 0);
#endif
}

bool lt_os_process_wait(int fd, pid_t pid, double seconds)
{
#if LT_LINUX
    const double second_ms = 1000;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int got;
    (void)pid;
    while ((got = poll(&p, 1, isinf(seconds) ? -1 : (int)(seconds * second_ms) + 1)) < 0
           && errno == EINTR) {
    }
    return got != 0;
#else
    const struct timespec tick = {.tv_nsec = 20000000};
    const double end = lt_clock_seconds() + seconds;
    const bool is_parent = getppid() == pid;
    (void)fd;
    /* kill() finds a killed process until it is waited for */
    while (is_parent ? getppid() == pid : !kill(pid, 0) || errno != ESRCH) {
        if (lt_clock_seconds() > end)
            return false;
        nanosleep(&tick, NULL);
    }
    return true;
#endif
}

int lt_os_wait(pid_t pid)
{
    int status = -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

bool lt_os_child_has_ended(pid_t pid)
{
    siginfo_t ended = {0};
    return !waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT) && ended.si_pid;
}

bool lt_os_is_stopped(pid_t process)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = 0;
    const char *end = strrchr(text, ')'); /* the process name before it may contain anything */
    return end && end[1] && (end[2] == 'T' || end[2] == 't');
}

#if LT_LINUX
static bool has_variable(pid_t process, const char *variable, const char *value)
{
    char path[64], *entry = NULL;
    const size_t bytes = strlen(variable);
    size_t capacity = 0;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)process);
    FILE *file = fopen(path, "re");
    while (file && !found && getdelim(&entry, &capacity, 0, file) > 0)
        found = !strncmp(entry, variable, bytes) && entry[bytes] == '='
                && !strcmp(entry + bytes + 1, value);
    free(entry);
    if (file)
        fclose(file);
    return found;
}

int lt_os_kill_marked(const char *variable, const char *value)
{
    int killed = 0;
    DIR *folder = opendir("/proc");
    for (const struct dirent *d; folder && (d = readdir(folder));) {
        const pid_t process = (pid_t)strtol(d->d_name, NULL, 10);
        if (process > 0 && process != getpid() && has_variable(process, variable, value))
            killed += !kill(process, SIGKILL);
    }
    if (folder)
        closedir(folder);
    return killed;
}
#else
int lt_os_kill_marked(const char *variable, const char *value)
{
    (void)variable;
    (void)value;
    return 0;
}
#endif

void lt_os_die_with_parent(int signal_)
{
#if LT_LINUX
    prctl(PR_SET_PDEATHSIG, signal_);
#else
    (void)signal_;
#endif
}

void lt_os_process_name(const char *name)
{
#if LT_LINUX
    prctl(PR_SET_NAME, name);
#else
    (void)name;
#endif
}

bool lt_os_request_tiles(void)
{
#if LT_LINUX && defined(__x86_64__)
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* arch/x86/include/uapi/asm/prctl.h */
    return !syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA);
#else
    return false;
#endif
}

bool lt_os_has_bfdot(void)
{
#if LT_LINUX && defined(__aarch64__)
    enum { HAS_BF16 = 14 }; /* arch/arm64/include/uapi/asm/hwcap.h */
    return getauxval(AT_HWCAP2) >> HAS_BF16 & 1;
#else
    return false;
#endif
}

#if LT_LINUX
bool lt_os_program_path(char *path, size_t size)
{
    const ssize_t bytes = readlink("/proc/self/exe", path, size - 1);
    path[bytes > 0 ? bytes : 0] = 0;
    return bytes >= 0;
}
#else
static const char *first_argument; /* argv[0] */

/* The loader passes main()'s arguments to constructors. */
__attribute__((constructor)) static void remember_program(int argc, char **argv)
{
    first_argument = argc > 0 ? argv[0] : NULL;
}

/* Searches PATH as the shell does, if argv[0] is a bare name. */
bool lt_os_program_path(char *path, size_t size)
{
    char found[PATH_MAX], whole[PATH_MAX];
    if (!first_argument)
        return false;
    const char *folders = strchr(first_argument, '/') ? NULL : getenv("PATH");
    snprintf(found, sizeof found, "%s", first_argument);
    for (size_t span; folders && *folders; folders += span + (folders[span] == ':')) {
        span = strcspn(folders, ":");
        snprintf(found, sizeof found, "%.*s/%s", (int)span, folders, first_argument);
        if (!access(found, X_OK))
            break;
    }
    return realpath(found, whole) && (size_t)snprintf(path, size, "%s", whole) < size;
}
#endif

/* The OpenMP runtime reads the spin time of idle threads before main(), so the program is executed again. */
void lt_threads_set_passive_wait(char **argv)
{
#if defined _OPENMP && !defined LT_NO_OPENMP
    char path[PATH_MAX];
    if (!lt_os_program_path(path, sizeof path) || getenv("GOMP_SPINCOUNT")
        || getenv("OMP_WAIT_POLICY"))
        return;
    if (!setenv("GOMP_SPINCOUNT", "1000", 1))
        (void)execv(path, argv);
#else
    (void)argv;
#endif
}
