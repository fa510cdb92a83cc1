/* Functions that run on the device, and on the host in tests: C that nvcc and the host's compiler
 * both read. */
#ifndef LT_CUDA_HOST_DEVICE_H
#define LT_CUDA_HOST_DEVICE_H

#ifdef __CUDACC__
#define LT_HD   __host__ __device__ static inline
#define LT_PURE LT_HD
#else
#define LT_HD static inline
#endif

#include "base/rng.h"
#include "tensor/backend/dtype.h"

#endif
