/* Convolutions and matrix products of a reproducible device: results are the same bits for every instruction set that this
 * processor has and for any number of threads. */

#include "conv_data.h"
#include "tensor/backend/cpu/cpu.h"
#include "tensor/backend/cpu/internal.h"

#define FORM(stride, pad, dilation, groups)                  \
    {                                                        \
        stride, stride, pad, pad, dilation, dilation, groups \
    }

typedef struct row {
    const char *name;
    lt_dtype dtype;
    int64_t batch, channels, size, filters,
        taps; /* taps 0: a product [batch * size, channels] x [channels, filters] */
    lt_conv2d_config config;
    const char *by; /* kernels of forward: lt_cpu.last_conv; NULL: not compared */
    bool control;   /* runs on the default device, where bits must differ */
} row;

static const row rows[] = {
    {"3x3 by Winograd", LT_F32, 5, 64, 15, 96, 3, FORM(1, 1, 1, 1), "winograd", false},
    {"3x3 by Winograd, bf16", LT_BF16, 5, 64, 15, 96, 3, FORM(1, 1, 1, 1), "winograd", false},
    {"3x3, more channels than 256", LT_F32, 9, 288, 12, 32, 3, FORM(1, 1, 1, 1), "winograd", false},
    {"3x3 stride 2", LT_F32, 3, 40, 15, 37, 3, FORM(2, 1, 1, 1), "direct", false},
    {"3x3 stride 2, bf16", LT_BF16, 3, 40, 15, 37, 3, FORM(2, 1, 1, 1), "direct", false},
    {"3x3 dilation 2, odd channels, bf16", LT_BF16, 3, 7, 15, 37, 3, FORM(1, 2, 2, 1), "direct",
     false},
    {"1x1, many pixels", LT_F32, 20, 70, 15, 70, 1, FORM(1, 0, 1, 1), "direct", false},
    {"7x7 of an image", LT_F32, 3, 3, 38, 24, 7, FORM(2, 3, 1, 1), "direct", false},
    {"4x4 patches", LT_F32, 3, 3, 32, 24, 4, FORM(4, 0, 1, 1), "direct", false},
    {"groups", LT_F32, 5, 24, 15, 36, 3, FORM(1, 1, 1, 4), "direct", false},
    {"groups, bf16", LT_BF16, 5, 24, 15, 36, 3, FORM(2, 1, 1, 4), "direct", false},
    {"depthwise", LT_F32, 5, 37, 15, 37, 3, FORM(1, 1, 1, 37), "depthwise", false},
    {"depthwise stride 2, bf16", LT_BF16, 5, 37, 15, 37, 3, FORM(2, 1, 1, 37), "depthwise", false},
    {"product", LT_F32, 9, 300, 37, 530, 0, FORM(1, 0, 1, 1), NULL, false},
    {"product, bf16", LT_BF16, 9, 300, 37, 530, 0, FORM(1, 0, 1, 1), NULL, false},
#if defined(__aarch64__)
    /* by instructions for bf16 */
    {"control: a product by default", LT_BF16, 9, 300, 37, 530, 0, FORM(1, 0, 1, 1), NULL, true},
#else
    /* by default every set has other convolutions; products are equal for AVX2 and generic */
    {"control: a convolution by default", LT_F32, 3, 40, 15, 37, 3, FORM(2, 1, 1, 1), NULL, true},
#endif
};

enum { RESULTS = 4 };

/* The images, filters and vectors of a row; grad: gradient of y. */
typedef struct operands {
    lt_view x, w, b, grad, out[RESULTS]; /* out: y, dx, dw, statistics of y */
} operands;

static lt_view matrix_of(const lt_view *v)
{
    const int64_t *d = v->shape.dim, cols = d[1];
    return (lt_view){v->data, v->dtype, LT_SHAPE(d[0] * d[2] * d[3], cols), .stride = {cols, 1}};
}

static operands make(const row *r)
{
    const lt_conv2d_config *c = &r->config;
    const int64_t taps = r->taps ? r->taps : 1, height = r->taps ? r->size : 1;
    const int64_t reach = (taps - 1) * c->dilation_h + 1;
    const int64_t p = (height + 2 * c->pad_h - reach) / c->stride_h + 1, q = r->taps ? p : r->size;
    operands o = {.x = new_image(r->dtype, r->batch, r->channels, height, r->size),
                  .w = new_image(LT_F32, r->filters, r->channels / c->groups, taps, taps),
                  .b = new_image(LT_F32, r->filters, 1, 1, 1),
                  .grad = new_image(r->dtype, r->batch, r->filters, p, q)};
    o.b.shape = LT_SHAPE(r->filters);
    o.b.stride[0] = 1;
    fill(&o.x, -1, 1, 1);
    fill(&o.w, -1, 1, 2);
    fill(&o.b, -1, 1, 3);
    fill(&o.grad, -1, 1, 4);
    o.out[0] = copy_of(&o.grad);
    o.out[1] = copy_of(&o.x);
    o.out[2] = copy_of(&o.w);
    o.out[3] = new_image(LT_F32, r->filters, 3, 1, 1);
    o.out[3].shape = LT_SHAPE(3, r->filters);
    o.out[3].stride[0] = r->filters;
    o.out[3].stride[1] = 1;
    return o;
}

static void run_convs(const row *r, const lt_backend *be, lt_cpu *cpu, operands *o)
{
    const lt_view *bias = r->channels % 2 ? &o->b : NULL;
    assert_ok(be->conv2d(cpu, &r->config, &o->x, &o->w, bias, &o->out[0]));
    if (r->by)
        assert_string_equal(cpu->last_conv, r->by);
    assert_ok(be->conv2d_grad_x(cpu, &r->config, &o->grad, &o->w, &o->out[1]));
    assert_ok(be->conv2d_grad_w(cpu, &r->config, &o->grad, &o->x, &o->out[2]));
    lt_view y = copy_of(&o->out[0]);
    assert_ok(be->conv2d_stats(cpu, &r->config, &o->x, &o->w, &y, &o->out[3], NULL));
    free(y.data);
}

static void run_products(const lt_backend *be, lt_cpu *cpu, operands *o)
{
    const lt_view x = matrix_of(&o->x), w = matrix_of(&o->w), y = matrix_of(&o->out[0]);
    assert_ok(be->linear(cpu, &x, &w, &o->b, &y));
}

/* Runs a row on a set; returns the results, to be freed. */
static operands results_of(const row *r, const char *isa, int threads)
{
    const lt_backend *be;
    void *ctx;
    operands o = make(r);
    assert_int_equal(setenv("LATHER_CPU_ISA", isa, 1), 0);
    assert_ok(lt_backend_find("cpu", &be));
    assert_ok(
        be->open(&ctx, 0, &(lt_device_config){.threads = threads, .reproducible = !r->control}));
    if (r->taps)
        run_convs(r, be, ctx, &o);
    else
        run_products(be, ctx, &o);
    be->close(ctx);
    assert_int_equal(unsetenv("LATHER_CPU_ISA"), 0);
    return o;
}

static void release(operands *o)
{
    void *all[] = {o->x.data, o->w.data, o->b.data, o->grad.data};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        free(all[i]);
    for (int i = 0; i < RESULTS; i++)
        free(o->out[i].data);
}

static void bits_are_equal(void **state)
{
#if defined(__x86_64__)
    static const char *const sets[] = {"avx2", "avx512", "avx512_bf16", "amx", "generic"};
#else
    static const char *const sets[] = {"neon_bf16", "neon", "generic"};
#endif
    const row *r = *state;
#if defined(__aarch64__)
    if (r->control && lt_cpu_detect() < LT_ISA_NEON_BF16)
        skip();
#endif
    operands want = results_of(r, "generic", 1);
    bool same = true;
    for (size_t i = 0; i < COUNT_OF(sets); i++) {
        operands got = results_of(r, sets[i], 1 + 2 * ((int)i % 2));
        for (int k = 0; k < RESULTS; k++)
            same = same && !memcmp(want.out[k].data, got.out[k].data, bytes_of(&want.out[k]));
        if (!same && !r->control)
            print_message("%s differs from generic\n", sets[i]);
        release(&got);
    }
    release(&want);
    assert_int_equal(same, !r->control);
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(rows)];
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[i] = (struct CMUnitTest){.name = rows[i].name,
                                       .test_func = bits_are_equal,
                                       .initial_state = (void *)(uintptr_t)&rows[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
