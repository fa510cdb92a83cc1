/* Local steps in checkpoints (lather/local_steps.h). Each group of ranks has its own optimizer state and, within a
 * round, its own values. Rank 0 writes all of them to optim.safetensors. The first group's entries have no prefix;
 * those of group G are "group.G.ENTRY", its optimizer's numbers "group.G.numbers" in the order of visiting, its
 * loss scale and count of good steps "group.G.scaling", and within a round its values "group.G.PARAM#outer.value".
 * The outer step's entries are "PARAM#outer.start" (within a round), "PARAM#outer.momentum", and each group's
 * "PARAM#outer.residual". */

#include "base/alloc.h"
#include "checkpoint.h"
#include "dist/consensus.h"
#include "entry.h"
#include "train/weights/weights.h"

#include "lather/ext/comm.h"
#include "lather/ext/fail.h"
#include "lather/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char numbers_name[] = "numbers", scaling_name[] = "scaling", outer_mark[] = "#outer.";

static const char *prefix_of(int group, char prefix[LT_CHECKPOINT_PREFIX])
{
    prefix[0] = '\0';
    if (group)
        snprintf(prefix, LT_CHECKPOINT_PREFIX, "group.%d.", group);
    return prefix;
}

const char *lt_checkpoint_prefix(const lt_local_steps *local, char prefix[LT_CHECKPOINT_PREFIX])
{
    return prefix_of(local ? lt_local_steps_group(local) : 0, prefix);
}

/* --- Saving: a group sends rank 0 its list of tensors, a line of owner, dtype, dimensions and name for each --- */

typedef struct telling {
    char *text;
    size_t bytes, capacity;
    int64_t *number;
    size_t numbers, most;
} telling;

static lt_status keep_number(void *context, const char *name, int64_t *value)
{
    telling *t = context;
    (void)name;
    int64_t *grown = lt_grow(t->number, &t->most, t->numbers + 1, sizeof *grown);
    if (!grown)
        return LT_E_NOMEM;
    t->number = grown;
    t->number[t->numbers++] = *value;
    return LT_OK;
}

static lt_status add_list(lt_gather *g, const char *prefix, const char *name, lt_dtype dtype,
                          const void *value, int64_t count)
{
    lt_gathered item = {.dtype = dtype,
                        .stored = dtype,
                        .shape = LT_SHAPE(count),
                        .owner = g->comm->rank,
                        .name = lt_format("%s%s", prefix, name)};
    lt_status st = lt_tensor_new(&item.made, g->comm->device, dtype, item.shape);
    if (!st)
        st = lt_tensor_write(item.made, value, (size_t)count * lt_dtype_size(dtype));
    item.tensor = item.made;
    if (!st)
        return lt_gather_add(g, &item, NULL);
    lt_tensor_free(&item.made);
    lt_free(item.name);
    return st;
}

static lt_status add_numbers(lt_gather *g, const lt_checkpoint_parts *parts,
                             const lt_checkpoint_state *state, const char *prefix, telling *t)
{
    const double scaling[] = {state->loss_scale, (double)state->loss_good_steps};
    lt_state_visitor visitor = {.entry = lt_skip_entry, .number = keep_number, .context = t};
    if (!parts->optim)
        return LT_OK;
    LT_TRY(lt_optim_visit(parts->optim, &visitor));
    LT_TRY(add_list(g, prefix, numbers_name, LT_I64, t->number, (int64_t)t->numbers));
    return add_list(g, prefix, scaling_name, LT_F64, scaling, 2);
}

static lt_status tell_line(telling *t, const lt_gathered *item)
{
    char head[32 + 24 * LT_MAX_DIMS];
    int at =
        snprintf(head, sizeof head, "%d %d %d", item->owner, (int)item->dtype, item->shape.ndim);
    for (int d = 0; d < item->shape.ndim; d++)
        at += snprintf(head + at, sizeof head - (size_t)at, " %lld", (long long)item->shape.dim[d]);
    const size_t bytes = (size_t)at + strlen(item->name) + 2;
    char *grown = lt_grow(t->text, &t->capacity, t->bytes + bytes + 1, 1);
    if (!grown)
        return LT_E_NOMEM;
    t->text = grown;
    t->bytes += (size_t)snprintf(t->text + t->bytes, bytes + 1, "%s %s\n", head, item->name);
    return LT_OK;
}

static lt_status add_line(lt_gather *g, const char *line, size_t bytes)
{
    char *at;
    lt_gathered item = {.owner = (int)strtol(line, &at, 10)};
    item.dtype = item.stored = (lt_dtype)strtol(at, &at, 10);
    item.shape.ndim = (int)strtol(at, &at, 10);
    for (int d = 0; d < item.shape.ndim; d++)
        item.shape.dim[d] = strtoll(at, &at, 10);
    item.name = lt_format("%.*s", (int)(line + bytes - at - 1), at + 1);
    return lt_gather_add(g, &item, NULL);
}

static const char *text_of(const char *all, int rank)
{
    while (rank--)
        all += strlen(all) + 1;
    return all;
}

/* Adds the lists of all groups after the first, on rank 0; all: the texts of all ranks. */
static lt_status add_lines(lt_gather *g, const lt_local_steps *local, const char *all)
{
    for (int group = 1; group < lt_local_steps_groups(local); group++) {
        const char *line = text_of(all, lt_local_steps_rank(local, group, 0));
        for (size_t bytes; *line; line += bytes + 1) {
            bytes = strcspn(line, "\n");
            LT_TRY(add_line(g, line, bytes));
        }
    }
    return LT_OK;
}

/* Makes the list of this group, on its first rank. */
static lt_status tell(lt_gather *g, const lt_checkpoint_parts *parts,
                      const lt_checkpoint_state *state, size_t own, telling *t)
{
    char prefix[LT_CHECKPOINT_PREFIX];
    lt_checkpoint_prefix(parts->local, prefix);
    LT_TRY(add_numbers(g, parts, state, prefix, t));
    for (size_t i = own; i < g->count; i++)
        LT_TRY(tell_line(t, &g->item[i]));
    return LT_OK;
}

lt_status lt_checkpoint_list_groups(lt_gather *g, const lt_checkpoint_parts *parts,
                                    const lt_checkpoint_state *state, size_t own)
{
    const lt_local_steps *local = parts->local;
    const bool tells =
        lt_local_steps_group(local) > 0 && lt_comm_rank(lt_local_steps_comm(local)) == 0;
    telling t = {0};
    char *all = NULL;
    lt_status st = lt_comm_agree(g->comm, tells ? tell(g, parts, state, own, &t) : LT_OK);
    if (!st)
        st = lt_comm_gather_texts(g->comm, t.text ? t.text : "", &all);
    if (!st)
        st = lt_comm_agree(g->comm, g->comm->rank == 0 ? add_lines(g, local, all) : LT_OK);
    lt_free(all);
    lt_free(t.text);
    lt_free(t.number);
    return st;
}

/* --- Loading --- */

static lt_status get_number(const lt_json_value *numbers, const char *name, int64_t most,
                            int64_t *value)
{
    *value = 0;
    if (!lt_json_member(numbers, name))
        return LT_OK;
    LT_TRY(lt_json_integer(numbers, name, value));
    return lt_checkpoint_check_integer(name, *value, 0, most);
}

/* Finds the 1-D tensor "group.G.NAME". */
static lt_status find_own(const lt_checkpoint_groups *g, const lt_safetensors *file,
                          const char *name, lt_dtype dtype, const lt_safetensors_entry **out)
{
    char full[64];
    snprintf(full, sizeof full, "%s%s", g->prefix, name);
    *out = lt_safetensors_find(file, full);
    if (!*out || (*out)->dtype != dtype || (*out)->shape.ndim != 1)
        return lt_fail(LT_E_FORMAT, "state '%s' is missing, or no list", full);
    return LT_OK;
}

static lt_status take_numbers(lt_checkpoint_groups *g, const lt_safetensors *file)
{
    const lt_safetensors_entry *e = NULL;
    LT_TRY(find_own(g, file, numbers_name, LT_I64, &e));
    g->numbers = (size_t)e->shape.dim[0];
    g->number = lt_alloc(g->numbers + 1, sizeof *g->number);
    if (!g->number)
        return LT_E_NOMEM;
    memcpy(g->number, e->data, g->numbers * sizeof *g->number);
    return LT_OK;
}

/* Groups that have diverged can only be merged by an outer step of all of them. */
static lt_status check_round(const lt_checkpoint_groups *g, const char *path,
                             const lt_checkpoint_parts *parts)
{
    if (!g->since || g->same)
        return LT_OK;
    return lt_fail(
        LT_E_ARG,
        "%s: was saved %lld steps after an outer step of %lld groups, but this run has %d: resume "
        "with --local-steps and %lld groups (--ranks-per-node) to the next outer step; "
        "--local-steps %lld runs one in the next step, as does the end of an epoch",
        path, (long long)g->since, (long long)g->stored,
        parts->local ? lt_local_steps_groups(parts->local) : 1, (long long)g->stored,
        (long long)g->since + 1);
}

static void report(const lt_checkpoint_groups *g, const char *path,
                   const lt_checkpoint_parts *parts)
{
    if (parts->comm && lt_comm_rank(parts->comm) > 0)
        return;
    if (!parts->local && g->stored)
        lt_log(
            LT_LOG_WARN, "train",
            "%s: was saved by %lld groups: continues without them, from the first group's optimizer "
            "state; the outer step's state is dropped",
            path, (long long)g->stored);
    else if (parts->local && !g->stored)
        lt_log(LT_LOG_INFO, "train", "%s: was saved without local steps: the first round begins",
               path);
    else if (parts->local && !g->same)
        lt_log(
            LT_LOG_WARN, "train",
            "%s: was saved by %lld groups, this run has %d: all groups start from the first one's "
            "optimizer state and equal shares of the residuals",
            path, (long long)g->stored, lt_local_steps_groups(parts->local));
}

lt_status lt_checkpoint_find_groups(lt_checkpoint_groups *g, const char *path,
                                    const lt_safetensors *file, const lt_json_value *numbers,
                                    const lt_checkpoint_parts *parts, int64_t step)
{
    const int64_t most = 1 << 20;
    *g = (lt_checkpoint_groups){.stored = 0};
    LT_TRY(get_number(numbers, "outer.groups", most, &g->stored));
    LT_TRY(get_number(numbers, "outer.since", step, &g->since));
    g->same = parts->local && g->stored == lt_local_steps_groups(parts->local);
    LT_TRY(check_round(g, path, parts));
    report(g, path, parts);
    if (!g->same || !lt_local_steps_group(parts->local))
        return LT_OK;
    lt_checkpoint_prefix(parts->local, g->prefix);
    return parts->optim ? take_numbers(g, file) : LT_OK;
}

void lt_checkpoint_clear_groups(lt_checkpoint_groups *g)
{
    lt_free(g->number);
    g->number = NULL;
}

bool lt_checkpoint_is_of_groups(const lt_checkpoint_groups *g, const char *name)
{
    static const char first[] = "group.";
    const size_t own = strlen(g->prefix);
    char *end = NULL;
    if (!g->stored)
        return false;
    if (strstr(name, outer_mark))
        return true;
    if (own && !strncmp(name, g->prefix, own))
        return !strcmp(name + own, numbers_name) || !strcmp(name + own, scaling_name);
    if (own && strchr(name, '#'))
        return true;
    if (strncmp(name, first, strlen(first)) != 0)
        return false;
    const long long group = strtoll(name + strlen(first), &end, 10);
    return end != name + strlen(first) && *end == '.' && group > 0 && group < g->stored;
}

lt_status lt_checkpoint_load_scaling(const lt_checkpoint_groups *g, const lt_reading *reading,
                                     lt_checkpoint_state *state)
{
    const lt_safetensors_entry *e = NULL;
    double scaling[2];
    if (!g->number)
        return LT_OK;
    LT_TRY(find_own(g, reading->file, scaling_name, LT_F64, &e));
    if (e->bytes != sizeof scaling)
        return lt_fail(LT_E_FORMAT, "%s: '%s%s' has %zu bytes, want %zu", reading->path, g->prefix,
                       scaling_name, e->bytes, sizeof scaling);
    memcpy(scaling, e->data, sizeof scaling);
    state->loss_scale = scaling[0];
    state->loss_good_steps = scaling[1] >= 0 && scaling[1] <= 1e9 ? (int)scaling[1] : -1;
    return lt_checkpoint_check_state(state);
}

/* --- Loading the outer step's state --- */

typedef struct loading {
    const lt_checkpoint_groups *groups;
    const lt_reading *reading;
} loading;

static lt_status load_number(void *context, const char *name, int64_t *value)
{
    const loading *l = context;
    if (!strcmp(name, "outer.since"))
        *value = l->groups->since;
    return LT_OK;
}

/* Loads one entry. Momentum and residual may be missing, as settings without them store none; they are then 0, as
 * at the start. */
static lt_status load_one(const loading *l, const char *prefix, const lt_state_entry *entry)
{
    bool found;
    LT_TRY(lt_reading_take(l->reading, prefix, entry, LT_CHECKPOINT_OF_OPTIM, &found));
    if (found
        || (strcmp(entry->name, "outer.start") != 0 && strcmp(entry->name, "outer.value") != 0))
        return LT_OK;
    return lt_fail(LT_E_FORMAT, "%s: state '%s%s%c%s' is missing", l->reading->path, prefix,
                   entry->param, LT_CHECKPOINT_OF_OPTIM, entry->name);
}

static lt_status load_common(void *context, const lt_state_entry *entry)
{
    return load_one(context, "", entry);
}

static lt_status load_own(void *context, const lt_state_entry *entry)
{
    const loading *l = context;
    return load_one(l, l->groups->prefix, entry);
}

/* Loads the mean over the stored groups, which another number of groups leaves unchanged over all. */
static lt_status load_mean(void *context, const lt_state_entry *entry)
{
    const loading *l = context;
    const int stored = (int)l->groups->stored;
    const lt_safetensors_entry **e = lt_alloc((size_t)stored, sizeof(void *));
    lt_status st = e ? LT_OK : LT_E_NOMEM;
    for (int g = 0; g < stored && !st; g++) {
        char prefix[LT_CHECKPOINT_PREFIX];
        st = lt_checkpoint_find(l->reading->file, prefix_of(g, prefix), entry,
                                LT_CHECKPOINT_OF_OPTIM, &e[g]);
    }
    if (!st)
        st = lt_entry_load_share(e, stored, stored, l->reading->path, entry->tensor,
                                 l->reading->write);
    lt_free(e);
    return st;
}

lt_status lt_checkpoint_load_groups(const lt_checkpoint_groups *g, const lt_reading *reading,
                                    const lt_checkpoint_parts *parts)
{
    loading l = {g, reading};
    lt_state_visitor common = {load_common, load_number, &l},
                     own = {g->same ? load_own : load_mean, load_number, &l};
    if (!parts->local || !g->stored)
        return LT_OK;
    LT_TRY(lt_local_steps_visit(parts->local, &common));
    return lt_local_steps_visit_group(parts->local, &own);
}
