/* What code in the same plugin, but outside of the backend, may use of a cuda device: dist/nccl queues
 * collectives on a stream of its own, behind the device's main stream. */
#ifndef LT_CUDA_EXTERNAL_H
#define LT_CUDA_EXTERNAL_H

#include "api.h"

#include "lather/ext/fail.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lt_cuda lt_cuda;

/* Called around each launch of a captured step: before may refuse it, after follows if it did not.
 * before NULL: none. */
typedef struct lt_cuda_launch_hooks {
    void *context;
    lt_status (*before)(void *context);
    void (*after)(void *context);
} lt_cuda_launch_hooks;

const lt_cuda_api *lt_cuda_calls(const lt_cuda *c);
int lt_cuda_ordinal(const lt_cuda *c);
const char *lt_cuda_name(const lt_cuda *c); /* "NVIDIA H100 80GB HBM3" */
lt_cuda_stream lt_cuda_main_stream(const lt_cuda *c);
bool lt_cuda_is_capturing(const lt_cuda *c);
void lt_cuda_set_launch_hooks(lt_cuda *c, lt_cuda_launch_hooks hooks);

/* LT_OK, or the failure of call with operation, library and text. No memory on the
 * device is LT_E_NOMEM, whoever wanted it, and says how much is free; everything else LT_E_DEVICE. */
lt_status lt_cuda_check(const lt_cuda *c, lt_cuda_library library, int code, const char *call);

#ifdef __cplusplus
}
#endif

#endif
