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

#include "lather/ext/comm.h"
#include "lather/ext/fail.h"
#include "lather/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char numbers_name[] = "numbers", scaling_name[] = "scaling", outer_mark[] = "#outer.";

const char *lt_checkpoint_prefix(int group, char prefix[LT_CHECKPOINT_PREFIX])
{
    prefix[0] = '\0';
    if (group)
        snprintf(prefix, LT_CHECKPOINT_PREFIX, "group.%d.", group);
    return prefix;
}

/* --- Saving: a group sends rank 0 its list of tensors, a line of owner, dtype, dimensions and name for each --- */

/* Adds a 1-D tensor that this rank makes. */
static lt_status add_vector(lt_shard_gather *g, char *name, lt_dtype dtype, const void *value,
                            size_t count)
{
    lt_gathered item = {.dtype = dtype,
                        .stored = dtype,
                        .shape = LT_SHAPE((int64_t)count),
                        .owner = g->comm->rank,
                        .later = true,
                        .name = name};
    lt_status st = lt_tensor_new(&item.made, g->comm->device, dtype, item.shape);
    if (!st)
        st = lt_tensor_write(item.made, value, count * lt_dtype_size(dtype));
    item.tensor = item.made;
    if (!st)
        return lt_gather_add(g, &item, NULL);
    lt_tensor_free(&item.made);
    lt_free(item.name);
    return st;
}

static lt_status add_numbers(lt_shard_gather *g, const lt_checkpoint_contents *parts,
                             const lt_checkpoint_state *state)
{
    const double scaling[] = {state->loss_scale, (double)state->loss_good_steps};
    char prefix[LT_CHECKPOINT_PREFIX];
    lt_numbers numbers = {0};
    lt_state_visitor visitor = {lt_skip_entry, lt_numbers_append, &numbers};
    if (!parts->optim)
        return LT_OK;
    lt_checkpoint_prefix(lt_local_steps_group(parts->local), prefix);
    lt_status st = lt_optim_visit(parts->optim, &visitor);
    if (!st)
        st = add_vector(g, lt_format("%s%s", prefix, numbers_name), LT_I64, numbers.item,
                        numbers.count);
    lt_free(numbers.item);
    return st ? st : add_vector(g, lt_format("%s%s", prefix, scaling_name), LT_F64, scaling, 2);
}

static void append_item_line(FILE *out, const lt_gathered *item)
{
    fprintf(out, "%d %d %d", item->owner, (int)item->dtype, item->shape.ndim);
    for (int d = 0; d < item->shape.ndim; d++)
        fprintf(out, " %lld", (long long)item->shape.dim[d]);
    fprintf(out, " %s\n", item->name);
}

static lt_status add_item_from_line(lt_shard_gather *g, const char *line, size_t bytes)
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

/* Adds the lists of all groups after the first, on rank 0; text: those of all ranks, "" of most. Groups are numbered by
 * their lowest rank, which sends the list. */
static lt_status add_items_of_other_groups(lt_shard_gather *g, const char *text)
{
    for (int r = 0; r < g->comm->size; r++, text++)
        for (size_t bytes; *text; text += bytes + 1) {
            bytes = strcspn(text, "\n");
            LT_TRY(add_item_from_line(g, text, bytes));
        }
    return LT_OK;
}

/* Makes the list of this group, on its first rank. Free *text with free(). */
static lt_status describe_group_items(lt_shard_gather *g, const lt_checkpoint_contents *parts,
                                      const lt_checkpoint_state *state, char **text)
{
    size_t bytes;
    LT_TRY(add_numbers(g, parts, state));
    FILE *out = open_memstream(text, &bytes);
    for (size_t i = 0; i < g->count && out; i++)
        if (g->item[i].later)
            append_item_line(out, &g->item[i]);
    return out && !fclose(out) ? LT_OK : lt_fail(LT_E_NOMEM, "checkpoint: no memory for a list");
}

lt_status lt_gather_add_group_tensors(lt_shard_gather *g, const lt_checkpoint_contents *parts,
                                      const lt_checkpoint_state *state)
{
    const lt_local_steps *local = parts->local;
    const bool tells =
        lt_local_steps_group(local) > 0 && lt_comm_rank(lt_local_steps_comm(local)) == 0;
    char *own = NULL, *all = NULL;
    lt_status st = lt_comm_agree_on_status(
        g->comm, tells ? describe_group_items(g, parts, state, &own) : LT_OK);
    if (!st)
        st = lt_comm_gather_texts(g->comm, own ? own : "", &all);
    if (!st)
        st = lt_comm_agree_on_status(g->comm, g->comm->rank == 0 ? add_items_of_other_groups(g, all)
                                                                 : LT_OK);
    lt_free(all);
    free(own);
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
    return lt_checkpoint_check_range(name, *value, 0, most);
}

/* Finds the 1-D tensor "group.G.NAME". */
static lt_status find_group_vector(const lt_checkpoint_groups *g, const lt_safetensors *file,
                                   const char *name, lt_dtype dtype,
                                   const lt_safetensors_entry **out)
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
    LT_TRY(find_group_vector(g, file, numbers_name, LT_I64, &e));
    g->number.count = (size_t)e->shape.dim[0];
    LT_TRY(LT_ALLOC(&g->number.item, g->number.count + 1));
    memcpy(g->number.item, e->data, g->number.count * sizeof *g->number.item);
    return LT_OK;
}

/* Groups that have diverged can only be merged by an outer step of all of them. */
static lt_status check_groups_in_round(const lt_checkpoint_groups *g, const char *path,
                                       const lt_checkpoint_contents *parts)
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

static void log_group_changes(const lt_checkpoint_groups *g, const char *path,
                              const lt_checkpoint_contents *parts)
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
                                    const lt_checkpoint_contents *parts, int64_t step)
{
    const int64_t most = 1 << 20;
    *g = (lt_checkpoint_groups){.stored = 0};
    LT_TRY(get_number(numbers, "outer.groups", most, &g->stored));
    LT_TRY(get_number(numbers, "outer.since", step, &g->since));
    g->same = parts->local && g->stored == lt_local_steps_groups(parts->local);
    LT_TRY(check_groups_in_round(g, path, parts));
    log_group_changes(g, path, parts);
    if (!g->same || !lt_local_steps_group(parts->local))
        return LT_OK;
    lt_checkpoint_prefix(lt_local_steps_group(parts->local), g->prefix);
    return parts->optim ? take_numbers(g, file) : LT_OK;
}

/* Returns G of "group.G.ENTRY"; 0 for other names. */
static long long group_of(const char *name)
{
    static const char first[] = "group.";
    char *end;
    if (strncmp(name, first, strlen(first)) != 0)
        return 0;
    const long long group = strtoll(name + strlen(first), &end, 10);
    return *end == '.' && group > 0 ? group : 0;
}

bool lt_checkpoint_is_of_groups(const lt_checkpoint_groups *g, const char *name)
{
    const long long group = group_of(name);
    if (!g->stored || group >= g->stored)
        return false;
    if (strchr(name, '#')) /* state of an optimizer or of the outer step */
        return group != group_of(g->prefix) || strstr(name, outer_mark);
    return group > 0; /* numbers and scaling */
}

lt_status lt_checkpoint_load_scaling(const lt_checkpoint_groups *g, const lt_reading *reading,
                                     lt_checkpoint_state *state)
{
    const lt_safetensors_entry *e = NULL;
    double scaling[2];
    if (!g->number.item)
        return LT_OK;
    LT_TRY(find_group_vector(g, reading->file, scaling_name, LT_F64, &e));
    if (e->bytes != sizeof scaling)
        return lt_fail(LT_E_FORMAT, "%s: '%s%s' has %zu bytes, want %zu", reading->path, g->prefix,
                       scaling_name, e->bytes, sizeof scaling);
    memcpy(scaling, e->data, sizeof scaling);
    state->loss_scale = scaling[0];
    state->loss_good_steps = scaling[1] >= 0 && scaling[1] <= 1e9 ? (int)scaling[1] : -1;
    return lt_checkpoint_check_state(state);
}
