/* The family of residual networks: options, construction, metadata, costs. */

#include "arch.h"

#include "lather/ext/fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEM_AUTO, STEM_IMAGENET, STEM_SMALL };

typedef struct settings {
    const char *arch, *depths;
    int64_t width;
    int stem;
    bool zero_init_last;
    lt_resnet_config net; /* set by resolve() */
} settings;

#define ROW(name) "Model", (name), 0
#define AT(field) offsetof(settings, field)

/* clang-format off */
static const lt_option option[] = {
{ROW("arch"), LT_OPTION_STRING, AT(arch), "resnet50", .also = "model", .common = true, .help = "resnet10, 14, 18, 34, 50, 101 or 152; ResNet-D: resnet18d, 26d, 34d, 50d, 101d, 152d; resnext50_32x4d, resnext101_32x8d, resnext101_64x4d, resnext50d_32x4d; wide_resnet50_2, wide_resnet101_2; with --weights alone: the file's model"},
{ROW("width"), LT_OPTION_INT, AT(width), "64", 1, 4096, .help = "channels of the first stage"},
{ROW("depths"), LT_OPTION_STRING, AT(depths), .meta = "A,B,C,D", .help = "blocks of each stage, instead of those of --arch"},
{ROW("stem"), LT_OPTION_CHOICE, AT(stem), .choices = "auto|imagenet|small", .help = "small: a 3x3 convolution without pooling; auto: that of --weights, otherwise small up to 64 pixels"},
{ROW("zero-init-last"), LT_OPTION_BOOL, AT(zero_init_last), "true", .help = "initialize each block as the identity", .after = "num-classes"},
};
/* clang-format on */

enum { IMAGENET_SIDE = 224, SMALL_SIDE = 64, USUAL_WIDTH = 64 };

static lt_status parse_depths(const char *text, int depth[LT_RESNET_STAGES])
{
    const char *at = text;
    for (int i = 0; i < LT_RESNET_STAGES; i++) {
        char *end;
        double value = strtod(at, &end);
        bool whole = value >= 0 && value <= INT32_MAX && value <= (double)(int)value;
        if (end == at || !whole || *end != (i < LT_RESNET_STAGES - 1 ? ',' : 0))
            return lt_fail(LT_E_ARG, "--depths: '%s' is not A,B,C,D", text);
        depth[i] = (int)value;
        at = end + 1;
    }
    return LT_OK;
}

/* Chooses the stem: by --stem, otherwise by the metadata of --weights, otherwise by size. */
static lt_status resolve(void *config, const lt_model_spec *spec, const lt_model_facts *known)
{
    settings *s = config;
    const char *stem = lt_model_fact_text(known, "stem");
    s->net = (lt_resnet_config){
        .arch = s->arch,
        .width = (int)s->width,
        .classes = spec->classes,
        .channels = spec->channels,
        .small_stem = *stem ? !strcmp(stem, "small") : spec->size <= SMALL_SIDE,
        .zero_init_last = s->zero_init_last,
        .seed = spec->seed,
    };
    if (s->stem != STEM_AUTO)
        s->net.small_stem = s->stem == STEM_SMALL;
    if (s->depths && *s->depths)
        LT_TRY(parse_depths(s->depths, s->net.depths));
    return lt_resnet_resolve(&s->net);
}

static lt_status make(lt_module **out, lt_device *device, const void *config,
                      const lt_model_spec *spec)
{
    (void)spec;
    return lt_resnet_new(out, device, &((const settings *)config)->net);
}

static lt_status cost(const void *config, const lt_model_spec *spec, lt_model_cost *out)
{
    return lt_resnet_count_cost(out, &((const settings *)config)->net, spec->size);
}

static lt_status add_onnx_nodes(lt_onnx *graph, const void *config, const lt_model_spec *spec)
{
    (void)spec;
    put_resnet_nodes(graph, &((const settings *)config)->net);
    return LT_OK;
}

/* Puts the facts. For depths that are not in the table, arch is a name with the same kind of blocks. */
static void put_facts(lt_model_facts *out, const lt_resnet_config *c)
{
    const char *name = lt_resnet_name(c);
    const int *d = c->depths;
    lt_model_fact_put(out, "arch", "%s", name ? name : plan_kind(c));
    lt_model_fact_put(out, "depths", "%d,%d,%d,%d", d[0], d[1], d[2], d[3]);
    lt_model_fact_put(out, "width", "%d", c->width);
    lt_model_fact_put(out, "stem", "%s", c->small_stem ? "small" : "imagenet")->input = true;
}

/* Sets the title: "resnet18", or "resnet 1-1-2-1" for depths that are not in the table; with the width if it is
 * not 64. */
static lt_status describe_model(const void *config, const lt_model_spec *spec, lt_model_facts *out)
{
    const lt_resnet_config *c = &((const settings *)config)->net;
    const char *name = lt_resnet_name(c);
    const int *d = c->depths;
    char blocks[32], width[16] = "";
    (void)spec;
    put_facts(out, c);
    snprintf(blocks, sizeof blocks, "resnet %d-%d-%d-%d", d[0], d[1], d[2], d[3]);
    if (c->width != USUAL_WIDTH)
        snprintf(width, sizeof width, " of width %d", c->width);
    snprintf(out->title, sizeof out->title, "%s%s, %s stem", name ? name : blocks, width,
             c->small_stem ? "small" : "imagenet");
    return LT_OK;
}

/* Reads the model of a file. One with ImageNet's stem reads images of ImageNet's size, unless a flag sets another. */
static lt_status infer_model_from_weights(const char *path, lt_model_facts *out,
                                          lt_model_spec *spec)
{
    lt_resnet_config c = {0};
    LT_TRY(lt_resnet_infer_config(path, &c));
    spec->channels = c.channels;
    spec->classes = c.classes;
    spec->size = c.small_stem ? 0 : IMAGENET_SIDE;
    put_facts(out, &c);
    return LT_OK;
}

static const lt_model_family family = {
    .program = "train_resnet50",
    .name = "resnet",
    .summary = "train, evaluate and use residual networks",
    .about = "Trains a residual network on images.",
    .head = "fc.",
    .recipes = "models/resnet50/recipes",
    .recipe_names = "nesterov-90e, shampoo-paper, shampoo-60e, torchvision-v1, ffcv-16e",
    .option = option,
    .options = sizeof option / sizeof *option,
    .config_bytes = sizeof(settings),
    .make = make,
    .resolve = resolve,
    .describe = describe_model,
    .infer = infer_model_from_weights,
    .cost = cost,
    .onnx = add_onnx_nodes,
};

const lt_model_family *lt_resnet_family(void)
{
    return &family;
}
