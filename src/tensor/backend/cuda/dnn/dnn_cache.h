/* cuDNN's execution plans of a device: in memory, as text on disk, and their lines in the plan log. */
#ifndef LT_CUDA_DNN_CACHE_H
#define LT_CUDA_DNN_CACHE_H

#include "dnn_plan.h"
#include "tensor/backend/cuda/cuda.h"
#include "tensor/backend/cuda/plan_cache.h"

typedef struct lt_dnn_cache {
    lt_plan_cache *plans;
    cudnnBackendDescriptor_t device;
    cudnnBackendDescriptor_t by_ordinal; /* the same device; NULL until it is needed */
    lt_dnn_device_source device_source;  /* that built the last plan that ran */
    char *device_text;                   /* NULL: cuDNN has none; plans are not written to disk */
} lt_dnn_cache;

/* Returns the device's cache, created at the first call. */
lt_status lt_dnn_get_cache(lt_cuda *c, lt_dnn_cache **out);
/* Looks up a plan of this process, or, except during a capture, of an earlier one; *out: NULL if absent. A plan
 * without a descriptor means that the operation is composed of other entries, and is found only if may_be_none. */
lt_status lt_dnn_cache_find(lt_cuda *c, lt_dnn_cache *cache, const char *key, bool may_be_none,
                            lt_dnn_plan **out);
/* Takes ownership of the plan, also on failure. */
lt_status lt_dnn_cache_add(lt_dnn_cache *cache, const char *key, lt_dnn_plan plan,
                           lt_dnn_plan **out);
/* Writes the plan for later processes; a failure to write is ignored. */
void lt_dnn_cache_write(lt_cuda *c, const lt_dnn_cache *cache, const char *key,
                        const lt_dnn_plan *plan);

/* Returns a phrase for the log: "for the handle". */
const char *lt_dnn_device_source_name(lt_dnn_device_source source);
/* Writes the plan's line in the plan log (LATHER_PLAN_LOG); plan->plan NULL: composed. */
void lt_dnn_log_plan(const lt_cuda *c, const char *key, int candidate, const lt_dnn_plan *plan,
                     float milliseconds, bool chosen);
/* Writes the line of a candidate whose plan could not be built. */
void lt_dnn_log_failure(const lt_cuda *c, const char *key, const lt_dnn_config *config);

#endif
