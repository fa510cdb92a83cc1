/* First runs of cuDNN's execution plans. A plan's device can be specified in several ways (lt_dnn_device_source), and an engine
 * may support only one of them: a plan that fails to run is rebuilt in the other ways before it is rejected, and the
 * way that works is used for the next plans. */
#ifndef LT_CUDA_DNN_FIRST_RUN_H
#define LT_CUDA_DNN_FIRST_RUN_H

#include "dnn_cache.h"

/* Runs a plan once, on the main stream. */
typedef lt_status lt_dnn_run_fn(void *context, const lt_dnn_plan *plan);

/* Builds a plan of the config in the way that ran last. */
LT_MUST_CHECK lt_status lt_dnn_build_plan(lt_cuda *c, lt_dnn_cache *cache,
                                          const lt_dnn_config *config, lt_dnn_plan *out);
/* Runs the plan of that config; if it fails, replaces it by one that was built in another way and runs, with at most
 * `most` bytes of workspace. Logs each attempt. Errors: that of the first run, if no plan runs. */
LT_MUST_CHECK lt_status lt_dnn_first_run(lt_cuda *c, lt_dnn_cache *cache,
                                         const lt_dnn_config *config, size_t most,
                                         lt_dnn_run_fn *run, void *context, lt_dnn_plan *plan);

#endif
