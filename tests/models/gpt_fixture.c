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

int main(void)
{
    static const fixture_family family = {"gpt_fixture.safetensors", make};
    return fixture_main(&family, fixture_transformer_rows, FIXTURE_TRANSFORMER_ROWS, NULL, 0);
}
