/* Winograd convolutions of the cpu backend: values and gradients, when they are used, and bitwise identical
 * results for any number of threads. */

#include "tensor/backend/cpu/conv/winograd.h"

#include "conv_data.h"

#include <math.h>

enum { TAPS = 3 };

typedef struct row {
    const char *name;
    int64_t batch, in, out, h, w;
    int pad;
    bool bf16;
} row;

static const row rows[] = {
    {"one tile", 1, 32, 32, 4, 4, 1, false},
    {"tiles that reach over both edges", 2, 32, 32, 7, 9, 1, false},
    {"without padding", 2, 32, 32, 6, 11, 0, false},
    {"padding 2", 1, 32, 32, 5, 6, 2, false},
    {"more channels written than read", 2, 32, 64, 8, 5, 1, false},
    {"more channels read than written", 2, 64, 32, 5, 8, 1, false},
    {"several groups of tiles", 7, 32, 32, 40, 40, 1, false},
    {"points beyond the second cache, in groups", 1, 288, 32, 48, 45, 1, false},
    {"bf16", 3, 64, 64, 9, 9, 1, true},
};

typedef struct images {
    lt_view x, w, y;
} images;

static images make(const row *r)
{
    const lt_dtype dtype = r->bf16 ? LT_BF16 : LT_F32;
    images m = {
        .x = new_image(dtype, r->batch, r->in, r->h, r->w),
        .w = new_image(LT_F32, r->out, r->in, TAPS, TAPS),
        .y = new_image(dtype, r->batch, r->out, r->h + 2 * r->pad - 2, r->w + 2 * r->pad - 2)};
    fill(&m.x, -1, 1, 7919);
    fill(&m.y, -1, 1, 104729);
    fill(&m.w, -1, 1, 1299709);
    return m;
}

static void clear(images *m)
{
    free(m->x.data);
    free(m->y.data);
    free(m->w.data);
}

static double *wide(const lt_view *v)
{
    const int64_t count = lt_shape_count(v->shape);
    double *to = malloc((size_t)count * sizeof *to);
    assert_non_null(to);
    for (int64_t i = 0; i < count; i++)
        to[i] = get(v, i);
    return to;
}

/* Computes all three sums at once, over every product. */
static void add_all(const row *r, const images *m, double *y, double *dx, double *dw)
{
    const int64_t *to = m->y.shape.dim;
    double *x = wide(&m->x), *dy = wide(&m->y), *w = wide(&m->w);
    for (int64_t i = 0; i < to[0] * to[2] * to[3] * TAPS * TAPS; i++) {
        const int64_t tap = i % (TAPS * TAPS), pixel = i / (TAPS * TAPS);
        const int64_t n = pixel / (to[2] * to[3]), p = pixel / to[3] % to[2], q = pixel % to[3];
        const int64_t h = p + tap / TAPS - r->pad, v = q + tap % TAPS - r->pad;
        if (h < 0 || h >= r->h || v < 0 || v >= r->w)
            continue;
        const int64_t at = ((n * r->h + h) * r->w + v) * r->in, out = pixel * r->out;
        for (int64_t k = 0; k < r->out; k++)
            for (int64_t c = 0; c < r->in; c++) {
                const int64_t weight = (k * TAPS * TAPS + tap) * r->in + c;
                y[out + k] += x[at + c] * w[weight];
                dx[at + c] += dy[out + k] * w[weight];
                dw[weight] += x[at + c] * dy[out + k];
            }
    }
    free(x);
    free(dy);
    free(w);
}

/* Mean errors were measured at 2 to 3 times those of direct sums, about 2^-24 * products^(1/2) for numbers
 * up to 1. The worst of some thousand elements may have 100 times that. bf16 rounds the result. */
static void assert_all_near(const lt_view *got, const double *want, double products)
{
    double largest = 0;
    const int64_t count = lt_shape_count(got->shape);
    for (int64_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(want[i]));
    for (int64_t i = 0; i < count; i++) {
        const double rounding = got->dtype == LT_BF16 ? 0x1p-8 * largest : 0;
        assert_near(get(got, i), want[i], 100 * 0x1p-24 * sqrt(products) + rounding);
    }
}

typedef struct calls {
    lt_conv2d_config config;
    lt_direct_conv forward, backward;
    lt_winograd_grad grad;
} calls;

static void describe(calls *c, const images *m, int pad)
{
    c->config = (lt_conv2d_config){1, 1, pad, pad, 1, 1, 1};
    c->forward = (lt_direct_conv){.config = &c->config, .from = &m->x, .w = &m->w, .to = &m->y};
    c->backward = (lt_direct_conv){
        .config = &c->config, .from = &m->y, .w = &m->w, .to = &m->x, .backward = true};
    c->grad = (lt_winograd_grad){&c->config, &m->x, &m->y, &m->w, NULL};
}

/* In this order none overwrites an operand that a later one reads. */
static void compute(const row *r, images *m, int threads)
{
    const lt_backend *be;
    lt_cpu *cpu = open_own(&be, threads);
    calls c;
    describe(&c, m, r->pad);
    const bool can = lt_winograd_is_chosen(cpu, &c.forward);
    assert_int_equal(lt_winograd_is_chosen(cpu, &c.backward), can);
    assert_int_equal(lt_winograd_is_chosen_for_grad_w(cpu, &c.grad), can);
    if (!can) {
        be->close(cpu);
        clear(m);
        skip(); /* no such kernels on this processor */
    }
    const lt_view y = m->y, w = m->w;
    lt_view y2 = copy_of(&y), w2 = copy_of(&w);
    c.forward.to = &y2;
    c.grad.dw = &w2;
    assert_ok(lt_winograd_run(cpu, &c.forward));
    assert_ok(lt_winograd_grad_w(cpu, &c.grad));
    assert_ok(lt_winograd_run(cpu, &c.backward));
    free(y.data);
    free(w.data);
    m->y = y2;
    m->w = w2;
    be->close(cpu);
}

static void sums_are_right(void **state)
{
    const row *r = *state;
    images m = make(r);
    double *y = calloc((size_t)lt_shape_count(m.y.shape), sizeof *y);
    double *dx = calloc((size_t)lt_shape_count(m.x.shape), sizeof *dx);
    double *dw = calloc((size_t)lt_shape_count(m.w.shape), sizeof *dw);
    assert_true(y && dx && dw);
    add_all(r, &m, y, dx, dw);
    compute(r, &m, 1);
    assert_all_near(&m.y, y, (double)(r->in * TAPS * TAPS));
    assert_all_near(&m.x, dx, (double)(r->out * TAPS * TAPS));
    assert_all_near(&m.w, dw, (double)(r->batch * m.y.shape.dim[2] * m.y.shape.dim[3]));
    free(y);
    free(dx);
    free(dw);
    clear(&m);
}

static void bits_do_not_depend_on_threads(void **state)
{
    const row *r = &rows[COUNT_OF(rows) - 2];
    images want = make(r);
    (void)state;
    compute(r, &want, 1);
    for (int threads = 2; threads <= 3; threads++) {
        images got = make(r);
        compute(r, &got, threads);
        assert_memory_equal(got.x.data, want.x.data, bytes_of(&got.x));
        assert_memory_equal(got.y.data, want.y.data, bytes_of(&got.y));
        assert_memory_equal(got.w.data, want.w.data, bytes_of(&got.w));
        clear(&got);
    }
    clear(&want);
}

typedef struct choice {
    const char *name;
    int64_t in, out, size, taps;
    lt_conv2d_config config;
    lt_cpu_isa isa;
    lt_dtype dtype;
    lt_cpu_choice kernels;
    bool wanted;
} choice;

/* Strides, padding, dilation, groups. */
#define FORM(...)   \
    {               \
        __VA_ARGS__ \
    }
#define PLAIN FORM(1, 1, 1, 1, 1, 1, 1)
static const choice choices[] = {
    {"3x3", 64, 64, 32, 3, PLAIN, LT_ISA_AVX512, LT_F32, LT_KERNELS_AUTO, true},
    {"its switch", 64, 64, 32, 3, PLAIN, LT_ISA_AVX512, LT_F32, LT_KERNELS_ONEDNN, false},
    {"on AVX2 too", 64, 64, 32, 3, PLAIN, LT_ISA_AVX2, LT_F32, LT_KERNELS_AUTO, true},
    {"bf16 on AVX2", 64, 64, 32, 3, PLAIN, LT_ISA_AVX2, LT_BF16, LT_KERNELS_AUTO, true},
    {"bf16 with pairs", 64, 64, 32, 3, PLAIN, LT_ISA_AVX512_BF16, LT_BF16, LT_KERNELS_AUTO, true},
    {"bf16 is AMX's", 64, 64, 32, 3, PLAIN, LT_ISA_AMX, LT_BF16, LT_KERNELS_AUTO, false},
    {"but it can", 64, 64, 32, 3, PLAIN, LT_ISA_AMX, LT_BF16, LT_KERNELS_BUILTIN, true},
    {"f32 on AMX too", 64, 64, 32, 3, PLAIN, LT_ISA_AMX, LT_F32, LT_KERNELS_AUTO, true},
    {"not on generic", 64, 64, 32, 3, PLAIN, LT_ISA_GENERIC, LT_F32, LT_KERNELS_AUTO, false},
    {"on generic if asked", 64, 64, 32, 3, PLAIN, LT_ISA_GENERIC, LT_F32, LT_KERNELS_BUILTIN, true},
    {"channels of no vector", 24, 64, 32, 3, PLAIN, LT_ISA_AVX512, LT_F32, LT_KERNELS_BUILTIN,
     false},
    {"results of no vector", 64, 24, 32, 3, PLAIN, LT_ISA_AVX512, LT_F32, LT_KERNELS_BUILTIN,
     false},
    {"two pixels", 64, 64, 2, 3, PLAIN, LT_ISA_AVX512, LT_F32, LT_KERNELS_AUTO, false},
    {"1x1", 64, 64, 32, 1, PLAIN, LT_ISA_AVX512, LT_F32, LT_KERNELS_BUILTIN, false},
    {"stride", 64, 64, 32, 3, FORM(2, 1, 1, 1, 1, 1, 1), LT_ISA_AVX512, LT_F32, LT_KERNELS_BUILTIN,
     false},
    {"dilation", 64, 64, 32, 3, FORM(1, 1, 1, 1, 1, 2, 1), LT_ISA_AVX512, LT_F32,
     LT_KERNELS_BUILTIN, false},
    {"groups", 64, 64, 32, 3, FORM(1, 1, 1, 1, 1, 1, 2), LT_ISA_AVX512, LT_F32, LT_KERNELS_BUILTIN,
     false},
    {"padding 3", 64, 64, 32, 3, FORM(1, 1, 3, 1, 1, 1, 1), LT_ISA_AVX512, LT_F32,
     LT_KERNELS_BUILTIN, false},
    {"f16", 64, 64, 32, 3, PLAIN, LT_ISA_AVX512, LT_F16, LT_KERNELS_BUILTIN, false},
};

static void is_chosen(void **state)
{
    const choice *r = *state;
    lt_cpu cpu = {.isa = r->isa, .choice = r->kernels, .onednn = some_onednn()};
    const lt_view x = new_image(r->dtype, 128, r->in, r->size, r->size);
    const lt_view y = new_image(r->dtype, 128, r->out, r->size, r->size);
    const lt_view w = new_image(LT_F32, r->out, r->in, r->taps, r->taps);
    const lt_direct_conv c = {.config = &r->config, .from = &x, .w = &w, .to = &y};
    const lt_winograd_grad g = {&r->config, &x, &y, &w, NULL};
    assert_int_equal(lt_winograd_is_chosen(&cpu, &c), r->wanted);
    assert_int_equal(lt_winograd_is_chosen_for_grad_w(&cpu, &g), r->wanted);
    cpu.onednn = NULL; /* then the choice is the same on all sets up to avx512 */
    const bool on_avx512 = lt_winograd_is_chosen(&cpu, &c);
    cpu.isa = LT_ISA_GENERIC;
    if (r->isa != LT_ISA_AMX)
        assert_int_equal(lt_winograd_is_chosen(&cpu, &c), on_avx512);
    free(x.data);
    free(y.data);
    free(w.data);
}

int main(void)
{
    struct CMUnitTest tests[1 + COUNT_OF(rows) + COUNT_OF(choices)] = {
        cmocka_unit_test(bits_do_not_depend_on_threads),
    };
    struct CMUnitTest *next = tests + 1;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        *next++ = (struct CMUnitTest){rows[i].name, sums_are_right, NULL, NULL,
                                      (void *)(uintptr_t)&rows[i]};
    for (size_t i = 0; i < COUNT_OF(choices); i++)
        *next++ = (struct CMUnitTest){choices[i].name, is_chosen, NULL, NULL,
                                      (void *)(uintptr_t)&choices[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
