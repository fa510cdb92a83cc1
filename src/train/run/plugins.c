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

/* --- Comparison with a checkpoint --- */

static void append(char *text, size_t size, const char *format, ...) LT_PRINTF(3, 4);
static void append(char *text, size_t size, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list values;
    va_start(values, format);
    vsnprintf(text + used, size - used, format, values);
    va_end(values);
}

/* Opens FOLDER/state.json and returns its first plugin; NULL if it has none or cannot be read. */
static const lt_json_value *open_list(const char *folder, lt_json **json)
{
    char *path = lt_format("%s/%s", folder, LT_CHECKPOINT_STATE);
    const bool is_open = path && !lt_json_load(json, path);
    const lt_json_value *list = is_open ? lt_json_member(lt_json_root(*json), "plugins") : NULL;
    lt_free(path);
    return list ? list->child : NULL;
}

static const char *member(const lt_json_value *plugin, const char *key)
{
    const lt_json_value *v = lt_json_member(plugin, key);
    return v && v->type == LT_JSON_STRING ? v->string : "";
}

/* Finds a loaded plugin with the same contents or, without one, with the same path; NULL if absent. */
static const lt_plugin_info *find_loaded(const lt_json_value *plugin)
{
    const lt_plugin_info *p, *same_path = NULL;
    for (size_t i = 0; (p = lt_plugin_at(i)); i++) {
        if (!strcmp(p->sha256, member(plugin, "sha256")))
            return p;
        if (!strcmp(p->path, member(plugin, "path")))
            same_path = p;
    }
    return same_path;
}

void lt_plugins_compare_checkpoint(const char *folder, char *text, size_t size)
{
    char now[LT_PLUGINS_TEXT] = "";
    lt_json *json = NULL;
    const lt_json_value *v = open_list(folder, &json);
    const lt_plugin_info *p;
    bool same = true;
    *text = 0;
    for (size_t i = 0; (p = lt_plugin_at(i)) || v; v = v ? v->next : NULL, i++) {
        same = same && p && v && !strcmp(p->sha256, member(v, "sha256"));
        if (v)
            append(text, size, "%s%s %.*s", i ? ", " : "", member(v, "path"), SHORT_HASH,
                   member(v, "sha256"));
        if (p)
            append(now, sizeof now, "%s%s %.*s", i ? ", " : "", p->path, SHORT_HASH, p->sha256);
    }
    if (same)
        *text = 0;
    else
        append(text, size, "%s -> %s", *text ? "" : "(none)", *now ? now : "(none)");
    lt_json_free(&json);
}

lt_status lt_plugins_advise(lt_status st, const char *path)
{
    char advice[LT_PLUGINS_TEXT] = "", why[MESSAGE], folder[NAME];
    lt_json *json = NULL;
    snprintf(why, sizeof why, "%s", lt_error_message());
    snprintf(folder, sizeof folder, "%s", path);
    const lt_json_value *v = open_list(folder, &json);
    if (!json && strchr(folder, '/')) {
        *strrchr(folder, '/') = 0;
        v = open_list(folder, &json);
    }
    for (; v; v = v->next) {
        const lt_plugin_info *p = find_loaded(v);
        if (!p || strcmp(p->sha256, member(v, "sha256")) != 0)
            append(advice, sizeof advice, " --plugin %s%s", member(v, "path"),
                   p ? " before it was compiled again" : "");
    }
    lt_json_free(&json);
    return *advice ? lt_fail(st, "%s; %s was trained with%s", why, folder, advice)
                   : lt_fail(st, "%s", why);
}
