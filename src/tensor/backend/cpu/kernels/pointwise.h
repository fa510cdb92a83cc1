/* Elementwise functions and their gradients on sixteen floats at a time, each in a separate loop. Formulas:
 * tensor/backend/pointwise.h. */

#include "functions.h"

#define PW_REAL            vec
#define PW_FUNCTION        ALWAYS
#define PW_SET(x)          vec_set((float)(x))
#define PW_CHOOSE(c, a, b) choose(c, a, b)
#define PW_BELOW           below
#define PW_AT_MOST         at_most
#define PW_EQUALS          equals
#define PW_IS_NAN(x)       (~equals(x, x))
#define PW_EXP             exponential
#define PW_LOG             logarithm
#define PW_LOG1P           logarithm_of_1_plus
#define PW_SQRT            square_root
#define PW_TANH            hyperbolic_tangent
#define PW_POW             power_of
#define PW_NORMAL          normal_distribution
#define PW_GELU_SLOPE      gelu_slope
#include "tensor/backend/pointwise.h"

/* A loop over whole vectors in which the kind is a constant, so that the functions' switches are optimised away. */
#define LOOP(kind_, expression)                    \
    case LT_POINTWISE_##kind_:                     \
        f.kind = LT_POINTWISE_##kind_;             \
        for (int64_t i = 0; i < count; i += LANES) \
            save(y, i, expression, LANES, s);      \
        break
#define A load(a, i, LANES, s)
#define B load(b, i, LANES, s)

ALWAYS void apply_unary(lt_pointwise f, const void *a, void *y, int64_t count, lt_cpu_store s)
{
    switch ((int)f.kind) {
        LOOP(EXP, pw_unary(f, A));
        LOOP(LOG, pw_unary(f, A));
        LOOP(SQRT, pw_unary(f, A));
        LOOP(POW, pw_unary(f, A));
        LOOP(SIGMOID, pw_unary(f, A));
        LOOP(TANH, pw_unary(f, A));
        LOOP(SILU, pw_unary(f, A));
        LOOP(CLAMP, pw_unary(f, A));
        LOOP(GELU, pw_unary(f, A));
        LOOP(GELU_TANH, pw_unary(f, A));
        LOOP(ABS, pw_unary(f, A));
        LOOP(SIGN, pw_unary(f, A));
        LOOP(LEAKY_RELU, pw_unary(f, A));
        LOOP(ELU, pw_unary(f, A));
        LOOP(SOFTPLUS, pw_unary(f, A));
    default:
        break;
    }
}

ALWAYS void apply_binary(lt_pointwise f, const void *a, const void *b, void *y, int64_t count,
                         lt_cpu_store s)
{
    switch ((int)f.kind) {
        LOOP(ADD, pw_binary(f, A, B));
        LOOP(MUL, pw_binary(f, A, B));
        LOOP(SUB, pw_binary(f, A, B));
        LOOP(DIV, pw_binary(f, A, B));
        LOOP(MAXIMUM, pw_binary(f, A, B));
        LOOP(MINIMUM, pw_binary(f, A, B));
        LOOP(POW_TENSOR, pw_binary(f, A, B));
        LOOP(SQUARED_DIFFERENCE, pw_binary(f, A, B));
        LOOP(BCE, pw_binary(f, A, B));
        LOOP(SWIGLU, pw_binary(f, A, B));
        LOOP(ABSOLUTE_DIFFERENCE, pw_binary(f, A, B));
        LOOP(HUBER, pw_binary(f, A, B));
        LOOP(KL, pw_binary(f, A, B));
        LOOP(KL_LOG, pw_binary(f, A, B));
    default:
        break;
    }
}

#define G load(g, i, LANES, s)

ALWAYS void apply_unary_grad(lt_pointwise f, const void *g, const void *a, void *y, int64_t count,
                             lt_cpu_store s)
{
    switch ((int)f.kind) {
        LOOP(EXP, pw_unary_grad(f, G, A));
        LOOP(LOG, pw_unary_grad(f, G, A));
        LOOP(SQRT, pw_unary_grad(f, G, A));
        LOOP(POW, pw_unary_grad(f, G, A));
        LOOP(SIGMOID, pw_unary_grad(f, G, A));
        LOOP(TANH, pw_unary_grad(f, G, A));
        LOOP(SILU, pw_unary_grad(f, G, A));
        LOOP(CLAMP, pw_unary_grad(f, G, A));
        LOOP(GELU, pw_unary_grad(f, G, A));
        LOOP(GELU_TANH, pw_unary_grad(f, G, A));
        LOOP(ABS, pw_unary_grad(f, G, A));
        LOOP(SIGN, pw_unary_grad(f, G, A));
        LOOP(LEAKY_RELU, pw_unary_grad(f, G, A));
        LOOP(ELU, pw_unary_grad(f, G, A));
        LOOP(SOFTPLUS, pw_unary_grad(f, G, A));
    default:
        break;
    }
}

/* Gradient of a binary function by one operand. */
#define GRAD_OF_TWO(name, rule)                                                            \
    ALWAYS void name(lt_pointwise f, const void *g, const void *a, const void *b, void *y, \
                     int64_t count, lt_cpu_store s)                                        \
    {                                                                                      \
        switch ((int)f.kind) {                                                             \
            LOOP(ADD, rule(f, G, A, B));                                                   \
            LOOP(MUL, rule(f, G, A, B));                                                   \
            LOOP(SUB, rule(f, G, A, B));                                                   \
            LOOP(DIV, rule(f, G, A, B));                                                   \
            LOOP(MAXIMUM, rule(f, G, A, B));                                               \
            LOOP(MINIMUM, rule(f, G, A, B));                                               \
            LOOP(POW_TENSOR, rule(f, G, A, B));                                            \
            LOOP(SQUARED_DIFFERENCE, rule(f, G, A, B));                                    \
            LOOP(BCE, rule(f, G, A, B));                                                   \
            LOOP(SWIGLU, rule(f, G, A, B));                                                \
            LOOP(ABSOLUTE_DIFFERENCE, rule(f, G, A, B));                                   \
            LOOP(HUBER, rule(f, G, A, B));                                                 \
            LOOP(KL, rule(f, G, A, B));                                                    \
            LOOP(KL_LOG, rule(f, G, A, B));                                                \
        default:                                                                           \
            break;                                                                         \
        }                                                                                  \
    }
GRAD_OF_TWO(apply_binary_grad_a, pw_grad_a)
GRAD_OF_TWO(apply_binary_grad_b, pw_grad_b)

ALWAYS void pointwise_lanes(const lt_pointwise_row *r, int64_t count, lt_cpu_store s)
{
    if (r->dy && !r->b)
        apply_unary_grad(*r->f, r->dy, r->a, r->y, count, s);
    else if (r->dy && r->input)
        apply_binary_grad_b(*r->f, r->dy, r->a, r->b, r->y, count, s);
    else if (r->dy)
        apply_binary_grad_a(*r->f, r->dy, r->a, r->b, r->y, count, s);
    else if (r->b)
        apply_binary(*r->f, r->a, r->b, r->y, count, s);
    else
        apply_unary(*r->f, r->a, r->y, count, s);
}

/* Replaces an operand by a vector with its last elements and zeros. */
ALWAYS void keep_last(const void **operand, char vector[LANES * sizeof(float)], size_t begin,
                      size_t bytes)
{
    if (!*operand)
        return;
    memset(vector, 0, LANES * sizeof(float));
    memcpy(vector, (const char *)*operand + begin, bytes);
    *operand = vector;
}

/* Whole vectors, then one with a copy of the elements that remain: each loop is compiled for whole vectors only. */
ALWAYS void pointwise_any(const lt_pointwise_row *r, int64_t count, lt_cpu_store s)
{
    const int64_t remain = count % LANES, whole = count - remain;
    const size_t size = s == LT_STORE_BF16 ? sizeof(uint16_t) : sizeof(float);
    const size_t begin = (size_t)whole * size, bytes = (size_t)remain * size;
    char dy[LANES * sizeof(float)], a[LANES * sizeof(float)], b[LANES * sizeof(float)],
        y[LANES * sizeof(float)];
    lt_pointwise_row part = *r;
    for (int turn = whole ? 0 : 1; turn < (remain ? 2 : 1); turn++) {
        if (turn) {
            keep_last(&part.dy, dy, begin, bytes);
            keep_last(&part.a, a, begin, bytes);
            keep_last(&part.b, b, begin, bytes);
            part.y = y;
        }
        pointwise_lanes(&part, turn ? LANES : whole, s);
    }
    if (remain)
        memcpy((char *)r->y + begin, y, bytes);
}
#undef G
#undef A
#undef B
#undef LOOP
#undef GRAD_OF_TWO
