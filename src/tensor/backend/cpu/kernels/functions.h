/* Elementary functions of sixteen floats. exp(): Cody & Waite, "Software manual for the elementary functions", 1980,
 * chapter 6, with a Taylor polynomial whose remainder, (ln(2)/2)^8/8! = 5.2e-9, is below f32 rounding. log(): series of
 * the inverse hyperbolic tangent. tanh(): Lambert's continued fraction (1770). Normal distribution and gelu's
 * derivative: rational fits. Made of additions, products, divisions and multiply_add(): same bits on all sets that
 * fuse. The errors stated are bounds over all floats, checked by tests/tensor/functions.c. */

#ifndef LT_BACKEND_CPU_KERNELS_FUNCTIONS_H
#define LT_BACKEND_CPU_KERNELS_FUNCTIONS_H

#include "simd.h"

ALWAYS vec square_root(vec v)
{
#if defined(__AVX512F__)
    return (vec)_mm512_sqrt_ps((__m512)v);
#elif defined(__AVX2__)
    __m256 part[2];
    memcpy(part, &v, sizeof part);
    part[0] = _mm256_sqrt_ps(part[0]);
    part[1] = _mm256_sqrt_ps(part[1]);
    memcpy(&v, part, sizeof v);
    return v;
#elif defined(__aarch64__)
    registers r = as_registers(v);
    for (int i = 0; i < REGISTERS; i++)
        r.part[i] = (sums)vsqrtq_f32((float32x4_t)r.part[i]);
    return registers_to_vec(&r);
#else
    for (int l = 0; l < LANES; l++)
        v[l] = __builtin_sqrtf(v[l]);
    return v;
#endif
}

/* Returns e^x: 0 below -103, infinity above 89, NaN for NaN. Error 0.95 ulp. */
ALWAYS vec exponential(vec x)
{
    const vec low = vec_set(-110), high = vec_set(90), magic = vec_set(0x1.8p23F);
    x = smaller(high, larger(low, x));
    /* The last bits of x / ln(2) + 1.5 * 2^23 are the nearest integer n. */
    const vec sum = multiply_add(x, vec_set(1.44269504F), magic), n = sum - magic;
    /* ln(2) in two parts: the first has 10 bits, so n times it is exact. */
    const vec big = multiply_add(n, vec_set(-0.693359375F), x);
    const vec r = multiply_add(n, vec_set(2.12194440e-4F), big);
    vec p = multiply_add(r, vec_set(1.0F / 5040), vec_set(1.0F / 720));
    p = multiply_add(r, p, vec_set(1.0F / 120));
    p = multiply_add(r, p, vec_set(1.0F / 24));
    p = multiply_add(r, p, vec_set(1.0F / 6));
    p = multiply_add(r, p, vec_set(0.5F));
    p = multiply_add(r, p, vec_set(1));
    p = multiply_add(r, p, vec_set(1));
    /* 2^n as two factors, both normal numbers even if 2^n is not. */
    const lanes exponent = (lanes)((bits)sum - (bits)magic), half_of = exponent >> 1;
    const bits first = ((bits)half_of + 127) << 23;
    const bits second = ((bits)exponent - (bits)half_of + 127) << 23;
    return p * (vec)first * (vec)second;
}

/* Returns 2^x for x <= 127: 2^-126 below -126, NaN for NaN. Interpolates at Chebyshev nodes of -1/2..1/2; error
 * 1 ulp. */
ALWAYS vec exponential_of_2(vec x)
{
    x = larger(vec_set(-126), x);
    const vec n = round_to_nearest(x), f = x - n;
    vec p = multiply_add(f, vec_set(0.000154614448547F), vec_set(0.00134004279971F));
    p = multiply_add(f, p, vec_set(0.00961805693794F));
    p = multiply_add(f, p, vec_set(0.0555032715201F));
    p = multiply_add(f, p, vec_set(0.240226507187F));
    p = multiply_add(f, p, vec_set(0.693147182465F));
    p = multiply_add(f, p, vec_set(1));
    return scale_by_power_of_2(p, n);
}

/* Returns log(x): x = 2^n * m with m about 1, log(m) = 2 atanh(s), s = (m-1) / (m+1). With |s| < 0.172 the first
 * omitted term, s^10/11, is 2e-9. -infinity for 0, NaN for negative numbers, x for infinity and NaN. Error 2 ulp. */
ALWAYS vec logarithm(vec x)
{
    const lanes small = below(x, vec_set(0x1p-126F)); /* below the smallest normal number */
    const vec v = choose(small, x * 0x1p23F, x);
    /* n: the exponent of v over sqrt(1/2), whose bits are 0x3F3504F3. */
    const lanes n = ((lanes)v - 0x3F3504F3) >> 23;
    const vec m = (vec)((lanes)v - (lanes)((bits)n << 23));
    const vec s = (m - 1) / (m + 1), z = s * s;
    vec p = multiply_add(z, vec_set(1.0F / 9), vec_set(1.0F / 7));
    p = multiply_add(z, p, vec_set(1.0F / 5));
    p = multiply_add(z, p, vec_set(1.0F / 3));
    const vec power = __builtin_convertvector(n - (small & 23), vec), tail = 2 * s * z * p;
    /* ln(2) in two parts, the first of 10 bits. */
    const vec y = power * 0.693359375F + (2 * s + (power * -2.12194440e-4F + tail));
    const vec inf = vec_set(__builtin_inff()), nan = vec_set(__builtin_nanf(""));
    const vec finite = choose(equals(x, (vec){0}), -inf, choose(below(x, (vec){0}), nan, y));
    return choose(below(x, inf), finite, x);
}

/* Returns log(1 + x) for x >= 0, compensating the rounding of 1 + x (Kahan). Error 3.9 ulp. */
ALWAYS vec logarithm_of_1_plus(vec x)
{
    const vec u = 1 + x, d = u - 1;
    return choose(equals(d, (vec){0}), x, logarithm(u) * (x / d));
}

/* Returns tanh(x): the continued fraction up to |x| = 0.6 (truncation below 1e-9), then 1 - 2/(exp(2|x|) + 1).
 * Error 3 ulp. */
ALWAYS vec hyperbolic_tangent(vec x)
{
    const vec size = (vec)((bits)x & 0x7FFFFFFF), z = x * x;
    const vec inner = x * (945 + z * (105 + z)) / (945 + z * (420 + z * 15));
    const vec outer = 1 - 2 / (exponential(2 * size) + 1);
    const vec with_sign = (vec)((bits)outer | ((bits)x & 0x80000000));
    return choose(below(size, vec_set(0.6F)), inner, choose(equals(x, x), with_sign, x));
}

/* Returns the normal distribution, (1 + erf(x / sqrt(2))) / 2: 1/2 plus an odd rational function of x, fitted up to
 * 5.45, where the remainder is below rounding. Fit error 6.3e-9; error 1.7 ulp of 1. The fits here are
 * least squares, reweighted to minimise the largest error (Lawson, 1961). */
ALWAYS vec normal_distribution(vec x)
{
    const vec z = smaller(vec_set(29.7025F), x * x);
    vec p = multiply_add(z, vec_set(2.30644233e-08F), vec_set(6.3545981e-06F));
    p = multiply_add(z, p, vec_set(0.000166507918F));
    p = multiply_add(z, p, vec_set(0.00466360385F));
    p = multiply_add(z, p, vec_set(0.0336069055F));
    p = multiply_add(z, p, vec_set(0.398942232F));
    vec q = multiply_add(z, vec_set(1.20684456e-06F), vec_set(7.29981548e-05F));
    q = multiply_add(z, q, vec_set(0.00187132519F));
    q = multiply_add(z, q, vec_set(0.028508829F));
    q = multiply_add(z, q, vec_set(0.25090602F));
    q = multiply_add(z, q, vec_set(1));
    const vec half_of_it = smaller(vec_set(0.5F), larger(vec_set(-0.5F), x * p / q));
    return half_of_it + 0.5F;
}

/* Returns the derivative of x times the normal distribution, fitted up to 5.8: error 3 ulp of 1.
 * 0 below -6, where it is under 3.6e-8. */
ALWAYS vec gelu_slope(vec x)
{
    const vec v = smaller(vec_set(5.8F), larger(vec_set(-5.8F), x)), z = v * v;
    vec p = multiply_add(z, vec_set(1.92927345e-07F), vec_set(3.59557962e-05F));
    p = multiply_add(z, p, vec_set(1.92225671e-05F));
    p = multiply_add(z, p, vec_set(0.0142302932F));
    p = multiply_add(z, p, vec_set(-0.0309957638F));
    p = multiply_add(z, p, vec_set(0.797885358F));
    vec q = multiply_add(z, vec_set(8.95235553e-06F), vec_set(0.000192036649F));
    q = multiply_add(z, q, vec_set(0.00352303567F));
    q = multiply_add(z, q, vec_set(0.0409802347F));
    q = multiply_add(z, q, vec_set(0.294494152F));
    q = multiply_add(z, q, vec_set(1));
    return choose(below(x, vec_set(-6)), vec_set(0), v * p / q + 0.5F);
}

typedef uint64_t wide_bits __attribute__((vector_size(128)));

/* Returns x^y, x finite and above 0, in f64: log2(x) by the series of the inverse hyperbolic tangent, 2^f by Taylor's
 * polynomial; the first terms omitted are 4e-14 and 3e-13. */
ALWAYS vec power_of_positive(vec x, vec y)
{
    const double magic = 0x1.8p52; /* adding it rounds; the last bits of the sum are the integer */
    const wide_bits magic_bits = (wide_bits)((wide){0} + magic), unit = (wide_bits){0} + 1;
    const wide v = __builtin_convertvector(x, wide);
    /* v = 2^n m, m from sqrt(1/2) on, whose bits are 0x3FE6A09E667F3BCD. n + 1024 is positive. */
    const wide_bits n = ((wide_bits)v - 0x3FE6A09E667F3BCD + (unit << 62)) >> 52;
    const wide m = (wide)((wide_bits)v - ((n - 1024) << 52));
    const wide s = (m - 1) / (m + 1), z = s * s;
    const double c = 2.88539008177792681472; /* 2 / ln(2) */
    wide p = c / 11 + z * (c / 13 + z * (c / 15));
    p = c / 5 + z * (c / 7 + z * (c / 9 + z * p));
    const wide log2 = (wide)(n + magic_bits) - magic - 1024 + s * (c + z * (c / 3 + z * p));
    const wide t = __builtin_convertvector(y, wide) * log2, sum = t + magic;
    const wide f = (t - (sum - magic)) * 0.69314718055994530942;
    wide q = 1.0 / 40320 + f * (1.0 / 362880 + f * (1.0 / 3628800));
    q = 1.0 / 120 + f * (1.0 / 720 + f * (1.0 / 5040 + f * q));
    q = 0.5 + f * (1.0 / 6 + f * (1.0 / 24 + f * q));
    q = (1 + f * (1 + f * q)) * (wide)(((wide_bits)sum - magic_bits + 1023) << 52);
    const vec size = __builtin_convertvector(t, vec), power = __builtin_convertvector(q, vec);
    const vec bounded = choose(below(size, vec_set(-300)), vec_set(0), power);
    return choose(below(vec_set(300), size), vec_set(__builtin_inff()), bounded);
}

/* Returns x^y: within 0.5001 ulp; special values as pow()'s in C99, annex F. Too long for each caller to have a copy. */
static __attribute__((noinline)) vec power_of(vec x, vec y)
{
    const vec one = vec_set(1), inf = vec_set(__builtin_inff()), zero = {0};
    const bits sign = (bits){0} + 0x80000000;
    const vec size = (vec)((bits)x & ~sign), size_of_y = (vec)((bits)y & ~sign);
    vec r = power_of_positive(size, y);
    /* 0 and infinity: infinity where |x| > 1 if y > 0, 0 else. */
    const lanes grows = equals_lanes(below(one, size), below(zero, y));
    r = choose(equals(size, zero) | equals(size, inf), choose(grows, inf, zero), r);
    /* Negative x: y's integer, its parity the last bit; all floats from 2^24 on are even. */
    const wide sum = __builtin_convertvector(y, wide) + 0x1.8p52;
    const lanes odd = __builtin_convertvector((wide_bits)sum & 1, lanes) << 31;
    const lanes whole = equals(__builtin_convertvector(sum - 0x1.8p52, vec), y);
    const lanes flips = odd & whole & below(size_of_y, vec_set(0x1p24F));
    r = (vec)((bits)r ^ ((bits)x & (bits)flips));
    const lanes undefined = below(x, zero) & below(size, inf) & ~whole;
    r = choose(undefined, vec_set(__builtin_nanf("")), r);
    r = choose(equals(x, x) & equals(y, y), r, x + y);
    const lanes ones =
        equals(x, one) | equals(y, zero) | (equals(size, one) & equals(size_of_y, inf));
    return choose(ones, one, r);
}

#endif
