/* Lines of the table of plans, for plans of cuDNN. */
#ifndef LT_CUDA_DNN_LOG_H
#define LT_CUDA_DNN_LOG_H

#include "dnn_plan.h"
#include "tensor/backend/cuda/cuda.h"

/* How a plan was told its device, in words. */
const char *lt_dnn_way_name(lt_dnn_way way);

/* The plan's line in the table of plans; plan->plan NULL: composed. */
void lt_dnn_log(const lt_cuda *c, const char *key, int candidate, const lt_dnn_plan *plan,
                float milliseconds, bool chosen);
/* The line of a candidate of which no plan could be made. */
void lt_dnn_log_failure(const lt_cuda *c, const char *key, const lt_dnn_choice *choice);

#endif
