/* One instruction set's kernels. Meson compiles this file once per set, with LT_KERNEL_SET naming
 * it and the compiler's target set to it. */

#include "batchnorm.h"
#include "elementwise.h"
#include "inverse.h"
#include "loss.h"
#include "optim.h"
#include "pointwise.h"
#include "pool.h"
#include "product.h"
#include "vec.h"

/* A kernel for each storage, from the one that takes the storage as its last argument. */
#define BOTH(name, parameters, ...)             \
    static void name##_f32 parameters           \
    {                                           \
        name##_any(__VA_ARGS__, LT_STORE_F32);  \
    }                                           \
    static void name##_bf16 parameters          \
    {                                           \
        name##_any(__VA_ARGS__, LT_STORE_BF16); \
    }

/* The same where there is a result. */
#define BOTH_SUMS(name, parameters, ...)               \
    static double name##_f32 parameters                \
    {                                                  \
        return name##_any(__VA_ARGS__, LT_STORE_F32);  \
    }                                                  \
    static double name##_bf16 parameters               \
    {                                                  \
        return name##_any(__VA_ARGS__, LT_STORE_BF16); \
    }

BOTH(add, (const void *a, const void *b, void *y, int64_t count), a, b, y, count)
BOTH(mul, (const void *a, const void *b, void *y, int64_t count), a, b, y, count)
BOTH(relu, (const void *x, void *y, int64_t count), x, y, count)
BOTH(relu_grad, (const void *dy, const void *y, void *dx, int64_t count), dy, y, dx, count)
BOTH(scale, (float factor, const void *x, void *y, int64_t count), factor, x, y, count)
BOTH(pointwise, (const lt_pointwise_row *row, int64_t count), row, count)
BOTH(normalize,
     (const uint8_t *x, const float *mean, const float *deviation, int64_t channels, void *y,
      int64_t pixels),
     x, mean, deviation, channels, y, pixels)
BOTH(add_rows, (const void *x, int64_t rows, int64_t channels, float *sum), x, rows, channels, sum)
BOTH(repeat_row, (float factor, const void *x, int64_t rows, int64_t channels, void *y), factor, x,
     rows, channels, y)
BOTH(bn_moments, (const void *x, int64_t rows, int64_t channels, float *mean, float *m2), x, rows,
     channels, mean, m2)
BOTH(bn_apply, (const lt_bn_apply *in, int64_t begin, int64_t end), in, begin, end)
BOTH(bn_grad_sums, (const lt_bn_grad *in, int64_t begin, int64_t end, float *sum, float *product),
     in, begin, end, sum, product)
BOTH(bn_grad_x, (const lt_bn_grad *in, int64_t begin, int64_t end), in, begin, end)
BOTH(max_window, (const lt_max_window *in), in)
BOTH(max_grad, (const lt_max_grad *in), in)
BOTH(sum_window, (const lt_max_window *in, float factor), in, factor)
BOTH(xent_grad, (const lt_xent_grad *in), in)
BOTH_SUMS(log_sum_exp, (const void *z, int64_t count), z, count)
BOTH_SUMS(cross, (const void *z, const float *target, int64_t count, double lse), z, target, count,
          lse)

#define ENTRIES(type)                                                                              \
    {                                                                                              \
        .add = add_##type, .mul = mul_##type, .relu = relu_##type, .relu_grad = relu_grad_##type,  \
        .scale = scale_##type, .pointwise = pointwise_##type, .normalize = normalize_##type,       \
        .add_rows = add_rows_##type, .repeat_row = repeat_row_##type,                              \
        .bn_moments = bn_moments_##type, .bn_apply = bn_apply_##type,                              \
        .bn_grad_sums = bn_grad_sums_##type, .bn_grad_x = bn_grad_x_##type,                        \
        .max_window = max_window_##type, .max_grad = max_grad_##type,                              \
        .sum_window = sum_window_##type, .log_sum_exp = log_sum_exp_##type, .cross = cross_##type, \
        .xent_grad = xent_grad_##type                                                              \
    }

const lt_cpu_kernels PASTE(lt_cpu_kernels, LT_KERNEL_SET) = {
    .of = {[LT_STORE_F32] = ENTRIES(f32), [LT_STORE_BF16] = ENTRIES(bf16)},
    .narrow = narrow_all,
    .widen = widen_all,
    .square_sum = square_sum,
    .sgd = sgd,
    .adagrad = adagrad,
    .adam = adam,
    .lerp = lerp,
    .vec_row = vec_row,
    .tile_rows = TILE_ROWS,
    .tile_cols = TILE_COLS,
    .product_pack = product_pack,
    .product_tile = product_tile,
    .product_mirror = product_mirror,
    .add_inverse = add_inverse,
    .add_inverse_f64 = add_inverse_f64,
    .add_inverse_wide = add_inverse_wide,
};
