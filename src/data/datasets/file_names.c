/* Image files by their extensions, and a count of the other files. */

#include "data/datasets/datasets.h"

#include "lather/log.h"
#include "lather/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool lt_is_image(const char *extension)
{
    static const char *const known[] = {".jpg",  ".jpeg", ".png",  ".bmp", ".gif", ".webp",
                                        ".avif", ".tif",  ".tiff", ".ppm", ".pgm"};
    for (size_t i = 0; extension && i < sizeof known / sizeof *known; i++)
        if (!strcasecmp(extension, known[i]))
            return true;
    return false;
}

/* Extensions after the 32nd count in the sum only. */
void lt_left_out_add(lt_left_out *l, const char *name)
{
    const char *slash = strrchr(name, '/'), *dot = strrchr(slash ? slash : name, '.');
    char extension[LT_LEFT_OUT_BYTES];
    snprintf(extension, sizeof extension, "%s", dot ? dot : "none");
    l->files++;
    int i = 0;
    while (i < l->kinds && strcmp(l->kind[i].extension, extension) != 0)
        i++;
    if (i == LT_LEFT_OUT_KINDS)
        return;
    if (i == l->kinds)
        memcpy(l->kind[l->kinds++].extension, extension, sizeof extension);
    l->kind[i].count++;
}

static int by_count(const void *a, const void *b)
{
    const lt_left_out_kind *x = a, *y = b;
    int order = (x->count < y->count) - (x->count > y->count);
    return order ? order : strcmp(x->extension, y->extension);
}

void lt_left_out_tell(lt_left_out *l, const char *folder)
{
    enum { SHOWN = 5, TEXT = 512 };
    char text[TEXT] = "", shown[TEXT];
    size_t at = 0;
    if (!l->files)
        return;
    qsort(l->kind, (size_t)l->kinds, sizeof *l->kind, by_count);
    for (int i = 0; i < l->kinds && i < SHOWN; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s %" PRId64, i ? ", " : "",
                               lt_text_escape(shown, sizeof shown, l->kind[i].extension),
                               l->kind[i].count);
    lt_log(LT_LOG_INFO, "data", "%s: %" PRId64 " files with other extensions left out: %s%s",
           lt_text_escape(shown, sizeof shown, folder), l->files, text,
           l->kinds > SHOWN ? ", ..." : "");
}
