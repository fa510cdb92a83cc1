/* Access to a CUDA device for other code in the same plugin: dist/nccl queues collectives on a separate stream,
 * ordered after the device's main stream. */
#ifndef LT_CUDA_EXTERNAL_H
#define LT_CUDA_EXTERNAL_H

#include "api.h"

#include "lather/ext/fail.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lt_cuda lt_cuda;

/* Called around each launch of a captured step: before() may reject it; after() is called if it did not. before NULL:
 * no hooks. */
typedef struct lt_cuda_launch_hooks {
    void *context;
    lt_status (*before)(void *context);
    void (*after)(void *context);
} lt_cuda_launch_hooks;

const lt_cuda_api *lt_cuda_get_api(const lt_cuda *c);
int lt_cuda_ordinal(const lt_cuda *c);
const char *lt_cuda_name(const lt_cuda *c); /* "NVIDIA H100 80GB HBM3" */
lt_cuda_stream lt_cuda_main_stream(const lt_cuda *c);
bool lt_cuda_is_capturing(const lt_cuda *c);
void lt_cuda_set_launch_hooks(lt_cuda *c, lt_cuda_launch_hooks hooks);

/* Returns LT_OK for code 0, else LT_E_NOMEM for lack of device memory, with the free bytes, or LT_E_DEVICE; the
 * message has entry, call, library and its text. */
lt_status lt_cuda_check(const lt_cuda *c, lt_cuda_library library, int code, const char *call);

#ifdef __cplusplus
}
#endif

#endif
