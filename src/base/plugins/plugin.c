/* Finds and loads plugins: liblather-mpi.so, liblather-cuda.so. */

#include "base/plugins/plugin.h"

#include "lather/ext/fail.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 4096 };

/* Finds the folder of the file that this code was loaded from. */
static bool find_library_folder(char *folder, size_t bytes)
{
    static const char anchor = 0;
    Dl_info info;
    if (!dladdr(&anchor, &info) || !info.dli_fname)
        return false;
    const char *slash = strrchr(info.dli_fname, '/');
    snprintf(folder, bytes, "%.*s", slash ? (int)(slash - info.dli_fname) : 1,
             slash ? info.dli_fname : ".");
    return true;
}

/* Searches $LATHER_PLUGIN_PATH (before 0.2: LATHER_MODULE_PATH), else the library's folder and its lather/. If not
 * found returns false, and path is the first candidate. */
static bool find_plugin(const char *kind, char *path)
{
    const char *set = getenv("LATHER_PLUGIN_PATH");
    char folder[PATH / 2] = ".", inner[PATH];
    if (!set || !*set)
        set = getenv("LATHER_MODULE_PATH");
    if (set && *set)
        snprintf(folder, sizeof folder, "%s", set);
    else
        find_library_folder(folder, sizeof folder);
    snprintf(path, PATH, "%s/liblather-%s.so", folder, kind);
    if (!access(path, R_OK))
        return true;
    snprintf(inner, sizeof inner, "%s/lather/liblather-%s.so", folder, kind);
    if (access(inner, R_OK) != 0)
        return false;
    memcpy(path, inner, PATH);
    return true;
}

lt_status lt_plugin_open(const char *user, const char *kind, const char *symbol, const void **table)
{
    char path[PATH];
    if (!find_plugin(kind, path))
        return lt_fail(LT_E_UNSUPPORTED,
                       "%s: plugin %s not found: this build lacks it, or set LATHER_PLUGIN_PATH "
                       "to its folder",
                       user, path);
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!plugin)
        return lt_fail(LT_E_UNSUPPORTED, "%s: %s cannot be loaded: %s", user, path, dlerror());
    *table = dlsym(plugin, symbol);
    if (!*table)
        return lt_fail(LT_E_UNSUPPORTED, "%s: %s has no %s", user, path, symbol);
    return LT_OK;
}

lt_status lt_plugin_check_version(const char *user, const char *version)
{
    if (!strcmp(version, LT_VERSION))
        return LT_OK;
    return lt_fail(LT_E_UNSUPPORTED, "%s: plugin version %s does not match library version %s",
                   user, version, LT_VERSION);
}

bool lt_plugin_exists(const char *kind)
{
    char path[PATH];
    return find_plugin(kind, path);
}
