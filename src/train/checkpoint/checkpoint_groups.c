/* Groups of ranks that train by themselves (lather/local_steps.h) have optimizer state of their own, and within a round
 * values of their own. Rank 0 writes all of it into optim.safetensors: the first group's as ever; of group G
 * "group.G.ENTRY", its optimizer's numbers as "group.G.numbers" in the order of visiting, "group.G.scaling" (the loss
 * scale and its good steps), and within a round "group.G.PARAM#outer.value". What the outer step has is
 * "PARAM#outer.start" (within a round), "PARAM#outer.momentum" and each group's "PARAM#outer.residual". */

#include "base/alloc.h"
#include "checkpoint.h"
#include "dist/agree.h"
#include "dist/place.h"
#include "train/weights/weights.h"

#include "lather/ext/fail.h"
#include "lather/ext/vec.h"
#include "lather/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char numbers_name[] = "numbers", scaling_name[] = "scaling", outer_mark[] = "#outer.";

static lt_status keep_number(void *context, const char *name, int64_t *value)
{
    (void)context;
    (void)name;
    (void)value;
    return LT_OK;
}

/* --- What a group lists for rank 0: a line of owner, dtype, dimensions and name for each tensor --- */

typedef struct listing {
    int group;
    char *text;
    size_t bytes, capacity;
    int64_t *number;
    size_t numbers, most;
} listing;

static lt_status add_text(listing *l, const char *text)
{
    const size_t bytes = strlen(text);
    char *grown = lt_grow(l->text, &l->capacity, l->bytes + bytes + 1, 1);
    if (!grown)
        return LT_E_NOMEM;
    l->text = grown;
    memcpy(l->text + l->bytes, text, bytes + 1);
    l->bytes += bytes;
    return LT_OK;
}

static lt_status list_tensor(listing *l, const char *name, int owner, lt_dtype dtype,
                             const lt_shape *shape)
{
    char head[32 + 24 * LT_MAX_DIMS];
    int at = snprintf(head, sizeof head, "%d %d %d", owner, (int)dtype, shape->ndim);
    for (int d = 0; d < shape->ndim; d++)
        at += snprintf(head + at, sizeof head - (size_t)at, " %lld", (long long)shape->dim[d]);
    char *line = lt_format("%s group.%d.%s\n", head, l->group, name);
    lt_status st = line ? add_text(l, line) : LT_E_NOMEM;
    lt_free(line);
    return st;
}

static lt_status list_entry(void *context, const lt_state_entry *entry)
{
    char *name = lt_checkpoint_entry_name(entry);
    lt_status st =
        name ? list_tensor(context, name, entry->owner, entry->dtype, &entry->extent) : LT_E_NOMEM;
    lt_free(name);
    return st;
}

static lt_status list_number(void *context, const char *name, int64_t *value)
{
    listing *l = context;
    (void)name;
    int64_t *grown = lt_grow(l->number, &l->most, l->numbers + 1, sizeof *grown);
    if (!grown)
        return LT_E_NOMEM;
    l->number = grown;
    l->number[l->numbers++] = *value;
    return LT_OK;
}

/* The numbers and the scale as tensors, which are sent last. */
static lt_status make_tensors(const listing *l, const lt_checkpoint_state *state,
                              lt_checkpoint_queue *q)
{
    lt_device *device = lt_tensor_device(q->numbers);
    const double scaling[] = {state->loss_scale, (double)state->loss_good_steps};
    LT_TRY(lt_tensor_write(q->numbers, l->number, l->numbers * sizeof *l->number));
    LT_TRY(lt_tensor_new(&q->scaling, device, LT_F64, LT_SHAPE(2)));
    return lt_tensor_write(q->scaling, scaling, sizeof scaling);
}

static lt_status list_group(const lt_checkpoint_parts *parts, const lt_checkpoint_state *state,
                            lt_checkpoint_queue *q, listing *l)
{
    lt_state_visitor visitor = {.entry = list_entry, .number = list_number, .context = l};
    if (parts->optim)
        LT_TRY(lt_optim_visit(parts->optim, &visitor));
    LT_TRY(lt_local_steps_visit_group(parts->local, &visitor));
    if (!l->numbers)
        return LT_OK;
    lt_device *device = lt_tensor_device(parts->params->item[0]->value);
    const lt_shape shape = LT_SHAPE((int64_t)l->numbers), two = LT_SHAPE(2);
    LT_TRY(lt_tensor_new(&q->numbers, device, LT_I64, shape));
    LT_TRY(list_tensor(l, numbers_name, 0, LT_I64, &shape));
    LT_TRY(list_tensor(l, scaling_name, 0, LT_F64, &two));
    return make_tensors(l, state, q);
}

/* --- What rank 0 makes of the lists --- */

/* Ends the line in the text, which the name stays in. */
static char *read_line(char *line, lt_state_entry *entry)
{
    char *at = line, *end = strchr(line, '\n');
    entry->owner = (int)strtol(at, &at, 10);
    entry->dtype = (lt_dtype)strtol(at, &at, 10);
    entry->extent.ndim = (int)strtol(at, &at, 10);
    for (int d = 0; d < entry->extent.ndim; d++)
        entry->extent.dim[d] = strtoll(at, &at, 10);
    entry->name = at + 1;
    *end = 0;
    return end + 1;
}

static lt_status read_list(lt_checkpoint_queue *q, int group, char *text)
{
    while (*text) {
        lt_state_entry entry = {0};
        lt_state_entry *grown = lt_grow(q->entry, &q->capacity, q->count + 1, sizeof *grown);
        if (!grown)
            return LT_E_NOMEM;
        q->entry = grown;
        text = read_line(text, &entry);
        entry.owner = lt_local_steps_rank(q->local, group, entry.owner);
        q->entry[q->count++] = entry;
    }
    return LT_OK;
}

static char *text_of(char *all, int rank)
{
    while (rank--)
        all += strlen(all) + 1;
    return all;
}

static lt_status read_lists(lt_checkpoint_queue *q)
{
    const int groups = lt_local_steps_groups(q->local);
    char **text = lt_alloc((size_t)groups, sizeof(char *));
    lt_status st = text ? LT_OK : LT_E_NOMEM;
    for (int g = 1; g < groups && !st; g++) /* before lines of one are ended */
        text[g] = text_of(q->names, lt_local_steps_rank(q->local, g, 0));
    for (int g = 1; g < groups && !st; g++)
        st = read_list(q, g, text[g]);
    lt_free(text);
    return st;
}

lt_status lt_checkpoint_meet_groups(const lt_checkpoint_parts *parts,
                                    const lt_checkpoint_state *state, lt_checkpoint_queue *q)
{
    const int group = lt_local_steps_group(parts->local);
    const bool tells = group > 0 && lt_comm_rank(lt_local_steps_comm(parts->local)) == 0;
    listing l = {.group = group};
    lt_status st = lt_comm_agree(parts->comm, tells ? list_group(parts, state, q, &l) : LT_OK);
    if (!st)
        st = lt_comm_gather_texts(parts->comm, l.text ? l.text : "", &q->names);
    if (!st)
        st = lt_comm_agree(parts->comm, lt_comm_rank(parts->comm) == 0 ? read_lists(q) : LT_OK);
    lt_free(l.text);
    lt_free(l.number);
    return st;
}

static lt_status send_entry(void *context, const lt_state_entry *entry)
{
    return lt_place_send(context, entry->tensor, 0);
}

lt_status lt_checkpoint_send_group(const lt_checkpoint_parts *parts, const lt_checkpoint_queue *q)
{
    lt_state_visitor visitor = {.entry = send_entry, .number = keep_number, .context = parts->comm};
    if (lt_local_steps_group(parts->local) == 0
        || lt_comm_rank(lt_local_steps_comm(parts->local)) > 0)
        return LT_OK;
    LT_TRY(lt_local_steps_visit_group(parts->local, &visitor));
    if (!q->numbers)
        return LT_OK;
    LT_TRY(lt_place_send(parts->comm, q->numbers, 0));
    return lt_place_send(parts->comm, q->scaling, 0);
}

/* --- Loading --- */

static lt_status get_number(const lt_json_value *numbers, const char *name, int64_t most,
                            int64_t *value)
{
    *value = 0;
    if (!lt_json_member(numbers, name))
        return LT_OK;
    LT_TRY(lt_json_integer(numbers, name, value));
    return *value >= 0 && *value <= most ? LT_OK
                                         : lt_fail(LT_E_FORMAT, "'%s' %lld is not in [0,%lld]",
                                                   name, (long long)*value, (long long)most);
}

/* The tensor "group.G.NAME" of count elements (0: any). */
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

/* Groups that have gone apart can only be put together by an outer step of all of them. */
static lt_status check_round(const lt_checkpoint_groups *g, const char *path,
                             const lt_checkpoint_parts *parts)
{
    if (!g->since || g->same)
        return LT_OK;
    return lt_fail(
        LT_E_ARG,
        "%s: was saved %lld steps after %lld groups met, and this run has %d: go on with "
        "--local-steps and %lld groups (--ranks-per-node) to their next outer step, "
        "--local-steps %lld makes it in the next step; an epoch's end is one too",
        path, (long long)g->since, (long long)g->stored,
        parts->local ? lt_local_steps_groups(parts->local) : 1, (long long)g->stored,
        (long long)g->since + 1);
}

static void tell(const lt_checkpoint_groups *g, const char *path, const lt_checkpoint_parts *parts)
{
    if (parts->comm && lt_comm_rank(parts->comm) > 0)
        return;
    if (!parts->local && g->stored)
        lt_log(LT_LOG_WARN, "train",
               "%s: was saved by %lld groups: goes on without them, by the first one's optimizer "
               "state and without the outer step's",
               path, (long long)g->stored);
    else if (parts->local && !g->stored)
        lt_log(LT_LOG_INFO, "train", "%s: was saved without local steps: the first round begins",
               path);
    else if (parts->local && !g->same)
        lt_log(LT_LOG_WARN, "train",
               "%s: was saved by %lld groups, this run has %d: all go on with the first one's "
               "optimizer state, and with equal parts of what was not sent",
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
    tell(g, path, parts);
    if (!g->same || !lt_local_steps_group(parts->local))
        return LT_OK;
    snprintf(g->prefix, sizeof g->prefix, "group.%d.", lt_local_steps_group(parts->local));
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

lt_status lt_checkpoint_load_scaling(const lt_checkpoint_groups *g, const char *path,
                                     const lt_safetensors *file, lt_checkpoint_state *state)
{
    const lt_safetensors_entry *e = NULL;
    double scaling[2];
    if (!g->number)
        return LT_OK;
    LT_TRY(find_own(g, file, scaling_name, LT_F64, &e));
    if (e->bytes != sizeof scaling)
        return lt_fail(LT_E_FORMAT, "%s: '%s%s' has %zu bytes, want %zu", path, g->prefix,
                       scaling_name, e->bytes, sizeof scaling);
    memcpy(scaling, e->data, sizeof scaling);
    state->loss_scale = scaling[0];
    state->loss_good_steps = scaling[1] >= 0 && scaling[1] <= 1e9 ? (int)scaling[1] : -1;
    return lt_checkpoint_check_state(state);
}

/* --- Loading what the outer step has --- */

typedef struct loading {
    const lt_checkpoint_groups *groups;
    const char *path;
    const lt_safetensors *file;
    bool write;
} loading;

static lt_status load_number(void *context, const char *name, int64_t *value)
{
    const loading *l = context;
    if (!strcmp(name, "outer.since"))
        *value = l->groups->since;
    return LT_OK;
}

/* Momentum and residual may be missing, as earlier settings had none: then they are 0 as at the start. */
static lt_status load_one(const loading *l, const char *name, lt_tensor *tensor, bool required)
{
    const lt_safetensors_entry *e = lt_safetensors_find(l->file, name);
    if (!e)
        return required ? lt_fail(LT_E_FORMAT, "%s: state '%s' is missing", l->path, name) : LT_OK;
    return l->write ? lt_entry_write(e, tensor) : lt_entry_check(e, l->path, tensor);
}

static bool is_required(const lt_state_entry *entry)
{
    return !strcmp(entry->name, "outer.start") || !strcmp(entry->name, "outer.value");
}

static lt_status load_entry(void *context, const lt_state_entry *entry)
{
    const loading *l = context;
    char *name = lt_checkpoint_entry_name(entry);
    lt_status st = name ? load_one(l, name, entry->tensor, is_required(entry)) : LT_E_NOMEM;
    lt_free(name);
    return st;
}

static lt_status load_of_group(void *context, const lt_state_entry *entry)
{
    const loading *l = context;
    char *plain = lt_checkpoint_entry_name(entry);
    char *name = plain ? lt_format("%s%s", l->groups->prefix, plain) : NULL;
    lt_status st = name ? load_one(l, name, entry->tensor, is_required(entry)) : LT_E_NOMEM;
    lt_free(plain);
    lt_free(name);
    return st;
}

/* The mean over the groups that were: so the mean over those that are stays what it was. */
static lt_status load_mean(void *context, const lt_state_entry *entry)
{
    const loading *l = context;
    lt_tensor *one = NULL;
    char *plain = lt_checkpoint_entry_name(entry);
    lt_status st = plain ? lt_tensor_new_like(&one, entry->tensor, entry->dtype) : LT_E_NOMEM;
    for (int64_t g = 0; g < l->groups->stored && !st; g++) {
        char *name = g ? lt_format("group.%lld.%s", (long long)g, plain) : lt_strdup(plain);
        st = name ? lt_tensor_fill(one, 0) : LT_E_NOMEM;
        if (!st)
            st = load_one(l, name, one, false);
        if (!st && l->write)
            st = lt_vec_axpby(entry->tensor, 1.0 / (double)l->groups->stored, one, g > 0, NULL);
        lt_free(name);
    }
    lt_tensor_free(&one);
    lt_free(plain);
    return st;
}

lt_status lt_checkpoint_load_groups(const lt_checkpoint_groups *g, const char *path,
                                    const lt_safetensors *file, const lt_checkpoint_parts *parts,
                                    bool write)
{
    loading l = {.groups = g, .path = path, .file = file, .write = write};
    lt_state_visitor common = {.entry = load_entry, .number = load_number, .context = &l};
    lt_state_visitor own = {
        .entry = g->same ? load_of_group : load_mean, .number = load_number, .context = &l};
    if (!parts->local || !g->stored)
        return LT_OK;
    LT_TRY(lt_local_steps_visit(parts->local, &common));
    return lt_local_steps_visit_group(parts->local, &own);
}
