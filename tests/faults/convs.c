/* Convolutions of the CPU backend and their gradients, of each dtype, by its own kernels and by oneDNN's, in which one
 * allocation or primitive fails: the call fails, nothing leaks, and the next call works. */

#include "faults.h"
#include "tensor/backend/cpu/cpu.h"

enum { IMAGES = 2, CHANNELS = 6, SIDE = 6, TAPS = 3, GRAD_W = 2 };
enum { ELEMENTS = IMAGES * CHANNELS * SIDE * SIDE, BYTES = ELEMENTS * 8, MOST_ROWS = 48 };

typedef struct row {
    char name[64];
    int way; /* 0: forward, 1: gradient of x, 2: of w */
    lt_dtype dtype;
    int groups;
    const char *kernels;
} row;

static const row *current;
static void *ctx;
static _Alignas(64) unsigned char x[BYTES], w[BYTES], y[BYTES]; /* zeros in any dtype */

static lt_view channels_last(void *data, lt_dtype dtype, lt_shape shape)
{
    const int64_t *n = shape.dim;
    return (lt_view){.data = data,
                     .dtype = dtype,
                     .shape = shape,
                     .stride = {n[1] * n[2] * n[3], 1, n[1] * n[3], n[1]}};
}

static void open_cpu(void *context)
{
    const lt_device_config config = {.threads = 1};
    (void)context;
    setenv("LATHER_CPU_KERNELS", current->kernels, 1);
    assert_ok(lt_backend_cpu()->open(&ctx, 0, &config));
}

static void close_cpu(void *context)
{
    (void)context;
    lt_backend_cpu()->close(ctx);
}

static lt_status convolve(void *context)
{
    const lt_backend *cpu = lt_backend_cpu();
    const lt_conv2d_config config = {1, 1, 1, 1, 1, 1, current->groups};
    const lt_shape image = LT_SHAPE(IMAGES, CHANNELS, SIDE, SIDE);
    const lt_dtype of_w = current->way == GRAD_W ? LT_F32 : current->dtype;
    const int64_t each = CHANNELS / current->groups;
    const lt_view vx = channels_last(x, current->dtype, image),
                  vy = channels_last(y, current->dtype, image);
    const lt_view vw = {.data = w, /* not channels-last: a copy is made */
                        .dtype = of_w,
                        .shape = LT_SHAPE(CHANNELS, each, TAPS, TAPS),
                        .stride = {each * TAPS * TAPS, TAPS * TAPS, TAPS, 1}};
    (void)context;
    if (current->way == GRAD_W)
        return cpu->conv2d_grad_w(ctx, &config, &vy, &vx, &vw);
    return current->way ? cpu->conv2d_grad_x(ctx, &config, &vy, &vw, &vx)
                        : cpu->conv2d(ctx, &config, &vx, &vw, NULL, &vy);
}

static void convolve_again(void *context, lt_status st)
{
    (void)st;
    assert_ok(convolve(context));
}

static void a_convolution_that_fails_says_so(void **state)
{
    current = *state;
    const fault_case c = {.name = current->name,
                          .kinds = FAULT_KERNEL | FAULT_MEMORY,
                          .open = open_cpu,
                          .act = convolve,
                          .after = convolve_again,
                          .close = close_cpu,
                          .least = 1};
    (void)faults_each(&c);
}

int main(void)
{
    static const char *const ways[] = {"conv2d", "conv2d_grad_x", "conv2d_grad_w"},
                             *const kernels[] = {"builtin", "onednn"};
    static const lt_dtype dtypes[] = {LT_F32, LT_BF16, LT_F16};
    static const int groups[] = {1, CHANNELS};
    static row rows[MOST_ROWS];
    static struct CMUnitTest tests[MOST_ROWS];
    size_t count = 0;
    for (int way = 0; way <= GRAD_W; way++)
        for (size_t d = 0; d < COUNT_OF(dtypes); d++)
            for (size_t g = 0; g < COUNT_OF(groups); g++)
                for (size_t k = 0; k < COUNT_OF(kernels); k++) {
                    row *r = &rows[count];
                    *r = (row){
                        .way = way, .dtype = dtypes[d], .groups = groups[g], .kernels = kernels[k]};
                    snprintf(r->name, sizeof r->name, "%s %s, %d groups, %s", ways[way],
                             lt_dtype_name(dtypes[d]), groups[g], kernels[k]);
                    tests[count++] =
                        (struct CMUnitTest){.name = r->name,
                                            .test_func = a_convolution_that_fails_says_so,
                                            .initial_state = r};
                }
    return faults_run("faults convs", tests, count, NULL, NULL);
}
