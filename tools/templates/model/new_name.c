/* The model new_name, to be replaced by yours: a 3x3 convolution of stride 2 with relu, the mean over pixels, a
 * linear layer. */

#include "new_name.h"

#include "lather/ext/fail.h"
#include "lather/init.h"
#include "lather/layers.h"

typedef struct config {
    int64_t width;
} config;

/* Flags of the program; their values are in config.yaml and in the metadata of weights. */
static const lt_option options[] = {
    {"Model", "width", .type = LT_OPTION_INT, .offset = offsetof(config, width), .value = "16",
     .min = 1, .max = 4096, .help = "channels of the convolution"},
};

/* Gives a layer, if it was made, to the model. */
static lt_status add(lt_module *model, lt_status made, lt_module **layer)
{
    return made ? made : lt_sequential_add(model, layer);
}

static lt_status add_layers(lt_module *m, lt_device *device, int width, const lt_model_spec *spec)
{
    const lt_conv2d_layer conv = {
        .in = spec->channels, .out = width, .kernel = 3, .stride = 2, .pad = 1, .bias = true};
    lt_module *l = NULL;
    LT_TRY(add(m, lt_layer_conv2d(&l, device, "conv", conv), &l)); /* names are keys in weights */
    LT_TRY(add(m, lt_layer_relu(&l), &l));
    LT_TRY(add(m, lt_layer_avgpool2d(&l, (lt_pool2d_config){0}), &l)); /* over the whole image */
    LT_TRY(add(m, lt_layer_flatten(&l), &l));
    LT_TRY(add(m, lt_layer_linear(&l, device, "fc", width, spec->classes, true), &l));
    return lt_init_module(m, spec->seed);
}

static lt_status make(lt_module **out, lt_device *device, const void *settings,
                      const lt_model_spec *spec)
{
    lt_module *model = NULL;
    LT_TRY(lt_layer_sequential(&model));
    lt_status st = add_layers(model, device, (int)((const config *)settings)->width, spec);
    if (st)
        lt_module_free(&model);
    else
        *out = model;
    return st;
}

const lt_model_family *new_name_family(void)
{
    static const lt_model_family family = {
        .program = "train_new_name",
        .name = "new_name",
        .head = "fc.",
        .option = options,
        .options = sizeof options / sizeof *options,
        .config_bytes = sizeof(config),
        .make = make,
    };
    return &family;
}
