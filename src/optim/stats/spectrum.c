/* Spectrum of a symmetric matrix. Effective rank: Roy & Vetterli, "The effective rank: a measure of effective
 * dimensionality", EUSIPCO 2007, of eigenvalues in place of singular values. Quantiles are interpolated linearly, as
 * numpy's. */

#include "lather/detail/spectrum.h"

#include "base/alloc.h"
#include "tensor/tensor.h"

#include "lather/detail/matrix_kernels.h"
#include "lather/ext/elementary.h"
#include "lather/ext/matrix.h"

#include <math.h>

static double quantile_of(const double *value, int64_t count, double at)
{
    const double place = at * (double)(count - 1);
    const int64_t low = (int64_t)place, high = low + 1 < count ? low + 1 : low;
    return value[low] + (place - (double)low) * (value[high] - value[low]);
}

static double effective_rank_of(const double *value, int64_t count)
{
    double sum = 0, entropy = 0;
    for (int64_t i = 0; i < count; i++)
        sum += fmax(value[i], 0);
    for (int64_t i = 0; i < count && sum > 0; i++) {
        const double share = fmax(value[i], 0) / sum;
        entropy -= share > 0 ? share * lt_f64_log(share) : 0;
    }
    return sum > 0 ? lt_f64_exp(entropy) : 0;
}

void lt_spectrum_from_eigenvalues(lt_spectrum *out, const double *value, int64_t count,
                                  double epsilon, bool relative)
{
    int64_t below = 0;
    double smallest = HUGE_VAL;
    *out = (lt_spectrum){.min = value[0],
                         .max = value[count - 1],
                         .effective_rank = effective_rank_of(value, count),
                         .epsilon = relative ? epsilon * value[count - 1] : epsilon,
                         .below_epsilon = (double)NAN,
                         .off_diagonal = (double)NAN};
    for (int64_t i = 0; i < count; i++) {
        below += value[i] < out->epsilon;
        smallest = fmin(smallest, fabs(value[i]));
    }
    const double largest = fmax(fabs(out->min), fabs(out->max));
    out->condition = smallest > 0 ? largest / smallest : HUGE_VAL;
    if (!isnan(epsilon))
        out->below_epsilon = (double)below / (double)count;
    for (int q = 0; q < LT_SPECTRUM_QUANTILES; q++)
        out->quantile[q] = quantile_of(value, count, q / (LT_SPECTRUM_QUANTILES - 1.0));
}

static lt_status read_doubles(const lt_tensor *tensor, double *to)
{
    const int64_t count = lt_tensor_count(tensor);
    LT_TRY(lt_tensor_read(tensor, to, lt_tensor_bytes(tensor)));
    if (lt_tensor_dtype(tensor) == LT_F32)
        for (int64_t i = count; i-- > 0;) /* in place, from the end */
            to[i] = (double)((const float *)to)[i];
    return LT_OK;
}

/* Computes the ascending eigenvalues. work: [n,n] of the dtype to compute in; vectors are not used. */
static lt_status compute_eigenvalues(const lt_tensor *work, double *value)
{
    lt_device *device = lt_tensor_device(work);
    const int64_t n = lt_tensor_shape(work).dim[0];
    lt_tensor *values = NULL, *vectors = NULL;
    lt_status st = lt_tensor_new(&values, device, lt_tensor_dtype(work), LT_SHAPE(n));
    if (!st)
        st = lt_tensor_new(&vectors, device, lt_tensor_dtype(work), LT_SHAPE(n, n));
    if (!st) {
        lt_eigh_job job = {.a = lt_tensor_view(work),
                           .values = lt_tensor_view(values),
                           .vectors = lt_tensor_view(vectors)};
        st = device->backend->eigh(device->ctx, &job, 1);
        st = st ? st : job.status;
    }
    if (!st)
        st = read_doubles(values, value);
    lt_tensor_free(&values);
    lt_tensor_free(&vectors);
    return st;
}

/* Returns |B - diag B| / |B|. */
static double off_diagonal_share(const double *b, int64_t n)
{
    double off = 0, all = 0;
    for (int64_t i = 0; i < n * n; i++) {
        off += i % (n + 1) ? b[i] * b[i] : 0;
        all += b[i] * b[i];
    }
    return all > 0 ? sqrt(off / all) : 0;
}

/* Computes B = Q^T A Q in two products, and reads it. */
static lt_status measure_off_diagonal(const lt_tensor *matrix, const lt_tensor *basis, int64_t n,
                                      double *host, double *out)
{
    lt_device *device = lt_tensor_device(matrix);
    lt_tensor *half = NULL, *whole = NULL;
    lt_status st = lt_tensor_new(&half, device, lt_tensor_dtype(matrix), LT_SHAPE(n, n));
    if (!st)
        st = lt_tensor_new(&whole, device, lt_tensor_dtype(matrix), LT_SHAPE(n, n));
    if (!st)
        st = lt_matrix_mode_product_transposed(half, basis, matrix, 0, NULL);
    if (!st)
        st = lt_matrix_mode_product_transposed(whole, basis, half, 1, NULL);
    if (!st)
        st = read_doubles(whole, host);
    if (!st)
        *out = off_diagonal_share(host, n);
    lt_tensor_free(&half);
    lt_tensor_free(&whole);
    return st;
}

lt_status lt_spectrum_compute(lt_spectrum *out, const lt_tensor *matrix, const lt_tensor *basis,
                              double epsilon, bool relative)
{
    lt_device *device = lt_tensor_device(matrix);
    const int64_t n = lt_tensor_shape(matrix).dim[0];
    lt_tensor *work = NULL;
    if (!device->backend->eigh)
        return lt_fail(LT_E_UNSUPPORTED, "optim-stats: %s has no kernel eigh",
                       lt_device_name(device));
    const lt_dtype master = lt_device_master_dtype(device);
    if (basis && (lt_tensor_dtype(matrix) != master || lt_tensor_dtype(basis) != master))
        return lt_fail(LT_E_UNSUPPORTED, "optim-stats: matrix of %s and basis of %s: want %s",
                       lt_dtype_name(lt_tensor_dtype(matrix)),
                       lt_dtype_name(lt_tensor_dtype(basis)), lt_dtype_name(master));
    const lt_dtype dtype = device->backend->host_memory ? LT_F64 : lt_tensor_dtype(matrix);
    double *host = lt_alloc((size_t)(n * n), sizeof *host);
    lt_status st = host ? lt_tensor_new(&work, device, dtype, lt_tensor_shape(matrix)) : LT_E_NOMEM;
    if (!st)
        st = lt_tensor_copy(work, matrix);
    if (!st)
        st = compute_eigenvalues(work, host);
    if (!st)
        lt_spectrum_from_eigenvalues(out, host, n, epsilon, relative);
    if (!st && basis)
        st = measure_off_diagonal(matrix, basis, n, host, &out->off_diagonal);
    lt_tensor_free(&work);
    lt_free(host);
    return st;
}
