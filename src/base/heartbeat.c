/* Heartbeats. A beat is one write() of fewer than PIPE_BUF bytes, so nothing comes between its bytes. */

#include "base/heartbeat.h"

#include "base/alloc.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct lt_beat {
    int rank;
    double interval;
    const atomic_llong *progress;
    int stop[2]; /* a pipe; the thread ends when its other end is closed */
    pthread_t thread;
};

void lt_beat_send(int rank, long long count)
{
    char text[64];
    const int bytes = snprintf(text, sizeof text, "\001beat %d %lld\n", rank, count);
    while (write(2, text, (size_t)bytes) < 0 && errno == EINTR) {
    }
}

/* Whether seconds passed without fd becoming readable. */
static bool passes(int fd, double seconds)
{
    const double second_ms = 1000;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int got;
    while ((got = poll(&p, 1, (int)(seconds * second_ms) + 1)) < 0 && errno == EINTR) {
    }
    return !got;
}

static void *beat(void *context)
{
    const lt_beat *b = context;
    do
        lt_beat_send(b->rank, atomic_load(b->progress));
    while (passes(b->stop[0], b->interval));
    return NULL;
}

lt_status lt_beat_open(lt_beat **out, int rank, double interval, const atomic_llong *progress)
{
    lt_beat *b = lt_alloc(1, sizeof *b);
    if (!b || pipe2(b->stop, O_CLOEXEC)) {
        lt_free(b);
        return lt_fail(LT_E_NOMEM, "beat: no memory, or no pipe");
    }
    b->rank = rank;
    b->interval = interval;
    b->progress = progress;
    if (lt_thread_start(&b->thread, beat, b)) {
        close(b->stop[0]);
        close(b->stop[1]);
        lt_free(b);
        return lt_fail(LT_E_NOMEM, "beat: no thread");
    }
    *out = b;
    return LT_OK;
}

void lt_beat_close(lt_beat **beat_)
{
    lt_beat *b = *beat_;
    if (!b)
        return;
    *beat_ = NULL;
    close(b->stop[1]);
    pthread_join(b->thread, NULL);
    close(b->stop[0]);
    lt_beat_send(b->rank, LT_BEAT_END);
    lt_free(b);
}

/* State T of /proc/PID/stat, behind the last ')': the name before may hold anything. */
static bool is_stopped(pid_t process)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = 0;
    const char *behind = strrchr(text, ')');
    return behind && behind[1] && (behind[2] == 'T' || behind[2] == 't');
}

static void watch(pid_t process, int pidfd, int rank, double interval)
{
    const int asked[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        signal(asked[i], SIG_IGN); /* what is watched may take its time to end */
    while (passes(pidfd, interval))
        if (!is_stopped(process))
            lt_beat_send(rank, LT_BEAT_ALIVE);
    lt_beat_send(rank, LT_BEAT_END);
}

lt_status lt_beat_watch(pid_t process, int rank, double interval)
{
    const int pidfd = (int)syscall(SYS_pidfd_open, process, 0);
    if (pidfd < 0)
        return lt_fail(LT_E_IO, "beat: no pidfd: %s", strerror(errno));
    lt_beat_send(rank, 0);
    /* Twice, so that the program that takes this process over has no child that it does not know. */
    const pid_t child = fork();
    if (!child) {
        if (!fork())
            watch(process, pidfd, rank, interval);
        _exit(0);
    }
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
    close(pidfd);
    return child < 0 ? lt_fail(LT_E_IO, "beat: no process: %s", strerror(errno)) : LT_OK;
}

static atomic_llong here;

static void open_here(void)
{
    const char *text = getenv(LT_BEAT_VARIABLE);
    static lt_beat *beat_of_process;
    int rank = 0;
    double interval = 0;
    if (text && sscanf(text, "%d %lf", &rank, &interval) == 2 && interval > 0)
        (void)!lt_beat_open(&beat_of_process, rank, interval, &here);
}

void lt_beat_here_from(long long count)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    long long seen = atomic_load(&here);
    while (!atomic_compare_exchange_weak(&here, &seen, seen + 1 > count ? seen + 1 : count)) {
    }
    pthread_once(&once, open_here);
}

void lt_beat_here(void)
{
    lt_beat_here_from(0);
}
