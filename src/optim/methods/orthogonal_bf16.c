/* Products of Newton-Schulz iterations in bf16, by the kernels matmul and cast. A matrix is [n,rest], n its smaller
 * dimension, stored with the dimension inside that is inside of x. */

#include "orthogonal_bf16.h"

#include "base/alloc.h"
#include "tensor/tensor.h"

enum { X = LT_ROUNDED_X, Y = LT_ROUNDED_Y, SQUARE = LT_ROUNDED_SQUARE };

lt_status lt_orthogonal_bf16_open(lt_orthogonal_bf16 *o, lt_device *device, size_t matrices,
                                  int64_t elements, int64_t squares)
{
    const int64_t size[LT_ROUNDED] = {elements, elements, squares};
    for (int i = 0; i < LT_ROUNDED; i++)
        LT_TRY(lt_tensor_new(&o->memory[i], device, LT_BF16, LT_SHAPE(size[i])));
    return LT_ALLOC(&o->matrix, matrices);
}

void lt_orthogonal_bf16_close(lt_orthogonal_bf16 *o)
{
    for (int i = 0; i < LT_ROUNDED; i++)
        lt_tensor_free(&o->memory[i]);
    lt_free(o->matrix);
    *o = (lt_orthogonal_bf16){0};
}

/* Views elements from `at` on as a batch of one matrix, for matmul. */
static lt_view matrix_at(const lt_tensor *from, int64_t at, int64_t rows, int64_t cols,
                         bool by_columns)
{
    lt_view v = lt_tensor_view(from);
    v.data = (char *)v.data + (size_t)at * lt_dtype_size(v.dtype);
    v.version = 0;
    v.shape = LT_SHAPE(1, rows, cols);
    v.stride[0] = rows * cols;
    v.stride[1] = by_columns ? 1 : cols;
    v.stride[2] = by_columns ? rows : 1;
    return v;
}

static lt_view transpose(lt_view v)
{
    const lt_view m = v;
    for (int d = 1; d <= 2; d++) {
        v.shape.dim[d] = m.shape.dim[3 - d];
        v.stride[d] = m.stride[3 - d];
    }
    return v;
}

/* Views the matrix [n,rest] with the dimensions of the job's x. */
static lt_view in_shape_of_x(const lt_view *matrix, const lt_orthogonal_job *job)
{
    lt_view v = *matrix;
    int64_t step = matrix->stride[2];
    v.shape = job->x.shape;
    for (int d = v.shape.ndim - 1; d >= 0; d--) {
        v.stride[d] = d == job->dim ? matrix->stride[1] : step;
        step *= d == job->dim ? 1 : v.shape.dim[d];
    }
    return v;
}

/* Returns the square of matrix i in a tensor of squares. */
static lt_view square_of(const lt_orthogonal_bf16 *o, const lt_tensor *from, size_t i)
{
    const lt_view *v = &o->matrix[i][SQUARE];
    const char *begin = lt_tensor_view(o->memory[SQUARE]).data;
    const int64_t at = ((const char *)v->data - begin) / (int64_t)lt_dtype_size(v->dtype);
    return matrix_at(from, at, v->shape.dim[1], v->shape.dim[1], false);
}

static lt_status cast(const lt_optim *optim, const lt_view *x, const lt_view *y)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(optim, &ctx);
    return be->cast(ctx, x, y);
}

static lt_status multiply(const lt_optim *optim, const lt_view *a, const lt_view *b,
                          const lt_view *y)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(optim, &ctx);
    return be->matmul(ctx, a, b, y);
}

lt_status lt_orthogonal_bf16_load(lt_orthogonal_bf16 *o, const lt_optim *optim,
                                  const lt_orthogonal_job *job, size_t count)
{
    int64_t at = 0, square = 0;
    for (size_t i = 0; i < count; i++) {
        const int64_t n = job[i].x.shape.dim[job[i].dim];
        const int64_t rest = lt_shape_count(job[i].x.shape) / n;
        const bool by_columns = job[i].x.stride[job[i].dim] == 1;
        for (int k = X; k <= Y; k++)
            o->matrix[i][k] = matrix_at(o->memory[k], at, n, rest, by_columns);
        o->matrix[i][SQUARE] = matrix_at(o->memory[SQUARE], square, n, n, false);
        at += n * rest;
        square += n * n;
        const lt_view to = in_shape_of_x(&o->matrix[i][X], &job[i]);
        LT_TRY(cast(optim, &job[i].x, &to));
    }
    return LT_OK;
}

lt_status lt_orthogonal_bf16_square(lt_orthogonal_bf16 *o, const lt_optim *optim,
                                    const lt_tensor *a, const lt_tensor *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const lt_view *m = o->matrix[i], transposed = transpose(m[X]);
        const lt_view to_a = square_of(o, a, i), to_b = square_of(o, b, i);
        LT_TRY(multiply(optim, &m[X], &transposed, &to_a));
        LT_TRY(cast(optim, &to_a, &m[SQUARE]));
        LT_TRY(multiply(optim, &m[SQUARE], &m[SQUARE], &to_b));
    }
    return LT_OK;
}

/* The result's rows are contiguous: Y = B X, or Y^T = X^T B as B is symmetric. */
lt_status lt_orthogonal_bf16_multiply(lt_orthogonal_bf16 *o, const lt_optim *optim,
                                      const lt_tensor *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        lt_view *m = o->matrix[i];
        const lt_view from = square_of(o, b, i), x = m[X];
        const lt_view xt = transpose(x), yt = transpose(m[Y]);
        LT_TRY(cast(optim, &from, &m[SQUARE]));
        LT_TRY(x.stride[2] == 1 ? multiply(optim, &m[SQUARE], &x, &m[Y])
                                : multiply(optim, &xt, &m[SQUARE], &yt));
        m[X] = m[Y];
        m[Y] = x;
    }
    return LT_OK;
}

lt_status lt_orthogonal_bf16_store(const lt_orthogonal_bf16 *o, const lt_optim *optim,
                                   const lt_orthogonal_job *job, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const lt_view from = in_shape_of_x(&o->matrix[i][X], &job[i]);
        LT_TRY(cast(optim, &from, &job[i].x));
    }
    return LT_OK;
}
