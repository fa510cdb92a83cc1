/* A folder for targets that read files, one per process and removed at its end. */
#ifndef LT_FUZZ_FOLDER_H
#define LT_FUZZ_FOLDER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FUZZ_PATH = 256 };

static char fuzz_folder[FUZZ_PATH];

static void fuzz_remove(void)
{
    char command[FUZZ_PATH + 16];
    snprintf(command, sizeof command, "rm -rf '%s'", fuzz_folder);
    if (system(command))
        abort();
}

/* Returns FOLDER/NAME; the first call makes the folder, in /dev/shm if possible. */
static inline const char *fuzz_path(char path[2 * FUZZ_PATH], const char *name)
{
    if (!*fuzz_folder) {
        const char *base = getenv("TMPDIR");
        base = !access("/dev/shm", W_OK) ? "/dev/shm" : base ? base : "/tmp";
        snprintf(fuzz_folder, sizeof fuzz_folder, "%s/lather-fuzz-XXXXXX", base);
        if (!mkdtemp(fuzz_folder) || atexit(fuzz_remove))
            abort();
    }
    snprintf(path, (size_t)2 * FUZZ_PATH, "%s/%s", fuzz_folder, name);
    return path;
}

static inline void fuzz_write(const char *name, const void *bytes, size_t size)
{
    char path[2 * FUZZ_PATH];
    FILE *f = fopen(fuzz_path(path, name), "wb");
    if (!f || fwrite(bytes, 1, size, f) != size || fclose(f))
        abort();
}

#endif
