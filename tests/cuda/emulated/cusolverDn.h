/* Declarations of the cuSOLVER functions that the cuda backend calls; tests/cuda/libraries.c implements them. */
#ifndef LT_TESTS_CUSOLVERDN_H
#define LT_TESTS_CUSOLVERDN_H

#include "cublas_v2.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cusolverDnContext *cusolverDnHandle_t;
typedef struct cusolverDnParams *cusolverDnParams_t;
typedef int cusolverStatus_t;
typedef enum { CUSOLVER_EIG_MODE_VECTOR } cusolverEigMode_t;
typedef enum { CUDA_R_32F, CUDA_R_64F } cudaDataType;

cusolverStatus_t cusolverDnCreateParams(cusolverDnParams_t *params);
cusolverStatus_t cusolverDnDestroyParams(cusolverDnParams_t params);
cusolverStatus_t cusolverDnXsyevBatched_bufferSize(cusolverDnHandle_t handle,
                                                   cusolverDnParams_t params,
                                                   cusolverEigMode_t mode, cublasFillMode_t uplo,
                                                   int64_t n, cudaDataType type_a, const void *a,
                                                   int64_t lda, cudaDataType type_w, const void *w,
                                                   cudaDataType compute, size_t *device,
                                                   size_t *host, int64_t count);
cusolverStatus_t cusolverDnXsyevBatched(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                        cusolverEigMode_t mode, cublasFillMode_t uplo, int64_t n,
                                        cudaDataType type_a, void *a, int64_t lda,
                                        cudaDataType type_w, void *w, cudaDataType compute,
                                        void *device, size_t device_bytes, void *host,
                                        size_t host_bytes, int *info, int64_t count);

#define FAKE_CUSOLVER(letter, real)                                                                \
    cusolverStatus_t cusolverDn##letter##geqrf_bufferSize(cusolverDnHandle_t handle, int m, int n, \
                                                          real *a, int lda, int *count);           \
    cusolverStatus_t cusolverDn##letter##orgqr_bufferSize(cusolverDnHandle_t handle, int m, int n, \
                                                          int k, const real *a, int lda,           \
                                                          const real *tau, int *count);            \
    cusolverStatus_t cusolverDn##letter##geqrf(cusolverDnHandle_t handle, int m, int n, real *a,   \
                                               int lda, real *tau, real *work, int count,          \
                                               int *info);                                         \
    cusolverStatus_t cusolverDn##letter##orgqr(cusolverDnHandle_t handle, int m, int n, int k,     \
                                               real *a, int lda, const real *tau, real *work,      \
                                               int work_count, int *info);                         \
    cusolverStatus_t cusolverDn##letter##potrfBatched(cusolverDnHandle_t handle,                   \
                                                      cublasFillMode_t uplo, int n, real *a[],     \
                                                      int lda, int *info, int count)
FAKE_CUSOLVER(S, float);
FAKE_CUSOLVER(D, double);

#ifdef __cplusplus
}
#endif

#endif
