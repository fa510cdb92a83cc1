/* Begin and end of every entry of the cuda backend: select the device, name the operation, measure its time. */

#include "event_profiler.h"

lt_status lt_cuda_make_current(lt_cuda *c)
{
    static __thread const lt_cuda_api *entered;
    static __thread int current = -1;
    if (entered == c->api && current == c->ordinal)
        return LT_OK;
    LT_CUDA_TRY(c, "cudaSetDevice", c->api->set_device(c->ordinal));
    entered = c->api;
    current = c->ordinal;
    return LT_OK;
}

lt_status lt_cuda_begin(lt_cuda *c, const char *operation)
{
    c->operation = operation;
    LT_TRY(lt_cuda_make_current(c));
    return lt_cuda_profiler_begin(c, operation);
}

lt_status lt_cuda_end(lt_cuda *c)
{
    lt_status st = lt_cuda_check(c, LT_CUDA_RUNTIME, c->api->last_error(), "launch");
    if (!st)
        st = lt_cuda_profiler_end(c);
    if (!st && c->sync && !c->capturing)
        st = lt_cuda_check(c, LT_CUDA_RUNTIME, c->api->stream_sync(c->stream[LT_CUDA_MAIN]), "run");
    c->operation = NULL;
    return st;
}
