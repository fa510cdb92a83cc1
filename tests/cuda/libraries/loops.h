/* Dense linear algebra as plain loops, for what stands in for cuBLAS, cuSOLVER and cuDNN on the host.
 * Matrices are by columns, as BLAS has them. Needs no header of CUDA. Golub & Van Loan, "Matrix
 * computations", 4th edition, sections 3.1, 4.2 and 5.2. */
#ifndef LT_TESTS_STANDIN_LOOPS_H
#define LT_TESTS_STANDIN_LOOPS_H

#include <cmath>
#include <cstdint>
#include <vector>

/* c[m][n] += sum over l of a[m][l] b[l][n]; n is contiguous in b and c. Four terms at a time; the order
 * of the terms is that of l, or the reverse of their groups. */
struct loop_matrix {
    int64_t row, column; /* strides */
};
template <class real>
void loop_product(int64_t m, int64_t n, int64_t l, const real *a, loop_matrix as, const real *b,
                  int64_t b_row, real *c, int64_t c_row, bool backwards = false)
{
    const int64_t groups = (l + 3) / 4;
    for (int64_t i = 0; i < m; i++) {
        real *__restrict to = c + i * c_row;
        for (int64_t k = 0; k < groups; k++) {
            const int64_t g = 4 * (backwards ? groups - 1 - k : k);
            const real *x = a + i * as.row + g * as.column, *y = b + g * b_row;
            if (l - g >= 4) {
                const real x0 = x[0], x1 = x[as.column], x2 = x[2 * as.column],
                           x3 = x[3 * as.column];
                const real *__restrict y0 = y, *__restrict y1 = y + b_row;
                const real *__restrict y2 = y1 + b_row, *__restrict y3 = y2 + b_row;
                for (int64_t j = 0; j < n; j++)
                    to[j] += (x0 * y0[j] + x1 * y1[j]) + (x2 * y2[j] + x3 * y3[j]);
                continue;
            }
            for (int64_t t = 0; t < l - g; t++) {
                const real x0 = x[t * as.column];
                const real *__restrict y0 = y + t * b_row;
                for (int64_t j = 0; j < n; j++)
                    to[j] += x0 * y0[j];
            }
        }
    }
}

/* c = alpha op(a) op(b) + beta c, sums in double. With beta 0, c is not read. */
template <class real> struct loop_gemm {
    bool transpose_a, transpose_b;
    int64_t m, n, k, lda, ldb, ldc;
    double alpha, beta;
};
template <class real>
void loop_multiply(const loop_gemm<real> &g, const real *a, const real *b, real *c)
{
    std::vector<double> x((size_t)(g.k * g.m)), y((size_t)(g.n * g.k)), z((size_t)(g.n * g.m));
    for (int64_t l = 0; l < g.k; l++)
        for (int64_t i = 0; i < g.m; i++)
            x[(size_t)(l * g.m + i)] = (double)a[g.transpose_a ? l + i * g.lda : i + l * g.lda];
    for (int64_t j = 0; j < g.n; j++)
        for (int64_t l = 0; l < g.k; l++)
            y[(size_t)(j * g.k + l)] = (double)b[g.transpose_b ? j + l * g.ldb : l + j * g.ldb];
    loop_product<double>(g.n, g.m, g.k, y.data(), {g.k, 1}, x.data(), g.m, z.data(), g.m);
    for (int64_t j = 0; j < g.n; j++)
        for (int64_t i = 0; i < g.m; i++) {
            real *to = &c[i + j * g.ldc];
            const double kept = g.beta != 0 ? g.beta * (double)*to : 0;
            *to = (real)(g.alpha * z[(size_t)(j * g.m + i)] + kept);
        }
}

/* b = alpha l^-1 b, l lower triangular with its diagonal: forward substitution. */
template <class real>
void loop_substitute(int64_t m, int64_t n, double alpha, const real *l, int64_t ldl, real *b,
                     int64_t ldb)
{
    std::vector<double> x((size_t)m);
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < m; i++)
            x[(size_t)i] = alpha * (double)b[i + j * ldb];
        for (int64_t k = 0; k < m; k++) {
            const real *column = l + k * ldl;
            const double known =
                (double)(b[k + j * ldb] = (real)(x[(size_t)k] / (double)column[k]));
            for (int64_t i = k + 1; i < m; i++)
                x[(size_t)i] -= (double)column[i] * known;
        }
    }
}

/* Writes the Cholesky factor to the lower triangle, keeps the upper. Returns 1 + the first row whose pivot is not
 * positive, or 0. */
template <class real> int loop_cholesky(int64_t n, real *a, int64_t lda)
{
    std::vector<double> sum((size_t)n);
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = j; i < n; i++)
            sum[(size_t)i] = (double)a[i + j * lda];
        for (int64_t k = 0; k < j; k++) {
            const double factor = (double)a[j + k * lda];
            for (int64_t i = j; i < n; i++)
                sum[(size_t)i] -= (double)a[i + k * lda] * factor;
        }
        if (!(sum[(size_t)j] > 0))
            return (int)j + 1;
        a[j * (lda + 1)] = (real)std::sqrt(sum[(size_t)j]);
        for (int64_t i = j + 1; i < n; i++)
            a[i + j * lda] = (real)(sum[(size_t)i] / (double)a[j * (lda + 1)]);
    }
    return 0;
}

/* Householder's QR: r in the upper triangle, below it the reflectors I - tau v v', whose first element
 * is 1 and not stored. */
template <class real> void loop_reflect(int64_t m, int64_t n, real *a, int64_t lda, real *tau)
{
    for (int64_t k = 0; k < n && k < m; k++) {
        real *v = a + k * lda;
        double rest = 0;
        for (int64_t i = k + 1; i < m; i++)
            rest += (double)v[i] * (double)v[i];
        tau[k] = 0;
        if (rest == 0)
            continue;
        const double head = (double)v[k];
        const double beta =
            head > 0 ? -std::sqrt(head * head + rest) : std::sqrt(head * head + rest);
        tau[k] = (real)((beta - head) / beta);
        for (int64_t i = k + 1; i < m; i++)
            v[i] = (real)((double)v[i] / (head - beta));
        v[k] = (real)beta;
        for (int64_t j = k + 1; j < n; j++) {
            real *x = a + j * lda;
            double dot = (double)x[k];
            for (int64_t i = k + 1; i < m; i++)
                dot += (double)v[i] * (double)x[i];
            dot *= (double)tau[k];
            x[k] = (real)((double)x[k] - dot);
            for (int64_t i = k + 1; i < m; i++)
                x[i] = (real)((double)x[i] - dot * (double)v[i]);
        }
    }
}

/* The first n columns of the product of k reflectors, in their place. */
template <class real>
void loop_form_q(int64_t m, int64_t n, int64_t k, real *a, int64_t lda, const real *tau)
{
    std::vector<double> q((size_t)(m * n), 0);
    for (int64_t j = 0; j < n; j++)
        q[(size_t)(j * m + j)] = 1;
    for (int64_t r = k - 1; r >= 0; r--) {
        const real *v = a + r * lda;
        for (int64_t j = 0; j < n; j++) {
            double *x = q.data() + j * m, dot = x[r];
            for (int64_t i = r + 1; i < m; i++)
                dot += (double)v[i] * x[i];
            dot *= (double)tau[r];
            x[r] -= dot;
            for (int64_t i = r + 1; i < m; i++)
                x[i] -= dot * (double)v[i];
        }
    }
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < m; i++)
            a[i + j * lda] = (real)q[(size_t)(j * m + i)];
}

#endif
