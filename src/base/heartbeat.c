/* Heartbeats. Each is one write() of fewer than PIPE_BUF bytes, so that it is not interleaved with other output. */

#include "base/heartbeat.h"

#include "base/alloc.h"
#include "base/os.h"
#include "base/thread.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct lt_heartbeat {
    int rank;
    double interval;
    const atomic_llong *progress;
    int stop[2]; /* pipe; closing its write end stops the thread */
    pthread_t thread;
};

/* Sends one heartbeat. */
static void send_heartbeat(int rank, long long count)
{
    char text[64];
    const int bytes = snprintf(text, sizeof text, "\001beat %d %lld\n", rank, count);
    while (write(2, text, (size_t)bytes) < 0 && errno == EINTR) {
    }
}

/* Waits; returns true if fd did not become readable within `seconds`. */
static bool times_out(int fd, double seconds)
{
    const double second_ms = 1000;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int got;
    while ((got = poll(&p, 1, (int)(seconds * second_ms) + 1)) < 0 && errno == EINTR) {
    }
    return !got;
}

static void *send_heartbeats(void *context)
{
    const lt_heartbeat *b = context;
    do
        send_heartbeat(b->rank, atomic_load(b->progress));
    while (times_out(b->stop[0], b->interval));
    return NULL;
}

lt_status lt_heartbeat_open(lt_heartbeat **out, int rank, double interval,
                            const atomic_llong *progress)
{
    lt_heartbeat *b = lt_alloc(1, sizeof *b);
    if (!b || lt_os_pipe(b->stop)) {
        lt_free(b);
        return lt_fail(LT_E_NOMEM, "heartbeat: cannot allocate memory or a pipe");
    }
    b->rank = rank;
    b->interval = interval;
    b->progress = progress;
    if (lt_thread_start(&b->thread, send_heartbeats, b)) {
        close(b->stop[0]);
        close(b->stop[1]);
        lt_free(b);
        return lt_fail(LT_E_NOMEM, "heartbeat: cannot start a thread");
    }
    *out = b;
    return LT_OK;
}

void lt_heartbeat_close(lt_heartbeat **beat_)
{
    lt_heartbeat *b = *beat_;
    if (!b)
        return;
    *beat_ = NULL;
    close(b->stop[1]);
    pthread_join(b->thread, NULL);
    close(b->stop[0]);
    send_heartbeat(b->rank, LT_HEARTBEAT_END);
    lt_free(b);
}

static void watch_process(pid_t process, int pidfd, int rank, double interval)
{
    const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN); /* outlives the watched process, which may shut down slowly */
    while (!lt_os_process_wait(pidfd, process, interval))
        if (!lt_os_is_stopped(process))
            send_heartbeat(rank, LT_HEARTBEAT_ALIVE);
    send_heartbeat(rank, LT_HEARTBEAT_END);
}

lt_status lt_heartbeat_watch(pid_t process, int rank, double interval)
{
    int pidfd;
    if (!lt_os_process_open(&pidfd, process))
        return lt_fail(LT_E_IO, "heartbeat: pidfd_open: %s", strerror(errno));
    send_heartbeat(rank, 0);
    /* Double fork, so that the program that this process executes has no unknown child. */
    const pid_t child = fork();
    if (!child) {
        if (!fork())
            watch_process(process, pidfd, rank, interval);
        _exit(0);
    }
    if (child > 0)
        lt_os_wait(child);
    if (pidfd >= 0)
        close(pidfd);
    return child < 0 ? lt_fail(LT_E_IO, "heartbeat: fork: %s", strerror(errno)) : LT_OK;
}

static atomic_llong here;

static void open_from_environment(void)
{
    const char *text = getenv(LT_HEARTBEAT_VARIABLE);
    static lt_heartbeat *beat_of_process;
    int rank = 0;
    double interval = 0;
    /* NOLINTNEXTLINE(cert-err34-c): the library has written the text */
    if (text && sscanf(text, "%d %lf", &rank, &interval) == 2 && interval > 0)
        (void)!lt_heartbeat_open(&beat_of_process, rank, interval, &here);
}

void lt_heartbeat_progress_at_least(long long count)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    long long seen = atomic_load(&here);
    while (!atomic_compare_exchange_weak(&here, &seen, seen + 1 > count ? seen + 1 : count)) {
    }
    pthread_once(&once, open_from_environment);
}

void lt_heartbeat_progress(void)
{
    lt_heartbeat_progress_at_least(0);
}
