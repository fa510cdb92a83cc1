/* Inverse powers of eigenvalues under the rules of epsilon, which make small and negative ones harmless. The matrix
 * is symmetric positive semidefinite up to rounding. */

#include "optim/shampoo/root/root.h"

#include "lather/ext/elementary.h"

#include <math.h>

/* Shifts the eigenvalues so that the smallest is at least epsilon. */
static void raise_minimum_to_epsilon(double *value, int64_t count, double epsilon)
{
    double low = value[0];
    for (int64_t i = 0; i < count; i++)
        if (low < epsilon)
            value[i] = value[i] - low + epsilon;
}

static void add_epsilon_to_shifted(double *value, int64_t count, double epsilon)
{
    double low = value[0] < 0 ? value[0] : 0;
    for (int64_t i = 0; i < count; i++)
        value[i] = value[i] - low + epsilon;
}

/* A matrix without a positive eigenvalue gets powers of 0, so that it scales nothing. */
static void relative_epsilon_powers(double *value, int64_t count, double exponent, double epsilon)
{
    double high = value[count - 1], low = value[0] < 0 ? value[0] : 0;
    for (int64_t i = 0; i < count; i++)
        value[i] = high > 0 ? lt_f64_pow(value[i] - low + epsilon * high, -exponent) : 0;
}

double lt_root_trace_scale(const lt_shampoo_config *config, double trace)
{
    return lt_f64_pow(fmax(trace, config->epsilon), -config->trace_scaling);
}

double lt_root_rank_cutoff(const lt_shampoo_config *config, double largest, int64_t count,
                           double machine_eps)
{
    const double rtol = config->rank_rtol < 0 ? (double)count * machine_eps : config->rank_rtol;
    return fmax(rtol * (largest > 0 ? largest : 0), config->rank_atol);
}

static void pseudo_inverse_powers(double *value, int64_t count, double exponent, double cutoff)
{
    for (int64_t i = 0; i < count; i++)
        value[i] = value[i] <= cutoff ? 0 : lt_f64_pow(value[i], -exponent);
}

static bool all_finite(const double *value, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(value[i]))
            return false;
    return true;
}

bool lt_inverse_powers(const lt_shampoo_config *config, double exponent, double machine_eps,
                       double *value, int64_t count)
{
    if (!all_finite(value, count))
        return false;
    if (config->epsilon_rule == LT_EPSILON_PSEUDO_INVERSE) {
        pseudo_inverse_powers(value, count, exponent,
                              lt_root_rank_cutoff(config, value[count - 1], count, machine_eps));
        return all_finite(value, count);
    }
    if (config->epsilon_rule == LT_EPSILON_RELATIVE) {
        relative_epsilon_powers(value, count, exponent, config->epsilon);
        return all_finite(value, count);
    }
    if (config->epsilon_rule == LT_EPSILON_BEFORE)
        raise_minimum_to_epsilon(value, count, config->epsilon);
    else
        add_epsilon_to_shifted(value, count, config->epsilon);
    for (int64_t i = 0; i < count; i++)
        value[i] = lt_f64_pow(value[i], -exponent);
    return all_finite(value, count);
}
