/* In-place inverse of a symmetric positive definite matrix by block sweeps. inverse.h includes it once per precision
 * and defines REAL, FUSED(a, b, c) and SWEEP(name).
 * Sweep of the block K:  A_KK' = -P, A_iK' = A_iK P, A_ij' = A_ij - A_iK P A_Kj  with P = A_KK^(-1);
 * after all blocks A' = -A^(-1). Only the lower triangle is kept. Beaton, "The use of special matrix
 * operators in statistical calculus", 1964; Goodnight, "A tutorial on the SWEEP operator", 1979. */

enum { SWEEP(LANES) = SWEEP_BYTES / (int)sizeof(REAL), SWEEP(WIDE) = 2 * SWEEP(LANES) };

typedef REAL SWEEP(vector) __attribute__((vector_size(SWEEP_BYTES)));
typedef REAL SWEEP(loose)
    __attribute__((vector_size(SWEEP_BYTES), aligned(sizeof(REAL)), may_alias));

#define ROW(r)                                                               \
    do {                                                                     \
        const SWEEP(vector) f = (SWEEP(vector)){0} + w[(r)*SWEEP_BLOCK + k]; \
        s##r##0 = (SWEEP(vector))FUSED(f, x0, s##r##0);                      \
        s##r##1 = (SWEEP(vector))FUSED(f, x1, s##r##1);                      \
    } while (0)

/* Multiplies a tile: c = w x, or c -= w x; w: SWEEP_ROWS rows of SWEEP_BLOCK, x: SWEEP_BLOCK rows of WIDE. */
ALWAYS void SWEEP(multiply_tile)(const REAL *w, const REAL *x, REAL *c, int64_t ld, bool subtract)
{
    SWEEP(vector)
    s00 = {0}, s01 = {0}, s10 = {0}, s11 = {0}, s20 = {0}, s21 = {0}, s30 = {0}, s31 = {0};
#if SWEEP_ROWS == 8
    SWEEP(vector)
    s40 = {0}, s41 = {0}, s50 = {0}, s51 = {0}, s60 = {0}, s61 = {0}, s70 = {0}, s71 = {0};
#endif
    for (int64_t k = 0; k < SWEEP_BLOCK; k++) {
        const SWEEP(vector) x0 = *(const SWEEP(loose) *)(x + k * SWEEP(WIDE));
        const SWEEP(vector) x1 = *(const SWEEP(loose) *)(x + k * SWEEP(WIDE) + SWEEP(LANES));
        ROW(0);
        ROW(1);
        ROW(2);
        ROW(3);
#if SWEEP_ROWS == 8
        ROW(4);
        ROW(5);
        ROW(6);
        ROW(7);
#endif
    }
    const SWEEP(vector) sum[SWEEP_ROWS][2] = {
        {s00, s01},
        {s10, s11},
        {s20, s21},
        {s30, s31},
#if SWEEP_ROWS == 8
        {s40, s41},
        {s50, s51},
        {s60, s61},
        {s70, s71},
#endif
    };
    for (int r = 0; r < SWEEP_ROWS; r++)
        for (int h = 0; h < 2; h++) {
            SWEEP(loose) *at = (SWEEP(loose) *)(c + r * ld + h * SWEEP(LANES));
            *at = subtract ? (SWEEP(vector)) * at - sum[r][h] : sum[r][h];
        }
}
#undef ROW

/* Inverts a full block in place by pivots. Returns false if it is not positive definite. */
static bool SWEEP(invert_block)(REAL *d)
{
    enum { N = SWEEP_BLOCK };
    for (int p = 0; p < N; p++) {
        REAL *row = d + p * N;
        if (!(row[p] > 0))
            return false;
        const REAL scale = 1 / row[p];
        row[p] = 1;
        for (int j = 0; j < N; j++)
            row[j] *= scale;
        for (int i = 0; i < N; i++) {
            if (i == p)
                continue;
            REAL *to = d + i * N;
            const REAL f = to[p];
            to[p] = 0;
            for (int j = 0; j < N; j++)
                to[j] -= f * row[j];
        }
    }
    return true;
}

/* Gathers column block k of the symmetric matrix: x[i] = A[i, k .. k + SWEEP_BLOCK), and its transpose in panels of
 * WIDE rows. */
static void SWEEP(gather_column_block)(const REAL *a, int64_t n, int64_t ld, int64_t k, REAL *x,
                                       REAL *panel)
{
    enum { B = SWEEP_BLOCK, W = SWEEP(WIDE) };
    for (int64_t i = 0; i < n; i += W) {
        REAL *p = panel + i * B;
        for (int64_t c = 0; c < B && i < k; c++) {
            const REAL *from = a + (k + c) * ld + i;
            for (int64_t r = 0; r < W; r++)
                p[c * W + r] = from[r];
        }
        for (int64_t r = 0; r < W && i >= k + B; r++)
            for (int64_t c = 0; c < B; c++)
                p[c * W + r] = a[(i + r) * ld + k + c];
        for (int64_t r = 0; r < W; r++)
            for (int64_t c = 0; c < B; c++)
                x[(i + r) * B + c] = i < k ? p[c * W + r] : a[(i + r) * ld + k + c];
    }
}

/* Copies the block on the diagonal to d, filling both triangles from the lower one. */
static void SWEEP(read_block)(const REAL *a, int64_t ld, int64_t k, REAL *d)
{
    for (int i = 0; i < SWEEP_BLOCK; i++)
        for (int j = 0; j <= i; j++)
            d[i * SWEEP_BLOCK + j] = d[j * SWEEP_BLOCK + i] = a[(k + i) * ld + k + j];
}

/* Writes column block K of the swept matrix: A_iK = W_i, A_KK = -P. */
static void SWEEP(scatter_column_block)(REAL *a, int64_t n, int64_t ld, int64_t k, const REAL *w,
                                        const REAL *p)
{
    enum { B = SWEEP_BLOCK };
    for (int64_t c = 0; c < B; c++)
        for (int64_t i = 0; i < k; i++)
            a[(k + c) * ld + i] = w[i * B + c];
    for (int64_t i = k + B; i < n; i++)
        for (int64_t c = 0; c < B; c++)
            a[i * ld + k + c] = w[i * B + c];
    for (int64_t i = 0; i < B; i++)
        for (int64_t j = 0; j < B; j++)
            a[(k + i) * ld + k + j] = -p[i * B + j];
}

/* Multiplies a column block: w = x P. */
static void SWEEP(multiply_block)(const REAL *x, int64_t n, const REAL *p, REAL *packed, REAL *w)
{
    enum { B = SWEEP_BLOCK, W = SWEEP(WIDE) };
    for (int64_t j = 0; j < B; j += W) {
        for (int64_t c = 0; c < B; c++)
            for (int64_t r = 0; r < W; r++)
                packed[c * W + r] = p[c * B + j + r];
        for (int64_t i = 0; i < n; i += SWEEP_ROWS)
            SWEEP(multiply_tile)(x + i * B, packed, w + i * B + j, B, false);
    }
}

/* Updates the lower triangle outside row and column k: A_ij -= W_i X_j'. */
static void SWEEP(update_trailing)(REAL *a, int64_t n, int64_t ld, int64_t k, const REAL *w,
                                   const REAL *panel)
{
    enum { B = SWEEP_BLOCK, W = SWEEP(WIDE) };
    for (int64_t j = 0; j < n; j += W) {
        if (j >= k && j < k + B)
            continue;
        for (int64_t i = j - j % SWEEP_ROWS; i < n; i += SWEEP_ROWS) {
            if (i == k)
                i += B;
            if (i < n)
                SWEEP(multiply_tile)(w + i * B, panel + j * B, a + i * ld + j, ld, true);
        }
    }
}

/* Replaces a by -inverse(a). Returns false if a is not positive definite. */
static bool SWEEP(inverse)(REAL *a, int64_t n, int64_t ld, REAL *work)
{
    enum { B = SWEEP_BLOCK };
    REAL *d = work, *packed = d + B * B, *x = packed + B * B, *w = x + n * B, *panel = w + n * B;
    for (int64_t k = 0; k < n; k += B) {
        SWEEP(gather_column_block)(a, n, ld, k, x, panel);
        SWEEP(read_block)(a, ld, k, d);
        if (!SWEEP(invert_block)(d))
            return false;
        SWEEP(multiply_block)(x, n, d, packed, w);
        SWEEP(update_trailing)(a, n, ld, k, w, panel);
        SWEEP(scatter_column_block)(a, n, ld, k, w, d);
    }
    return true;
}
