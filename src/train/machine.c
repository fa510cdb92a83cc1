/* CPU and operating system by name. */

#include "train/machine.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

/* What follows "key<blanks and separator>" in the first such line of a file; "" if none. */
static const char *find_line(const char *path, const char *key, char *text, size_t size)
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
    if (!*find_line("/proc/cpuinfo", "model name", text, size) && !uname(&name))
        snprintf(text, size, "%s", name.machine);
    return text;
}

const char *lt_machine_features(char *text, size_t size)
{
    static const char *const wanted[] = {"sse4_2",      "avx2",        "fma",      "avx512f",
                                         "avx512_vnni", "avx512_bf16", "amx_bf16", "avx512_fp16"};
    char flags[4096];
    find_line("/proc/cpuinfo", "flags", flags, sizeof flags);
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

const char *lt_machine_os(char *text, size_t size)
{
    return find_line("/etc/os-release", "PRETTY_NAME", text, size);
}
