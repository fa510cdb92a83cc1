/* Runs an action as another user of the machine, for tests of files in folders that others may write. */
#ifndef LT_TESTS_OTHER_USER_H
#define LT_TESTS_OTHER_USER_H

#include "near.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OTHER_USER = 65534 };

/* Runs a shell command as user 65534 with umask 0. Only root can: otherwise the row is skipped. */
static inline void as_other_user(const char *command)
{
    int status = -1;
    if (geteuid())
        skip();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        umask(0);
        if (setgid(OTHER_USER) || setuid(OTHER_USER))
            _exit(126);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

#endif
