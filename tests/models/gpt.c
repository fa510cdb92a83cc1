/* The distribution of GPT-2's initial values, as in the paper and OpenAI's code. */

#include "gpt.h"

#include "deviation.h"
#include "near.h"

#include <string.h>

enum { WIDTH = 64, LAYERS = 3 };

typedef struct draw_row {
    const char *param;
    double deviation;
    bool ones; /* each value is 1 */
} draw_row;

/* Weights are normal with deviation 0.02, divided by sqrt(2 layers) at the end of a branch; biases 0, norms 1. */
static void initial_values_are_distributed_like_gpt2s(void **state)
{
    (void)state;
    const double normal = 0.02, end = 0.02 / sqrt(2.0 * LAYERS);
    const draw_row rows[] = {
        {"wte.weight", normal, false},
        {"wpe.weight", normal, false},
        {"h.0.attn.c_attn.weight", normal, false},
        {"h.0.attn.c_attn.bias", 0, false},
        {"h.0.attn.c_proj.weight", end, false},
        {"h.2.attn.c_proj.weight", end, false},
        {"h.2.attn.c_proj.bias", 0, false},
        {"h.1.mlp.c_fc.weight", normal, false},
        {"h.1.mlp.c_fc.bias", 0, false},
        {"h.1.mlp.c_proj.weight", end, false},
        {"h.1.ln_1.weight", 1, true},
        {"h.1.ln_1.bias", 0, false},
        {"ln_f.weight", 1, true},
        {"ln_f.bias", 0, false},
    };
    const lt_gpt_config c = {.width = WIDTH,
                             .layers = LAYERS,
                             .heads = 4,
                             .positions = 50,
                             .vocabulary = 101,
                             .mlp = LT_MLP_GELU_TANH,
                             .seed = 5};
    lt_device *device = NULL;
    lt_module *m = NULL;
    lt_params p = {0};
    assert_ok(lt_device_open(&device, "ref", NULL));
    assert_ok(lt_gpt_new(&m, device, &c));
    assert_ok(lt_module_params(m, &p));
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        double most;
        const double got = deviation_of(&p, rows[i].param, &most);
        if (!(fabs(got - rows[i].deviation) <= 0.05 * rows[i].deviation))
            fail_msg("%s has a deviation of %g, not %g", rows[i].param, got, rows[i].deviation);
        assert_int_equal(most == 1, rows[i].ones);
    }
    lt_params_clear(&p);
    lt_module_free(&m);
    lt_device_close(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(initial_values_are_distributed_like_gpt2s)};
    return cmocka_run_group_tests_name("gpt", tests, NULL, NULL);
}
