/* What goes before the data of a call: so that ranks that do different things find out, and say what
 * each of them does. */

#include "dist/collectives/collectives.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TEXT = 160 };

bool lt_work_is_message(const lt_work *w)
{
    return w->call.what == LT_COMM_SEND || w->call.what == LT_COMM_RECV;
}

/* FNV-1a of where the parts begin. */
static uint64_t hash(const lt_work *w)
{
    uint64_t h = 0xCBF29CE484222325;
    for (int r = 0; r <= w->end->size; r++)
        h = (h ^ (uint64_t)w->offset[r]) * 0x100000001B3;
    return h;
}

lt_header lt_work_header(const lt_work *w)
{
    const lt_comm_call *c = &w->call;
    bool message = lt_work_is_message(w);
    return (lt_header){.what = message ? LT_COMM_SEND : (int32_t)c->what,
                       .op = (int32_t)c->op,
                       .dtype = (int32_t)c->dtype,
                       .root = message ? 0 : c->root,
                       .elements = c->elements,
                       .number = message ? 0 : w->number,
                       .counts = hash(w)};
}

static void header_text(const lt_header *h, char *text, size_t bytes)
{
    lt_comm_call call = {.what = (lt_comm_what)h->what,
                         .op = (lt_reduce)h->op,
                         .dtype = (lt_dtype)h->dtype,
                         .root = h->root,
                         .elements = h->elements};
    bool known = h->what >= 0 && h->what <= LT_COMM_RECV && h->dtype >= 0 && h->dtype <= LT_U8;
    if (known)
        lt_call_text(&call, text, bytes);
    else
        snprintf(text, bytes, "something else");
    if (call.what == LT_COMM_SEND) /* to or from: the ranks are named beside it */
        snprintf(text, bytes, "a message of %" PRId64 " %s", h->elements,
                 lt_dtype_name(call.dtype));
}

/* What the other rank says it is doing must be what we do. */
bool lt_work_check(const lt_work *w, const lt_transfer *t, char *why)
{
    const lt_header mine = lt_work_header(w), *theirs = &t->header;
    char a[TEXT], b[TEXT];
    if (!memcmp(&mine, theirs, sizeof mine))
        return true;
    header_text(&mine, a, sizeof a);
    header_text(theirs, b, sizeof b);
    bool counts = !strcmp(a, b) && mine.number == theirs->number;
    snprintf(why, LT_LINK_TEXT,
             "comm %s: ranks do different things: number %" PRIu64
             " is %s on rank %d, number %" PRIu64 " is %s%s on rank %d",
             w->end->engine->link->ops->kind, mine.number, a, w->end->rank, theirs->number, b,
             counts ? " with other counts" : "", t->peer);
    return false;
}

void lt_work_text(const lt_work *w, char *text, size_t bytes)
{
    char what[TEXT];
    size_t used;
    lt_call_text(&w->call, what, sizeof what);
    snprintf(text, bytes, "%s, number %" PRIu64 ", on rank %d of %d", what, w->number, w->end->rank,
             w->end->size);
    int named = 0;
    for (int i = 0; w->started && i < lt_work_transfers(w); i++)
        if (!w->transfer[i].sends && !w->transfer[i].headed && named++ < 8) {
            used = strlen(text);
            snprintf(text + used, bytes - used, "%s rank %d",
                     named > 1 ? "," : "; nothing came from", w->transfer[i].peer);
        }
}
