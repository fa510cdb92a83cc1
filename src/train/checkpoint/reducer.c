/* Residuals of compressed gradients and outer steps in optim.safetensors: terms of a sum, one per node or group. If this
 * run has another number of terms, each gets an equal share of the sum, so that nothing is lost.
 *
 * State of the gradient reducer is PARAM@NAME, that of node I PARAM@NAME.I. It is optional: a missing entry starts at
 * zero, an unknown one is dropped, and the log reports both. */

#include "base/alloc.h"
#include "checkpoint.h"
#include "train/weights/weights.h"

#include "lather/ext/fail.h"
#include "lather/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 128 };

bool lt_checkpoint_is_of_reducer(const char *name)
{
    return strchr(name, '@');
}

/* Returns I of "NAME.I" and the bytes of "NAME."; -1 if the name has no such suffix. */
static int term_index(const char *name, size_t *stem)
{
    const char *dot = strrchr(name, '.');
    char *end;
    if (!dot || dot[1] < '0' || dot[1] > '9')
        return -1;
    const long part = strtol(dot + 1, &end, 10);
    *stem = (size_t)(dot + 1 - name);
    return *end || part > INT16_MAX ? -1 : (int)part;
}

static lt_status count_nodes_of_sum(void *context, const lt_state_entry *entry)
{
    lt_checkpoint_reducer *s = context;
    size_t stem;
    const int part = term_index(entry->name, &stem);
    s->nodes = part >= s->nodes ? part + 1 : s->nodes;
    return LT_OK;
}

lt_status lt_checkpoint_begin_reducer(lt_checkpoint_reducer *s, lt_data_parallel *dp)
{
    lt_state_visitor visitor = {count_nodes_of_sum, lt_skip_number, s};
    *s = (lt_checkpoint_reducer){0};
    return dp ? lt_data_parallel_visit(dp, &visitor) : LT_OK;
}

/* Finds term `index` of the sum that an entry belongs to, or the entry itself if it is no term; NULL if absent. */
static lt_status find_term(const lt_reading *r, const lt_state_entry *entry, int index,
                           const lt_safetensors_entry **out)
{
    char text[NAME], prefix[LT_CHECKPOINT_PREFIX] = "";
    size_t stem = 0;
    lt_state_entry term = *entry;
    if (r->kind == LT_ENTRY_GROUP) {
        lt_checkpoint_prefix(index, prefix);
    } else if (term_index(entry->name, &stem) >= 0) {
        snprintf(text, sizeof text, "%.*s%d", (int)stem, entry->name, index);
        term.name = text;
    }
    char *name = lt_checkpoint_entry_name(prefix, r->kind, &term);
    *out = name ? lt_safetensors_find(r->file, name) : NULL;
    lt_free(name);
    return name ? LT_OK : LT_E_NOMEM;
}

lt_status lt_checkpoint_load_sum_share(const lt_reading *r, const lt_state_entry *entry, int stored,
                                       int parts)
{
    const lt_safetensors_entry **term = lt_alloc((size_t)stored, sizeof(void *));
    lt_status st = term ? LT_OK : LT_E_NOMEM;
    for (int i = 0; i < stored && !st; i++)
        st = find_term(r, entry, i, &term[i]);
    if (!st && entry->tensor)
        st = lt_entry_load_mean(term, stored, parts, r->path, entry->tensor, r->write);
    lt_free(term);
    return st;
}

lt_status lt_checkpoint_load_reducer(lt_checkpoint_reducer *s, const lt_reading *r,
                                     const lt_state_entry *entry)
{
    const lt_safetensors_entry *e;
    size_t stem;
    int stored = 0;
    const int part = term_index(entry->name, &stem);
    do {
        LT_TRY(find_term(r, entry, stored, &e));
        stored += e != NULL;
    } while (e && part >= 0);
    s->missing += !stored;
    s->taken += part > 0 ? 0 : (size_t)stored;
    if (part >= 0 && stored && stored != s->nodes) {
        s->regrouped++;
        s->stored = stored;
        return lt_checkpoint_load_sum_share(r, entry, stored, s->nodes);
    }
    LT_TRY(find_term(r, entry, part, &e));
    return e ? lt_reading_load_entry(r, e, entry) : LT_OK;
}

void lt_checkpoint_report_reducer(const lt_checkpoint_reducer *reducer, const lt_reading *reading)
{
    size_t stored = 0;
    for (size_t i = 0; i < lt_safetensors_count(reading->file); i++)
        stored += lt_checkpoint_is_of_reducer(lt_safetensors_at(reading->file, i)->name);
    if (stored > reducer->taken)
        lt_log(LT_LOG_WARN, "train",
               "%s: %zu tensors of compressed gradients, such as residuals, are dropped: this run "
               "compresses differently",
               reading->path, stored - reducer->taken);
    if (reducer->missing)
        lt_log(LT_LOG_WARN, "train",
               "%s: %zu tensors of compressed gradients are missing: residuals start at zero",
               reading->path, reducer->missing);
    if (reducer->regrouped)
        lt_log(LT_LOG_WARN, "train", "%s: residuals of %d nodes are divided equally over %d nodes",
               reading->path, reducer->stored, reducer->nodes);
}
