/* Plans of cuDNN that are run for the first time. A plan can be made that does not run: the library has several
 * ways to be told for which device it is, and an engine may know one of them only. So what fails is made once
 * more in the other ways before it is given up, and what runs is how the next plan is made. */
#ifndef LT_CUDA_DNN_TRIAL_H
#define LT_CUDA_DNN_TRIAL_H

#include "dnn_cache.h"

/* Runs a plan once, on the main queue. */
typedef lt_status lt_dnn_run_fn(void *context, const lt_dnn_plan *plan);

/* The choice as a plan, in the way that ran last. */
LT_MUST_CHECK lt_status lt_dnn_make(lt_cuda *c, lt_dnn_cache *cache, const lt_dnn_choice *choice,
                                    lt_dnn_plan *out);
/* Runs the plan, which is of that choice; where it fails, it is replaced by one that was made in another way and
 * runs, with at most so many bytes of workspace. Each of these is logged. Errors: the first run's, if none runs. */
LT_MUST_CHECK lt_status lt_dnn_prove(lt_cuda *c, lt_dnn_cache *cache, const lt_dnn_choice *choice,
                                     size_t most, lt_dnn_run_fn *run, void *context,
                                     lt_dnn_plan *plan);

#endif
