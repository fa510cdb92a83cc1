/* Conformance of a backend's kernels with ref in double: tests and their checker. */
#ifndef LT_TESTS_CONFORM_H
#define LT_TESTS_CONFORM_H

#include "lather/detail/backend.h"
#include "lather/ext/fail.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

enum { MAX_OPERANDS = 14 };

typedef enum use { IN, OUT, INOUT } use;

typedef enum kind {
    DATA,   /* dtype of the run */
    MASTER, /* f32 in every run */
    WEIGHT, /* f32; ref reads it rounded to the dtype of the run */
    DOUBLE,
    PIXEL, /* u8; compared exactly, like the following */
    LABEL, /* i32 */
    COUNT  /* i64 */
} kind;

typedef enum layout {
    STORAGE, /* channels-last if 4-D, else row-major */
    ROWS,    /* row-major */
    GAPS,    /* row-major, every second element of a row */
    JOINED, /* row-major, each element of dimension 1 followed by as many others: packed features */
    REVERSED,  /* the first dimension is the innermost */
    BROADCAST, /* one element, all strides 0 */
    CHANNEL    /* one value per channel (dimension 1), the other strides 0 */
} layout;

/* How an operand contributes to magnitudes, the upper bounds of sums. */
typedef enum stand_in {
    PLUS,  /* |x| */
    MINUS, /* -|x|: where the formula subtracts */
    KEEP,
    COEF /* batch norm's coefficients: -|mean|, the others |x| */
} stand_in;

typedef struct operand {
    use use;
    kind kind;
    lt_shape shape;
    layout layout;
    stand_in absolute;
    double low, high; /* uniform between them; both 0: -1..1 */
    double *value;    /* row-major, rounded to the operand's dtype; filled by the checker */
} operand;

/* A function, and the operand by which its gradient is taken. */
typedef struct pointwise_setting {
    lt_pointwise f;
    int input;
} pointwise_setting;

typedef struct rotary_setting {
    lt_rotary_config config;
    bool inverse;
} rotary_setting;

typedef union setting {
    lt_conv2d_config conv;
    lt_pool2d_config pool;
    lt_batchnorm2d_config norm;
    lt_group_norm_config group;
    lt_attention_config attention;
    rotary_setting rotary;
    lt_layernorm_config layer;
    pointwise_setting pointwise;
    lt_normalize_config pixels;
    lt_reduce_how reduction;
    lt_vec_job vec;
    lt_sgd_kernel sgd;
    lt_adam_kernel adam;
    double number;
    int dim;
} setting;

typedef struct test test;

/* Calls the kernel. v: the operands' views; data is NULL for a negative ndim. absolute: replaces numbers of
 * the configuration so that nothing cancels. */
typedef lt_status call_fn(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                          bool absolute);
/* Changes inputs before they are rounded: row-major values in t->operand[i].value. */
typedef void prepare_fn(test *t);
/* Computes magnitude[i], row-major, for each output i, instead of a run on absolute values; want[i]: outputs
 * of ref in double. */
typedef void magnitude_fn(const test *t, double *const *want, double *const *magnitude);
/* Checks the outputs instead of an elementwise comparison; returns NULL if they are right, else the reason. */
typedef const char *check_fn(const test *t, double *const *got, double *const *want);

struct test {
    const char *entry, *name;
    operand operand[MAX_OPERANDS];
    int operands;
    call_fn *call;
    prepare_fn *prepare;
    magnitude_fn *magnitude;
    check_fn *check;
    setting config;
    double terms; /* number of terms summed per output element */
    double inner; /* number of intermediate roundings to the run's dtype, if that has 16 bits */
    bool relu;    /* for a kernel without such a config */
    bool exact;   /* outputs must be equal; NaN equals NaN */
    bool master;  /* has no 16-bit form */
    bool rounded; /* has a form in which gradients of weights are rounded (lt_backend) */
    bool large;   /* for --bench only */
    bool tf32;    /* products of f32 may round their factors to 11 bits; set by the program */
};

/* Outputs of ref in double, row-major, and their magnitudes; NULL for operands that are not outputs. */
typedef struct expected {
    double *want[MAX_OPERANDS], *magnitude[MAX_OPERANDS];
} expected;

/* Draws the operands of t in dtype and computes the outputs expected of any backend. Returns NULL, or the
 * reason why ref fails (borrowed until the next call). The caller frees *e with expected_free() in both
 * cases. */
const char *expect(test *t, lt_dtype dtype, expected *e);
/* Runs t on a backend and compares. Returns as conform(). */
const char *conform_to(const test *t, lt_dtype dtype, const expected *e, const lt_backend *be,
                       void *ctx, double *bench);
void expected_free(test *t, expected *e);

/* expect() and conform_to() for one backend. Returns NULL if it conforms, else the reason (borrowed until
 * the next call). bench: microseconds per call, or NULL. */
const char *conform(test *t, lt_dtype dtype, const lt_backend *be, void *ctx, double *bench);

/* Returns true for kernels of products, which may be rounded to TF32. */
bool multiplies(const test *t);

/* Copies s to device memory; scalars_free() reads it back and frees it. */
lt_scalars *scalars_new(const lt_backend *be, void *ctx, const lt_scalars *s);
void scalars_free(const lt_backend *be, void *ctx, lt_scalars *on_device, lt_scalars *s);

/* Number of elements. */
int64_t operand_count(const operand *o);

/* A kernel may round f32 weights to the dtype of x or read all their digits (conv2d in detail/kernels.h):
 * reduces weights to bf16's digits, so that both give the same, and bounds apply to the other roundings. */
void round_weights(operand *w);

/* Moves elements of x, operand xi, of a batch norm with relu so that no rounding decides relu: |y| becomes 0.1 or
 * more. coef, residual: operands of coefficients and of an addend; residual 0: none. */
void avoid_kink(test *t, int xi, int coef, int residual);

/* The fused backward of another batch norm, composed of separate kernels. in: the gradient that it reads;
 * absolute: as in call_fn. For backends with host memory. */
lt_status compose_fused_grad(const lt_backend *be, void *ctx, lt_batchnorm_grad in,
                             const lt_batchnorm_fused_grad *norm, bool absolute);

/* Returns true if i is a row of a table of `rows` rows; else reduces i by `rows`. */
static inline bool within(size_t *i, size_t rows)
{
    const bool is = *i < rows;
    *i -= is ? 0 : rows;
    return is;
}

/* Tests of one file: returns test i, or false past the end. */
typedef bool tests_fn(size_t i, test *t);
tests_fn elementwise_tests, pointwise_tests, product_tests, norm_tests, group_norm_tests,
    layernorm_tests, pool_tests, loss_tests, optim_tests, matrix_tests, rational_tests,
    scratch_tests, fused_tests, attention_tests, rotary_tests, embedding_tests, select_tests;

/* Prints elementwise functions without rows, and returns their number. */
int pointwise_without_rows(void);

/* LARGE: for --bench only. */
typedef enum conv_extra { NEITHER, BIAS, LARGE } conv_extra;

typedef struct conv_row {
    const char *name;
    int64_t n, c, h, w, k, r, s;
    lt_conv2d_config config;
    conv_extra extra;
} conv_row;

/* GRAD_W_ROWS: gradient of w in row-major memory. */
typedef enum conv_way { FORWARD, GRAD_X, GRAD_W, GRAD_W_ROWS, CONV_WAYS } conv_way;
void conv_make(const conv_row *r, conv_way way, test *t);
lt_shape conv_output(const conv_row *r);
tests_fn conv_tests;

/* The cpu backend with one of its weight-gradient kernels (wgrad.c), or NULL if it does not exist or cannot
 * run here. */
const lt_backend *wgrad_backend(const char *name);

/* The cuda backend's kernels run on the host, in place of ref's; NULL in a build without a C++ compiler. */
const lt_backend *emulated_backend(const char *name);

/* Runs every checker on a wrong kernel. Returns the number of wrong kernels accepted. */
int controls(void);

#endif
