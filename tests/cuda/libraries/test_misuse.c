/* Invalid calls that the stand-ins refuse at execution: matrices that do not fit, memory that is too small,
 * misaligned, or not device memory. A call that would crash a real library, or give a wrong result silently, aborts
 * the program: such rows run in a child process. */

#include "../graphs.h"
#include "near.h"

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cusolverDn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIDE = 4, BYTES = 4096, DIES = -1, MOST = 8 };

static cudaStream_t stream;
static float on_host[BYTES / 4];

static void *memory(void)
{
    void *p = NULL;
    assert_false(cudaMalloc(&p, BYTES) || cudaMemsetAsync(p, 0, BYTES, stream)
                 || cudaStreamSynchronize(stream));
    return p;
}

static void copy_in(void *to, const void *from, size_t bytes)
{
    assert_false(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream)
                 || cudaStreamSynchronize(stream));
}

/* --- cuBLASLt --- */

/* A product of two squares, with one thing wrong. */
typedef struct product {
    cudaDataType_t a_type, d_type;
    int64_t a_rows, leading, stride;
    int32_t batches;
    bool foreign, narrow, shifted, host, overlap;
    cudaDataType_t bias_type;
    bool biased, unbound, on_host; /* with a bias; its address is not said, or the host's */
} product;

static const product good = {CUDA_R_32F, CUDA_R_32F, SIDE, SIDE,       SIDE *SIDE, 2, 0, 0,
                             0,          0,          0,    CUDA_R_32F, 0,          0, 0};

static cublasLtMatrixLayout_t layout(cudaDataType_t type, int64_t rows, const product *p)
{
    cublasLtMatrixLayout_t l;
    assert_false(cublasLtMatrixLayoutCreate(&l, type, (uint64_t)rows, SIDE, p->leading));
    assert_false(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                  &p->batches, sizeof p->batches)
                 || cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                     &p->stride, sizeof p->stride));
    return l;
}

static int ask(cublasLtHandle_t handle, cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a,
               cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t d,
               cublasLtMatmulHeuristicResult_t *found)
{
    const uint32_t alignment = 16;
    const uint64_t workspace = BYTES;
    const cublasLtMatmulPreferenceAttributes_t names[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    cublasLtMatmulPreference_t wish;
    int count = 0;
    assert_false(cublasLtMatmulPreferenceCreate(&wish));
    for (size_t i = 0; i < COUNT_OF(names); i++)
        assert_false(
            cublasLtMatmulPreferenceSetAttribute(wish, names[i], &alignment, sizeof alignment));
    assert_false(cublasLtMatmulPreferenceSetAttribute(
        wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
    const int st =
        (int)cublasLtMatmulAlgoGetHeuristic(handle, op, a, b, d, d, wish, MOST, found, &count);
    cublasLtMatmulPreferenceDestroy(wish);
    return st;
}

static void add_bias(const product *p, cublasLtMatmulDesc_t op)
{
    const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const int32_t type = (int32_t)p->bias_type;
    const void *bias = p->unbound ? NULL : p->on_host ? (char *)on_host : memory();
    assert_false(cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                                sizeof epilogue)
                 || cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type,
                                                   sizeof type)
                 || cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                                   sizeof bias));
}

static int multiply(const product *p)
{
    const float one = 1, zero = 0;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t op = NULL;
    cublasLtMatmulHeuristicResult_t found[MOST];
    assert_false(cublasLtCreate(&handle)
                 || cublasLtMatmulDescCreate(&op, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasLtMatrixLayout_t a = layout(p->a_type, p->a_rows, p);
    const cublasLtMatrixLayout_t b = layout(CUDA_R_32F, SIDE, p), d = layout(p->d_type, SIDE, p);
    if (p->biased)
        add_bias(p, op);
    int st = ask(handle, op, a, b, d, found);
    if (st)
        return st;
    if (p->foreign) { /* the algorithm is for another type of sum */
        const int32_t turned = CUBLAS_OP_T;
        assert_false(cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_TRANSA, &turned,
                                                    sizeof turned));
    }
    char *am = memory(), *bm = memory(), *dm = memory(), *workspace = memory();
    const size_t bytes = p->narrow ? 16 : BYTES;
    st = (int)cublasLtMatmul(handle, op, &one, p->host ? (char *)on_host : am + 4 * p->shifted, a,
                             bm, b, &zero, p->overlap ? bm : dm, d, p->overlap ? bm : dm, d,
                             &found[0].algo, workspace, bytes, stream);
    return st ? st : (int)cudaStreamSynchronize(stream);
}

static int product_is_good(void)
{
    return multiply(&good);
}

#define WRONG(name, ...)     \
    static int name(void)    \
    {                        \
        product p = good;    \
        __VA_ARGS__;         \
        return multiply(&p); \
    }
WRONG(product_of_two_types, p.a_type = CUDA_R_16F)
WRONG(product_to_16_bits, p.d_type = CUDA_R_16BF)
WRONG(product_that_does_not_fit, p.a_rows = SIDE - 1)
WRONG(product_with_overlapping_columns, p.leading = SIDE - 1)
WRONG(product_with_overlapping_results, p.stride = SIDE)
WRONG(product_by_anothers_algorithm, p.foreign = true)
WRONG(product_with_a_small_workspace, p.narrow = true)
WRONG(product_not_aligned, p.shifted = true)
WRONG(product_of_the_hosts_memory, p.host = true)
WRONG(product_onto_its_factor, p.overlap = true)
WRONG(product_with_a_bias, p.biased = true, p.batches = 1)
WRONG(product_with_a_bias_of_16_bits, p.biased = true, p.batches = 1, p.bias_type = CUDA_R_16BF)
WRONG(product_with_a_bias_nowhere, p.biased = true, p.batches = 1, p.unbound = true)
WRONG(product_with_the_hosts_bias, p.biased = true, p.batches = 1, p.on_host = true)

/* --- cuBLAS and cuSOLVER --- */

static int batched(cublasPointerMode_t mode, const float *factors, int leading)
{
    cublasHandle_t handle;
    float *const matrix = memory();
    float **const list = memory();
    assert_false(cublasCreate(&handle) || cublasSetStream(handle, stream)
                 || cublasSetPointerMode(handle, mode));
    copy_in(list, &matrix, sizeof matrix);
    float **const out = memory();
    float *const result = memory();
    copy_in(out, &result, sizeof result);
    const int st = (int)cublasSgemmBatched(
        handle, CUBLAS_OP_N, CUBLAS_OP_N, SIDE, SIDE, SIDE, factors, (const float *const *)list,
        leading, (const float *const *)list, SIDE, factors + 1, out, SIDE, 1);
    return st ? st : (int)cudaStreamSynchronize(stream);
}

static int factors_on_the_device(void)
{
    return batched(CUBLAS_POINTER_MODE_DEVICE, memory(), SIDE);
}

static int factors_on_the_host(void)
{
    return batched(CUBLAS_POINTER_MODE_HOST, on_host, SIDE);
}

static int the_hosts_factors_as_the_devices(void)
{
    return batched(CUBLAS_POINTER_MODE_DEVICE, on_host, SIDE);
}

static int the_devices_factors_as_the_hosts(void)
{
    return batched(CUBLAS_POINTER_MODE_HOST, memory(), SIDE);
}

static int a_leading_dimension_too_small(void)
{
    return batched(CUBLAS_POINTER_MODE_HOST, on_host, SIDE - 1);
}

static int factorize(int missing)
{
    cusolverDnHandle_t handle;
    int work = 0;
    assert_false(cusolverDnCreate(&handle) || cusolverDnSetStream(handle, stream)
                 || cusolverDnSgeqrf_bufferSize(handle, SIDE, SIDE, NULL, SIDE, &work));
    const int st = (int)cusolverDnSgeqrf(handle, SIDE, SIDE, memory(), SIDE, memory(), memory(),
                                         work - missing, memory());
    return st ? st : (int)cudaStreamSynchronize(stream);
}

static int factors_with_work_memory(void)
{
    return factorize(0);
}

static int factors_with_too_little(void)
{
    return factorize(1);
}

/* --- cuDNN --- */

typedef struct run {
    bool shifted, host, missing, overlap;
} run;

/* A convolution on 4x4 pixels of 8 channels. */
static int convolve(run r)
{
    static const lt_dnn_rules rules = {true, false, 0};
    static const conv_shape shape = {8, 8, SIDE, 1, 1};
    static const int tensor[] = {0, 1, 2};
    lt_dnn_graph g = {0};
    lt_dnn_configs configs = {0};
    lt_dnn_plan plan;
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t device;
    assert_ok(build_graph(&g, PLAIN_GRAD_X, &shape, 1, LT_F16));
    assert_false(cudnnCreate(&handle) || cudnnSetStream(handle, stream));
    assert_ok(lt_dnn_device_properties(&device, NULL, handle));
    assert_ok(lt_dnn_propose_configs(&configs, &g, device, &rules));
    assert_ok(lt_dnn_plan_new(&plan, &configs.item[0], device));
    char *x = memory(), *y = r.overlap ? x : memory();
    void *const all[] = {x, r.host ? (void *)on_host : memory(), y + 2 * r.shifted};
    const int st = (int)lt_dnn_plan_run(&plan, handle, tensor, all, r.missing ? 2 : 3, NULL);
    return st ? st : (int)cudaStreamSynchronize(stream);
}

static int a_convolution(void)
{
    return convolve((run){0});
}
static int a_convolution_not_aligned(void)
{
    return convolve((run){.shifted = true});
}
static int a_convolution_without_y(void)
{
    return convolve((run){.missing = true});
}
static int a_convolution_of_the_hosts_memory(void)
{
    return convolve((run){.host = true});
}
static int a_convolution_onto_itself(void)
{
    return convolve((run){.overlap = true});
}

/* Control for the tests of bitwise equality: an engine marked as nondeterministic gives sums that differ from run to
 * run. */
static void an_engine_that_is_not_deterministic(void **state)
{
    static const lt_dnn_rules rules = {false, false, 0};
    static const conv_shape shape = {8, 8, SIDE, 3, 1};
    static const int tensor[] = {0, 1, 2};
    lt_dnn_graph g = {0};
    lt_dnn_configs configs = {0};
    lt_dnn_plan plan = {0};
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t device;
    float before[8 * 8 * 3 * 3], after[8 * 8 * 3 * 3], numbers[BYTES / 4];
    void *const all[] = {memory(), memory(), memory()};
    (void)state;
    for (int i = 0; i < BYTES / 4; i++)
        numbers[i] = (float)sin(i * 1.7);
    copy_in(all[0], numbers, BYTES);
    copy_in(all[2], numbers, BYTES);
    assert_ok(build_graph(&g, PLAIN_GRAD_W, &shape, 1, LT_F32));
    assert_false(cudnnCreate(&handle) || cudnnSetStream(handle, stream));
    assert_ok(lt_dnn_device_properties(&device, NULL, handle));
    assert_ok(lt_dnn_propose_configs(&configs, &g, device, &rules));
    for (int i = 0; i < configs.count && !plan.plan; i++)
        if (configs.item[i].nondeterministic)
            assert_ok(lt_dnn_plan_new(&plan, &configs.item[i], device));
    assert_non_null(plan.plan);
    for (int i = 0; i < 2; i++) {
        assert_ok(lt_dnn_plan_run(&plan, handle, tensor, all, 3, NULL));
        assert_false(cudaMemcpyAsync(i ? after : before, all[1], sizeof before,
                                     cudaMemcpyDeviceToHost, stream)
                     || cudaStreamSynchronize(stream));
    }
    assert_true(memcmp(before, after, sizeof before) != 0);
    lt_dnn_plan_clear(&plan);
    lt_dnn_configs_clear(&configs);
    lt_dnn_reset_graph(&g);
    cudnnBackendDestroyDescriptor(device);
    cudnnDestroy(handle);
}

static int a_tensor_of_an_unknown_dtype(void)
{
    const int64_t dim[] = {1, 1, 1, 1};
    lt_dnn_graph g = {0};
    lt_dnn_tensor(&g, (lt_dtype)(LT_U8 + 1), dim, LT_DNN_MEMORY);
    const lt_status st = lt_dnn_finalize_graph(&g);
    lt_dnn_reset_graph(&g);
    return (int)st;
}

/* --- Memory that is freed while work is queued --- */

static int free_behind_a_copy(bool waits)
{
    void *on_host_for_long = NULL, *to = memory();
    assert_false(cudaMallocHost(&on_host_for_long, BYTES)
                 || cudaMemcpyAsync(to, on_host_for_long, BYTES, cudaMemcpyHostToDevice, stream));
    if (waits)
        assert_false(cudaStreamSynchronize(stream));
    return (int)cudaFreeHost(on_host_for_long);
}

static int page_locked_memory_is_waited_for(void)
{
    return free_behind_a_copy(true);
}

static int page_locked_memory_is_freed_too_early(void)
{
    return free_behind_a_copy(false);
}

typedef struct row {
    const char *name;
    int (*call)(void);
    int want; /* a status, or DIES */
} row;

/* Runs the row in a child process; returns 0 if the stand-in aborts it. */
static int outcome(const row *r)
{
    fflush(NULL);
    const pid_t child = fork();
    if (!child) {
        fclose(stderr);
        _exit(r->call() ? 2 : 3);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? DIES : WEXITSTATUS(status);
}

static void check_row(void **state)
{
    const row *r = *state;
    if (r->want == DIES)
        assert_int_equal(outcome(r), DIES);
    else
        assert_int_equal(r->call(), r->want);
}

/* clang-format off */
static const row rows[] = {
    {"control: a product with nothing wrong", product_is_good, 0},
    {"factors of two types", product_of_two_types, CUBLAS_STATUS_NOT_SUPPORTED},
    {"a result of fewer bits than f32 factors have", product_to_16_bits, CUBLAS_STATUS_NOT_SUPPORTED},
    {"factors that do not fit", product_that_does_not_fit, CUBLAS_STATUS_INVALID_VALUE},
    {"columns that overlap", product_with_overlapping_columns, CUBLAS_STATUS_INVALID_VALUE},
    {"results of a batch that overlap", product_with_overlapping_results, CUBLAS_STATUS_INVALID_VALUE},
    {"an algorithm of another product", product_by_anothers_algorithm, CUBLAS_STATUS_INVALID_VALUE},
    {"less workspace than the algorithm asked for", product_with_a_small_workspace, CUBLAS_STATUS_INVALID_VALUE},
    {"a factor that is not aligned as promised", product_not_aligned, CUBLAS_STATUS_INVALID_VALUE},
    {"a factor in the host's memory", product_of_the_hosts_memory, DIES},
    {"a result onto a factor", product_onto_its_factor, DIES},
    {"control: a bias with nothing wrong", product_with_a_bias, 0},
    {"a bias of another type than the result", product_with_a_bias_of_16_bits, CUBLAS_STATUS_NOT_SUPPORTED},
    {"a bias without an address", product_with_a_bias_nowhere, CUBLAS_STATUS_INVALID_VALUE},
    {"a bias in the host's memory", product_with_the_hosts_bias, DIES},
    {"control: factors on the device", factors_on_the_device, 0},
    {"control: factors on the host", factors_on_the_host, 0},
    {"the host's factors as the device's", the_hosts_factors_as_the_devices, DIES},
    {"the device's factors as the host's", the_devices_factors_as_the_hosts, DIES},
    {"a leading dimension that is too small", a_leading_dimension_too_small, CUBLAS_STATUS_INVALID_VALUE},
    {"control: QR with its work memory", factors_with_work_memory, 0},
    {"QR with less", factors_with_too_little, CUSOLVER_STATUS_INVALID_VALUE},
    {"control: a convolution with nothing wrong", a_convolution, 0},
    {"a tensor of a dtype that cuDNN lacks", a_tensor_of_an_unknown_dtype, LT_E_UNSUPPORTED},
    {"a tensor that is not aligned as declared", a_convolution_not_aligned, LT_E_DEVICE},
    {"a tensor without a pointer", a_convolution_without_y, LT_E_DEVICE},
    {"a tensor in the host's memory", a_convolution_of_the_hosts_memory, DIES},
    {"the result overlaps an input", a_convolution_onto_itself, DIES},
    {"control: page-locked memory is freed after its copy", page_locked_memory_is_waited_for, 0},
    {"page-locked memory is freed before its copy", page_locked_memory_is_freed_too_early, DIES},
};
/* clang-format on */

int main(void)
{
    setenv("LATHER_STANDIN", "late", 0);
    struct CMUnitTest tests[COUNT_OF(rows) + 1];
    if (cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0))
        return 1;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[i] = row_test(rows[i].name, check_row, &rows[i]);
    tests[COUNT_OF(rows)] =
        (struct CMUnitTest)cmocka_unit_test(an_engine_that_is_not_deterministic);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
