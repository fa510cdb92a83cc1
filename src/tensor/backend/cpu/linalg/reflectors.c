/* Householder reflectors, applied in blocks I - V T V^T: Schreiber & Van Loan, "A storage-efficient WY representation
 * for products of Householder transformations", SIAM J. Sci. Stat. Comput. 10, 1989. */

#include "reflectors.h"

#include "tensor/backend/cpu/gemm/product.h"

#include <math.h>
#include <string.h>

enum { BLOCK = LT_CPU_REFLECTOR_BLOCK };

/* Column norm treated as 0, where the largest element is about 1; its square underflows in f32. */
static const double nothing = 1e-30;

/* Workspace: 2 BLOCK rows, 3 matrices, and memory for products. */
int64_t lt_reflectors_workspace_size(int64_t size)
{
    const int64_t block = BLOCK;
    return block * (3 * (size + 16) + 2 * block) + lt_cpu_multiply_workspace();
}

float lt_reflectors_make(const lt_cpu_kernels *kernels, float *x, int64_t first, int64_t n,
                         int64_t size, float *v, float *scale)
{
    const int64_t rest = size - first - 1;
    const double pivot = (double)x[first];
    const double square = rest > 0 ? kernels->square_sum(x + first + 1, 1, rest) : 0;
    float result = x[first];
    memset(v, 0, (size_t)size * sizeof *v);
    v[first] = 1;
    *scale = 0;
    if (square > nothing * nothing) {
        const double norm = sqrt(pivot * pivot + square), to = pivot > 0 ? -norm : norm;
        const double factor = 1 / (pivot - to);
        for (int64_t c = first + 1; c < n; c++)
            v[c] = (float)((double)x[c] * factor);
        result = (float)to;
        *scale = (float)((to - pivot) / to);
    }
    memcpy(x + first, v + first, (size_t)(size - first) * sizeof *x);
    return result;
}

/* Reflectors [begin, begin + count) as a block I - V T V^T. */
typedef struct block {
    const lt_reflectors *r;
    int64_t begin, count;
    float *v, *tv;               /* V^T, and T V^T or T^T V^T: BLOCK rows */
    float *gram, *triangle, *zv; /* V^T V, T, and Z V */
    float *products;
} block;

static void read_reflectors(const block *b)
{
    const lt_reflectors *r = b->r;
    for (int64_t i = 0; i < b->count; i++) {
        const int64_t j = b->begin + i, first = j + r->offset;
        float *v = b->v + i * r->step;
        memset(v, 0, (size_t)r->size * sizeof *v);
        if (first < r->n)
            memcpy(v + first, r->a + j * r->step + first, (size_t)(r->n - first) * sizeof *v);
    }
}

static void multiply_serial(const block *b, lt_product p)
{
    lt_cpu_multiply_serial(b->r->kernels, &p, b->products);
}

/* Computes T: column i is -scale_i T (V^T v_i), with scale_i on the diagonal. */
static void compute_t_factor(const block *b)
{
    const lt_reflectors *r = b->r;
    const int64_t n = b->count, from = b->begin, depth = r->size - from;
    const lt_operand rows = {b->v + from, lt_axis_1d(n, r->step), lt_axis_1d(depth, 1)};
    multiply_serial(b, (lt_product){.a = rows,
                                    .b = rows,
                                    .y = b->gram,
                                    .row = lt_axis_1d(n, n),
                                    .col = lt_axis_1d(n, 1),
                                    .rows = n,
                                    .cols = n,
                                    .depth = depth,
                                    .alpha = 1,
                                    .symmetric = true});
    memset(b->triangle, 0, (size_t)(n * n) * sizeof *b->triangle);
    for (int64_t i = 0; i < n; i++) {
        const float scale = from + i + r->offset < r->n ? r->scale[from + i] : 0;
        for (int64_t k = 0; k < i; k++) {
            float sum = 0;
            for (int64_t m = k; m < i; m++)
                sum += b->triangle[k * n + m] * b->gram[m * n + i];
            b->triangle[k * n + i] = -scale * sum;
        }
        b->triangle[i * (n + 1)] = scale;
    }
}

/* Z = Z (I - V T V^T), or with T^T. */
static void apply_block(const block *b, bool transpose, float *z, int64_t rows)
{
    const lt_reflectors *r = b->r;
    const int64_t n = b->count, from = b->begin, rest = r->size - from;
    const lt_axis along = lt_axis_1d(rest, 1), blocks = lt_axis_1d(n, r->step);
    const lt_axis column = lt_axis_1d(n, 1), row = lt_axis_1d(n, n);
    multiply_serial(
        b, (lt_product){.a = {b->triangle, transpose ? column : row, transpose ? row : column},
                        .b = {b->v + from, along, blocks},
                        .y = b->tv + from,
                        .row = blocks,
                        .col = along,
                        .rows = n,
                        .cols = rest,
                        .depth = n,
                        .alpha = 1});
    multiply_serial(b, (lt_product){.a = {z + from, lt_axis_1d(rows, r->step), along},
                                    .b = {b->v + from, blocks, along},
                                    .y = b->zv,
                                    .row = lt_axis_1d(rows, n),
                                    .col = lt_axis_1d(n, 1),
                                    .rows = rows,
                                    .cols = n,
                                    .depth = rest,
                                    .alpha = 1});
    multiply_serial(b, (lt_product){.a = {b->zv, lt_axis_1d(rows, n), lt_axis_1d(n, 1)},
                                    .b = {b->tv + from, along, blocks},
                                    .y = z + from,
                                    .row = lt_axis_1d(rows, r->step),
                                    .col = along,
                                    .rows = rows,
                                    .cols = rest,
                                    .depth = n,
                                    .alpha = -1,
                                    .beta = 1});
}

void lt_reflectors_apply(const lt_reflectors *r, int64_t begin, int64_t end, bool reverse, float *z,
                         int64_t rows)
{
    block b = {.r = r, .begin = begin, .count = end - begin, .v = r->work};
    b.tv = b.v + BLOCK * r->step;
    b.zv = b.tv + BLOCK * r->step;
    b.gram = b.zv + BLOCK * r->size;
    b.triangle = b.gram + (int64_t)BLOCK * BLOCK;
    b.products = r->work + lt_reflectors_workspace_size(r->size) - lt_cpu_multiply_workspace();
    read_reflectors(&b);
    compute_t_factor(&b);
    apply_block(&b, reverse, z, rows);
}
