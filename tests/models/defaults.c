/* LT_SHAMPOO_DEFAULTS must equal the configuration of train_resnet50 --optim shampoo. */

#include "near.h"
#include "train/classify/classifier.h"

#include "lather/shampoo.h"

#include <string.h>

static const lt_model_family family = {.program = "train"};

static lt_shampoo_config of_command_line(const char *flag)
{
    lt_options *options = NULL;
    arguments a = {0};
    static classifier context;
    const arguments_of of = {&family, &lt_classifier_program, NULL, &context};
    char *argv[] = {(char[]){"train_resnet50"}, (char[]){"--optim=shampoo"}, (char[64]){0}};
    snprintf(argv[2], 64, "%s", flag);
    assert_ok(lt_arguments_open(&options, &a, &of, NULL));
    assert_ok(lt_options_parse(options, 3, argv));
    assert_ok(lt_optim_flags_resolve(&a.optim, options));
    const lt_shampoo_config c = *(const lt_shampoo_config *)a.optim.settings;
    lt_arguments_close(&options, &a);
    return c;
}

/* Returns the name of the first field that differs, or NULL. */
static const char *difference(const lt_shampoo_config *a, const lt_shampoo_config *b)
{
#define DIFFERS(field)                              \
    if (a->field < b->field || a->field > b->field) \
        return #field;
    DIFFERS(beta1)
    DIFFERS(beta2)
    DIFFERS(beta3)
    DIFFERS(epsilon)
    DIFFERS(momentum)
    DIFFERS(dampening)
    DIFFERS(nesterov)
    DIFFERS(weight_decay)
    DIFFERS(decay_type)
    DIFFERS(decay_scope)
    DIFFERS(max_preconditioner_dim)
    DIFFERS(precondition_frequency)
    DIFFERS(start_preconditioning_step)
    DIFFERS(use_bias_correction)
    DIFFERS(grafting)
    DIFFERS(grafting_beta2)
    DIFFERS(grafting_epsilon)
    DIFFERS(preconditioner)
    DIFFERS(epsilon_rule)
    DIFFERS(rank_rtol)
    DIFFERS(rank_atol)
    DIFFERS(merge_order)
    DIFFERS(target_dimensionality)
    DIFFERS(trace_scaling)
    DIFFERS(drop_weighting)
    DIFFERS(tolerated_failures)
    DIFFERS(on_failure)
    DIFFERS(diagonal_vectors)
    DIFFERS(root_solver)
    DIFFERS(solver_tolerance)
    DIFFERS(solver_iterations)
    DIFFERS(solver_order)
    DIFFERS(refresh_timing)
    DIFFERS(refresh_threads)
#undef DIFFERS
    if (memcmp(&a->inverse_exponent.set, &b->inverse_exponent.set, sizeof a->inverse_exponent.set)
        != 0)
        return "inverse_exponent";
    return memcmp(a->ignored_basis_change_dims, b->ignored_basis_change_dims,
                  sizeof a->ignored_basis_change_dims)
               ? "ignored_basis_change_dims"
               : NULL;
}

static void defaults_equal_the_command_lines(void **state)
{
    (void)state;
    const lt_shampoo_config here = LT_SHAMPOO_DEFAULTS;
    lt_shampoo_config there = of_command_line("--no-eval"), preset;
    const char *field = difference(&here, &there);
    if (field)
        fail_msg("%s: LT_SHAMPOO_DEFAULTS and the command line differ", field);
    assert_ok(lt_shampoo_preset("recommended", &preset));
    assert_null(difference(&here, &preset));
}

static void a_different_setting_is_detected(void **state)
{
    (void)state;
    const lt_shampoo_config here = LT_SHAMPOO_DEFAULTS;
    lt_shampoo_config there = of_command_line("--norm-weight-decay");
    assert_string_equal(difference(&here, &there), "decay_scope");
    there = of_command_line("--inverse-exponent=0.5");
    assert_string_equal(difference(&here, &there), "inverse_exponent");
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        cmocka_unit_test(defaults_equal_the_command_lines),
        cmocka_unit_test(a_different_setting_is_detected),
    };
    return cmocka_run_group_tests_name("defaults", rows, NULL, NULL);
}
