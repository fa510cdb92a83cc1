/* Declarations of the cuBLAS functions that the cuda backend calls; tests/cuda/libraries.c implements them. */
#ifndef LT_TESTS_CUBLAS_V2_H
#define LT_TESTS_CUBLAS_V2_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cublasContext *cublasHandle_t;
typedef int cublasStatus_t;
typedef enum { CUBLAS_OP_N, CUBLAS_OP_T } cublasOperation_t;
typedef enum { CUBLAS_SIDE_LEFT } cublasSideMode_t;
typedef enum { CUBLAS_FILL_MODE_LOWER } cublasFillMode_t;
typedef enum { CUBLAS_DIAG_NON_UNIT } cublasDiagType_t;
typedef enum { CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE } cublasPointerMode_t;
typedef enum { CUBLAS_DEFAULT_MATH, CUBLAS_TF32_TENSOR_OP_MATH } cublasMath_t;

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode);
cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t mode);

#define FAKE_CUBLAS(letter, real)                                                                  \
    cublasStatus_t cublas##letter##gemmBatched(                                                    \
        cublasHandle_t handle, cublasOperation_t opa, cublasOperation_t opb, int m, int n, int k,  \
        const real *alpha, const real *const *a, int lda, const real *const *b, int ldb,           \
        const real *beta, real *const *c, int ldc, int count);                                     \
    cublasStatus_t cublas##letter##trsmBatched(                                                    \
        cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t op, \
        cublasDiagType_t diag, int m, int n, const real *alpha, const real *const *a, int lda,     \
        real *const *b, int ldb, int count)
FAKE_CUBLAS(S, float);
FAKE_CUBLAS(D, double);

#define FAKE_STRIDED(letter, real)                                                                \
    cublasStatus_t cublas##letter##gemmStridedBatched(                                            \
        cublasHandle_t handle, cublasOperation_t opa, cublasOperation_t opb, int m, int n, int k, \
        const real *alpha, const real *a, int lda, long long int a_apart, const real *b, int ldb, \
        long long int b_apart, const real *beta, real *c, int ldc, long long int c_apart,         \
        int count)
FAKE_STRIDED(S, float);
FAKE_STRIDED(D, double);

#ifdef __cplusplus
}
#endif

#endif
