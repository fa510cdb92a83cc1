/* Signals that ask a run to stop after its step or its epoch, and those that become write errors. */

#include "program.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t seen, asked, after_epoch;

static void on_signal(int signal)
{
    enum { SHELL_OFFSET = 128 }; /* a shell's status for a process that a signal ended */
    static const char text[] = "\nstopping after this step; repeat to stop immediately\n";
    /* A closing terminal may send SIGHUP twice, and a batch system SIGUSR1 before SIGTERM: only a second SIGINT or
     * SIGTERM stops immediately. */
    const bool urgent = signal == SIGINT || signal == SIGTERM;
    after_epoch = after_epoch || signal == SIGUSR2;
    if (asked && urgent)
        _exit(SHELL_OFFSET + signal);
    asked |= urgent;
    if (seen || signal == SIGUSR2)
        return;
    seen = 1;
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)written;
}

void lt_signals_install(void)
{
    static const int asking[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
    struct sigaction old, action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof asking / sizeof *asking; i++) {
        sigaction(asking[i], NULL, &old);
        if (asking[i] != SIGHUP || old.sa_handler != SIG_IGN) /* nohup ignores it */
            sigaction(asking[i], &action, NULL);
    }
}

bool lt_signals_seen(void *context)
{
    (void)context;
    return seen;
}

bool lt_signals_seen_for_epoch(void)
{
    return after_epoch;
}

void lt_signals_as_errors(void)
{
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
}

int lt_signals_flush(const char *program, int code)
{
    errno = 0;
    if (!fflush(stdout) && !ferror(stdout))
        return code;
    if (!code && errno != EPIPE) /* a reader such as `head` had enough */
        fprintf(stderr, "%s: cannot write to standard output: %s\n", program,
                errno ? strerror(errno) : "truncated");
    return code ? code : 1;
}
