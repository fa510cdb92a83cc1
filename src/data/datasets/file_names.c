/* Recognizes image files by extension and hidden files by name; counts the files that are left out. */

#include "base/hash.h"
#include "data/datasets/datasets.h"

#include "lather/detail/text.h"
#include "lather/log.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char lt_outside_class_folders[] = "images outside class folders";

static const char *extension_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strrchr(slash ? slash : path, '.');
}

bool lt_is_image(const char *path)
{
    static const char *const known[] = {".jpg",  ".jpeg", ".png",  ".bmp", ".gif", ".webp",
                                        ".avif", ".tif",  ".tiff", ".ppm", ".pgm"};
    const char *extension = extension_of(path);
    for (size_t i = 0; extension && i < sizeof known / sizeof *known; i++)
        if (!strcasecmp(extension, known[i]))
            return true;
    return false;
}

bool lt_is_hidden(const char *path)
{
    while (*path) {
        size_t bytes = strcspn(path, "/");
        bool dots = (bytes == 1 && path[0] == '.') || (bytes == 2 && !strncmp(path, "..", 2));
        if ((path[0] == '.' && !dots) || (bytes == 8 && !strncmp(path, "__MACOSX", 8)))
            return true;
        path += bytes + (path[bytes] == '/');
    }
    return false;
}

/* Counts left-out files by reason; after LT_LEFT_OUT_KINDS reasons, counts only their total. */
void lt_left_out_add_count(lt_left_out *l, const char *reason, int64_t count)
{
    char kind[LT_LEFT_OUT_BYTES] = "";
    if (!count)
        return;
    snprintf(kind, sizeof kind, "%s", reason);
    l->files += count;
    int i = 0;
    while (i < l->kinds && strcmp(l->kind[i].extension, kind) != 0)
        i++;
    if (i == LT_LEFT_OUT_KINDS)
        return;
    if (i == l->kinds)
        memcpy(l->kind[l->kinds++].extension, kind, sizeof kind);
    l->kind[i].count += count;
}

void lt_left_out_add_file(lt_left_out *l, const char *name)
{
    const char *extension = extension_of(name);
    lt_left_out_add_count(l, extension ? extension : "none", 1);
}

static int by_count(const void *a, const void *b)
{
    const lt_left_out_kind *x = a, *y = b;
    int order = (x->count < y->count) - (x->count > y->count);
    return order ? order : strcmp(x->extension, y->extension);
}

bool lt_is_repeated(uint64_t *last, const char *folder, const char *text)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    const uint64_t hash = lt_fnv1a_text(lt_fnv1a_text(LT_FNV1A_BEGIN, folder), text);
    pthread_mutex_lock(&mutex);
    const bool repeated = *last == hash;
    *last = hash;
    pthread_mutex_unlock(&mutex);
    return repeated;
}

void lt_left_out_log(lt_left_out *l, const char *folder)
{
    enum { SHOWN = 5, TEXT = 512 };
    static uint64_t last;
    char text[TEXT] = "", shown[TEXT];
    size_t at = 0;
    if (!l->files)
        return;
    qsort(l->kind, (size_t)l->kinds, sizeof *l->kind, by_count);
    for (int i = 0; i < l->kinds && i < SHOWN; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s %" PRId64, i ? ", " : "",
                               lt_text_escape(shown, sizeof shown, l->kind[i].extension),
                               l->kind[i].count);
    if (!lt_is_repeated(&last, folder, text))
        lt_log(LT_LOG_INFO, "data", "%s: %" PRId64 " files left out: %s%s",
               lt_text_escape(shown, sizeof shown, folder), l->files, text,
               l->kinds > SHOWN ? ", ..." : "");
}

lt_status lt_left_out_check_parquet(const lt_left_out *l, const char *path, lt_status st)
{
    for (int i = 0; i < l->kinds; i++)
        if (!strcasecmp(l->kind[i].extension, ".parquet"))
            return lt_fail(LT_E_UNSUPPORTED,
                           "%s: parquet files are not read; examples/parquet_images.py writes "
                           "their images into folders",
                           path);
    return st;
}

void lt_empty_classes_add(lt_empty_classes *e, const char *name)
{
    enum { SHOWN = 5 };
    char shown[64];
    size_t at = strlen(e->names);
    if (e->count++ < SHOWN)
        snprintf(e->names + at, sizeof e->names - at, "%s%.40s", at ? ", " : "",
                 lt_text_escape(shown, sizeof shown, name));
    else if (e->count == SHOWN + 1)
        snprintf(e->names + at, sizeof e->names - at, ", ...");
}

lt_status lt_empty_classes_log(const lt_empty_classes *e, const char *path, int classes_left)
{
    enum { SHOWN = 512 };
    static uint64_t last;
    char text[SHOWN], shown[SHOWN];
    if (!e->count)
        return LT_OK;
    snprintf(text, sizeof text, "no " LT_IMAGE_NAMES " file in %d class folder%s: %s", e->count,
             e->count > 1 ? "s" : "", e->names);
    if (!classes_left)
        return lt_fail(LT_E_FORMAT, "%s: %s", path, text);
    if (!lt_is_repeated(&last, path, text))
        lt_log(LT_LOG_WARN, "data", "%s: %s; left out, %d classes remain",
               lt_text_escape(shown, sizeof shown, path), text, classes_left);
    return LT_OK;
}
