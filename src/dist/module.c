/* Finds and loads a module that lies beside the library: liblather-mpi.so. */

#include "dist/comm.h"

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

/* Looks in $LATHER_MODULE_PATH, else beside the library and in lather/ beside it. False: path names
 * the first place. */
static bool find(const char *kind, char *path)
{
    const char *set = getenv("LATHER_MODULE_PATH");
    char folder[PATH / 2] = ".", inner[PATH];
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

lt_status lt_module_link(const char *kind, const lt_link_ops **out)
{
    char path[PATH], symbol[64];
    if (!find(kind, path))
        return lt_fail(LT_E_UNSUPPORTED,
                       "comm %s: there is no module %s: this build is without it, or "
                       "LATHER_MODULE_PATH must say where it is",
                       kind, path);
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!module)
        return lt_fail(LT_E_UNSUPPORTED, "comm %s: %s cannot be loaded: %s", kind, path, dlerror());
    snprintf(symbol, sizeof symbol, "lt_link_%s", kind);
    const lt_link_ops *ops = dlsym(module, symbol);
    if (!ops)
        return lt_fail(LT_E_UNSUPPORTED, "comm %s: %s has no %s", kind, path, symbol);
    if (strcmp(ops->version, LT_VERSION) != 0)
        return lt_fail(LT_E_UNSUPPORTED, "comm %s: %s is of version %s, the library of %s", kind,
                       path, ops->version, LT_VERSION);
    *out = ops;
    return LT_OK;
}
