/* Built-in convolutions of the cpu backend: which are used, and bitwise identical results for any number of
 * threads. tests/conform compares their values. */

#include "tensor/backend/cpu/conv/direct_conv.h"

#include "conv_data.h"
#include "tensor/backend/cpu/conv/wgrad.h"

#include <string.h>

static void the_variable_names_a_choice(void **state)
{
    static const char *const names[] = {"auto", "builtin", "onednn"};
    lt_cpu_choice choice = LT_KERNELS_BUILTIN;
    (void)state;
    assert_int_equal(setenv("LATHER_CPU_KERNELS", "", 1), 0);
    assert_ok(lt_cpu_read_kernel_choice(&choice));
    assert_int_equal(choice, LT_KERNELS_AUTO);
    for (int i = 0; i < (int)COUNT_OF(names); i++) {
        assert_int_equal(setenv("LATHER_CPU_KERNELS", names[i], 1), 0);
        assert_ok(lt_cpu_read_kernel_choice(&choice));
        assert_int_equal(choice, i);
    }
    assert_int_equal(setenv("LATHER_CPU_KERNELS", "own", 1), 0); /* name of 0.1 */
    assert_ok(lt_cpu_read_kernel_choice(&choice));
    assert_int_equal(choice, LT_KERNELS_BUILTIN);
}

static void an_unknown_choice_is_an_error(void **state)
{
    lt_device *device = NULL;
    (void)state;
    assert_int_equal(setenv("LATHER_CPU_KERNELS", "mkl", 1), 0);
    assert_status(lt_device_open(&device, "cpu", NULL), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "LATHER_CPU_KERNELS: unknown value 'mkl'"));
    assert_int_equal(unsetenv("LATHER_CPU_KERNELS"), 0);
}

typedef struct listed_row {
    const char *name;
    int64_t batch, from, to, size, taps;
    int stride;
    lt_dtype dtype;
    lt_cpu_isa isa;
    bool backward, listed;
} listed_row;

static const listed_row listed_rows[] = {
    {"1x1", 32, 256, 64, 56, 1, 1, LT_F32, LT_ISA_AVX512, false, true},
    {"bf16, few written", 32, 256, 64, 56, 1, 1, LT_BF16, LT_ISA_AVX512_BF16, false, false},
    {"bf16, 1x1", 32, 64, 256, 56, 1, 1, LT_BF16, LT_ISA_AVX512_BF16, false, true},
    {"bf16, strided 1x1", 32, 256, 512, 56, 1, 2, LT_BF16, LT_ISA_AVX512_BF16, false, true},
    {"bf16, 3x3 is oneDNN's", 32, 512, 512, 7, 3, 1, LT_BF16, LT_ISA_AVX512_BF16, false, false},
    {"bf16, gradient of 3x3", 32, 256, 256, 14, 3, 1, LT_BF16, LT_ISA_AVX512_BF16, true, true},
    {"bf16, of strided 3x3", 32, 512, 512, 7, 3, 2, LT_BF16, LT_ISA_AVX512_BF16, true, true},
    {"bf16, of few channels", 32, 128, 128, 28, 3, 1, LT_BF16, LT_ISA_AVX512_BF16, true, false},
    {"bf16, of strided 1x1", 32, 2048, 1024, 7, 1, 2, LT_BF16, LT_ISA_AVX512_BF16, true, false},
    {"AVX2, 1x1 is oneDNN's", 32, 256, 64, 56, 1, 1, LT_F32, LT_ISA_AVX2, false, false},
    {"AVX2, its gradient", 32, 256, 64, 56, 1, 1, LT_F32, LT_ISA_AVX2, true, true},
    {"AVX2, strided 3x3", 32, 64, 128, 16, 3, 2, LT_F32, LT_ISA_AVX2, false, true},
    {"AVX2, gradient of strided 3x3", 32, 512, 512, 14, 3, 2, LT_F32, LT_ISA_AVX2, true, true},
    {"AVX2, of few channels", 32, 64, 64, 56, 3, 2, LT_F32, LT_ISA_AVX2, true, false},
    {"AVX2, 3x3 is Winograd's or oneDNN's", 32, 512, 512, 7, 3, 1, LT_F32, LT_ISA_AVX2, false,
     false},
    {"AVX2, few pixels", 1, 64, 128, 16, 3, 2, LT_F32, LT_ISA_AVX2, false, false},
    {"not on generic", 32, 64, 128, 16, 3, 2, LT_F32, LT_ISA_GENERIC, false, false},
    {"3x3 of few channels is oneDNN's", 32, 64, 64, 56, 3, 1, LT_F32, LT_ISA_AVX512, false, false},
    {"3x3 of many channels", 32, 512, 512, 7, 3, 1, LT_F32, LT_ISA_AVX512, false, true},
    {"its gradient is oneDNN's", 32, 512, 512, 7, 3, 1, LT_F32, LT_ISA_AVX512, true, false},
    {"strided gradient", 32, 256, 256, 28, 3, 2, LT_F32, LT_ISA_AVX512, true, true},
    {"few pixels", 1, 512, 512, 7, 1, 1, LT_F32, LT_ISA_AVX512, false, false},
    {"few channels", 32, 256, 32, 56, 1, 1, LT_F32, LT_ISA_AVX512, false, false},
};

static void is_listed(void **state)
{
    const listed_row *r = *state;
    const lt_conv2d_config config = {r->stride, r->stride, 0, 0, 1, 1, 1};
    const lt_view from = {.dtype = r->dtype,
                          .shape = LT_SHAPE(r->batch, r->from, r->size, r->size)},
                  to = {.dtype = r->dtype, .shape = LT_SHAPE(r->batch, r->to, r->size, r->size)},
                  w = {.dtype = LT_F32, .shape = LT_SHAPE(r->to, r->from, r->taps, r->taps)};
    const lt_direct_conv c = {
        .config = &config, .from = &from, .w = &w, .to = &to, .backward = r->backward};
    assert_int_equal(lt_direct_conv_is_faster(r->isa, &c), r->listed);
}

typedef struct wgrad_row {
    lt_dtype dtype;
    lt_cpu_isa isa;
    int64_t out, in, taps;
    int groups;
    bool own;
    lt_cpu_choice choice;
} wgrad_row;

static void direct_weight_gradients(void **state)
{
    static const wgrad_row rows[] = {
        {LT_BF16, LT_ISA_AVX512_BF16, 64, 64, 3, 1, true, LT_KERNELS_AUTO},
        {LT_BF16, LT_ISA_AVX512_BF16, 64, 64, 1, 1, true, LT_KERNELS_AUTO},
        {LT_BF16, LT_ISA_AVX512_BF16, 64, 32, 1, 1, false, LT_KERNELS_AUTO},
        {LT_BF16, LT_ISA_AVX512_BF16, 32, 64, 1, 1, false, LT_KERNELS_AUTO},
        {LT_BF16, LT_ISA_AVX512_BF16, 64, 64, 3, 2, false, LT_KERNELS_AUTO},
        {LT_BF16, LT_ISA_AMX, 64, 64, 1, 1, true, LT_KERNELS_AUTO},
        {LT_BF16, LT_ISA_AMX, 64, 64, 3, 1, false, LT_KERNELS_AUTO},
        {LT_BF16, LT_ISA_AMX, 128, 128, 3, 1, true, LT_KERNELS_AUTO},
        {LT_BF16, LT_ISA_AMX, 16, 32, 1, 1, true, LT_KERNELS_AUTO},
        {LT_BF16, LT_ISA_AMX, 64, 3, 7, 1, true, LT_KERNELS_AUTO},
        {LT_BF16, LT_ISA_AMX, 64, 16, 3, 1, false, LT_KERNELS_AUTO},
        {LT_BF16, LT_ISA_AVX512, 128, 128, 3, 1, false, LT_KERNELS_AUTO},
        {LT_BF16, LT_ISA_AVX512_BF16, 64, 64, 3, 1, false, LT_KERNELS_ONEDNN},
        {LT_BF16, LT_ISA_AVX512_BF16, 32, 32, 1, 1, true, LT_KERNELS_BUILTIN},
        {LT_BF16, LT_ISA_AVX512_BF16, 64, 64, 1, 2, false, LT_KERNELS_BUILTIN},
        {LT_BF16, LT_ISA_AVX2, 128, 128, 3, 1, true, LT_KERNELS_AUTO},
        {LT_F32, LT_ISA_AVX2, 64, 64, 1, 1, true, LT_KERNELS_AUTO},
        {LT_F32, LT_ISA_AVX2, 64, 32, 3, 1, false, LT_KERNELS_AUTO},
        {LT_F32, LT_ISA_AVX2, 64, 64, 1, 1, false, LT_KERNELS_ONEDNN},
        {LT_F32, LT_ISA_AVX512, 128, 128, 3, 1, false, LT_KERNELS_AUTO},
        {LT_F32, LT_ISA_AVX512_BF16, 128, 128, 3, 1, false, LT_KERNELS_AUTO},
        {LT_F32, LT_ISA_AVX512_BF16, 128, 128, 3, 1, true, LT_KERNELS_BUILTIN},
        {LT_F32, LT_ISA_GENERIC, 128, 128, 3, 1, false, LT_KERNELS_AUTO},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const wgrad_row *r = &rows[i];
        const lt_conv2d_config config = {1, 1, 0, 0, 1, 1, r->groups};
        const lt_shape w = LT_SHAPE(r->out, r->in, r->taps, r->taps);
        lt_cpu cpu = {.isa = r->isa, .choice = r->choice, .onednn = some_onednn()};
        assert_int_equal(lt_wgrad_is_chosen(&cpu, &config, r->dtype, w), r->own);
        cpu.onednn = NULL;
        if (r->choice == LT_KERNELS_AUTO && r->groups == 1)
            assert_true(lt_wgrad_is_chosen(&cpu, &config, r->dtype, w));
    }
}

enum { BATCH = 5, CHANNELS = 24, OUT = 40, SIZE = 15, TAPS = 3, HALF = 8 };
enum { X_COUNT = BATCH * CHANNELS * SIZE * SIZE, Y_COUNT = BATCH * OUT * HALF * HALF };

typedef struct operands {
    float x[X_COUNT], w[OUT * CHANNELS * TAPS * TAPS], y[Y_COUNT], dx[X_COUNT];
    float coef[4 * CHANNELS], stats[3 * OUT], sums[2 * CHANNELS];
} operands;

static lt_view image(float *data, int64_t channels, int64_t size)
{
    return lt_cpu_dense_view(data, LT_F32, LT_SHAPE(BATCH, channels, size, size));
}

static lt_view rows_of(float *data, int64_t rows, int64_t channels)
{
    return lt_cpu_dense_view(data, LT_F32, LT_SHAPE(rows, channels));
}

/* Forward with the preceding batch norm and with statistics, and the gradient with batch norm's sums. */
static void run_threads(operands *o, int threads)
{
    const lt_backend *be;
    void *ctx = open_own(&be, threads);
    lt_norm_conv how = {0};
    const lt_conv2d_config config = {2, 2, 1, 1, 1, 1, 1};
    const lt_view x = image(o->x, CHANNELS, SIZE), dx = image(o->dx, CHANNELS, SIZE);
    const lt_view y = image(o->y, OUT, HALF), coef = rows_of(o->coef, 4, CHANNELS);
    const lt_view stats = rows_of(o->stats, 3, OUT), sums = rows_of(o->sums, 2, CHANNELS);
    const lt_view w = lt_cpu_dense_view(o->w, LT_F32, LT_SHAPE(OUT, CHANNELS, TAPS, TAPS));
    const lt_batchnorm_before norm = {&x, &coef, &coef, &coef, NULL};
    assert_ok(be->conv2d_norm_stats(ctx, &config, &norm, &w, &y, &stats, &how));
    if (!how.done) { /* no built-in kernels on this processor */
        be->close(ctx);
        skip();
    }
    assert_ok(be->conv2d_grad_x_sums(ctx, &config, &y, &w, &norm, &dx, &sums));
    be->close(ctx);
}

static void bits_do_not_depend_on_threads(void **state)
{
    static operands want, got;
    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof(float); i++)
        ((float *)&want)[i] = (float)(i * 7919 % 1000) / 500 - 1;
    got = want;
    run_threads(&want, 1);
    for (int threads = 2; threads <= 3; threads++) {
        run_threads(&got, threads);
        assert_memory_equal(&want, &got, sizeof want);
    }
}

int main(void)
{
    enum { OTHERS = 4 };
    struct CMUnitTest tests[OTHERS + COUNT_OF(listed_rows)] = {
        cmocka_unit_test(the_variable_names_a_choice),
        cmocka_unit_test(an_unknown_choice_is_an_error),
        cmocka_unit_test(bits_do_not_depend_on_threads),
        cmocka_unit_test(direct_weight_gradients),
    };
    for (size_t i = 0; i < COUNT_OF(listed_rows); i++)
        tests[OTHERS + i] = (struct CMUnitTest){listed_rows[i].name, is_listed, NULL, NULL,
                                                (void *)(uintptr_t)&listed_rows[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
