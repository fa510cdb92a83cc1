/* Collectives of little data over four ranks or more: every rank gets the data of all, in rounds, and computes the result
 * itself, with the bits of the others. In round k a rank sends all that it has, at most 2^k ranks' blocks, to the rank 2^k
 * before it: log2(size) messages instead of 3 * (size - 1), headers included. Headers are exchanged in the first round
 * alone: if every rank agrees with the next one, all do. A collective of large data begins with headers to all ranks, so that a
 * rank detects that the next one's data are large.
 * Source: Bruck et al., "Efficient algorithms for all-to-all communications", IEEE TPDS 8(11), 1997, section 3. */

#include "dist/collectives/collectives.h"

#include <string.h>

enum { BLOCK_BYTES = 256, LEAST_RANKS = 4 };

/* Returns the bytes that a rank contributes. */
static size_t contribution(const lt_collective *self, int rank)
{
    const lt_comm_call *c = &self->call;
    const int64_t elements = c->what == LT_COMM_ALLGATHER
                                 ? self->offset[rank + 1] - self->offset[rank]
                             : c->what == LT_COMM_BARRIER ? 0
                                                          : c->elements;
    return (size_t)elements * lt_dtype_size(c->dtype);
}

bool lt_small_applies(const lt_collective *self)
{
    const lt_comm_call_kind what = self->call.what;
    const int size = self->endpoint->size;
    if (size < LEAST_RANKS
        || (what != LT_COMM_ALLREDUCE && what != LT_COMM_ALLGATHER && what != LT_COMM_BROADCAST
            && what != LT_COMM_BARRIER))
        return false;
    for (int r = 0; r < size; r++)
        if (contribution(self, r) > BLOCK_BYTES)
            return false;
    return true;
}

size_t lt_small_workspace_bytes(const lt_collective *self)
{
    return (size_t)self->endpoint->size * BLOCK_BYTES;
}

int lt_small_rounds(const lt_collective *self)
{
    int rounds = 0;
    while (1 << rounds < self->endpoint->size)
        rounds++;
    return rounds;
}

/* Blocks are in the order of ranks from this one on. */
static char *block_of(const lt_collective *self, int rank)
{
    const lt_endpoint *e = self->endpoint;
    return self->workspace + (size_t)((rank - e->rank + e->size) % e->size) * BLOCK_BYTES;
}

void lt_small_begin(const lt_collective *self)
{
    const int me = self->endpoint->rank;
    memset(self->workspace, 0, BLOCK_BYTES);
    if (contribution(self, me) && (self->call.what != LT_COMM_BROADCAST || me == self->call.root))
        memcpy(self->workspace, self->call.in, contribution(self, me));
}

void lt_small_round(const lt_collective *self, int round, lt_transfer *to, lt_transfer *from)
{
    const int n = self->endpoint->size, me = self->endpoint->rank, have = 1 << round;
    const int count = have < n - have ? have : n - have;
    to->channel.peer = (me - have + n) % n;
    from->channel.peer = (me + have) % n;
    to->in = self->workspace;
    from->out = self->workspace + (size_t)have * BLOCK_BYTES;
    to->bytes = from->bytes = (size_t)count * BLOCK_BYTES;
}

void lt_small_finish(lt_collective *self)
{
    const lt_comm_call *c = &self->call;
    const int n = self->endpoint->size;
    const size_t element = lt_dtype_size(c->dtype);
    for (int r = 0; r < n; r++) {
        self->term[r] = block_of(self, r);
        if (c->what == LT_COMM_ALLGATHER && contribution(self, r))
            memcpy((char *)c->out + (size_t)self->offset[r] * element, self->term[r],
                   contribution(self, r));
    }
    if (c->what == LT_COMM_ALLREDUCE && c->elements)
        lt_reduce_terms(c->out, self->term, n, c->elements, c);
    if (c->what == LT_COMM_BROADCAST && self->endpoint->rank != c->root && c->elements)
        memcpy(c->out, self->term[c->root], (size_t)c->elements * element);
}
