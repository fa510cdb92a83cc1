/* Elementary functions in f64 from tables and Taylor polynomials.
 *
 * exp: x = (32 e + i) ln(2)/32 + r, e^x = 2^e 2^(i/32) e^r. log: x = 2^k m, c a table's number near 1/m,
 * log(x) = k ln(2) - log(c) + log(1 + r), r = m c - 1 (Tang, "Table-driven implementation of the exponential function",
 * ACM TOMS 15, 1989; "... of the logarithm function", TOMS 16, 1990). pow: e^(y log(x)), with the logarithm as the sum of
 * two doubles, 66 bits. sin, cos: the argument's remainder by pi/2 in integers (Payne & Hanek, "Radian reduction for
 * trigonometric functions", SIGNUM Newsletter 18, 1983). erfc: (1 + 2x) exp(x^2) erfc(x) as a polynomial (Shepherd &
 * Laframboise, Math. Comp. 36, 1981). Sums and products of pairs: Dekker, "A floating-point technique for extending the
 * available precision", Numer. Math. 18, 1971. tests/golden/make_elementary.py makes the tables. */

#include "lather/ext/elementary.h"

#include "tables.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* hi + lo, where hi is the sum rounded. */
typedef struct pair {
    double hi, lo;
} pair;

static uint64_t to_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Returns 2^n, n from -1022 to 1023. */
static double power_of_2(int64_t n)
{
    return from_bits((uint64_t)(n + 1023) << 52);
}

/* Returns x without its last 27 bits. Products of such halves are exact. */
static double leading(double x)
{
    return from_bits(to_bits(x) & ~(uint64_t)0x7FFFFFF);
}

/* Returns a + b exactly, if |a| >= |b| or a is a multiple of b's last bit. */
static pair add_smaller(double a, double b)
{
    const double sum = a + b;
    return (pair){sum, b - (sum - a)};
}

/* Returns a + b exactly (Knuth). */
static pair add(double a, double b)
{
    const double sum = a + b, other = sum - a;
    return (pair){sum, (a - (sum - other)) + (b - other)};
}

/* Returns a * b but for an error of 2^-106. */
static pair multiply(double a, double b)
{
    const double a1 = leading(a), a2 = a - a1, b1 = leading(b), b2 = b - b1, product = a * b;
    return (pair){product, ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2};
}

/* e^x = 2^e * (t[0] + t[1]) * (1 + p). */
typedef struct parts {
    int64_t e;
    const double *t;
    double p;
} parts;

/* |hi| below 800; ln(2)/32 has 36 bits in its first part, so that its multiples are exact. */
static parts split_exp(double hi, double lo)
{
    const double magic = 0x1.8p52, sum = hi * 0x1.71547652b82fep+5 + magic, n = sum - magic;
    const int64_t count = (int64_t)(to_bits(sum) - to_bits(magic)), i = count & 31;
    const double r = hi - n * 0x1.62e42fefap-6 + (lo - n * 0x1.cf79abc9e3b3ap-45);
    const double z = r * r, cubic = 1.0 / 6 + r * (1.0 / 24);
    const double high = 1.0 / 120 + r * (1.0 / 720) + z * (1.0 / 5040);
    return (parts){(count - i) / 32, powers_of_2 + 2 * i, r + z * (0.5 + r * (cubic + z * high))};
}

/* Returns e^(hi + lo). */
static double exp_of_pair(double hi, double lo)
{
    if (!(hi < 750))
        return hi > 0 ? (double)INFINITY : hi;
    if (hi < -750)
        return 0;
    const parts s = split_exp(hi, lo);
    /* 2^e in two factors: it may be no normal number. */
    return (s.t[0] + (s.t[1] + s.t[0] * s.p)) * power_of_2(s.e / 2) * power_of_2(s.e - s.e / 2);
}

double lt_f64_exp(double x)
{
    return exp_of_pair(x, 0);
}

/* Returns e^x - 1, 0 <= x < 50. */
static double exp_minus_1(double x)
{
    const parts s = split_exp(x, 0);
    const pair d = add(s.t[0], -power_of_2(-s.e));
    return (d.hi + (d.lo + (s.t[1] + s.t[0] * s.p))) * power_of_2(s.e);
}

double lt_f64_tanh(double x)
{
    const double size = fabs(x);
    if (!(size >= 0x1p-28))
        return x;
    if (size > 22)
        return copysign(1, x);
    const double t = exp_minus_1(2 * size);
    return copysign(size < 1 ? t / (t + 2) : 1 - 2 / (t + 2), x);
}

/* Returns log(x), x finite and above 0, with an error of 2^-66 if exact, else 2^-59. */
static pair log_of(double x, bool exact)
{
    const bool small = x < 0x1p-1022;
    const uint64_t bits = to_bits(small ? x * 0x1p54 : x), fraction = bits & 0xFFFFFFFFFFFFF;
    const double k = (double)((int64_t)(bits >> 52) - (small ? 1077 : 1023));
    const double m = from_bits(fraction | (uint64_t)1023 << 52), m1 = leading(m);
    const uint64_t i = ((fraction >> 46) + 1) >> 1;
    const double c = inverses[i];
    const pair r = add_smaller(m1 * c - 1, (m - m1) * c);
    /* log(1 + r) = r - r^2/2 + r^3 q */
    const double z = r.hi * r.hi, z2 = z * z;
    const double q3 = 1.0 / 3 - r.hi * (1.0 / 4) + z * (1.0 / 5 - r.hi * (1.0 / 6));
    const double q7 = 1.0 / 7 - r.hi * (1.0 / 8) + z * (1.0 / 9 - r.hi * (1.0 / 10));
    const double q = q3 + z2 * (q7 + z2 * (1.0 / 11 - r.hi * (1.0 / 12)));
    const pair square = exact ? multiply(r.hi, r.hi) : (pair){z, 0};
    /* The first parts of ln(2) and of the table are multiples of 2^-42: their sum is exact. */
    const pair first = add_smaller(k * 0x1.62e42fefa3800p-1 + logs[2 * i], r.hi);
    const pair sum = add_smaller(first.hi, -0.5 * square.hi);
    const double small_terms =
        k * 0x1.ef35793c76730p-45 + logs[2 * i + 1] + (r.lo - r.lo * r.hi) - 0.5 * square.lo;
    return add_smaller(sum.hi, first.lo + sum.lo + (small_terms + r.hi * z * q));
}

double lt_f64_log(double x)
{
    if (!(x > 0))
        return x == 0 ? -(double)INFINITY : (double)NAN;
    return x < (double)INFINITY ? log_of(x, false).hi : x;
}

double lt_f64_log1p(double x)
{
    if (fabs(x) < 0x1p-54 || !(x > -1 && x < (double)INFINITY))
        return x < -1 ? (double)NAN : x == -1 ? -(double)INFINITY : x;
    const pair u = add(1, x), l = log_of(u.hi, false);
    return l.hi + (l.lo + u.lo / u.hi);
}

/* Returns pow(x, y) where annex F lists it; sets *listed to false where it must be computed, for |x|. */
static double special_power(double x, double y, bool *listed)
{
    const double size = fabs(x);
    *listed = true;
    if (y == 0 || x == 1 || (size == 1 && isinf(y)))
        return 1;
    if (isnan(x) || isnan(y))
        return x + y;
    if (size == 0 || isinf(size) || isinf(y))
        return (size > 1) == (y > 0) ? (double)INFINITY : 0;
    *listed = x < 0 && floor(y) != y;
    return (double)NAN;
}

double lt_f64_pow(double x, double y)
{
    bool listed;
    double result = special_power(x, y, &listed);
    if (!listed) {
        const pair l = log_of(fabs(x), true), z = multiply(l.hi, y);
        result = exp_of_pair(z.hi, fabs(z.hi) < 800 ? z.lo + l.lo * y : 0);
    }
    const bool odd = fabs(y) < 0x1p53 && floor(y) == y && 2 * floor(y / 2) != y;
    return signbit(x) && odd ? -result : result;
}

__extension__ typedef unsigned __int128 u128;

/* x = n pi/2 + remainder, |remainder| <= pi/4. Returns n modulo 4. */
static int remainder_by_half_pi(double x, pair *remainder)
{
    const uint64_t bits = to_bits(x), fraction = (bits & 0xFFFFFFFFFFFFF) | (uint64_t)1 << 52;
    *remainder = (pair){x, 0};
    if (fabs(x) < 0x1.921fb54442d18p-1)
        return 0;
    /* |x| = fraction 2^e. 192 bits of 2/pi from the one whose product with it has weight 2 on. */
    const int start = (int)(bits >> 52 & 2047) - 1075 + 62, shift = start % 64;
    uint64_t window[3];
    for (int i = 0; i < 3; i++) {
        const uint64_t *word = two_over_pi + start / 64 + i;
        window[i] = shift ? word[0] << shift | word[1] >> (64 - shift) : word[0];
    }
    const u128 low = (u128)fraction * window[2];
    const u128 mid = (u128)fraction * window[1] + (uint64_t)(low >> 64);
    const uint64_t top = fraction * window[0] + (uint64_t)(mid >> 64);
    /* A quarter turn is 2^62 of top; what remains is signed: 52 bits, 51 and 25. */
    const int n = (int)((top + ((uint64_t)1 << 61)) >> 62);
    const uint64_t high = top << 2 | (uint64_t)mid >> 62,
                   rest = (uint64_t)mid << 2 | (uint64_t)low >> 62;
    const double first = (double)((int64_t)high >> 12);
    pair f = add_smaller(first * 0x1p76, (double)((high & 0xFFF) << 39 | rest >> 25) * 0x1p25);
    f.lo += (double)(rest & 0x1FFFFFF);
    const double unit = x < 0 ? -0x1p-128 : 0x1p-128;
    const pair product = multiply(f.hi * unit, 0x1.921fb54442d18p+0);
    const double small = f.hi * unit * 0x1.1a62633145c07p-54 + f.lo * unit * 0x1.921fb54442d18p+0;
    *remainder = add_smaller(product.hi, product.lo + small);
    return x < 0 ? -n & 3 : n & 3;
}

/* Return sin and cos of x, |x| <= pi/4. */
static double sin_of_pair(pair x)
{
    const double z = x.hi * x.hi, z2 = z * z, cube = z * x.hi;
    const double s5 = 0x1.1111111111111p-7 - z * 0x1.a01a01a01a01ap-13;
    const double s9 = 0x1.71de3a556c734p-19 - z * 0x1.ae64567f544e4p-26;
    const double s13 =
        0x1.6124613a86d09p-33 - z * 0x1.ae7f3e733b81fp-41 + z2 * 0x1.952c77030ad4ap-49;
    const double s = s5 + z2 * (s9 + z2 * s13);
    return x.hi - ((z * (0.5 * x.lo - cube * s) - x.lo) + cube * (1.0 / 6));
}

static double cos_of_pair(pair x)
{
    const double z = x.hi * x.hi, z2 = z * z, half = 0.5 * z, w = 1 - half;
    const double c4 = 0x1.5555555555555p-5 - z * 0x1.6c16c16c16c17p-10;
    const double c8 = 0x1.a01a01a01a01ap-16 - z * 0x1.27e4fb7789f5cp-22;
    const double c12 =
        0x1.1eed8eff8d898p-29 - z * 0x1.93974a8c07c9dp-37 + z2 * 0x1.ae7f3e733b81fp-45;
    return w + (((1 - w) - half) + (z2 * (c4 + z2 * (c8 + z2 * c12)) - x.hi * x.lo));
}

/* Returns sin(x + quarters * pi/2). */
static double sin_of_turned(double x, int quarters)
{
    pair r;
    if (!isfinite(x))
        return (double)NAN;
    quarters += remainder_by_half_pi(x, &r);
    const double y = quarters & 1 ? cos_of_pair(r) : sin_of_pair(r);
    return quarters & 2 ? -y : y;
}

double lt_f64_sin(double x)
{
    return fabs(x) < 0x1p-27 ? x : sin_of_turned(x, 0);
}

double lt_f64_cos(double x)
{
    return sin_of_turned(x, 1);
}

double lt_f64_erfc(double x)
{
    const double size = fabs(x), t = (size - 3.75) / (size + 3.75), z = t * t;
    const pair square = multiply(size, size);
    double even = erfc_coef[24], odd = erfc_coef[25];
    if (size > 28 || size < 0x1p-54)
        return size < 1 ? 1 : x < 0 ? 2 : 0;
    for (int i = 22; i >= 0; i -= 2) {
        even = even * z + erfc_coef[i];
        odd = odd * z + erfc_coef[i + 1];
    }
    const double y = exp_of_pair(-square.hi, -square.lo) * (even + t * odd) / (1 + 2 * size);
    return x < 0 ? 2 - y : y;
}
