/* Where the program's own files are: found from /proc/self/exe upwards, so that an installation can
 * be moved. */

#include "train/trainer/paths.h"

#include "lather/ext/fail.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

lt_status place_find(char *path, size_t size, const char *in_source, const char *installed)
{
    enum { LEVELS = 5 };
    char folder[PATH_MAX];
    const char *const names[] = {in_source, installed};
    ssize_t bytes = readlink("/proc/self/exe", folder, sizeof folder - 1);
    if (bytes < 0)
        return lt_fail(LT_E_IO, "/proc/self/exe: cannot be read");
    folder[bytes] = 0;
    for (int level = 0; level < LEVELS; level++) {
        char *slash = strrchr(folder, '/');
        if (!slash)
            break;
        *slash = 0;
        for (int i = 0; i < 2; i++) {
            int length = snprintf(path, size, "%s/%s", folder, names[i]);
            if (length > 0 && (size_t)length < size && !access(path, R_OK))
                return LT_OK;
        }
    }
    return lt_fail(LT_E_IO, "%s: not found, nor %s, in the folders above the program", in_source,
                   installed);
}
