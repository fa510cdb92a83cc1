/* Gradients of batch and group normalisation. With relu, inputs are alternately near 1 and near -1, and so
 * are the normalised values; gamma and beta keep them away from the kink. */

#include "gradients.h"

static lt_tensor *norm(lt_tape *t, lt_tensor *const *in, void *context, lt_tensor *residual,
                       bool relu)
{
    lt_tensor *const *constant = context;
    lt_batchnorm2d_args args = {in[1], in[2], constant[0], constant[1], residual, NULL};
    lt_batchnorm2d_config config = {.eps = 1e-5, .momentum = 0.1, .relu = relu};
    return lt_batchnorm2d(t, in[0], args, config);
}

static lt_tensor *plain(lt_tape *t, lt_tensor *const *in, void *c)
{
    return norm(t, in, c, NULL, false);
}

static lt_tensor *with_relu(lt_tape *t, lt_tensor *const *in, void *c)
{
    return norm(t, in, c, NULL, true);
}

static lt_tensor *with_residual(lt_tape *t, lt_tensor *const *in, void *c)
{
    return norm(t, in, c, in[3], false);
}

static lt_tensor *with_both(lt_tape *t, lt_tensor *const *in, void *c)
{
    return norm(t, in, c, in[3], true);
}

static lt_tensor *itself_as_residual(lt_tape *t, lt_tensor *const *in, void *c)
{
    return norm(t, in, c, in[0], false);
}

static lt_tensor *frozen(lt_tape *t, lt_tensor *const *in, void *c)
{
    lt_tensor *const *constant = c;
    lt_batchnorm2d_args args = {in[1], in[2], constant[0], constant[1], in[3], NULL};
    lt_batchnorm2d_config config = {.eps = 1e-5, .momentum = 0.1, .relu = true, .frozen = true};
    return lt_batchnorm2d(t, in[0], args, config);
}

/* Two readers: backward receives the gradient as two addends. */
static lt_tensor *read_twice(lt_tape *t, lt_tensor *const *in, void *c)
{
    lt_tensor *y = norm(t, in, c, in[3], true);
    return read_by_two(t, y);
}

static lt_tensor *read_twice_without_residual(lt_tape *t, lt_tensor *const *in, void *c)
{
    lt_tensor *y = norm(t, in, c, NULL, true);
    return read_by_two(t, y);
}

static lt_tensor *three_readers(lt_tape *t, lt_tensor *const *in, void *c)
{
    lt_tensor *y = norm(t, in, c, NULL, false);
    return lt_add(t, read_by_two(t, y), y);
}

static lt_tensor *one_dimension(lt_tape *t, lt_tensor *const *in, void *context)
{
    lt_tensor *const *constant = context;
    lt_batchnorm2d_args args = {in[1], in[2], constant[0], constant[1], NULL, NULL};
    return lt_batchnorm1d(t, in[0], args, (lt_batchnorm2d_config){.eps = 1e-5, .momentum = 0.1});
}

static lt_tensor *one_dimension_with_residual(lt_tape *t, lt_tensor *const *in, void *context)
{
    lt_tensor *const *constant = context;
    lt_batchnorm2d_args args = {in[1], in[2], constant[0], constant[1], in[3], NULL};
    return lt_batchnorm1d(t, in[0], args, (lt_batchnorm2d_config){.eps = 1e-5, .momentum = 0.1});
}

FUNCTION(two_groups, lt_group_norm(t, in[0], in[1], in[2], (lt_group_norm_config){2, 1e-5}));
FUNCTION(a_group_a_channel, lt_group_norm(t, in[0], in[1], in[2], (lt_group_norm_config){6, 1e-5}));
FUNCTION(a_group_without_gain,
         lt_group_norm(t, in[0], NULL, NULL, (lt_group_norm_config){1, 1e-3}));

/* Two readers: the gradient is a sum. */
static lt_tensor *group_read_twice(lt_tape *t, lt_tensor *const *in, void *c)
{
    lt_tensor *y = two_groups(t, in, c);
    return read_by_two(t, y);
}

static const lt_layernorm_config small_eps = {.eps = 1e-5};

FUNCTION(layernorm, lt_layernorm(t, in[0], in[1], in[2], small_eps));
FUNCTION(layernorm_without_gain, lt_layernorm(t, in[0], NULL, in[1], small_eps));
FUNCTION(layernorm_without_shift, lt_layernorm(t, in[0], in[1], NULL, small_eps));

/* The sum of its squares does not depend on x: alone its gradient would be 0. */
FUNCTION(layernorm_alone,
         lt_mul(t, lt_layernorm(t, in[0], NULL, NULL, (lt_layernorm_config){.eps = 0.01}), in[0]));

/* Two readers: the gradient is a sum; and the gradient of a 4-D y has the storage order of its reader's
 * input. */
static lt_tensor *layernorm_read_twice(lt_tape *t, lt_tensor *const *in, void *c)
{
    lt_tensor *y = layernorm(t, in, c);
    return lt_add(t, lt_mul(t, in[0], y), lt_add(t, in[0], y));
}

FUNCTION(rmsnorm, lt_rmsnorm(t, in[0], in[1], small_eps));
FUNCTION(rmsnorm_alone, lt_mul(t, lt_rmsnorm(t, in[0], NULL, small_eps), in[0]));

#define FIVE(how)     \
    {                 \
        {1, {5}}, how \
    }
#define ONE(how)      \
    {                 \
        {1, {1}}, how \
    }
#define SIX(how)      \
    {                 \
        {1, {6}}, how \
    }
#define X                          \
    {                              \
        {4, {3, 2, 3, 4}}, UNIFORM \
    }
#define SIDED                        \
    {                                \
        {4, {3, 2, 3, 4}}, TWO_SIDED \
    }
#define GAMMA              \
    {                      \
        {1, {2}}, NEAR_ONE \
    }
#define BETA            \
    {                   \
        {1, {2}}, SMALL \
    }
#define NEARBY                   \
    {                            \
        {4, {3, 2, 3, 4}}, SMALL \
    }
#define STATS                  \
    {                          \
        {{1, {2}}, SMALL},     \
        {                      \
            {1, {2}}, NEAR_ONE \
        }                      \
    }

/* clang-format off */
static const grad_row rows[] = {
    {"batchnorm2d", plain, 3, 2, .in = {X, GAMMA, BETA}, .constant = STATS},
    {"batchnorm2d + relu", with_relu, 3, 2, .in = {SIDED, GAMMA, BETA}, .constant = STATS},
    {"batchnorm2d + residual", with_residual, 4, 2, .in = {X, GAMMA, BETA, X}, .constant = STATS},
    {"batchnorm2d + residual + relu", with_both, 4, 2, .in = {SIDED, GAMMA, BETA, NEARBY}, .constant = STATS},
    {"batchnorm2d, x as its own residual", itself_as_residual, 3, 2, .in = {X, GAMMA, BETA}, .constant = STATS},
    {"batchnorm2d + residual + relu, read twice", read_twice, 4, 2,
     .in = {SIDED, GAMMA, BETA, NEARBY}, .constant = STATS},
    {"batchnorm2d + relu, read twice", read_twice_without_residual, 3, 2, .in = {SIDED, GAMMA, BETA},
     .constant = STATS},
    {"batchnorm2d, three readers", three_readers, 3, 2, .in = {X, GAMMA, BETA}, .constant = STATS},
    {"batchnorm2d, two values per channel", plain, 3, 2,
     .in = {{{4, {2, 2, 1, 1}}, DISTINCT}, GAMMA, BETA}, .constant = STATS},
    {"batchnorm2d, running statistics", plain, 3, 2, .in = {X, GAMMA, BETA}, .constant = STATS, .eval = true},
    {"batchnorm2d + relu, running statistics", with_relu, 3, 2, .in = {SIDED, GAMMA, BETA}, .constant = STATS,
     .eval = true},
    {"batchnorm2d + residual + relu, running statistics", with_both, 4, 2,
     .in = {SIDED, GAMMA, BETA, NEARBY}, .constant = STATS, .eval = true},
    {"batchnorm2d + residual + relu, frozen", frozen, 4, 2, .in = {SIDED, GAMMA, BETA, NEARBY}, .constant = STATS},
    {"batchnorm1d, [N,C]", one_dimension, 3, 2, .in = {{{2, {7, 2}}, UNIFORM}, GAMMA, BETA}, .constant = STATS},
    {"batchnorm1d, [N,C,L]", one_dimension, 3, 2, .in = {{{3, {3, 2, 5}}, UNIFORM}, GAMMA, BETA}, .constant = STATS},
    {"batchnorm1d, [N,C,L], residual", one_dimension_with_residual, 4, 2,
     .in = {{{3, {3, 2, 5}}, UNIFORM}, GAMMA, BETA, {{3, {3, 2, 5}}, UNIFORM}}, .constant = STATS},
    {"batchnorm1d, running statistics", one_dimension, 3, 2, .in = {{{2, {1, 2}}, UNIFORM}, GAMMA, BETA},
     .constant = STATS, .eval = true},
    {"group_norm, two groups", two_groups, 3, 0, .in = {{{4, {2, 6, 3, 2}}, UNIFORM}, SIX(NEAR_ONE), SIX(SMALL)}},
    {"group_norm, evaluation", two_groups, 3, 0, .in = {{{4, {1, 6, 2, 2}}, UNIFORM}, SIX(NEAR_ONE), SIX(SMALL)},
     .eval = true},
    {"group_norm, a group a channel", a_group_a_channel, 3, 0,
     .in = {{{4, {2, 6, 3, 2}}, UNIFORM}, SIX(UNIFORM), SIX(SMALL)}},
    {"group_norm, one group, no gain", a_group_without_gain, 1, 0, .in = {{{4, {2, 3, 3, 2}}, UNIFORM}}},
    {"group_norm, [N,C]", two_groups, 3, 0, .in = {{{2, {3, 6}}, DISTINCT}, SIX(NEAR_ONE), SIX(SMALL)}},
    {"group_norm, [N,C,L]", two_groups, 3, 0, .in = {{{3, {2, 6, 4}}, UNIFORM}, SIX(NEAR_ONE), SIX(SMALL)}},
    {"group_norm, 5 dimensions", two_groups, 3, 0,
     .in = {{{5, {2, 6, 2, 1, 3}}, UNIFORM}, SIX(NEAR_ONE), SIX(SMALL)}},
    {"group_norm, read twice", group_read_twice, 3, 0,
     .in = {{{4, {2, 6, 3, 2}}, UNIFORM}, SIX(NEAR_ONE), SIX(SMALL)}},
    {"layernorm, [N,C]", layernorm, 3, 0, .in = {{{2, {7, 5}}, UNIFORM}, FIVE(NEAR_ONE), FIVE(SMALL)}},
    {"layernorm, [N,T,C]", layernorm, 3, 0, .in = {{{3, {2, 3, 5}}, UNIFORM}, FIVE(UNIFORM), FIVE(SMALL)}},
    {"layernorm, [C]", layernorm, 3, 0, .in = {FIVE(DISTINCT), FIVE(NEAR_ONE), FIVE(SMALL)}},
    {"layernorm, an image", layernorm, 3, 0, .in = {{{4, {2, 3, 2, 5}}, UNIFORM}, FIVE(NEAR_ONE), FIVE(SMALL)}},
    {"layernorm, 5 dimensions", layernorm, 3, 0,
     .in = {{{5, {2, 1, 3, 2, 5}}, UNIFORM}, FIVE(NEAR_ONE), FIVE(SMALL)}},
    {"layernorm of one channel", layernorm, 3, 0, .in = {{{2, {3, 1}}, UNIFORM}, ONE(NEAR_ONE), ONE(SMALL)}},
    {"layernorm, evaluation", layernorm, 3, 0, .in = {{{2, {3, 5}}, UNIFORM}, FIVE(NEAR_ONE), FIVE(SMALL)},
     .eval = true},
    {"layernorm, no gain", layernorm_without_gain, 2, 0, .in = {{{2, {3, 5}}, UNIFORM}, FIVE(SMALL)}},
    {"layernorm, no shift", layernorm_without_shift, 2, 0, .in = {{{2, {3, 5}}, UNIFORM}, FIVE(NEAR_ONE)}},
    {"layernorm, neither", layernorm_alone, 1, 0, .in = {{{3, {2, 3, 4}}, UNIFORM}}},
    {"layernorm, an image read twice", layernorm_read_twice, 3, 0,
     .in = {{{4, {2, 3, 2, 5}}, UNIFORM}, FIVE(NEAR_ONE), FIVE(SMALL)}},
    {"rmsnorm, [N,C]", rmsnorm, 2, 0, .in = {{{2, {7, 5}}, UNIFORM}, FIVE(NEAR_ONE)}},
    {"rmsnorm, [N,T,C]", rmsnorm, 2, 0, .in = {{{3, {2, 3, 5}}, UNIFORM}, FIVE(UNIFORM)}},
    {"rmsnorm of one channel", rmsnorm, 2, 0, .in = {{{2, {3, 1}}, FAR}, ONE(NEAR_ONE)}},
    {"rmsnorm, no gain", rmsnorm_alone, 1, 0, .in = {{{2, {3, 5}}, UNIFORM}}},
    {"control: a norm at too large a step", layernorm, 3, 0,
     .in = {{{2, {3, 5}}, UNIFORM}, FIVE(NEAR_ONE), FIVE(SMALL)}, .step = 0.3, .broken = true},
};
/* clang-format on */

const grad_row *norm_rows(size_t i)
{
    return i < sizeof rows / sizeof *rows ? &rows[i] : NULL;
}
