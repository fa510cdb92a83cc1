/* A run of an elementwise expression: detail/vec_kernels.h. */

#include "functions.h"

/* Loop for strided elements and signs. Rounds as the vector loops: results do not depend on strides. */
#define EACH(expression)                   \
    for (int64_t i = 0; i < r->count; i++) \
    r->y[i * r->step_y] = (expression)
#define A r->a[i * r->step_a]
#define B r->b[i * r->step_b]
#define Y r->y[i * r->step_y]

static void vec_strided(const lt_vec_row *r)
{
    const float alpha = r->alpha, beta = r->beta;
    switch (r->op) {
    case LT_VEC_AXPBY:
        if (beta == 0) /* then y is not read */
            EACH(alpha * A);
        else
            EACH(alpha * A + beta * Y);
        break;
    case LT_VEC_SQUARE:
        if (beta == 0)
            EACH(alpha * A * A);
        else
            EACH(alpha * A * A + beta * Y);
        break;
    case LT_VEC_MUL:
        EACH(alpha * A * B);
        break;
    case LT_VEC_RSQRT:
        EACH(alpha * A / (__builtin_sqrtf(beta * B) + r->gamma));
        break;
    case LT_VEC_POW:
        EACH(alpha * A / (power_of(vec_set(beta * B), vec_set(r->delta))[0] + r->gamma));
        break;
    case LT_VEC_SIGN:
        EACH(alpha * (float)((A > 0) - (A < 0)));
        break;
    }
}
#undef EACH
#undef A
#undef B
#undef Y

#define A                load(r->a, i, n, LT_STORE_F32)
#define B                load(r->b, i, n, LT_STORE_F32)
#define Y                load(r->y, i, n, LT_STORE_F32)
#define EACH(expression) FOR_LANES(i, n, r->count, save(r->y, i, (expression), n, LT_STORE_F32);)

static void vec_row(const lt_vec_row *r)
{
    const bool adjacent = r->step_a == 1 && r->step_y == 1 && (r->step_b == 1 || !r->b);
    const vec alpha = vec_set(r->alpha), beta = vec_set(r->beta), gamma = vec_set(r->gamma);
    if (!adjacent || r->op == LT_VEC_SIGN)
        vec_strided(r);
    else if (r->op == LT_VEC_AXPBY && r->beta == 0)
        EACH(alpha * A);
    else if (r->op == LT_VEC_AXPBY)
        EACH(alpha * A + beta * Y);
    else if (r->op == LT_VEC_SQUARE && r->beta == 0)
        EACH(alpha * A * A);
    else if (r->op == LT_VEC_SQUARE)
        EACH(alpha * A * A + beta * Y);
    else if (r->op == LT_VEC_MUL)
        EACH(alpha * A * B);
    else if (r->op == LT_VEC_POW)
        EACH(alpha * A / (power_of(beta * B, vec_set(r->delta)) + gamma));
    else
        EACH(alpha * A / (square_root(beta * B) + gamma));
}
#undef EACH
#undef A
#undef B
#undef Y
