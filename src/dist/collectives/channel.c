/* Channels: ordered messages between two ranks of a group over the link. */

#include "dist/collectives/collectives.h"

#include <stdio.h>

const char *lt_endpoint_rank_text(const lt_endpoint *endpoint, int r, char *text, size_t bytes)
{
    const lt_link *link = endpoint->progress->link;
    const int rank = endpoint->world[r];
    if (link->host)
        snprintf(text, bytes, "rank %d of %d (%s)", rank, link->size, link->host[rank]);
    else
        snprintf(text, bytes, "rank %d of %d", rank, link->size);
    return text;
}

/* Turns link->why into an error: a link may be a plugin, which cannot call lt_fail(). */
static lt_status link_error(const lt_endpoint *endpoint, int peer)
{
    const lt_link *link = endpoint->progress->link;
    char own[LT_RANK_TEXT], other[LT_RANK_TEXT];
    return lt_fail(LT_E_COMM, "comm %s: %s, with %s: %.300s", link->ops->kind,
                   lt_endpoint_rank_text(endpoint, endpoint->rank, own, sizeof own),
                   lt_endpoint_rank_text(endpoint, peer, other, sizeof other), link->why);
}

lt_status lt_channel_post(const lt_endpoint *e, lt_channel *c, const void *in, void *out,
                          size_t bytes)
{
    lt_link *link = e->progress->link;
    const int mine = e->world[e->rank], other = e->world[c->peer];
    uint64_t *handle = &c->handle[(c->oldest + c->in_flight) % LT_CHANNEL_IN_FLIGHT];
    const lt_message m = {.from = c->sends ? mine : other,
                          .to = c->sends ? other : mine,
                          .tag = LT_GROUP_TAGS * e->context + c->tag,
                          .in = in,
                          .out = out,
                          .bytes = bytes};
    if (!(c->sends ? link->ops->send(link, &m, handle) : link->ops->recv(link, &m, handle)))
        return link_error(e, c->peer);
    c->in_flight++;
    return LT_OK;
}

static void drop_oldest(lt_channel *c)
{
    c->oldest = (c->oldest + 1) % LT_CHANNEL_IN_FLIGHT;
    c->in_flight--;
}

lt_status lt_channel_test(const lt_endpoint *e, lt_channel *c, bool *done)
{
    lt_link *link = e->progress->link;
    *done = false;
    if (!c->in_flight)
        return LT_OK;
    const bool good = link->ops->test(link, c->handle[c->oldest], done);
    if (*done || !good)
        drop_oldest(c);
    return good ? LT_OK : link_error(e, c->peer);
}

void lt_channel_cancel(const lt_endpoint *e, lt_channel *c)
{
    lt_link *link = e->progress->link;
    for (; c->in_flight; drop_oldest(c))
        link->ops->cancel(link, c->handle[c->oldest]);
}
