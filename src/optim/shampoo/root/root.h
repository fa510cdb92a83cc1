/* Private declarations of the solvers. A call of lt_root_run() becomes a set of items, all of one dtype; a solver
 * is a function on a set. */
#ifndef LT_OPTIM_SHAMPOO_ROOT_ROOT_H
#define LT_OPTIM_SHAMPOO_ROOT_ROOT_H

#include "base/alloc.h"
#include "tensor/tensor.h"

#include "lather/detail/backend.h"
#include "lather/detail/roots.h"

/* The result for a matrix. */
typedef enum lt_root_output {
    LT_OUTPUT_ROOT,   /* A^(-e) */
    LT_OUTPUT_POWERS, /* Q and the eigenvalues^(-e) */
    LT_OUTPUT_BASIS   /* Q */
} lt_root_output;

/* One matrix in progress. */
typedef struct lt_root_item {
    lt_root_job *job;
    int64_t n;
    lt_view a;      /* damped; read only */
    lt_view old;    /* data NULL: none */
    lt_view result; /* [n,n]: root or basis */
    double *power;  /* [n] on the host: eigenvalues^(-e); only with LT_OUTPUT_POWERS */
    double epsilon; /* all eigenvalues of a are at least this, but for rounding; 0: not damped */
    double norm;    /* Frobenius, of a without epsilon */

    /* Device memory, for numbers that the host does not have; NULL: it has. */
    const double *norm_at, *inverse_at; /* norm, and 1 / norm */
    const double *largest_at; /* about a's largest eigenvalue, of which epsilon is a share */
} lt_root_item;

/* Matrices that a solver works on in one call, largest first. Their jobs' status, iterations and
 * residual are what it sets. */
typedef struct lt_root_set {
    const lt_shampoo_config *config;
    lt_device *device;
    const lt_backend *be;
    void *ctx;
    lt_dtype dtype;
    lt_root_output output;
    double tolerance; /* residual that the solver must reach */
    lt_root_item *item;
    size_t count;
    const lt_tensor *one; /* [1], of the device's own dtype: the number 1 */
    /* The same in f64, in device memory: nothing is read back before all work is queued. NULL: it is. */
    const double *device_one;
} lt_root_set;

typedef lt_status lt_root_solve_fn(const lt_root_set *set);
lt_root_solve_fn lt_root_eigh, lt_root_newton, lt_root_higher_order, lt_root_newton_db, lt_root_qr,
    lt_root_rational;
/* The coupled iteration with a series of order terms, 2 .. 6. */
lt_status lt_root_coupled(const lt_root_set *set, int order);
/* exponent = q / p in small numbers; false: it is not. */
bool lt_root_ratio(double exponent, int *p, int *q);

/* A row of the table of solvers. */
typedef struct lt_root_method {
    const char *name;
    lt_root_solve_fn *solve;
    bool roots, bases;              /* what it can produce */
    bool needs_old;                 /* without, LT_ROOT_EIGH begins */
    bool (*takes)(double exponent); /* whether it can do A^(-e); NULL: any e > 0 */
    const char *exponents;          /* which those are */
    double tolerance;               /* residual that is accepted if the config names none */
} lt_root_method;
const lt_root_method *lt_root_method_of(lt_root_solver solver);
/* The residual that the config's solver must reach. */
double lt_root_tolerance(const lt_shampoo_config *config);

/* The residuals of the items' roots, where the exponent is a ratio of small numbers. */
lt_status lt_root_residuals(const lt_root_set *set);
/* The same in two halves: norms, f64 [count] on the device, and from these, on the host, the residuals. */
lt_status lt_root_enqueue_residuals(const lt_root_set *set, const lt_view *norms);
void lt_root_set_residuals(const lt_root_set *set, const double *norm);
/* Estimates of the items' largest eigenvalues, at most a few per cent too small. */
lt_status lt_root_largest(const lt_root_set *set, double *value);
/* The same to f64 [count] on the device, of items whose norms are there. */
lt_status lt_root_enqueue_largest(const lt_root_set *set, const lt_view *value);

/* Roots by the solver `rational`, or NaN in them, without a look at the device: the set has queued_one. */
lt_status lt_root_enqueue_rational(const lt_root_set *set);
/* Damps the items, by a share of their largest eigenvalues if the config says so, and finds their roots, all of it queued
 * and then read back at once: norms, largest eigenvalues (both 0 if the host had them), residuals in the jobs. */
typedef struct lt_root_numbers {
    double norm, largest, size; /* size: the result's norm */
} lt_root_numbers;
lt_status lt_root_solve_on_device(const lt_root_set *set, lt_root_numbers *numbers);

/* In place: eigenvalues, ascending, to eigenvalues^(-exponent), by the rule of the config; false:
 * a value or result is not finite. machine_eps: of the dtype they were computed in. */
bool lt_inverse_powers(const lt_shampoo_config *config, double exponent, double machine_eps,
                       double *value, int64_t count);

#endif
