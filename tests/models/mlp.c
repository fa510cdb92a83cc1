/* A second family of models, defined outside the trainer: a perceptron with one hidden layer, or logistic
 * regression. */

#include "lather/ext/fail.h"
#include "lather/init.h"
#include "lather/layers.h"
#include "lather/trainer.h"

#include <stdlib.h>

typedef struct mlp {
    int64_t hidden, spare;
    const char *note;
} mlp;

#define SPARE(name)                                                             \
    {                                                                           \
        "Model", name, 0, LT_OPTION_INT, offsetof(mlp, spare), .help = "unused" \
    }

static const lt_option option[] = {
    {"Model", "hidden", 0, LT_OPTION_INT, offsetof(mlp, hidden), "32", 0, 100000,
     .help = "width of the hidden layer; 0: none"},
    {"Model", "note", 0, LT_OPTION_STRING, offsetof(mlp, note),
     .help = "text stored with the weights"},
    /* with MLP_OPTIONS=17 one more than describe() may be absent for; with 18 two of one name */
    SPARE("spare-a"),
    SPARE("spare-b"),
    SPARE("spare-c"),
    SPARE("spare-d"),
    SPARE("spare-e"),
    SPARE("spare-f"),
    SPARE("spare-g"),
    SPARE("spare-h"),
    SPARE("spare-i"),
    SPARE("spare-j"),
    SPARE("spare-k"),
    SPARE("spare-l"),
    SPARE("spare-m"),
    SPARE("spare-n"),
    SPARE("spare-o"),
    SPARE("learning-rate"),
};

/* Adds a layer to the chain, which takes it over. */
static lt_status add(lt_module *chain, lt_status made, lt_module **layer)
{
    LT_TRY(made);
    lt_status st = lt_sequential_add(chain, layer);
    lt_module_free(layer);
    return st;
}

static lt_status add_hidden(lt_module *m, lt_device *device, int pixels, int hidden)
{
    lt_module *layer = NULL;
    LT_TRY(add(m, lt_layer_linear(&layer, device, "body", pixels, hidden, true), &layer));
    return add(m, lt_layer_relu(&layer), &layer);
}

static lt_status make(lt_module **out, lt_device *device, const void *config,
                      const lt_model_spec *spec)
{
    const int hidden = (int)((const mlp *)config)->hidden;
    const int pixels = spec->channels * spec->size * spec->size;
    lt_module *m = NULL, *layer = NULL;
    LT_TRY(lt_layer_sequential(&m));
    lt_status st = add(m, lt_layer_flatten(&layer), &layer);
    if (!st && hidden)
        st = add_hidden(m, device, pixels, hidden);
    if (!st)
        st = add(
            m,
            lt_layer_linear(&layer, device, "head", hidden ? hidden : pixels, spec->classes, true),
            &layer);
    if (!st)
        st = lt_init_module(m, spec->seed);
    if (st)
        lt_module_free(&m);
    else
        *out = m;
    return st;
}

int main(int argc, char **argv)
{
    const char *options = getenv("MLP_OPTIONS");
    const lt_model_family family = {
        .program = "train_mlp",
        .name = "mlp",
        .head = "head.",
        .recipes = "tests/models/recipes",
        .option = option,
        .options = options ? (size_t)atoi(options) : 2,
        .config_bytes = sizeof(mlp),
        .make = make,
    };
    return lt_classifier_main(argc, argv, &family);
}
