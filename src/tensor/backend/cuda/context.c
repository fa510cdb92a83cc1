/* A device of the CUDA backend: context, streams and workspaces. */

#include "cuda.h"

#include <stdlib.h>
#include <string.h>

enum { SMALLEST_WORKSPACE = 1 << 20 };

static lt_status open_streams(lt_cuda *c, bool background)
{
    c->operation = "open";
    LT_TRY(lt_cuda_make_current(c));
    LT_CUDA_TRY(c, "cudaGetDeviceProperties", c->api->properties(c->ordinal, &c->properties));
    for (int i = 0; i < LT_CUDA_STREAMS; i++)
        LT_CUDA_TRY(c, "cudaStreamCreateWithPriority",
                    c->api->stream_create(&c->stream[i], i == LT_CUDA_MAIN && !background));
    LT_TRY(c->api->libraries_open(c));
    c->operation = NULL;
    return LT_OK;
}

lt_status lt_cuda_open_with(const lt_cuda_api *api, void **ctx, int ordinal,
                            const lt_device_config *config)
{
    const char *sync = getenv("LATHER_SYNC");
    lt_cuda *c = calloc(1, sizeof *c);
    if (!c)
        return lt_fail(LT_E_NOMEM, "cuda:%d: no memory for the context", ordinal);
    c->api = api;
    c->ordinal = ordinal;
    c->deterministic = config->deterministic;
    c->tf32 = config->tf32;
    c->fused = config->fused;
    c->sync = sync && !strcmp(sync, "1");
    lt_status st = open_streams(c, config->background);
    if (st) {
        lt_cuda_close(c);
        return st;
    }
    *ctx = c;
    return LT_OK;
}

static void free_blocks(lt_cuda *c, lt_cuda_block *b)
{
    for (lt_cuda_block *older; b; b = older) {
        older = b->older;
        c->api->release(b->data);
        free(b);
    }
}

/* Also closes a partly opened device. Returns void: failures are not reported. */
void lt_cuda_close(void *ctx)
{
    lt_cuda *c = ctx;
    if (lt_cuda_make_current(c)) {
        free(c);
        return;
    }
    for (int i = 0; i < LT_CUDA_STREAMS; i++)
        if (c->stream[i])
            c->api->stream_sync(c->stream[i]);
    for (int i = 0; i < LT_CUDA_PARTS; i++)
        if (c->part[i].close)
            c->part[i].close(c, c->part[i].data);
    c->api->libraries_close(c);
    for (int i = 0; i < LT_CUDA_STREAMS; i++) {
        free_blocks(c, c->workspace[i]);
        if (c->stream[i])
            c->api->stream_destroy(c->stream[i]);
    }
    free(c);
}

lt_status lt_cuda_workspace(lt_cuda *c, lt_cuda_stream_index stream, size_t bytes, void **out)
{
    lt_cuda_block *last = c->workspace[stream];
    if (!last || last->bytes < bytes) {
        if (c->capturing)
            return lt_fail(LT_E_DEVICE,
                           "cuda:%d: %s: needs %zu bytes of workspace in a captured step; a step "
                           "must run uncaptured before it is captured",
                           c->ordinal, c->operation, bytes);
        size_t size = last ? 2 * last->bytes : SMALLEST_WORKSPACE;
        size = size > bytes ? size : lt_cuda_pad_bytes(bytes);
        lt_cuda_block *b = calloc(1, sizeof *b);
        if (!b)
            return lt_fail(LT_E_NOMEM, "cuda:%d: %s: no memory", c->ordinal, c->operation);
        lt_status st = lt_cuda_alloc(c, size, &b->data);
        if (st && size > bytes) /* then only the required bytes */
            st = lt_cuda_alloc(c, size = bytes, &b->data);
        if (st) {
            free(b);
            return st;
        }
        b->bytes = size;
        b->older = last;
        c->workspace[stream] = b;
    }
    *out = c->workspace[stream]->data;
    return LT_OK;
}

const lt_cuda_api *lt_cuda_get_api(const lt_cuda *c)
{
    return c->api;
}

int lt_cuda_ordinal(const lt_cuda *c)
{
    return c->ordinal;
}

const char *lt_cuda_name(const lt_cuda *c)
{
    return c->properties.name;
}

lt_cuda_stream lt_cuda_main_stream(const lt_cuda *c)
{
    return c->stream[LT_CUDA_MAIN];
}

bool lt_cuda_is_capturing(const lt_cuda *c)
{
    return c->capturing;
}

void lt_cuda_set_launch_hooks(lt_cuda *c, lt_cuda_launch_hooks hooks)
{
    c->hooks = hooks;
}
