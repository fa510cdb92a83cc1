/* Device memory: allocation, copies, synchronization. The caching allocator above requests large segments. */

#include "cuda.h"

static lt_status allocate_device_memory(lt_cuda *c, size_t bytes, void **out)
{
    if (c->capturing)
        return lt_fail(LT_E_DEVICE,
                       "cuda:%d: %s: allocation of %zu bytes in a captured step; a step must "
                       "run uncaptured before it is captured",
                       c->ordinal, c->operation, bytes);
    const int code = c->api->alloc(out, bytes);
    if (code != LT_CUDA_NO_MEMORY)
        return lt_cuda_check(c, LT_CUDA_RUNTIME, code, "cudaMalloc");
    c->api->last_error(); /* handled here: the next launch must not report it */
    return lt_cuda_append_free_memory(c, lt_fail(LT_E_NOMEM,
                                                 "cuda:%d: %s: no %.1f MiB of device memory",
                                                 c->ordinal, c->operation, (double)bytes / 0x1p20));
}

/* Allocates a tensor, or memory for the running operation. */
lt_status lt_cuda_alloc(void *ctx, size_t bytes, void **out)
{
    lt_cuda *c = (lt_cuda *)ctx;
    const char *running = c->operation;
    lt_status st = lt_cuda_begin(c, running ? running : "alloc");
    if (!st)
        st = allocate_device_memory(c, bytes, out);
    if (!st)
        c->taken += bytes;
    c->operation = running;
    return st;
}

size_t lt_cuda_allocated_bytes(void *ctx)
{
    return ((const lt_cuda *)ctx)->taken;
}

/* Synchronizes first: queued work may use the memory, and cudaFree() does not guarantee to wait for it. */
void lt_cuda_free(void *ctx, void *data, size_t bytes)
{
    lt_cuda *c = (lt_cuda *)ctx;
    LT_ASSERT(
        !c->capturing); /* a wait would end the capture; the allocator frees nothing during it */
    c->taken -= bytes;
    if (!lt_cuda_begin(c, "free")) {
        for (int i = 0; i < LT_CUDA_STREAMS; i++)
            c->api->stream_sync(c->stream[i]);
        c->api->release(data);
        c->api->last_error(); /* free returns void; the next call reports a sticky error */
    }
    c->operation = NULL;
}

/* Returns after the copy if the host memory is pageable. */
lt_status lt_cuda_copy(void *ctx, void *dst, const void *src, size_t bytes, lt_copy_kind kind)
{
    lt_cuda *c = (lt_cuda *)ctx;
    LT_TRY(lt_cuda_begin(c, "copy"));
    LT_CUDA_TRY(c, "cudaMemcpyAsync",
                c->api->copy_async(dst, src, bytes, kind, c->stream[LT_CUDA_MAIN]));
    return lt_cuda_end(c);
}

/* Waits for all streams, even if one fails. */
lt_status lt_cuda_sync(void *ctx)
{
    lt_cuda *c = (lt_cuda *)ctx;
    int first = LT_CUDA_SUCCESS;
    LT_TRY(lt_cuda_begin(c, "sync"));
    for (int i = 0; i < LT_CUDA_STREAMS; i++) {
        const int code = c->api->stream_sync(c->stream[i]);
        first = first ? first : code;
    }
    LT_TRY(lt_cuda_check(c, LT_CUDA_RUNTIME, first, "cudaStreamSynchronize"));
    c->replayed = false;
    return lt_cuda_end(c);
}
