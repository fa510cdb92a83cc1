/* Spin time of idle OpenMP threads. The runtime reads it before main(), so the program is executed again. */

#include "lather/device.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

void lt_threads_set_passive_wait(char **argv)
{
#if defined _OPENMP && !defined LT_NO_OPENMP
    char path[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0 || getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY"))
        return;
    path[length] = '\0';
    if (!setenv("GOMP_SPINCOUNT", "1000", 1))
        (void)execv(path, argv);
#else
    (void)argv;
#endif
}
