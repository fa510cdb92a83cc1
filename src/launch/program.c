/* Job graphs: groups and their validation. */

#include "base/alloc.h"
#include "launch/launch.h"

#include "lather/ext/fail.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

enum { RESTARTS = 3 };

lt_status lt_job_graph_new(lt_job_graph **out, const char *name)
{
    lt_job_graph *p = lt_alloc(1, sizeof *p);
    if (!p || !(p->name = lt_strdup(name))) {
        lt_free(p);
        return LT_E_NOMEM;
    }
    *out = p;
    return LT_OK;
}

static void free_handle(lt_launch_handle *h)
{
    /* The strings are copies, const only in the public config. */
    lt_free((void *)(uintptr_t)h->config.label);
    lt_free((void *)(uintptr_t)h->config.module);
    lt_free((void *)(uintptr_t)h->config.command);
    lt_free((void *)(uintptr_t)h->config.arguments);
    lt_free((void *)(uintptr_t)h->config.plan);
    lt_free(h->uses);
    lt_free(h);
}

void lt_job_graph_free(lt_job_graph **program)
{
    lt_job_graph *p = *program;
    if (!p)
        return;
    *program = NULL;
    if (p->is_in_use)
        return;
    while (p->first) {
        lt_launch_handle *h = p->first;
        p->first = h->next;
        free_handle(h);
    }
    lt_free(p->name);
    lt_free(p);
}

lt_launch_handle *lt_program_graph_find(const lt_job_graph *program, const char *label,
                                        size_t bytes)
{
    for (lt_launch_handle *h = program->first; h; h = h->next)
        if (strlen(h->config.label) == bytes && !memcmp(h->config.label, label, bytes))
            return h;
    return NULL;
}

static bool is_label(const char *text)
{
    enum { MOST = 32 };
    static const char *const reserved[] = {"self", "program"};
    const size_t bytes = text ? strlen(text) : 0;
    if (bytes < 1 || bytes > MOST || !strcmp(text, reserved[0]) || !strcmp(text, reserved[1]))
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (!isalnum((unsigned char)text[i]) && text[i] != '-' && text[i] != '_')
            return false;
    return true;
}

static lt_status check_gang(const lt_launch_node_config *c)
{
    if (c->global_batch < 0 || c->batch_size < 0 || (c->global_batch && !c->batch_size))
        return lt_fail(LT_E_ARG,
                       "launch: %s: invalid global batch %" PRId64 " of micro-batches of %" PRId64,
                       c->label, c->global_batch, c->batch_size);
    if (c->global_batch && c->kind != LT_LAUNCH_NODE_GANG)
        return lt_fail(LT_E_ARG, "launch: %s: only a gang can have a global batch", c->label);
    if (c->runs < 0 || c->runs > LT_LAUNCH_MOST_NODES)
        return lt_fail(LT_E_ARG, "launch: %s: %d runs, want 1 to %d", c->label, c->runs,
                       LT_LAUNCH_MOST_NODES);
    if ((c->plan || c->runs > 1) && (c->kind != LT_LAUNCH_NODE_GANG || !c->command))
        return lt_fail(LT_E_ARG, "launch: %s: %s needs a gang with a command", c->label,
                       c->plan ? "plan = auto" : "runs");
    return LT_OK;
}

static lt_status check_numbers(const lt_launch_node_config *c)
{
    if (c->count < 0 || c->count > LT_LAUNCH_MOST_NODES)
        return lt_fail(LT_E_ARG, "launch: %s: %d nodes, want 1 to %d", c->label, c->count,
                       LT_LAUNCH_MOST_NODES);
    if (c->restarts < 0 || !(c->backoff >= 0))
        return lt_fail(LT_E_ARG, "launch: %s: %d restarts after %g seconds, want 0 or more",
                       c->label, c->restarts, c->backoff);
    if (!(c->heartbeat >= 0) || !(c->progress >= 0))
        return lt_fail(LT_E_ARG,
                       "launch: %s: a heartbeat of %g, progress in %g seconds, want 0 or more",
                       c->label, c->heartbeat, c->progress);
    if (c->progress > 0 && c->kind == LT_LAUNCH_NODE_SERVICE)
        return lt_fail(LT_E_ARG,
                       "launch: %s: progress = %g: a service cannot have a progress timeout",
                       c->label, c->progress);
    return check_gang(c);
}

static bool is_blank(const char *text)
{
    return text && !text[strspn(text, " \t\n\v\f\r")];
}

static lt_status check_config(const lt_job_graph *program, const lt_launch_node_config *c)
{
    if (!is_label(c->label))
        return lt_fail(
            LT_E_ARG,
            "launch: invalid label '%s': want 1 to 32 of a-z, A-Z, 0-9, - and _; not self or program",
            c->label ? c->label : "");
    if (lt_program_graph_find(program, c->label, strlen(c->label)))
        return lt_fail(LT_E_ARG, "launch: duplicate group %s", c->label);
    if ((c->entry != NULL) + (c->module != NULL) + (c->command != NULL) != 1)
        return lt_fail(LT_E_ARG, "launch: %s: want exactly one of entry, module and command",
                       c->label);
    if (is_blank(c->command))
        return lt_fail(LT_E_ARG, "launch: %s: the command is empty", c->label);
    const char *colon = c->module ? strrchr(c->module, ':') : NULL;
    if (c->module && (!colon || colon == c->module || !colon[1]))
        return lt_fail(LT_E_ARG, "launch: %s: entry %s is not FILE.so:NAME", c->label, c->module);
    for (int i = 0; i < LT_LAUNCH_NODE_MAX_USES && c->uses[i]; i++) {
        if (c->uses[i]->program != program)
            return lt_fail(LT_E_ARG, "launch: %s uses %s, a handle of another program", c->label,
                           c->uses[i]->config.label);
        if (c->uses[i]->config.kind != LT_LAUNCH_NODE_SERVICE)
            return lt_fail(LT_E_ARG, "launch: %s uses %s, which is not a service", c->label,
                           c->uses[i]->config.label);
    }
    return check_numbers(c);
}

static lt_status copy_text(const char **to, const char *from)
{
    *to = from ? lt_strdup(from) : NULL;
    return from && !*to ? LT_E_NOMEM : LT_OK;
}

static lt_status copy_uses(lt_launch_handle *h, const lt_launch_node_config *c)
{
    for (int i = 0; i < LT_LAUNCH_NODE_MAX_USES && c->uses[i]; i++) {
        char *longer =
            lt_format("%s%s%s", h->uses ? h->uses : "", i ? "," : "", c->uses[i]->config.label);
        if (!longer)
            return LT_E_NOMEM;
        lt_free(h->uses);
        h->uses = longer;
    }
    return LT_OK;
}

static lt_status copy_config(lt_launch_handle *h, const lt_launch_node_config *c)
{
    static const double backoff = 0.1;
    h->config = *c;
    h->config.label = h->config.module = h->config.command = h->config.arguments = NULL;
    h->config.plan = NULL;
    h->config.runs = c->runs ? c->runs : 1;
    h->config.count = c->count ? c->count : 1;
    h->config.restarts = c->restarts ? c->restarts : RESTARTS;
    h->config.backoff = c->backoff > 0 ? c->backoff : backoff;
    LT_TRY(copy_text(&h->config.label, c->label));
    LT_TRY(copy_text(&h->config.module, c->module));
    LT_TRY(copy_text(&h->config.command, c->command));
    LT_TRY(copy_text(&h->config.arguments, c->arguments));
    LT_TRY(copy_text(&h->config.plan, c->plan));
    return copy_uses(h, c);
}

lt_status lt_job_graph_add(lt_job_graph *program, const lt_launch_node_config *config,
                           const lt_launch_handle **out)
{
    LT_TRY(check_config(program, config));
    lt_launch_handle *h = NULL;
    LT_TRY(LT_ALLOC(&h, 1));
    const lt_status st = copy_config(h, config);
    if (st) {
        free_handle(h);
        return st;
    }
    h->program = program;
    *(program->last ? &program->last->next : &program->first) = h;
    program->last = h;
    if (out)
        *out = h;
    return LT_OK;
}
