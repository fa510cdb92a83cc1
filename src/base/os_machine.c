/* CPU, operating system, compute threads and free memory of this machine, mostly from /proc and /sys: absent files make
 * a value unknown. */

#include "base/machine.h"
#include "base/os.h"

#include "lather/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* Reads the value of the first "key<blanks and separator>value" line of a file; "" if absent. Returns text. */
static const char *read_value_of_key(const char *path, const char *key, char *text, size_t size)
{
    char line[4096];
    text[0] = 0;
    FILE *file = fopen(path, "r");
    while (file && !text[0] && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        const char *value = line + strlen(key);
        value += strspn(value, " \t:=\"");
        snprintf(text, size, "%.*s", (int)strcspn(value, "\"\n"), value);
    }
    if (file)
        fclose(file);
    return text;
}

const char *lt_machine_cpu(char *text, size_t size)
{
    struct utsname name;
    if (!*read_value_of_key("/proc/cpuinfo", "model name", text, size) && !uname(&name))
        snprintf(text, size, "%s", name.machine);
    return text;
}

const char *lt_machine_cpu_model(char *text, size_t size)
{
    char family[16], model[16];
    text[0] = 0;
    read_value_of_key("/proc/cpuinfo", "cpu family", family, sizeof family);
    read_value_of_key("/proc/cpuinfo", "model\t", model, sizeof model); /* not "model name" */
    if (*family && *model)
        snprintf(text, size, "family %s, model %s", family, model);
    return text;
}

const char *lt_machine_features(char *text, size_t size)
{
    static const char *const wanted[] = {"sse4_2",      "avx2",        "fma",      "avx512f",
                                         "avx512_vnni", "avx512_bf16", "amx_bf16", "avx512_fp16"};
    char flags[4096];
    read_value_of_key("/proc/cpuinfo", "flags", flags, sizeof flags);
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        for (const char *at = flags; *at && used < size; at += strspn(at, " ")) {
            size_t span = strcspn(at, " ");
            if (span == strlen(wanted[i]) && !strncmp(at, wanted[i], span))
                used +=
                    (size_t)snprintf(text + used, size - used, "%s%s", used ? " " : "", wanted[i]);
            at += span;
        }
    return text;
}

const char *lt_machine_boot_id(char *text, size_t size)
{
    return read_value_of_key("/proc/sys/kernel/random/boot_id", "", text, size);
}

const char *lt_machine_os(char *text, size_t size)
{
    return read_value_of_key("/etc/os-release", "PRETTY_NAME", text, size);
}

/* Returns the CPU limit of a cgroup file: quota / period, rounded up; 0 if unlimited. */
static int read_cpu_quota(const char *path)
{
    char line[64] = "", *at = line;
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    if (!fgets(line, sizeof line, file))
        line[0] = 0;
    fclose(file);
    const long long limit = strtoll(line, &at, 10), period = strtoll(at, NULL, 10);
    /* "max 100000" parses as 0: unlimited */
    return limit > 0 && period > 0 ? (int)((limit + period - 1) / period) : 0;
}

/* Returns the limit of the process's cgroup (v2), else of the root of a container's mount. */
static int find_cgroup_cpu_limit(void)
{
    char line[512], path[640];
    FILE *file = fopen("/proc/self/cgroup", "r");
    int limit = 0;
    while (file && fgets(line, sizeof line, file)) {
        char group[480];
        if (sscanf(line, "0::%479[^\n]", group) != 1)
            continue;
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
        limit = read_cpu_quota(path);
    }
    if (file)
        fclose(file);
    return limit ? limit : read_cpu_quota("/sys/fs/cgroup/cpu.max");
}

int lt_cpu_threads(void)
{
    enum { WORDS = 16 };
    uint64_t mask[WORDS];
    int count = 0;
    lt_os_affinity(mask, WORDS);
    for (int i = 0; i < WORDS; i++)
        count += __builtin_popcountll(mask[i]);
    if (!count)
        count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int limit = find_cgroup_cpu_limit();
    if (limit && limit < count)
        count = limit;
    return count < 1 ? 1 : count;
}

/* Returns the first number after key in a /proc or cgroup file, or -1. */
static double read_number_after_key(const char *path, const char *key)
{
    char line[256];
    double value = -1;
    FILE *f = fopen(path, "r");
    if (!f)
        return -1;
    while (value < 0 && fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key))) {
            char *end;
            const double number = strtod(line + strlen(key), &end);
            value = end > line + strlen(key) ? number : -1; /* memory.max may contain "max" */
        }
    fclose(f);
    return value;
}

double lt_machine_available_bytes(void)
{
    const double kib = 1024;
    double free = read_number_after_key("/proc/meminfo", "MemAvailable:") * kib;
    double limit = read_number_after_key("/sys/fs/cgroup/memory.max", "");
    double used = read_number_after_key("/sys/fs/cgroup/memory.current", "");
    double cached = read_number_after_key("/sys/fs/cgroup/memory.stat", "file ");
    if (limit < 0 || used < 0)
        return free;
    double rest = limit - used + (cached > 0 ? cached : 0);
    return free >= 0 && free < rest ? free : rest;
}
