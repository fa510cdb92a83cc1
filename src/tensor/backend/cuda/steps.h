/* Captured graphs, and uploads on a separate stream. */
#ifndef LT_CUDA_STEPS_H
#define LT_CUDA_STEPS_H

#include "cuda.h"

extern const lt_graph_ops lt_cuda_graphs;
extern const lt_upload_ops lt_cuda_uploads;

#endif
