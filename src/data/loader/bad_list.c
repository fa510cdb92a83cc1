/* Broken pictures, each once. */

#include "data/loader/bad_list.h"

#include "base/alloc.h"

lt_status lt_bad_list_add(lt_bad_list *list, const lt_report *report)
{
    uint8_t bit = (uint8_t)(1U << (report->index % 8));
    if (list->seen[report->index / 8] & bit)
        return LT_OK;
    if (list->count == list->capacity) {
        char **grown = lt_realloc(list->text, 2 * list->capacity + 8, sizeof *grown);
        if (!grown)
            return LT_E_NOMEM;
        list->text = grown;
        list->capacity = 2 * list->capacity + 8;
    }
    char *text = lt_strdup(report->why);
    if (!text)
        return LT_E_NOMEM;
    list->text[list->count++] = text;
    list->seen[report->index / 8] |= bit;
    return LT_OK;
}

void lt_bad_list_clear(lt_bad_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        lt_free(list->text[i]);
    lt_free(list->text);
    lt_free(list->seen);
}
