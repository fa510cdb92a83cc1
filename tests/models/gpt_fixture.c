/* Compares a tiny GPT-2 with PyTorch and HuggingFace's transformers (tests/golden/make_gpt_fixture.py). */

#include "fixture.h"
#include "gpt.h"

enum { WIDTH = 8, HEADS = 2, LAYERS = 2, IDS = 11, POSITIONS = 9 };

static lt_status make(lt_module **out, lt_device *device)
{
    const lt_gpt_config tiny = {.width = WIDTH,
                                .layers = LAYERS,
                                .heads = HEADS,
                                .positions = POSITIONS,
                                .vocabulary = IDS,
                                .mlp = LT_MLP_GELU_TANH};
    return lt_gpt_new(out, device, &tiny);
}

/* clang-format off */
static const fixture_row rows[] = {
    {"f64 on ref, SGD with Nesterov momentum", "ref", true, "sgd", fixture_open_sgd, 0.05, 1e-9, false},
    {"f64 on ref, AdamW", "ref", true, "adamw", fixture_open_adamw, 1e-3, 1e-9, false},
    {"f64 on cpu, AdamW", "cpu", true, "adamw", fixture_open_adamw, 1e-3, 1e-9, false},
    {"f32 on cpu, SGD with Nesterov momentum", "cpu", false, "sgd", fixture_open_sgd, 0.05, 4, false},
    {"f32 on cpu, AdamW", "cpu", false, "adamw", fixture_open_adamw, 1e-3, 4, false},
    {"f32 on ref, SGD with Nesterov momentum", "ref", false, "sgd", fixture_open_sgd, 0.05, 4, false},
    {"control: momentum without Nesterov", "ref", true, "sgd", fixture_open_plain_momentum, 0.05, 1e-9, true},
    {"control: lr 0.01 % too large, f64", "ref", true, "adamw", fixture_open_adamw, 1.0001e-3, 1e-9, true},
};
/* clang-format on */

int main(void)
{
    static const fixture_family family = {"gpt_fixture.safetensors", make};
    return fixture_main(&family, rows, COUNT_OF(rows), NULL, 0);
}
