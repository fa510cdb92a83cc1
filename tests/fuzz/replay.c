/* Runs a fuzz target on every file in the given folders, so that the corpus is an ordinary test. */

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

enum { MOST = 1 << 20 }; /* bytes; larger files are truncated */

static void replay(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    uint8_t *all = malloc(MOST), *bytes;
    if (!file || !all)
        abort();
    size_t size = fread(all, 1, MOST, file);
    fclose(file);
    /* An exact copy, so that a sanitizer detects reads past the end. */
    bytes = malloc(size ? size : 1);
    for (size_t i = 0; bytes && i < size; i++)
        bytes[i] = all[i];
    free(all);
    LLVMFuzzerTestOneInput(bytes, size);
    free(bytes);
}

int main(int argc, char **argv)
{
    int count = 0;
    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        const struct dirent *d;
        while (dir && (d = readdir(dir)))
            if (d->d_name[0] != '.') {
                replay(argv[i], d->d_name);
                count++;
            }
        if (dir)
            closedir(dir);
    }
    fprintf(stderr, "%d files\n", count);
    return count ? 0 : 1;
}
