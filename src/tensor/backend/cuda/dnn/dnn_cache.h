/* Plans of cuDNN that a device keeps: in memory, and as text on disk. */
#ifndef LT_CUDA_DNN_CACHE_H
#define LT_CUDA_DNN_CACHE_H

#include "dnn_plan.h"
#include "tensor/backend/cuda/cuda.h"
#include "tensor/backend/cuda/plan_cache.h"

typedef struct lt_dnn_cache {
    lt_plan_cache *plans;
    cudnnBackendDescriptor_t device;
    cudnnBackendDescriptor_t by_ordinal; /* the same device; NULL: not needed so far */
    lt_dnn_way way;                      /* in which plans are made that run */
    char *device_text;                   /* NULL: cuDNN has none, and plans are not kept on disk */
} lt_dnn_cache;

/* The device's. */
lt_status lt_dnn_cache_of(lt_cuda *c, lt_dnn_cache **out);
/* From this process, or outside of a capture from an earlier one; *out stays NULL if there is none that
 * fits. A plan may be none: the decision to compose what it would run. */
lt_status lt_dnn_cache_find(lt_cuda *c, lt_dnn_cache *cache, const char *key, bool may_be_none,
                            lt_dnn_plan **out);
/* Owns the plan, in any case. */
lt_status lt_dnn_cache_add(lt_dnn_cache *cache, const char *key, lt_dnn_plan plan,
                           lt_dnn_plan **out);
/* For later processes; that it cannot be written is no failure of this one. */
void lt_dnn_cache_write(lt_cuda *c, const lt_dnn_cache *cache, const char *key,
                        const lt_dnn_plan *plan);

/* How a plan was told its device, in words. */
const char *lt_dnn_way_name(lt_dnn_way way);
/* Writes the plan's line in the plan log (LATHER_PLANS); plan->plan NULL: composed. */
void lt_dnn_log(const lt_cuda *c, const char *key, int candidate, const lt_dnn_plan *plan,
                float milliseconds, bool chosen);
/* Writes the line of a candidate whose plan could not be built. */
void lt_dnn_log_failure(const lt_cuda *c, const char *key, const lt_dnn_choice *choice);

#endif
