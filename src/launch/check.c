/* Validates a job graph: unknown names, and commands that wait for each other's addresses.
 *
 * A service with an entry is bound before its arguments are expanded, so it may be part of a cycle. A command gets its
 * arguments when it starts: a cycle of commands only would deadlock. */

#include "launch/launch.h"

#include "lather/ext/fail.h"

#include <string.h>

/* Depth-first search from a group along the addresses in arguments of commands. */
typedef struct walk {
    const lt_job_graph *program;
    const lt_launch_handle *origin, *at;
    int depth;
    lt_status status;
} walk;

static void search_cycle(void *context, const lt_launch_handle *service);

static lt_status visit_used_services(const lt_launch_handle *h,
                                     void (*visit_)(void *, const lt_launch_handle *),
                                     void *context)
{
    const lt_launch_values v = {.program = h->program, .group = h, .count = h->config.count};
    if (h->config.command)
        LT_TRY(lt_launch_visit_used_services(&v, h->config.command, visit_, context));
    return h->config.arguments
               ? lt_launch_visit_used_services(&v, h->config.arguments, visit_, context)
               : LT_OK;
}

static void search_cycle(void *context, const lt_launch_handle *service)
{
    const walk *from = context;
    walk w = *from;
    enum { DEEPEST = 64 }; /* longer chains are not searched */
    if (w.status || !service->config.command || service == w.at || w.depth >= DEEPEST)
        return;
    if (service == w.origin) {
        ((walk *)context)->status = lt_fail(
            LT_E_ARG,
            "launch: %s and %s wait for each other's addresses; one service of the cycle needs an entry",
            w.at->config.label, w.origin->config.label);
        return;
    }
    w.at = service;
    w.depth++;
    const lt_status st = visit_used_services(service, search_cycle, &w);
    ((walk *)context)->status = st ? st : w.status;
}

static lt_status check_uses(const lt_launch_handle *h)
{
    const char *at = h->uses ? h->uses : "";
    while (*at) {
        at += strspn(at, ", ");
        const size_t bytes = strcspn(at, ", ");
        const lt_launch_handle *used = bytes ? lt_program_graph_find(h->program, at, bytes) : NULL;
        if (bytes && !used)
            return lt_fail(LT_E_ARG, "launch: %s uses unknown group %.*s", h->config.label,
                           (int)bytes, at);
        if (used && used->config.kind != LT_LAUNCH_NODE_SERVICE)
            return lt_fail(LT_E_ARG, "launch: %s uses %s, which is not a service", h->config.label,
                           used->config.label);
        at += bytes;
    }
    return LT_OK;
}

lt_status lt_program_graph_check(const lt_job_graph *program)
{
    bool ends = false;
    for (const lt_launch_handle *h = program->first; h; h = h->next) {
        walk w = {.program = program, .origin = h, .at = h};
        LT_TRY(check_uses(h));
        LT_TRY(visit_used_services(h, search_cycle, &w));
        if (h->config.command && w.status)
            return w.status;
        ends = ends || h->config.kind != LT_LAUNCH_NODE_SERVICE;
    }
    if (!program->first)
        return lt_fail(LT_E_ARG, "launch: %s: an empty program", program->name);
    if (!ends)
        return lt_fail(LT_E_ARG, "launch: %s: contains only services, so nothing would run",
                       program->name);
    return LT_OK;
}
