/* Elementwise functions and their derivatives, written once for every number type: included once per type,
 * without an include guard. The including file defines the type:
 *
 *     PW_REAL              float, double, or a vector of floats
 *     PW_FUNCTION          declaration specifiers of functions
 *     PW_SET(x)            a double as a PW_REAL
 *     PW_CHOOSE(c, a, b)   a where the comparison c holds, else b
 *     PW_EXP PW_LOG PW_LOG1P PW_SQRT PW_TANH (x), PW_POW(x, y)
 *     PW_TAIL(x)           erfc(x / sqrt(2)) / 2 for x >= 0: upper tail of the normal distribution; or
 *     PW_NORMAL(x) PW_GELU_SLOPE(x)     which are computed from it here
 *     PW_BELOW(a, b) PW_AT_MOST(a, b) PW_EQUALS(a, b) PW_IS_NAN(x)     if the type has no such operators
 *
 * Formulas, and gradients at points without a derivative: lather/detail/pointwise.h. */

#ifndef PW_BELOW
#define PW_BELOW(a, b)   ((a) < (b))
#define PW_AT_MOST(a, b) ((a) <= (b))
#define PW_EQUALS(a, b)  ((a) == (b))
#define PW_IS_NAN(x)     ((x) != (x))
#endif

/* Computes x^p with one p for all elements. As in PyTorch, common exponents need no pow(). */
PW_FUNCTION PW_REAL pw_power(PW_REAL x, double p)
{
    if (p == 1)
        return x;
    if (p == 2)
        return x * x;
    if (p == 3)
        return x * x * x;
    if (p == 0.5)
        return PW_SQRT(x);
    if (p == -0.5)
        return PW_SET(1) / PW_SQRT(x);
    if (p == -1)
        return PW_SET(1) / x;
    return PW_POW(x, PW_SET(p));
}

PW_FUNCTION PW_REAL pw_sigmoid(PW_REAL x)
{
    return PW_SET(1) / (PW_SET(1) + PW_EXP(-x));
}

/* Clamps x. Both comparisons are false for NaN, which is returned unchanged. */
PW_FUNCTION PW_REAL pw_clamp(PW_REAL x, PW_REAL low, PW_REAL high)
{
    const PW_REAL raised = PW_CHOOSE(PW_BELOW(x, low), low, x);
    return PW_CHOOSE(PW_BELOW(high, raised), high, raised);
}

PW_FUNCTION PW_REAL pw_abs(PW_REAL x)
{
    return PW_CHOOSE(PW_BELOW(x, PW_SET(0)), -x, x);
}

/* Computes max(x, 0) - x * t + log(1 + exp(-|x|)), without overflow or cancellation of small values. x * t counts as
 * 0 where t is 0, also for infinite x. */
PW_FUNCTION PW_REAL pw_bce(PW_REAL x, PW_REAL t)
{
    const PW_REAL part = PW_CHOOSE(PW_EQUALS(t, PW_SET(0)), PW_SET(0), x * t);
    return PW_CHOOSE(PW_BELOW(PW_SET(0), x), x, PW_SET(0)) - part + PW_LOG1P(PW_EXP(-pw_abs(x)));
}

/* The normal distribution function P(x), and gelu's slope P(x) + x P'(x), where P' is the normal density
 * exp(-x^2/2) / sqrt(2 pi). Computed from the tail, to avoid cancellation of small values. */
#ifndef PW_NORMAL
PW_FUNCTION PW_REAL pw_normal_cdf(PW_REAL x)
{
    const PW_REAL tail = PW_TAIL(pw_abs(x));
    return PW_CHOOSE(PW_BELOW(x, PW_SET(0)), tail, PW_SET(1) - tail);
}

PW_FUNCTION PW_REAL pw_gelu_slope(PW_REAL x)
{
    const PW_REAL density = PW_EXP(x * x * PW_SET(-0.5)) * PW_SET(0.39894228040143267794);
    return pw_normal_cdf(x) + x * density;
}
#define PW_NORMAL     pw_normal_cdf
#define PW_GELU_SLOPE pw_gelu_slope
#endif

/* Returns 2u of gelu's tanh form, u = sqrt(2/pi) * (x + 0.044715 x^3): sigmoid(2u) is (1 + tanh(u)) / 2. */
PW_FUNCTION PW_REAL pw_gelu_tanh_argument(PW_REAL x)
{
    const PW_REAL cubic = PW_SET(0.044715) * (x * x);
    return PW_SET(1.59576912160573071176) * x * (PW_SET(1) + cubic);
}

/* dy times gelu's slope s + x s (1 - s) (2u)', s = sigmoid(2u). With e = exp(-|2u|), which cannot overflow, s is
 * 1/(1+e) or e/(1+e), and s (1 - s) is e/(1+e)^2, which avoids cancellation. */
PW_FUNCTION PW_REAL pw_gelu_tanh_grad(PW_REAL dy, PW_REAL x)
{
    const PW_REAL e = PW_EXP(-pw_abs(pw_gelu_tanh_argument(x)));
    const PW_REAL near = PW_SET(1) / (PW_SET(1) + e), far = e * near;
    const PW_REAL cubic = PW_SET(0.134145) * (x * x); /* three times 0.044715 */
    const PW_REAL slope = PW_SET(1.59576912160573071176) * (PW_SET(1) + cubic);
    return dy * (PW_CHOOSE(PW_BELOW(x, PW_SET(0)), far, near) + x * (far * near) * slope);
}

/* Returns 1, 0 or -1; 0 of NaN, as in PyTorch. */
PW_FUNCTION PW_REAL pw_sign(PW_REAL x)
{
    const PW_REAL negative = PW_CHOOSE(PW_BELOW(x, PW_SET(0)), PW_SET(-1), PW_SET(0));
    return PW_CHOOSE(PW_BELOW(PW_SET(0), x), PW_SET(1), negative);
}

/* Computes alpha * (exp(x) - 1) for x <= 0, else x. With t = tanh(x/2) the former is 2t / (1 - t), without
 * cancellation of small values. */
PW_FUNCTION PW_REAL pw_elu(PW_REAL x, PW_REAL alpha)
{
    const PW_REAL t = PW_TANH(x * PW_SET(0.5));
    return PW_CHOOSE(PW_AT_MOST(x, PW_SET(0)), alpha * ((t + t) / (PW_SET(1) - t)), x);
}

/* The exponential of -|v| cannot overflow. */
PW_FUNCTION PW_REAL pw_softplus(PW_REAL x, PW_REAL beta, PW_REAL threshold)
{
    const PW_REAL v = beta * x, above = PW_CHOOSE(PW_BELOW(PW_SET(0), v), v, PW_SET(0));
    const PW_REAL y = (above + PW_LOG1P(PW_EXP(-pw_abs(v)))) / beta;
    return PW_CHOOSE(PW_BELOW(threshold, v), x, y);
}

PW_FUNCTION PW_REAL pw_huber(PW_REAL difference, PW_REAL delta)
{
    const PW_REAL z = pw_abs(difference), far = delta * (z - PW_SET(0.5) * delta);
    return PW_CHOOSE(PW_BELOW(z, delta), PW_SET(0.5) * z * z, far);
}

PW_FUNCTION PW_REAL pw_kl(PW_REAL x, PW_REAL target)
{
    const PW_REAL entropy = target * PW_LOG(target);
    return PW_CHOOSE(PW_EQUALS(target, PW_SET(0)), PW_SET(0), entropy) - target * x;
}

PW_FUNCTION PW_REAL pw_silu(PW_REAL x)
{
    return x / (PW_SET(1) + PW_EXP(-x));
}

PW_FUNCTION PW_REAL pw_unary(lt_pointwise f, PW_REAL x)
{
    switch ((int)f.kind) { /* each function handles some of the kinds */
    case LT_POINTWISE_EXP:
        return PW_EXP(x);
    case LT_POINTWISE_LOG:
        return PW_LOG(x);
    case LT_POINTWISE_SQRT:
        return PW_SQRT(x);
    case LT_POINTWISE_POW:
        return f.number[0] == 0 ? PW_SET(1) : pw_power(x, f.number[0]);
    case LT_POINTWISE_SIGMOID:
        return pw_sigmoid(x);
    case LT_POINTWISE_TANH:
        return PW_TANH(x);
    case LT_POINTWISE_SILU:
        return pw_silu(x);
    case LT_POINTWISE_CLAMP:
        return pw_clamp(x, PW_SET(f.number[0]), PW_SET(f.number[1]));
    case LT_POINTWISE_GELU:
        return x * PW_NORMAL(x);
    case LT_POINTWISE_GELU_TANH:
        return x / (PW_SET(1) + PW_EXP(-pw_gelu_tanh_argument(x)));
    case LT_POINTWISE_ABS:
        return pw_abs(x) + PW_SET(0); /* -0 becomes 0 */
    case LT_POINTWISE_SIGN:
        return pw_sign(x);
    case LT_POINTWISE_LEAKY_RELU:
        return PW_CHOOSE(PW_BELOW(PW_SET(0), x), x, PW_SET(f.number[0]) * x);
    case LT_POINTWISE_ELU:
        return pw_elu(x, PW_SET(f.number[0]));
    case LT_POINTWISE_SOFTPLUS:
        return pw_softplus(x, PW_SET(f.number[0]), PW_SET(f.number[1]));
    default:
        return x;
    }
}

PW_FUNCTION PW_REAL pw_silu_grad(PW_REAL dy, PW_REAL x)
{
    const PW_REAL s = pw_sigmoid(x);
    return dy * (s * (PW_SET(1) + x * (PW_SET(1) - s)));
}

/* Gradients of functions made of two parts, and of abs and sign. */
PW_FUNCTION PW_REAL pw_unary_grad_of_parts(lt_pointwise f, PW_REAL dy, PW_REAL z)
{
    const PW_REAL p = PW_SET(f.number[0]);
    switch ((int)f.kind) { /* each function handles some of the kinds */
    case LT_POINTWISE_ABS:
        return dy * pw_sign(z);
    case LT_POINTWISE_SIGN:
        return PW_SET(0);
    case LT_POINTWISE_LEAKY_RELU:
        return PW_CHOOSE(PW_BELOW(PW_SET(0), z), dy, dy * p);
    case LT_POINTWISE_ELU:
        return PW_CHOOSE(PW_AT_MOST(z, PW_SET(0)), dy * (p * PW_EXP(z)), dy);
    case LT_POINTWISE_SOFTPLUS:
        return PW_CHOOSE(PW_BELOW(PW_SET(f.number[1]), p * z), dy, dy * pw_sigmoid(p * z));
    default:
        return dy;
    }
}

/* Gradient of a unary function. z: the function's value y if lt_pointwise_reads_y(), else its operand x. */
PW_FUNCTION PW_REAL pw_unary_grad(lt_pointwise f, PW_REAL dy, PW_REAL z)
{
    const double p = f.number[0];
    switch ((int)f.kind) { /* each function handles some of the kinds */
    case LT_POINTWISE_EXP:
        return dy * z;
    case LT_POINTWISE_LOG:
        return dy / z;
    case LT_POINTWISE_SQRT:
        return dy / (z + z);
    case LT_POINTWISE_POW:
        return p == 0 ? PW_SET(0) : p == 1 ? dy : dy * (PW_SET(p) * pw_power(z, p - 1));
    case LT_POINTWISE_SIGMOID:
        return dy * ((PW_SET(1) - z) * z);
    case LT_POINTWISE_TANH:
        return dy * (PW_SET(1) - z * z);
    case LT_POINTWISE_SILU:
        return pw_silu_grad(dy, z);
    case LT_POINTWISE_CLAMP:
        return PW_CHOOSE(PW_BELOW(PW_SET(p), z) & PW_BELOW(z, PW_SET(f.number[1])), dy, PW_SET(0));
    case LT_POINTWISE_GELU:
        return dy * PW_GELU_SLOPE(z);
    case LT_POINTWISE_GELU_TANH:
        return pw_gelu_tanh_grad(dy, z);
    default:
        return pw_unary_grad_of_parts(f, dy, z);
    }
}

PW_FUNCTION PW_REAL pw_loss(lt_pointwise f, PW_REAL a, PW_REAL b)
{
    switch ((int)f.kind) { /* each function handles some of the kinds */
    case LT_POINTWISE_ABSOLUTE_DIFFERENCE:
        return pw_abs(a - b);
    case LT_POINTWISE_HUBER:
        return PW_SET(f.number[1]) * pw_huber(a - b, PW_SET(f.number[0]));
    case LT_POINTWISE_KL:
        return pw_kl(a, b);
    case LT_POINTWISE_KL_LOG:
        return PW_EXP(b) * (b - a);
    default:
        return a;
    }
}

PW_FUNCTION PW_REAL pw_binary(lt_pointwise f, PW_REAL a, PW_REAL b)
{
    switch ((int)f.kind) { /* each function handles some of the kinds */
    case LT_POINTWISE_ADD:
        return a + b;
    case LT_POINTWISE_MUL:
        return a * b;
    case LT_POINTWISE_SUB:
        return a - b;
    case LT_POINTWISE_DIV:
        return a / b;
    case LT_POINTWISE_MAXIMUM: /* PW_IS_NAN: a NaN in a is returned */
        return PW_CHOOSE(PW_BELOW(b, a) | PW_IS_NAN(a), a, b);
    case LT_POINTWISE_MINIMUM:
        return PW_CHOOSE(PW_BELOW(a, b) | PW_IS_NAN(a), a, b);
    case LT_POINTWISE_POW_TENSOR:
        return PW_POW(a, b);
    case LT_POINTWISE_SQUARED_DIFFERENCE:
        return (a - b) * (a - b);
    case LT_POINTWISE_BCE:
        return pw_bce(a, b);
    case LT_POINTWISE_SWIGLU:
        return pw_silu(a) * b;
    default:
        return pw_loss(f, a, b);
    }
}

/* The gradient of max(loser, winner) by `loser`: half where both are equal, 0 where `winner` is larger. */
PW_FUNCTION PW_REAL pw_maximum_grad(PW_REAL dy, PW_REAL loser, PW_REAL winner)
{
    const PW_REAL kept = PW_CHOOSE(PW_BELOW(loser, winner), PW_SET(0), dy);
    return PW_CHOOSE(PW_EQUALS(loser, winner), dy * PW_SET(0.5), kept);
}

/* Gradient of a function of the difference a - b by a. */
PW_FUNCTION PW_REAL pw_difference_grad(lt_pointwise f, PW_REAL dy, PW_REAL difference)
{
    const PW_REAL d = PW_SET(f.number[0]);
    switch ((int)f.kind) { /* each function handles some of the kinds */
    case LT_POINTWISE_ABSOLUTE_DIFFERENCE:
        return dy * pw_sign(difference);
    case LT_POINTWISE_HUBER:
        return dy * (PW_SET(f.number[1]) * pw_clamp(difference, -d, d));
    default:
        return dy;
    }
}

PW_FUNCTION PW_REAL pw_grad_a(lt_pointwise f, PW_REAL dy, PW_REAL a, PW_REAL b)
{
    switch ((int)f.kind) { /* each function handles some of the kinds */
    case LT_POINTWISE_MUL:
        return dy * b;
    case LT_POINTWISE_DIV:
        return dy / b;
    case LT_POINTWISE_MAXIMUM:
        return pw_maximum_grad(dy, a, b);
    case LT_POINTWISE_MINIMUM:
        return pw_maximum_grad(dy, b, a);
    case LT_POINTWISE_POW_TENSOR:
        return PW_CHOOSE(PW_EQUALS(b, PW_SET(0)), PW_SET(0), dy * (b * PW_POW(a, b - PW_SET(1))));
    case LT_POINTWISE_SQUARED_DIFFERENCE:
        return dy * ((a - b) + (a - b));
    case LT_POINTWISE_BCE:
        return dy * (pw_sigmoid(a) - b);
    case LT_POINTWISE_SWIGLU:
        return pw_silu_grad(dy * b, a);
    case LT_POINTWISE_KL:
        return -dy * b;
    case LT_POINTWISE_KL_LOG:
        return -dy * PW_EXP(b);
    default:
        return pw_difference_grad(f, dy, a - b);
    }
}

/* Gradient of the power a^b by b: 0 where a is 0 and b >= 0, instead of 0 * log(0). */
PW_FUNCTION PW_REAL pw_power_grad_b(PW_REAL dy, PW_REAL a, PW_REAL b)
{
    const PW_REAL slope = dy * (PW_POW(a, b) * PW_LOG(a));
    return PW_CHOOSE(PW_EQUALS(a, PW_SET(0)) & PW_AT_MOST(PW_SET(0), b), PW_SET(0), slope);
}

PW_FUNCTION PW_REAL pw_grad_b(lt_pointwise f, PW_REAL dy, PW_REAL a, PW_REAL b)
{
    switch ((int)f.kind) { /* each function handles some of the kinds */
    case LT_POINTWISE_MUL:
        return dy * a;
    case LT_POINTWISE_SUB:
        return -dy;
    case LT_POINTWISE_DIV:
        return -dy * ((a / b) / b);
    case LT_POINTWISE_MAXIMUM:
        return pw_maximum_grad(dy, b, a);
    case LT_POINTWISE_MINIMUM:
        return pw_maximum_grad(dy, a, b);
    case LT_POINTWISE_POW_TENSOR:
        return pw_power_grad_b(dy, a, b);
    case LT_POINTWISE_SQUARED_DIFFERENCE:
        return dy * ((b - a) + (b - a));
    case LT_POINTWISE_BCE:
        return -dy * a;
    case LT_POINTWISE_SWIGLU:
        return dy * pw_silu(a);
    case LT_POINTWISE_KL:
        return dy * (PW_LOG(b) + PW_SET(1) - a);
    case LT_POINTWISE_KL_LOG:
        return dy * (PW_EXP(b) * (b - a + PW_SET(1)));
    case LT_POINTWISE_ABSOLUTE_DIFFERENCE:
    case LT_POINTWISE_HUBER:
        return pw_difference_grad(f, dy, b - a);
    default:
        return dy;
    }
}

/* Result of a kernel: the value, or the gradient by operand `input`. Functions of two operands are those
 * from ADD on; compared here because kernels cannot call lt_pointwise_is_binary(), a host function. */
PW_FUNCTION PW_REAL pw_evaluate(lt_pointwise f, PW_REAL a, PW_REAL b)
{
    return f.kind >= LT_POINTWISE_ADD ? pw_binary(f, a, b) : pw_unary(f, a);
}

PW_FUNCTION PW_REAL pw_grad(lt_pointwise f, int input, PW_REAL dy, PW_REAL a, PW_REAL b)
{
    if (f.kind < LT_POINTWISE_ADD)
        return pw_unary_grad(f, dy, a);
    return input ? pw_grad_b(f, dy, a, b) : pw_grad_a(f, dy, a, b);
}
