/* A matrix on a device and its inverse root, for tests of solvers. */
#ifndef LT_TESTS_OPTIM_ROOTS_H
#define LT_TESTS_OPTIM_ROOTS_H

#include "fixture.h"
#include "optim/shampoo/root/root.h"

#include <math.h>
#include <string.h>

enum { MOST = 96 * 96 };

typedef struct problem {
    lt_device *device;
    lt_tensor *a, *old, *out, *power;
    lt_shampoo_config config;
    lt_root_job job;
    lt_root_stats stats;
    int64_t n;
} problem;

static inline void open_problem(problem *p, const char *device, bool f64, int64_t n,
                                const double *a)
{
    *p = (problem){.config = LT_SHAMPOO_REFERENCE, .n = n};
    const lt_device_config config = {.f64 = f64, .threads = 1};
    assert_ok(lt_device_open(&p->device, device, &config));
    const lt_dtype dtype = f64 ? LT_F64 : LT_F32;
    assert_ok(lt_tensor_new(&p->a, p->device, dtype, LT_SHAPE(n, n)));
    assert_ok(lt_tensor_new(&p->old, p->device, dtype, LT_SHAPE(n, n)));
    assert_ok(lt_tensor_new(&p->out, p->device, dtype, LT_SHAPE(n, n)));
    assert_ok(lt_tensor_new(&p->power, p->device, dtype, LT_SHAPE(n)));
    put(p->a, a);
}

static inline void close_problem(problem *p)
{
    lt_tensor_free(&p->a);
    lt_tensor_free(&p->old);
    lt_tensor_free(&p->out);
    lt_tensor_free(&p->power);
    lt_device_close(&p->device);
}

static inline lt_status run(problem *p, lt_root_solver solver, double exponent, bool has_old)
{
    p->config.root_solver = solver;
    p->stats = (lt_root_stats){0};
    p->job = (lt_root_job){.a = lt_tensor_view(p->a),
                           .exponent = exponent,
                           .out = lt_tensor_view(p->out),
                           .power = lt_tensor_view(p->power),
                           .param = "layer.weight",
                           .block = 3,
                           .dim = 1};
    if (has_old)
        p->job.old = lt_tensor_view(p->old);
    const lt_root_context context = {
        .config = &p->config, .device = p->device, .step = 7, .stats = &p->stats};
    return lt_root_run(&context, &p->job, 1);
}

static inline void multiply(const double *a, const double *b, int64_t n, double *y)
{
    for (int64_t i = 0; i < n * n; i++) {
        y[i] = 0;
        for (int64_t k = 0; k < n; k++)
            y[i] += a[i / n * n + k] * b[k * n + i % n];
    }
}

/* Returns |R^p A - I| / sqrt(n), Frobenius. */
static inline double residual_of(const double *a, const double *r, int power, int64_t n)
{
    static double x[MOST], y[MOST];
    double square = 0;
    memcpy(x, a, (size_t)(n * n) * sizeof *x);
    for (int k = 0; k < power; k++) {
        multiply(r, x, n, y);
        memcpy(x, y, (size_t)(n * n) * sizeof *x);
    }
    for (int64_t i = 0; i < n * n; i++)
        square += (x[i] - (i % (n + 1) == 0)) * (x[i] - (i % (n + 1) == 0));
    return sqrt(square / (double)n);
}

/* Makes a matrix with eigenvalues from 1 to 1/condition, 0 from rank on, and eigenvectors from reflections. */
static inline void make_matrix(double *a, int64_t n, double condition, int64_t rank)
{
    memset(a, 0, (size_t)(n * n) * sizeof *a);
    for (int64_t i = 0; i < rank; i++)
        a[i * (n + 1)] = pow(condition, -(double)i / (double)(n - 1));
    for (int k = 0; k < 3; k++) {
        double v[96], w[96], square = 0, middle = 0;
        for (int64_t i = 0; i < n; i++) {
            v[i] = sin(1 + (double)i * (1.7 + k) + (double)(i * i) * 0.3);
            square += v[i] * v[i];
        }
        for (int64_t i = 0; i < n; i++) {
            w[i] = 0;
            for (int64_t j = 0; j < n; j++)
                w[i] += a[i * n + j] * v[j];
            middle += v[i] * w[i];
        }
        for (int64_t i = 0; i < n * n; i++)
            a[i] += 4 * middle / square / square * v[i / n] * v[i % n]
                    - 2 / square * (v[i / n] * w[i % n] + w[i / n] * v[i % n]);
    }
}

#endif
