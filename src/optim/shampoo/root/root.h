/* Private declarations of the root solvers. lt_root_run() turns its jobs into a set of items of one dtype; a solver
 * is a function on a set. */
#ifndef LT_OPTIM_SHAMPOO_ROOT_ROOT_H
#define LT_OPTIM_SHAMPOO_ROOT_ROOT_H

#include "base/alloc.h"
#include "tensor/tensor.h"

#include "lather/detail/backend.h"
#include "lather/detail/roots.h"

/* The result that a preconditioner needs of a matrix. */
typedef enum lt_root_output {
    LT_OUTPUT_ROOT,   /* the inverse root A^(-e) */
    LT_OUTPUT_POWERS, /* the eigenvectors Q and the eigenvalues^(-e) */
    LT_OUTPUT_BASIS   /* the eigenvectors Q */
} lt_root_output;

/* One matrix that is being solved. */
typedef struct lt_root_item {
    lt_root_job *job;
    int64_t n;
    lt_view a;      /* damped matrix to solve; read only */
    lt_view old;    /* result of the last refresh; data NULL: absent */
    lt_view result; /* [n,n]: inverse root or eigenbasis */
    double *power;  /* [n] on the host: eigenvalues^(-e); only with LT_OUTPUT_POWERS */
    double epsilon; /* lower bound of a's eigenvalues up to rounding; 0: not damped */
    double norm;    /* Frobenius norm of the matrix before damping */

    /* Device addresses of numbers that the host does not know; NULL if it does. */
    const double *norm_at, *inverse_at; /* addresses of norm and 1 / norm */
    const double *largest_at; /* address of an estimate of a's largest eigenvalue, epsilon's unit */
} lt_root_item;

/* Matrices that a solver processes in one call, largest first. The solver sets their jobs' status, iterations and
 * residual. */
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
    const lt_tensor *one; /* [1], master dtype: the number 1 */
    /* The number 1 as f64 in device memory, if nothing may be read back before all work is queued; else NULL. */
    const double *device_one;
} lt_root_set;

typedef lt_status lt_root_solve_fn(const lt_root_set *set);
lt_root_solve_fn lt_root_eigh, lt_root_newton, lt_root_higher_order, lt_root_newton_db, lt_root_qr,
    lt_root_rational;
/* Solves by the coupled iteration with a series of `order` terms, 2 to 6. */
lt_status lt_root_coupled(const lt_root_set *set, int order);
/* Sets small q and p with q / p equal to the exponent; returns false if impossible. */
bool lt_root_exponent_as_ratio(double exponent, int *p, int *q);

/* A row of the table of solvers. */
typedef struct lt_root_method {
    const char *name;
    lt_root_solve_fn *solve;
    bool roots, bases;              /* results that the solver can produce */
    bool needs_old;                 /* needs an old result; LT_ROOT_EIGH computes the first */
    bool (*takes)(double exponent); /* returns true if it can compute A^(-e); NULL: any e > 0 */
    const char *exponents;          /* description of the exponents that it takes, for messages */
    double tolerance;               /* accepted residual if the config names none */
} lt_root_method;
const lt_root_method *lt_root_method_of(lt_root_solver solver);
/* Returns the residual that the config's solver must reach. */
double lt_root_tolerance(const lt_shampoo_config *config);

/* Computes the residuals of the items' roots, where the exponent is a ratio of small numbers. */
lt_status lt_root_compute_residuals(const lt_root_set *set);
/* Residuals in two steps: queues norms, f64 [count] on the device; sets the residuals from them on the host. */
lt_status lt_root_enqueue_residuals(const lt_root_set *set, const lt_view *norms);
void lt_root_set_residuals(const lt_root_set *set, const double *norm);
/* Estimates the items' largest eigenvalues, at most 5 % too small. */
lt_status lt_root_estimate_largest(const lt_root_set *set, double *value);
/* Queues estimates of the largest eigenvalues, f64 [count] on the device, for items whose norms are there. */
lt_status lt_root_enqueue_largest(const lt_root_set *set, const lt_view *value);

/* Queues roots by the solver `rational`, with NaN where it fails; needs device_one. Does not synchronize. */
lt_status lt_root_enqueue_rational(const lt_root_set *set);
/* Damps the items (relative to their largest eigenvalues under the relative rule) and computes their roots, all
 * queued and then read back at once: sets residuals in the jobs; norm and largest are 0 if the host had them. */
typedef struct lt_root_numbers {
    double norm, largest, size; /* numbers that were read back; size: norm of the result */
} lt_root_numbers;
lt_status lt_root_solve_on_device(const lt_root_set *set, lt_root_numbers *numbers);

/* Returns the factor of a matrix with this trace under trace_scaling x: max(trace, epsilon)^-x. */
double lt_root_trace_scale(const lt_shampoo_config *config, double trace);
/* Returns the value up to which eigenvalues count as 0 in a pseudo-inverse, by rank_rtol of the largest and rank_atol.
 * machine_eps: that of the dtype they were computed in. */
double lt_root_rank_cutoff(const lt_shampoo_config *config, double largest, int64_t count,
                           double machine_eps);
/* Replaces ascending eigenvalues by eigenvalues^(-exponent) under the config's epsilon rule; returns false if a
 * value or result is not finite. machine_eps: that of the dtype they were computed in. */
bool lt_inverse_powers(const lt_shampoo_config *config, double exponent, double machine_eps,
                       double *value, int64_t count);

#endif
