/* Finds and loads a plugin that lies beside the library: liblather-mpi.so, liblather-cuda.so. */

#include "base/plugin.h"

#include "lather/ext/fail.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 4096 };

/* The folder of the file this code was loaded from. */
static bool own_folder(char *folder, size_t bytes)
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

/* Looks in $LATHER_PLUGIN_PATH (before 0.2: LATHER_MODULE_PATH), else beside the library and in
 * lather/ beside it. False: path names the first place. */
static bool find(const char *kind, char *path)
{
    const char *set = getenv("LATHER_PLUGIN_PATH");
    char folder[PATH / 2] = ".", inner[PATH];
    if (!set || !*set)
        set = getenv("LATHER_MODULE_PATH");
    if (set && *set)
        snprintf(folder, sizeof folder, "%s", set);
    else
        own_folder(folder, sizeof folder);
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
    if (!find(kind, path))
        return lt_fail(LT_E_UNSUPPORTED,
                       "%s: there is no plugin %s: this build is without it, or "
                       "LATHER_PLUGIN_PATH must say where it is",
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
    return lt_fail(LT_E_UNSUPPORTED, "%s: the plugin is of version %s, the library of %s", user,
                   version, LT_VERSION);
}

bool lt_plugin_exists(const char *kind)
{
    char path[PATH];
    return find(kind, path);
}
