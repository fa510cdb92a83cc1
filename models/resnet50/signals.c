/* SIGINT and SIGTERM: the first asks the run to stop after its step, the second ends it at once. */

#include "session.h"

#include <signal.h>
#include <unistd.h>

static volatile sig_atomic_t seen;

static void on_signal(int signal)
{
    enum { SHELL_OFFSET = 128 }; /* a shell's status for a process that a signal ended */
    static const char text[] = "\nstopping after this step; once more: at once\n";
    if (seen)
        _exit(SHELL_OFFSET + signal);
    seen = 1;
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)written;
}

void signals_install(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

int signals_seen(void)
{
    return seen;
}
