/* Records of loaded plugins. The SHA-256 identifies a plugin, whatever its path; a path only tells a plugin that was
 * compiled again from one that is missing. */

#include "plugins.h"

#include "base/alloc.h"
#include "folder.h"

#include "lather/detail/text.h"
#include "lather/ext/fail.h"
#include "lather/plugin.h"

#include <stdarg.h>
#include <string.h>

enum { SHORT_HASH = 12, NAME = 1024, MESSAGE = 2048 };

void lt_plugins_write_json(lt_json_writer *w)
{
    const lt_plugin_info *p;
    char path[NAME];
    if (!lt_plugin_at(0))
        return;
    lt_json_begin_array(w, "plugins");
    for (size_t i = 0; (p = lt_plugin_at(i)); i++) {
        lt_json_begin_object(w, NULL);
        lt_json_put_string(w, "path", lt_text_escape(path, sizeof path, p->path));
        lt_json_put_string(w, "sha256", p->sha256);
        lt_json_put_string(w, "version", p->version);
        lt_json_end(w);
    }
    lt_json_end(w);
}

void lt_plugins_write_comments(FILE *out)
{
    const lt_plugin_info *p;
    char path[NAME];
    for (size_t i = 0; (p = lt_plugin_at(i)); i++)
        fprintf(out, "# plugin %s: version %s, SHA-256 %s\n",
                lt_text_escape(path, sizeof path, p->path), p->version, p->sha256);
}

/* --- Comparison --- */

/* A plugin of state.json; "" for members that are missing. */
typedef struct recorded {
    const char *path, *sha256;
} recorded;

static recorded read_recorded(const lt_json_value *v)
{
    recorded r = {"", ""};
    if (lt_json_string(v, "path", &r.path) || lt_json_string(v, "sha256", &r.sha256))
        r = (recorded){"", ""};
    return r;
}

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Finds the recorded plugin's loaded counterpart: the same contents, otherwise the same file name; NULL if none. */
static const lt_plugin_info *find_loaded(const recorded *r)
{
    const lt_plugin_info *p, *named = NULL;
    for (size_t i = 0; (p = lt_plugin_at(i)); i++) {
        if (!strcmp(p->sha256, r->sha256))
            return p;
        if (!strcmp(file_name(p->path), file_name(r->path)))
            named = p;
    }
    return named;
}

static bool is_recorded(const lt_json_value *list, const lt_plugin_info *p)
{
    for (const lt_json_value *v = list ? list->child : NULL; v; v = v->next) {
        const recorded r = read_recorded(v);
        if (find_loaded(&r) == p)
            return true;
    }
    return false;
}

static void append(char *text, size_t size, const char *format, ...) LT_PRINTF(3, 4);
static void append(char *text, size_t size, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list values;
    va_start(values, format);
    vsnprintf(text + used, size - used, format, values);
    va_end(values);
}

static void compare(const lt_json_value *list, char *text, size_t size)
{
    const lt_plugin_info *p;
    for (const lt_json_value *v = list ? list->child : NULL; v; v = v->next) {
        const recorded r = read_recorded(v);
        const lt_plugin_info *now = find_loaded(&r);
        const char *comma = *text ? ", " : "";
        if (!now)
            append(text, size, "%s%s -> (none)", comma, r.path);
        else if (strcmp(now->sha256, r.sha256) != 0)
            append(text, size, "%s%s SHA-256 %.*s -> %.*s", comma, now->path, SHORT_HASH, r.sha256,
                   SHORT_HASH, now->sha256);
    }
    for (size_t i = 0; (p = lt_plugin_at(i)); i++)
        if (!is_recorded(list, p))
            append(text, size, "%s(none) -> %s", *text ? ", " : "", p->path);
}

/* Opens FOLDER/state.json; *list: its plugins, NULL if it has none. */
static lt_status open_list(const char *folder, lt_json **json, const lt_json_value **list)
{
    char *path = lt_format("%s/%s", folder, LT_CHECKPOINT_STATE);
    lt_status st = path ? lt_json_load(json, path) : LT_E_NOMEM;
    if (!st)
        *list = lt_json_member(lt_json_root(*json), "plugins");
    lt_free(path);
    return st;
}

lt_status lt_plugins_compare_checkpoint(const char *folder, char *text, size_t size)
{
    lt_json *json = NULL;
    const lt_json_value *list = NULL;
    *text = 0;
    LT_TRY(open_list(folder, &json, &list));
    compare(list, text, size);
    lt_json_free(&json);
    return LT_OK;
}

lt_status lt_plugins_advise(lt_status st, const char *path)
{
    char advice[LT_PLUGINS_TEXT] = "", why[MESSAGE], folder[NAME];
    lt_json *json = NULL;
    const lt_json_value *list = NULL;
    snprintf(why, sizeof why, "%s", lt_error_message());
    snprintf(folder, sizeof folder, "%s", path);
    if (open_list(folder, &json, &list) && strchr(folder, '/')) {
        *strrchr(folder, '/') = 0;
        if (open_list(folder, &json, &list))
            list = NULL;
    }
    for (const lt_json_value *v = list ? list->child : NULL; v; v = v->next) {
        const recorded r = read_recorded(v);
        if (!find_loaded(&r) && !*advice)
            append(advice, sizeof advice, "; %s was trained with", folder);
        if (!find_loaded(&r))
            append(advice, sizeof advice, " --plugin %s", r.path);
    }
    lt_json_free(&json);
    return lt_fail(st, "%s%s", why, advice);
}
