/* Broken pictures, each once. */

#include "data/bad_list.h"

#include "base/alloc.h"

lt_status lt_bad_list_add(lt_bad_list *b, const lt_report *report)
{
    uint8_t bit = (uint8_t)(1U << (report->index % 8));
    if (b->seen[report->index / 8] & bit)
        return LT_OK;
    if (b->count == b->capacity) {
        char **grown = lt_realloc(b->text, 2 * b->capacity + 8, sizeof *grown);
        if (!grown)
            return LT_E_NOMEM;
        b->text = grown;
        b->capacity = 2 * b->capacity + 8;
    }
    char *text = lt_strdup(report->why);
    if (!text)
        return LT_E_NOMEM;
    b->text[b->count++] = text;
    b->seen[report->index / 8] |= bit;
    return LT_OK;
}

void lt_bad_list_clear(lt_bad_list *b)
{
    for (size_t i = 0; i < b->count; i++)
        lt_free(b->text[i]);
    lt_free(b->text);
    lt_free(b->seen);
}
