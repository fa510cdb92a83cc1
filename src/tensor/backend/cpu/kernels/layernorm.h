/* Layer and RMS normalisation on rows: detail/norm_kernels.h. A few rows at a time, for independent sums; rows are in
 * the L1 cache between passes. */

#include "simd.h"

enum { TOGETHER = REGISTERS == 1 ? 4 : 2 }; /* rows at a time, whose sums fit the registers */

ALWAYS void zero_sums(registers sum[TOGETHER])
{
#pragma GCC unroll 4
    for (int r = 0; r < TOGETHER; r++)
        sum[r] = zero_registers();
}

ALWAYS void add_row_values(const lt_ln_rows *in, int64_t row, int rows, int64_t c, int n,
                           registers sum[TOGETHER], lt_cpu_store s)
{
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        add_to_registers(&sum[r], load(in->x, (row + r) * in->step_x + c, n, s));
}

ALWAYS void add_row_squares(const lt_ln_rows *in, int64_t row, int rows, int64_t c, int n,
                            const float mean[TOGETHER], registers square[TOGETHER], lt_cpu_store s)
{
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        const vec d = load(in->x, (row + r) * in->step_x + c, n, s) - mean[r];
        const vec kept = n == LANES ? d : choose(first_lanes(n), d, vec_set(0));
        add_products_to(&square[r], kept, kept);
    }
}

/* Computes the mean and 1/sqrt(variance + eps) of some rows. */
ALWAYS void ln_moments(const lt_ln_rows *in, int64_t row, int rows, float mean[TOGETHER],
                       float rstd[TOGETHER], lt_cpu_store s)
{
    registers sum[TOGETHER], square[TOGETHER];
    const float share = 1 / (float)in->width;
    zero_sums(sum);
    zero_sums(square);
    if (!in->rms)
        FOR_LANES(c, n, in->width, { add_row_values(in, row, rows, c, n, sum, s); });
    for (int r = 0; r < rows; r++)
        mean[r] = in->rms ? 0 : sum_lanes_by_halving(registers_to_vec(&sum[r])) * share;
    FOR_LANES(c, n, in->width, { add_row_squares(in, row, rows, c, n, mean, square, s); });
    for (int r = 0; r < rows; r++)
        rstd[r] =
            1
            / __builtin_sqrtf(sum_lanes_by_halving(registers_to_vec(&square[r])) * share + in->eps);
}

ALWAYS void ln_normalize_rows(const lt_ln_rows *in, int64_t row, int rows, lt_cpu_store s)
{
    float mean[TOGETHER], rstd[TOGETHER];
    ln_moments(in, row, rows, mean, rstd, s);
    FOR_LANES(c, n, in->width, {
        const vec gamma = load(in->gamma, c, n, LT_STORE_F32);
        const vec beta = load(in->beta, c, n, LT_STORE_F32);
        for (int r = 0; r < rows; r++) {
            const vec hat = (load(in->x, (row + r) * in->step_x + c, n, s) - mean[r]) * rstd[r];
            save(in->y, (row + r) * in->step_y + c, multiply_add(hat, gamma, beta), n, s);
        }
    });
    for (int r = 0; r < rows; r++) {
        in->mean[row + r] = mean[r];
        in->rstd[row + r] = rstd[r];
    }
}

ALWAYS void ln_rows_any(const lt_ln_rows *in, int64_t begin, int64_t end, lt_cpu_store s)
{
    const lt_ln_rows l = *in; /* a local copy: stores cannot change it */
    int64_t row = begin;
    for (; row + TOGETHER <= end; row += TOGETHER)
        ln_normalize_rows(&l, row, TOGETHER, s);
    for (; row < end; row++)
        ln_normalize_rows(&l, row, 1, s);
}

ALWAYS vec ln_normalized_x(const lt_ln_grad *in, int64_t row, int64_t c, int n, lt_cpu_store s)
{
    return (load(in->x, row * in->step_x + c, n, s) - in->mean[row]) * in->rstd[row];
}

/* Sums over rows (dgamma, dbeta) and over the elements of each row. */
typedef struct ln_sums {
    registers dgamma, dbeta, sum[TOGETHER], product[TOGETHER];
} ln_sums;

ALWAYS void add_row_gradients(const lt_ln_grad *in, int64_t row, int rows, int64_t c, int n,
                              ln_sums *to, lt_cpu_store s)
{
    const vec gamma = load(in->gamma, c, n, LT_STORE_F32);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        const vec dy = load(in->dy, (row + r) * in->step_dy + c, n, s);
        const vec hat = ln_normalized_x(in, row + r, c, n, s);
        const vec h = dy * gamma;
        add_products_to(&to->dgamma, dy, hat);
        add_to_registers(&to->dbeta, dy);
        add_to_registers(&to->sum[r], h);
        add_products_to(&to->product[r], h, hat);
    }
}

/* Accumulates dgamma and dbeta; computes the means of h = gamma * dy and of h * xhat over each row. */
ALWAYS void ln_grad_sums(const lt_ln_grad *in, int64_t row, int rows, float mean[TOGETHER],
                         float product[TOGETHER], lt_cpu_store s)
{
    ln_sums all;
    const float share = 1 / (float)in->width;
    zero_sums(all.sum);
    zero_sums(all.product);
    FOR_LANES(c, n, in->width, {
        all.dgamma = as_registers(load(in->dgamma, c, n, LT_STORE_F32));
        all.dbeta = as_registers(load(in->dbeta, c, n, LT_STORE_F32));
        add_row_gradients(in, row, rows, c, n, &all, s);
        save(in->dgamma, c, registers_to_vec(&all.dgamma), n, LT_STORE_F32);
        save(in->dbeta, c, registers_to_vec(&all.dbeta), n, LT_STORE_F32);
    });
    for (int r = 0; r < rows; r++) {
        mean[r] = in->rms ? 0 : sum_lanes_by_halving(registers_to_vec(&all.sum[r])) * share;
        product[r] = sum_lanes_by_halving(registers_to_vec(&all.product[r])) * share;
    }
}

ALWAYS void ln_grad_row_group(const lt_ln_grad *in, int64_t row, int rows, lt_cpu_store s)
{
    float mean[TOGETHER], product[TOGETHER];
    ln_grad_sums(in, row, rows, mean, product, s);
    if (!in->dx)
        return;
    FOR_LANES(c, n, in->width, {
        const registers gamma = load_registers(in->gamma, c, n, LT_STORE_F32);
        for (int r = 0; r < rows; r++) {
            const registers dy = load_registers(in->dy, (row + r) * in->step_dy + c, n, s);
            registers x = load_registers(in->x, (row + r) * in->step_x + c, n, s);
            const float centre = in->mean[row + r];
            const float rstd = in->rstd[row + r];
            for (int k = 0; k < REGISTERS; k++) {
                const sums hat = (x.part[k] - centre) * rstd;
                const sums h = fused(dy.part[k], gamma.part[k], -mean[r] - (sums){0});
                x.part[k] = fused(hat, -product[r] - (sums){0}, h) * rstd;
            }
            save_registers(in->dx, (row + r) * in->step_dx + c, &x, n, s);
        }
    });
}

ALWAYS void ln_grad_rows_any(const lt_ln_grad *in, int64_t begin, int64_t end, lt_cpu_store s)
{
    const lt_ln_grad l = *in;
    int64_t row = begin;
    for (; row + TOGETHER <= end; row += TOGETHER)
        ln_grad_row_group(&l, row, TOGETHER, s);
    for (; row < end; row++)
        ln_grad_row_group(&l, row, 1, s);
}
