/* Registry of reducers: built-in ones and those that a program registered. */

#include "dist/reducer/reducer.h"

#include "base/alloc.h"
#include "dist/reducer/kinds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS = 16, NAME = 64 };

static const lt_reducer_ops *kinds[KINDS] = {&lt_reducer_plain, &lt_reducer_two_level,
                                             &lt_reducer_powersgd, &lt_reducer_topk};

static const lt_reducer_ops *find_kind(const char *name, size_t length)
{
    for (size_t i = 0; i < KINDS && kinds[i]; i++)
        if (strlen(kinds[i]->kind) == length && !strncmp(kinds[i]->kind, name, length))
            return kinds[i];
    return NULL;
}

static bool is_good_name(const char *name)
{
    return *name && strlen(name) < NAME && !strpbrk(name, ":|") && strcmp(name, "off") != 0
           && strcmp(name, "auto") != 0 && strcmp(name, "flat") != 0;
}

lt_status lt_reducer_register(const lt_reducer_ops *ops)
{
    size_t count = 0;
    if (!is_good_name(ops->kind) || find_kind(ops->kind, strlen(ops->kind)))
        return lt_fail(LT_E_ARG, "reducer: the name '%s' is taken or invalid", ops->kind);
    if (!ops->begin || !ops->finish || !ops->sent || ops->bytes < sizeof(lt_reducer))
        return lt_fail(LT_E_ARG,
                       "reducer %s: begin, finish, sent and bytes of a struct that begins with "
                       "lt_reducer are required",
                       ops->kind);
    while (count < KINDS && kinds[count])
        count++;
    if (count == KINDS)
        return lt_fail(LT_E_NOMEM, "reducer %s: too many reducers registered, at most %d",
                       ops->kind, KINDS);
    kinds[count] = ops;
    return LT_OK;
}

static lt_status unknown_reducer_error(const char *name)
{
    char list[KINDS * NAME] = "";
    size_t used = 0;
    for (size_t i = 0; i < KINDS && kinds[i]; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                                 kinds[i]->kind);
    return lt_fail(LT_E_ARG, "--compress: unknown reducer '%s'; valid: %s", name, list);
}

const lt_cost_row *lt_cost_of_reducer(size_t index)
{
    for (size_t i = 0; i < KINDS && kinds[i]; i++)
        if (kinds[i]->cost && !index--)
            return kinds[i]->cost;
    return NULL;
}

lt_status lt_cost_read_reducer(lt_cost_plan *plan, const char *compress)
{
    const size_t length = strcspn(compress, ":");
    const lt_reducer_ops *ops = find_kind(compress, length);
    const lt_cost_row *row;
    char known[KINDS * NAME] = "";
    if (ops && ops->cost) {
        plan->scheme = LT_COST_REDUCER;
        plan->reducer = ops->cost;
        plan->number = compress[length] ? strtod(compress + length + 1, NULL) : 0;
        return LT_OK;
    }
    for (size_t i = 0, used = 0; (row = lt_cost_of_reducer(i)); i++)
        used +=
            (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", row->name);
    return lt_fail(LT_E_ARG, "--compress %s has no cost model; valid: %s", compress, known);
}

/* Returns true if a hierarchical all-reduce saves traffic between nodes. */
static bool benefits_from_two_levels(const lt_nodes *nodes)
{
    return nodes && nodes->count > 1 && nodes->ranks_per_node > 1;
}

static lt_status choose_allreduce(const lt_reducer_config *c, const lt_reducer_ops **ops)
{
    const char *name = c->allreduce ? c->allreduce : "flat";
    *ops = &lt_reducer_plain;
    if (!strcmp(name, "two-level") || (!strcmp(name, "auto") && benefits_from_two_levels(c->nodes)))
        *ops = &lt_reducer_two_level;
    else if (strcmp(name, "flat") != 0 && strcmp(name, "auto") != 0)
        return lt_fail(LT_E_ARG, "--allreduce: invalid value '%s'; valid: auto, flat, two-level",
                       name);
    return LT_OK;
}

/* Chooses the reducer by --compress, else by --allreduce; *argument points into the config's text. */
static lt_status choose_reducer(const lt_reducer_config *c, const lt_reducer_ops **ops,
                                const char **argument)
{
    *argument = "";
    if (!c->compress || !strcmp(c->compress, "off"))
        return choose_allreduce(c, ops);
    const size_t length = strcspn(c->compress, ":");
    *ops = find_kind(c->compress, length);
    if (!*ops)
        return unknown_reducer_error(c->compress);
    *argument = c->compress + length + (c->compress[length] == ':');
    return LT_OK;
}

static lt_status configure_reducer(lt_reducer *r, const char *argument)
{
    r->argument = lt_strdup(argument);
    if (!r->argument)
        return LT_E_NOMEM;
    if (r->ops->configure)
        return r->ops->configure(r);
    if (*argument)
        return lt_fail(LT_E_ARG, "--compress: reducer %s takes no argument, not '%s'", r->ops->kind,
                       argument);
    return LT_OK;
}

lt_status lt_reducer_new(lt_reducer **out, const lt_reducer_config *c)
{
    const lt_reducer_ops *ops;
    const char *argument;
    LT_TRY(choose_reducer(c, &ops, &argument));
    lt_reducer *r = lt_alloc(1, ops->bytes);
    if (!r)
        return LT_E_NOMEM;
    r->ops = ops;
    r->comm = c->comm;
    r->device = c->device;
    r->nodes = c->nodes;
    r->params = c->params;
    r->op = LT_REDUCE_MEAN;
    lt_status st = configure_reducer(r, argument);
    if (st)
        lt_reducer_free(&r);
    else
        *out = r;
    return st;
}

lt_status lt_reducer_open(lt_reducer *r)
{
    for (size_t i = 0; i < r->buckets && r->ops->bucket_bytes; i++) {
        r->bucket[i].own = lt_alloc(1, r->ops->bucket_bytes);
        if (!r->bucket[i].own)
            return LT_E_NOMEM;
    }
    return r->ops->open ? r->ops->open(r) : LT_OK;
}

void lt_reducer_free(lt_reducer **reducer)
{
    lt_reducer *r = *reducer;
    *reducer = NULL;
    if (!r)
        return;
    if (r->ops->close)
        r->ops->close(r);
    for (size_t i = 0; i < r->buckets; i++) {
        lt_tensor_free(&r->bucket[i].flat);
        lt_free(r->bucket[i].part);
        lt_free(r->bucket[i].own);
    }
    lt_free(r->bucket);
    lt_free(r->argument);
    lt_free(r);
}
