/* Pieces of an all-gather's second phase: as even as possible, whatever the ranks' shards are. */

#include "dist/collectives/collectives.h"

size_t lt_piece_byte_offset(const lt_collective *self, int rank)
{
    return (size_t)lt_call_piece_offset(&self->call, rank, self->endpoint->size)
           * lt_dtype_size(self->call.dtype);
}

size_t lt_piece_bytes(const lt_collective *self, int rank)
{
    return lt_piece_byte_offset(self, rank + 1) - lt_piece_byte_offset(self, rank);
}

/* Returns the bytes of owner's shard that are in holder's piece, and their offset in the whole if there are any. */
static size_t shard_bytes_in_piece(const lt_collective *self, int owner, int holder, size_t *offset)
{
    const size_t size = lt_dtype_size(self->call.dtype), shard = (size_t)self->offset[owner] * size,
                 shard_end = (size_t)self->offset[owner + 1] * size,
                 piece = lt_piece_byte_offset(self, holder),
                 piece_end = lt_piece_byte_offset(self, holder + 1),
                 end = shard_end < piece_end ? shard_end : piece_end;
    *offset = shard > piece ? shard : piece;
    return end > *offset ? end - *offset : 0;
}

void lt_pieces_of_shards(const lt_collective *self, int peer, lt_transfer *to, lt_transfer *from)
{
    const int me = self->endpoint->rank;
    const size_t own = (size_t)self->offset[me] * lt_dtype_size(self->call.dtype);
    size_t at;
    to->bytes = shard_bytes_in_piece(self, me, peer, &at);
    to->in = to->bytes ? (const char *)self->call.in + (at - own) : NULL;
    from->bytes = shard_bytes_in_piece(self, peer, me, &at);
    from->out = from->bytes ? (char *)self->call.out + at : NULL;
}
