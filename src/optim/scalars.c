/* Step scalars on the device. Kernels read them there, so that a captured step can be replayed. They are copied
 * from a ring of page-locked blocks in stream order: the host continues at once, and waits for the device only if
 * the ring is full. */

#include "optim/slots.h"

enum { SENT_BLOCKS = 16 };

/* One page-locked block of the ring: the step scalars of a copy to the device. */
typedef struct lt_sent {
    lt_scalars scalars;
    uint64_t event; /* on the main stream, after the block's copy */
} lt_sent;

lt_status lt_optim_make_scalars(lt_optim *o)
{
    void *ctx, *memory;
    const lt_backend *be = lt_optim_backend(o, &ctx);
    LT_TRY(be->alloc(ctx, sizeof(lt_scalars), &memory));
    o->scalars = memory;
    const lt_scalars start = {.loss_scale = 1, .grad_scale = 1, .finite = 1};
    if (be->uploads) {
        LT_TRY(be->uploads->host_alloc(ctx, SENT_BLOCKS * sizeof(lt_sent), &memory));
        o->sent = memory;
    }
    return be->copy(ctx, o->scalars, &start, sizeof start, LT_COPY_IN);
}

lt_status lt_optim_read_scalars(const lt_optim *o, lt_scalars *s)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(o, &ctx);
    LT_TRY(be->copy(ctx, s, o->scalars, sizeof *s, LT_COPY_OUT));
    return be->sync(ctx);
}

/* Returns the next block of the ring, after its last copy completed. */
static lt_status acquire_ring_block(lt_optim *o, lt_sent **out)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(o, &ctx);
    *out = &o->sent[o->sends % SENT_BLOCKS];
    return o->sends++ < SENT_BLOCKS ? LT_OK : be->uploads->event_synchronize(ctx, (*out)->event);
}

/* The host writes the first group of the scalars; kernels write the rest. */
lt_status lt_optim_send_scalars(lt_optim *o, const lt_step *step)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(o, &ctx);
    const size_t bytes = offsetof(lt_scalars, loss_scale);
    const lt_scalars s = {.lr = step->lr, .clip_norm = step->clip_norm, .attempt = step->attempt};
    lt_sent *block;
    if (!o->sent)
        return be->copy(ctx, o->scalars, &s, bytes, LT_COPY_IN);
    LT_TRY(acquire_ring_block(o, &block));
    block->scalars = s;
    LT_TRY(be->copy(ctx, o->scalars, &block->scalars, bytes, LT_COPY_IN));
    return be->uploads->event_record(ctx, &block->event);
}

void lt_optim_free_scalars(lt_optim *o)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(o, &ctx);
    if (o->scalars)
        be->free(ctx, o->scalars, sizeof *o->scalars);
    if (o->sent)
        be->uploads->host_free(ctx, o->sent);
}
