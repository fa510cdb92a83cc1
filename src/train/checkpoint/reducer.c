/* State of the gradient reducer in optim.safetensors, PARAM@NAME: residuals and the like. It is optional: a
 * missing entry starts at zero, an unknown one is dropped, and the log reports both.
 *
 * Entries PARAM@NAME.0 .. PARAM@NAME.(m-1) are the terms of a sum, one per node. If this run has another number of
 * nodes, each gets the total divided by that number, so that nothing is lost. */

#include "base/alloc.h"
#include "checkpoint.h"
#include "entry.h"
#include "train/weights/weights.h"

#include "lather/ext/fail.h"
#include "lather/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 128 };

typedef struct taking {
    const lt_reading *reading;
    int parts;    /* terms of a sum in this run: nodes, counted by a first visit */
    size_t taken; /* entries of the file that were read */
    size_t missing, regrouped;
    int stored; /* terms of the last sum that was redistributed */
} taking;

bool lt_checkpoint_is_of_reducer(const char *name)
{
    return strchr(name, LT_CHECKPOINT_OF_REDUCER);
}

static lt_status no_number(void *context, const char *name, int64_t *value)
{
    (void)context;
    (void)value;
    return lt_fail(LT_E_ARG, "checkpoint: a reducer's state is tensors, not the number '%s'", name);
}

/* Returns I of "NAME.I" and the bytes of "NAME."; -1 if the name has no such suffix. */
static int part_of(const char *name, size_t *stem)
{
    const char *dot = strrchr(name, '.');
    char *end;
    if (!dot || dot[1] < '0' || dot[1] > '9')
        return -1;
    const long part = strtol(dot + 1, &end, 10);
    *stem = (size_t)(dot + 1 - name);
    return *end || part > INT16_MAX ? -1 : (int)part;
}

static lt_status count_parts(void *context, const lt_state_entry *entry)
{
    taking *t = context;
    size_t stem;
    const int part = part_of(entry->name, &stem);
    t->parts = part >= t->parts ? part + 1 : t->parts;
    return LT_OK;
}

/* Finds term `index` of the same sum in the file; NULL if absent. */
static lt_status find_part(const taking *t, const lt_state_entry *entry, size_t stem, int index,
                           const lt_safetensors_entry **out)
{
    char name[NAME];
    snprintf(name, sizeof name, "%.*s%d", (int)stem, entry->name, index);
    const lt_state_entry part = {.param = entry->param, .name = name, .block = -1};
    return lt_checkpoint_find(t->reading->file, "", &part, LT_CHECKPOINT_OF_REDUCER, out);
}

/* Reads this run's share: the sum of all stored terms, divided by the terms of this run. */
static lt_status take_share(taking *t, const lt_state_entry *entry, size_t stem, int stored)
{
    t->regrouped++;
    t->stored = stored;
    const lt_safetensors_entry **part = lt_alloc((size_t)stored, sizeof(void *));
    lt_status st = part ? LT_OK : LT_E_NOMEM;
    for (int i = 0; i < stored && !st; i++)
        st = find_part(t, entry, stem, i, &part[i]);
    if (!st && entry->tensor)
        st = lt_entry_load_share(part, stored, t->parts, t->reading->path, entry->tensor,
                                 t->reading->write);
    lt_free(part);
    return st;
}

static lt_status take_part(taking *t, const lt_state_entry *entry, size_t stem, int part)
{
    const lt_safetensors_entry *e = NULL;
    int stored = 0;
    bool found;
    LT_TRY(find_part(t, entry, stem, 0, &e));
    while (e)
        LT_TRY(find_part(t, entry, stem, ++stored, &e));
    if (!part)
        t->taken += (size_t)stored;
    t->missing += !stored;
    if (stored && stored != t->parts)
        return take_share(t, entry, stem, stored);
    return lt_reading_take(t->reading, "", entry, LT_CHECKPOINT_OF_REDUCER, &found);
}

static lt_status take_entry(void *context, const lt_state_entry *entry)
{
    taking *t = context;
    size_t stem;
    const int part = part_of(entry->name, &stem);
    if (part >= 0)
        return take_part(t, entry, stem, part);
    bool found;
    LT_TRY(lt_reading_take(t->reading, "", entry, LT_CHECKPOINT_OF_REDUCER, &found));
    t->taken += found;
    t->missing += !found;
    return LT_OK;
}

static size_t count_stored(const lt_safetensors *file)
{
    size_t count = 0;
    for (size_t i = 0; i < lt_safetensors_count(file); i++)
        count += lt_checkpoint_is_of_reducer(lt_safetensors_at(file, i)->name);
    return count;
}

static void say(const taking *t, size_t stored)
{
    if (stored > t->taken)
        lt_log(LT_LOG_WARN, "train",
               "%s: %zu tensors of compressed gradients, such as residuals, are dropped: this run "
               "compresses differently",
               t->reading->path, stored - t->taken);
    if (t->missing)
        lt_log(LT_LOG_WARN, "train",
               "%s: %zu tensors of compressed gradients are missing: residuals start at zero",
               t->reading->path, t->missing);
    if (t->regrouped)
        lt_log(LT_LOG_WARN, "train", "%s: residuals of %d nodes are divided equally over %d nodes",
               t->reading->path, t->stored, t->parts);
}

lt_status lt_checkpoint_load_reducer(const lt_reading *reading, const lt_checkpoint_parts *parts)
{
    taking t = {.reading = reading};
    lt_state_visitor count = {count_parts, no_number, &t}, take = {take_entry, no_number, &t};
    if (parts->dp) {
        LT_TRY(lt_data_parallel_visit(parts->dp, &count));
        LT_TRY(lt_data_parallel_visit(parts->dp, &take));
    }
    if (reading->write && (!parts->comm || lt_comm_rank(parts->comm) == 0))
        say(&t, count_stored(reading->file));
    return LT_OK;
}
