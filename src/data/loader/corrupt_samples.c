/* Lists corrupt samples by name and reason. */

#include "data/loader/corrupt_samples.h"

#include "base/alloc.h"

#include "lather/detail/text.h"

#include <inttypes.h>
#include <string.h>

/* Returns the thread's last error message, with the sample's name before it if the message does not begin with it. NULL
 * if out of memory. */
static char *corrupt_sample_message(const lt_dataset *d, int64_t index)
{
    const char *name = lt_dataset_sample_name(d, index), *why = lt_error_message();
    if (d->remote) /* the service already added the name */
        return lt_strdup(why);
    if (!name)
        return lt_format("%s: sample %" PRId64 ": %s", d->ops->name, index, why);
    char shown[4096];
    lt_text_line(shown, sizeof shown, name); /* escaped as in messages */
    return strncmp(why, shown, strlen(shown)) ? lt_format("%s: %s", shown, why) : lt_strdup(why);
}

lt_status lt_corrupt_samples_add(lt_corrupt_samples *f, const lt_dataset *d, int64_t index, int row)
{
    LT_TRY(LT_GROW(&f->item, &f->capacity, f->count + 1));
    char *why = corrupt_sample_message(d, index);
    if (!why)
        return LT_E_NOMEM;
    f->item[f->count++] = (lt_corrupt_sample){.index = index, .row = row, .why = why};
    return LT_OK;
}

void lt_corrupt_samples_clear(lt_corrupt_samples *f)
{
    for (size_t i = 0; i < f->count; i++)
        lt_free(f->item[i].why);
    lt_free(f->item);
    *f = (lt_corrupt_samples){0};
}

lt_status lt_add_sample_name_to_error(const lt_dataset *d, int64_t index, lt_status st)
{
    char *why = st == LT_E_NOMEM ? NULL : corrupt_sample_message(d, index);
    if (why)
        (void)lt_fail(st, "%s", why);
    lt_free(why);
    return st;
}

lt_status lt_corrupt_list_add(lt_corrupt_list *list, const lt_corrupt_sample *sample)
{
    uint8_t bit = (uint8_t)(1U << (sample->index % 8));
    if (list->seen[sample->index / 8] & bit)
        return LT_OK;
    LT_TRY(LT_GROW(&list->text, &list->capacity, list->count + 1));
    char *text = lt_strdup(sample->why);
    if (!text)
        return LT_E_NOMEM;
    list->text[list->count++] = text;
    list->seen[sample->index / 8] |= bit;
    return LT_OK;
}

void lt_corrupt_list_clear(lt_corrupt_list *list)
{
    lt_free_texts(list->text, list->count);
    lt_free(list->seen);
}
