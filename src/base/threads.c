/* How many compute threads this process may use. */

#include "lather/device.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* CPUs that one cgroup file grants: quota / period, rounded up; 0 if it says no limit. */
static int quota(const char *path)
{
    char line[64] = "", *at = line;
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    if (!fgets(line, sizeof line, file))
        line[0] = 0;
    fclose(file);
    const long long limit = strtoll(line, &at, 10), period = strtoll(at, NULL, 10);
    /* "max 100000" is no number: no limit */
    return limit > 0 && period > 0 ? (int)((limit + period - 1) / period) : 0;
}

/* The process's own group (cgroup v2), else the root of a container's mount. */
static int cgroup_limit(void)
{
    char line[512], path[640];
    FILE *file = fopen("/proc/self/cgroup", "r");
    int limit = 0;
    while (file && fgets(line, sizeof line, file)) {
        char group[480];
        if (sscanf(line, "0::%479[^\n]", group) != 1)
            continue;
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
        limit = quota(path);
    }
    if (file)
        fclose(file);
    return limit ? limit : quota("/sys/fs/cgroup/cpu.max");
}

int lt_cpu_threads(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) ? (int)sysconf(_SC_NPROCESSORS_ONLN)
                                                       : CPU_COUNT(&set);
    int limit = cgroup_limit();
    if (limit && limit < count)
        count = limit;
    return count < 1 ? 1 : count;
}
