/* Plugins of the user: --plugin FILE. A file's owner, mode, type and version are checked before dlopen() runs its
 * constructors; then its entry registers names. */

#include "base/alloc.h"
#include "base/encoding/sha256.h"
#include "base/options/options.h"
#include "base/text.h"
#include "elf.h"

#include "lather/ext/fail.h"
#include "lather/ext/file.h"
#include "lather/log.h"
#include "lather/plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HASH_TEXT = 2 * LT_SHA256_BYTES + 1, VERSION_TEXT = 32, OTHERS_MAY_WRITE = 022 };

typedef struct loaded {
    lt_plugin_info info;
    char path[PATH_MAX], sha256[HASH_TEXT], version[VERSION_TEXT];
} loaded;

/* Loaded plugins, in order; changed by the main thread only. */
static loaded *list[LT_MAX_PLUGINS];
static size_t count;

/* --- Checks that run no code of the plugin --- */

/* A file that others may change is code that they may run as this user. */
static lt_status check_owner(const struct stat *info)
{
    if (info->st_uid != geteuid() && info->st_uid != 0)
        return lt_fail(LT_E_ARG,
                       "belongs to user %u, neither to you (user %u) nor to root: make a copy of "
                       "your own",
                       (unsigned)info->st_uid, (unsigned)geteuid());
    if (info->st_mode & OTHERS_MAY_WRITE)
        return lt_fail(LT_E_ARG, "others may write to it (mode %04o): chmod go-w",
                       (unsigned)info->st_mode & 07777);
    return LT_OK;
}

/* Checks that the file is a plugin of this version; fills the version. */
static lt_status check_contents(const char *data, size_t bytes, loaded *out)
{
    const char *version, *unused;
    LT_TRY(lt_elf_check(data, bytes));
    if (!lt_elf_find_symbol(data, bytes, "lt_plugin_version", &version) || !version
        || !lt_elf_find_symbol(data, bytes, "lt_plugin", &unused))
        return lt_fail(LT_E_ARG, "has no lt_plugin: define it by LT_PLUGIN(host) of "
                                 "lather/plugin.h");
    snprintf(out->version, sizeof out->version, "%s", version);
    out->info.reproducible = lt_elf_find_symbol(data, bytes, "lt_plugin_reproducible", &unused);
    if (strcmp(version, LT_VERSION) != 0)
        return lt_fail(LT_E_UNSUPPORTED,
                       "compiled for version %s, but this is %s: compile it again with the headers "
                       "of %s",
                       out->version, LT_VERSION, LT_VERSION);
    return LT_OK;
}

static void hash(char text[HASH_TEXT], const char *data, size_t bytes)
{
    uint8_t digest[LT_SHA256_BYTES];
    lt_sha256(digest, data, bytes);
    lt_text_hex(text, digest, sizeof digest);
}

/* Warns if the library is newer than the plugin: within a version headers may change, and a plugin with tables of
 * another size crashes. */
static void warn_if_older(const char *path, const struct stat *info)
{
    union {
        lt_status (*function)(const char *path, const char *program);
        void *address;
    } here = {lt_plugin_load};
    Dl_info library;
    struct stat built;
    if (dladdr(here.address, &library) && !stat(library.dli_fname, &built)
        && info->st_mtime < built.st_mtime)
        lt_log(LT_LOG_WARN, "plugin",
               "%s is older than %s: compile it again if the headers have changed", path,
               library.dli_fname);
}

/* Checks an open file and fills *out. The file's name is not in the message. */
static lt_status inspect(FILE *file, loaded *out)
{
    struct stat info;
    if (fstat(fileno(file), &info))
        return lt_fail(LT_E_IO, "%s", strerror(errno));
    LT_TRY(check_owner(&info));
    const size_t bytes = (size_t)info.st_size;
    char *data = lt_alloc(bytes + 1, 1);
    lt_status st = data ? LT_OK : LT_E_NOMEM;
    if (!st && fread(data, 1, bytes, file) != bytes)
        st = lt_fail(LT_E_IO, "fewer than %zu bytes can be read", bytes);
    if (!st)
        st = check_contents(data, bytes, out);
    if (!st) {
        hash(out->sha256, data, bytes);
        warn_if_older(out->path, &info);
    }
    lt_free(data);
    return st;
}

/* --- Loading --- */

static lt_status run_entry(void *symbol, const char *program)
{
    const lt_plugin_host host = {sizeof host, lt_version(), program};
    union {
        void *symbol;
        lt_status (*call)(const lt_plugin_host *host);
    } entry = {symbol};
    (void)lt_fail(LT_E_ARG, "its entry failed without a message");
    const lt_status st = entry.call(&host);
    if (st >= LT_OK && st < LT_END)
        return st;
    return lt_fail(LT_E_ARG, "its entry returned %d, which is not LT_OK", (int)st);
}

static lt_status open_and_run(const char *path, const char *program)
{
    char whole[PATH_MAX];
    if (!realpath(path, whole)) /* without '/' dlopen() would search the library path */
        return lt_fail(LT_E_IO, "%s", strerror(errno));
    void *plugin = dlopen(whole, RTLD_NOW | RTLD_LOCAL);
    if (!plugin)
        return lt_fail(LT_E_UNSUPPORTED, "cannot be loaded: %s", dlerror());
    void *entry = dlsym(plugin, "lt_plugin");
    return entry ? run_entry(entry, program) : lt_fail(LT_E_ARG, "has no lt_plugin");
}

/* Loads an open file, unless one with the same contents is loaded: then returns LT_END. */
static lt_status load(FILE *file, const char *program, loaded *out)
{
    LT_TRY(inspect(file, out));
    for (size_t i = 0; i < count; i++)
        if (!strcmp(list[i]->sha256, out->sha256)) {
            lt_log(LT_LOG_INFO, "plugin", "%s: skipped, as %s has the same contents", out->path,
                   list[i]->path);
            return LT_END;
        }
    LT_TRY(open_and_run(out->path, program));
    list[count++] = out;
    return LT_OK;
}

lt_status lt_plugin_load(const char *path, const char *program)
{
    FILE *file;
    if (!*path)
        return lt_fail(LT_E_ARG, "--plugin: missing value");
    if (count == LT_MAX_PLUGINS)
        return lt_fail(LT_E_ARG, "plugin %s: %d are loaded, which is the limit", path,
                       LT_MAX_PLUGINS);
    lt_status st = lt_file_open(&file, path);
    if (st)
        return lt_fail(st, "plugin %s", lt_error_message());
    loaded *out = lt_alloc(1, sizeof *out);
    st = out ? LT_OK : LT_E_NOMEM;
    if (!st) {
        snprintf(out->path, sizeof out->path, "%s", path);
        out->info = (lt_plugin_info){out->path, out->sha256, out->version, false};
        st = load(file, program, out);
    }
    fclose(file);
    if (st)
        lt_free(out);
    return st && st != LT_END ? lt_fail(st, "plugin %s: %s", path, lt_error_message()) : LT_OK;
}

lt_status lt_plugin_load_arguments(int argc, char *const *argv, const char *program)
{
    const char *path;
    for (int at = 1; (path = lt_options_next_value("plugin", argc, argv, &at));)
        LT_TRY(lt_plugin_load(path, program));
    return LT_OK;
}

const lt_plugin_info *lt_plugin_at(size_t index)
{
    return index < count ? &list[index]->info : NULL;
}
