/* Kernels that are compiled once per instruction set from the files of kernels/. They work on contiguous memory and
 * on one thread; their callers split work into chunks.
 *
 * A row is the C channels of one pixel. Storage is f32 or bf16, arithmetic f32. */
#ifndef LT_BACKEND_CPU_KERNELS_H
#define LT_BACKEND_CPU_KERNELS_H

#include "attention.h"

#include "lather/detail/pointwise.h"
#include "lather/detail/vec_kernels.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum lt_cpu_store { LT_STORE_F32, LT_STORE_BF16, LT_STORES } lt_cpu_store;

/* Per-channel coefficients of batch normalisation, each [C]. */
typedef struct lt_bn_coef {
    const float *mean, *inv, *scale, *shift;
} lt_bn_coef;

typedef struct lt_bn_apply {
    lt_bn_coef coef;
    const void *x, *residual; /* input, and residual, which may be NULL */
    void *y;
    uint8_t *mask; /* bits of relu's mask; may be NULL */
    int64_t channels;
    bool relu;
} lt_bn_apply;

typedef struct lt_bn_grad {
    lt_bn_coef coef;
    const void *dy[2], *x; /* dy: one or two addends; dy[1] may be NULL */
    const uint8_t *mask;   /* bits of relu's mask; may be NULL */
    int64_t channels;
    bool relu;
    void *out;                   /* output: masked gradient (may be NULL), or dx */
    const float *slope, *offset; /* grad_x only: dx = scale * g + slope * (x - mean) + offset */
} lt_bn_grad;

/* Layer and RMS normalisation of rows; steps are elements between rows. */
typedef struct lt_ln_rows {
    const void *x;
    void *y;
    int64_t step_x, step_y, width;
    const float *gamma, *beta; /* [width] scale and shift; each may be NULL */
    float *mean, *rstd;        /* output: statistics of each row */
    float eps;
    bool rms;
} lt_ln_rows;

typedef struct lt_ln_grad {
    const void *dy, *x;
    void *dx; /* gradient of x; may be NULL */
    int64_t step_dy, step_x, step_dx, width;
    const float *gamma, *mean, *rstd;
    float *dgamma, *dbeta; /* gradients of gamma and beta, accumulated */
    bool rms;
} lt_ln_grad;

typedef struct lt_max_window {
    const void *x; /* first pixel of the window, possibly outside the image */
    void *y;
    uint8_t *index;           /* tap of the maximum, per channel; may be NULL */
    int64_t channels, stride; /* elements between rows of the image */
    int r0, r1, s0, s1, s;    /* taps inside the image; taps in a row of the window */
} lt_max_window;

/* One pixel of dx and the windows that contain it. */
typedef struct lt_max_grad {
    const void *dy[2]; /* gradient of y: one or two addends; dy[1] may be NULL */
    const uint8_t *index;
    void *dx;
    int64_t channels;
    int windows;
    int64_t window[16]; /* element offset of the window's pixel in y */
    uint8_t tap[16];    /* the window's tap at this pixel */
} lt_max_grad;

/* One row of cross-entropy's gradient: dx = factor * exp(logits - lse) - weight * target - share. */
typedef struct lt_xent_grad {
    const void *logits;
    const float *target; /* probability of each class; NULL: 1 at label, else 0 */
    void *dx;
    int64_t classes;
    int32_t label;
    float lse, factor, weight, share;
} lt_xent_grad;

typedef struct lt_sgd_numbers {
    float scale, decay, momentum, fresh, lr; /* g = grad * scale + decay * p; m gets fresh * g */
    bool nesterov, first;
} lt_sgd_numbers;

typedef struct lt_adam_numbers {
    float scale, decay, keep; /* Adam: g = grad * scale + decay * p; p *= keep before the step */
    float beta1, fresh1, beta2,
        fresh2;            /* Adam: m = beta1 * m + fresh1 * g; v = beta2 * v + fresh2 * g^2 */
    float step, root, eps; /* Adam: p -= step * m / (sqrt(v) * root + eps) */
} lt_adam_numbers;

/* A run of a function's values, or of its gradient by operand `input`. */
typedef struct lt_pointwise_row {
    const lt_pointwise *f;
    int input;
    const void *dy, *a, *b; /* dy NULL: computes the value; b NULL: unary function */
    void *y;
} lt_pointwise_row;

/* Operand of a matrix product: element (lane l, step k of the contraction) is data[lane[l] + step[k]]. Packed, it is a
 * list of panels [depth][16], zero-padded to tile_cols lanes. */
typedef struct lt_panel {
    const float *data;
    const int64_t *lane, *step;
    int lanes;
    int64_t depth;
} lt_panel;

/* A run of an elementwise expression; steps are elements between operands. */
typedef struct lt_vec_row {
    lt_vec_op op;
    float alpha, beta, gamma, delta;
    const float *a, *b;
    float *y;
    int64_t count, step_a, step_b, step_y;
} lt_vec_row;

typedef struct lt_tile_save {
    float alpha, beta;
    int rows, cols; /* size of the valid part of the tile */
    int64_t step;   /* elements between rows of y */
    int lane;       /* lane of the first row in its panel of a */
} lt_tile_save;

/* A tile of a convolution's output: tile_rows pixels by tile_cols channels. In bf16, depth is even and pairs of
 * adjacent steps are interleaved. */
typedef struct lt_conv_tile {
    const void *x, *zeros; /* input pixels; a pixel of zeros, read for padding */
    int64_t pixel;         /* bytes between pixels of x */
    const int32_t *at;     /* [taps][tile_rows]: index of a pixel of x; negative: padding */
    const void *next;      /* address to prefetch for a later tile, or NULL */
    const void *w;
    const int64_t *tap; /* [taps]: byte offset of each tap's panel [depth][tile_cols] in w */
    int64_t taps, depth;
    void *y;
    const int64_t *to; /* [rows]: index of the pixel of y that each row is written to */
    int64_t channels;  /* number of channels of y */
    int rows, cols;    /* size of the valid part of the tile */
} lt_conv_tile;

/* Maps of Winograd's convolution between a tile's pixels (or a filter's taps) and its 36 transformed points. Channels
 * are a multiple of 16. */
typedef enum lt_winograd_map {
    LT_WINOGRAD_X,  /* forward: 6x6 input pixels to points */
    LT_WINOGRAD_DY, /* gradient of w: 4x4 output pixels to points */
    LT_WINOGRAD_W,  /* forward: 3x3 taps to points */
    LT_WINOGRAD_Y,  /* forward: points to 4x4 output pixels */
    LT_WINOGRAD_DW  /* gradient of w: points to 3x3 taps */
} lt_winograd_map;

/* Reductions over the pixels of several tiles of y, each [C]: mean and M2 (Chan's formula) or, with grad, the sums of
 * the gradient after relu's mask and of gradient * (x - mean). */
typedef struct lt_winograd_sums {
    float *of[2];
    const lt_bn_grad *grad; /* y is its dy[0]; NULL: mean and M2 */
    /* Chan weights of this tile's n pixels, `all` including it: 1 / n, n / all, n * (all - n) / all. */
    float inverse, share, both;
} lt_winograd_sums;

typedef struct lt_winograd_tile {
    lt_winograd_map map;
    void *pixel[36];   /* pixels, row by row; NULL: not written. Padding reads zeros */
    const void *zeros; /* a pixel of zeros */
    void *const *next; /* pixels of the next tile to prefetch, or NULL */
    float *point;
    int64_t step, group; /* elements between points; between groups of 16 channels */
    int64_t channels;
    const lt_bn_apply
        *input_norm; /* batch norm + relu of the input pixels as they are read; may be NULL */
    /* Y: at most one of these two. output_norm: batch norm of the pixels written, without a mask. */
    const lt_bn_apply *output_norm;
    const lt_winograd_sums *sums;
    int64_t first; /* index of the tile's first channel in output_norm and sums */
} lt_winograd_tile;

/* A term of a rational function: y += weight * (a + shift I)^(-1), lower triangles of row-major [n,n]. */
enum { LT_CPU_INVERSE_BLOCK = 64 };
typedef struct lt_inverse_term {
    const void *a;
    void *y, *work; /* work: memory for lt_cpu_inverse_workspace_size(n) elements */
    int64_t n;
    double weight, shift;
    bool first; /* the first term: overwrites y instead of adding */
} lt_inverse_term;

static inline int64_t lt_cpu_inverse_padded_size(int64_t n)
{
    return (n + LT_CPU_INVERSE_BLOCK - 1) / LT_CPU_INVERSE_BLOCK * LT_CPU_INVERSE_BLOCK;
}
static inline int64_t lt_cpu_inverse_workspace_size(int64_t n)
{
    const int64_t size = lt_cpu_inverse_padded_size(n), b = LT_CPU_INVERSE_BLOCK;
    return size * (size + 16) + 2 * b * b + 3 * size * b;
}

/* Panel width of the tridiagonal reduction; matrices are padded to multiples of it. */
enum { LT_CPU_REDUCE_BLOCK = 32 };

/* Kernels, each a row X(result, name, (parameters), arguments), from which each set's table is generated. These are
 * compiled once per storage from NAME_any(arguments, storage): */
#define LT_CPU_KERNELS_OF_STORAGE(X)                                                               \
    X(void, add, (const void *a, const void *b, void *y, int64_t count), a, b, y, count)           \
    X(void, relu, (const void *x, void *y, int64_t count), x, y, count)                            \
    X(void, relu_grad, (const void *dy, const void *y, void *dx, int64_t count), dy, y, dx, count) \
    X(void, scale, (float factor, const void *x, void *y, int64_t count), factor, x, y, count)     \
    X(void, pointwise, (const lt_pointwise_row *row, int64_t count), row, count)                   \
    X(void, normalize,                                                                             \
      (const uint8_t *x, const float *mean, const float *deviation, int64_t channels, void *y,     \
       int64_t pixels),                                                                            \
      x, mean, deviation, channels, y, pixels)                                                     \
    X(void, add_rows, (const void *x, int64_t rows, int64_t channels, float *sum), x, rows,        \
      channels, sum)                                                                               \
    X(void, repeat_row, (float factor, const void *x, int64_t rows, int64_t channels, void *y),    \
      factor, x, rows, channels, y)                                                                \
    X(void, bn_moments, (const void *x, int64_t rows, int64_t channels, float *mean, float *m2),   \
      x, rows, channels, mean, m2)                                                                 \
    X(void, bn_apply, (const lt_bn_apply *in, int64_t begin, int64_t end), in, begin, end)         \
    X(void, bn_grad_sums,                                                                          \
      (const lt_bn_grad *in, int64_t begin, int64_t end, float *sum, float *product), in, begin,   \
      end, sum, product)                                                                           \
    X(void, bn_grad_x, (const lt_bn_grad *in, int64_t begin, int64_t end), in, begin, end)         \
    X(void, conv_tile, (const lt_conv_tile *tile), tile)                                           \
    X(void, winograd, (const lt_winograd_tile *tile), tile)                                        \
    X(void, wgrad_dy,                                                                              \
      (const void *base, const int64_t *at, int64_t pixels, int64_t count, void *out), base, at,   \
      pixels, count, out)                                                                          \
    X(void, wgrad_x,                                                                               \
      (const void *base, const int64_t *at, int64_t pixels, int64_t count, void *out), base, at,   \
      pixels, count, out)                                                                          \
    X(void, ln_rows, (const lt_ln_rows *in, int64_t begin, int64_t end), in, begin, end)           \
    X(void, ln_grad_rows, (const lt_ln_grad *in, int64_t begin, int64_t end), in, begin, end)      \
    X(void, max_window, (const lt_max_window *in), in)                                             \
    X(void, max_grad, (const lt_max_grad *in), in)                                                 \
    X(void, sum_window, (const lt_max_window *in, float factor), in, factor)                       \
    X(double, log_sum_exp, (const void *z, int64_t count), z, count)                               \
    X(double, cross, (const void *z, const float *target, int64_t count, double lse), z, target,   \
      count, lse)                                                                                  \
    X(void, xent_grad, (const lt_xent_grad *in), in)                                               \
    X(void, attention_pack, (const lt_attention_pack *in), in)                                     \
    X(void, attention_save, (const lt_attention_save *in), in)                                     \
    X(void, attention_dots, (const lt_attention_dots *in), in)                                     \
    X(void, attention_scores, (const lt_attention_rows *in), in)                                   \
    X(void, attention_mix, (const lt_attention_rows *in), in)                                      \
    X(void, rotary, (const lt_rotary_row *in), in)                                                 \
    X(int64_t, rank, (const void *z, int64_t count, int64_t own), z, count, own)

/* These are compiled once, from the function of that name: */
#define LT_CPU_KERNELS(X)                                                                      \
    X(void, narrow_all, (const float *x, void *y, int64_t count))                              \
    X(void, widen_all, (const void *x, float *y, int64_t count))                               \
    X(double, square_sum, (const float *x, double factor, int64_t count))                      \
    X(void, sgd, (const lt_sgd_numbers *n, float *p, const float *g, float *m, int64_t count)) \
    X(void, adagrad,                                                                           \
      (const lt_adam_numbers *n, float *p, const float *g, float *s, int64_t count))           \
    X(void, adam,                                                                              \
      (const lt_adam_numbers *n, float *p, const float *g, float *m, float *v, int64_t count)) \
    X(void, lerp, (float weight, float *x, const float *to, int64_t count))                    \
    X(void, vec_row, (const lt_vec_row *row))                                                  \
    X(void, gemm_pack, (const lt_panel *panel, float *to))                                     \
    X(void, gemm_tile,                                                                         \
      (const float *a, const float *b, int64_t depth, const lt_tile_save *save, float *y))     \
    X(void, wgrad_product,                                                                     \
      (const void *dy, const void *x, int64_t pixels, float *dw, int64_t ld, bool add))        \
    X(void, add_products,                                                                      \
      (const float *const *a, const float *const *b, int64_t n, int64_t channels, float *y))   \
    X(void, transpose_block,                                                                   \
      (const float *x, int64_t step_x, int64_t rows, int64_t cols, float *y, int64_t step_y))  \
    X(void, attention_product, (const lt_attention_product *in))                               \
    X(void, attention_weights, (const lt_attention_weights *in))                               \
    X(void, attention_slopes, (const lt_attention_slopes *in))                                 \
    X(void, symmetric_product,                                                                 \
      (const float *a, int64_t step, int64_t n, const float *x, float *y))                     \
    X(void, rows_dot,                                                                          \
      (const float *x, int64_t step, int64_t rows, int64_t n, const float *y, float *dot))     \
    X(void, rows_subtract,                                                                     \
      (const float *x, int64_t step, int64_t rows, int64_t n, const float *factor, float *y))  \
    X(bool, add_inverse, (const lt_inverse_term *term))                                        \
    X(bool, add_inverse_f64, (const lt_inverse_term *term))                                    \
    X(bool, add_inverse_wide, (const lt_inverse_term *term))
/* NOLINTBEGIN(bugprone-macro-parentheses): `name` and `parameters` declare */
#define LT_CPU_KERNEL(result, name, parameters)              result(*name) parameters;
#define LT_CPU_STORAGE_KERNEL(result, name, parameters, ...) result(*name) parameters;
typedef struct lt_cpu_kernels { /* NOLINTEND(bugprone-macro-parentheses) */
    struct {
        LT_CPU_KERNELS_OF_STORAGE(LT_CPU_STORAGE_KERNEL)
    } of[LT_STORES];
    LT_CPU_KERNELS(LT_CPU_KERNEL)
    int tile_rows, tile_cols; /* micro-kernel tile: rows up to 16; cols a multiple of 16 up to 64 */
    bool pairs;               /* the kernels multiply pairs of bf16 */
} lt_cpu_kernels;
#undef LT_CPU_STORAGE_KERNEL
#undef LT_CPU_KERNEL

/* generic_fma: generic with a software fused multiply-add, so that its results are those of avx2, avx512 and neon. Those
 * of this architecture exist. */
extern const lt_cpu_kernels lt_cpu_kernels_generic, lt_cpu_kernels_generic_fma, lt_cpu_kernels_avx2,
    lt_cpu_kernels_avx512, lt_cpu_kernels_avx512_bf16, lt_cpu_kernels_neon,
    lt_cpu_kernels_neon_bf16;

#endif
