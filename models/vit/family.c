/* The family of vision transformers: options, construction, metadata, costs. */

#include "vit.h"

#include "lather/detail/json.h"
#include "lather/ext/fail.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { POOL_CLS, POOL_MEAN };

typedef struct settings {
    lt_vit_config
        net; /* set by resolve() from the other fields; first member, as lt_vit_resize_positions() gets this struct */
    const char *arch;
    int64_t patch, width, depth, heads;
    double mlp_ratio, dropout, drop_path, attention_scale;
    int pool;
    bool interpolate;
} settings;

#define ROW(name) "Model", (name), 0
#define AT(field) offsetof(settings, field)

/* clang-format off */
static const lt_option option[] = {
{ROW("arch"), LT_OPTION_STRING, AT(arch), "vit_b_16", .also = "model", .common = true, .help = "vit_ti_16, vit_s_16, vit_b_16, vit_b_32, vit_l_16, vit_l_32 or vit_h_14; with --weights alone: the file's model"},
{ROW("patch-size"), LT_OPTION_INT, AT(patch), "0", 0, 4096, .help = "side of a patch, in pixels; 0: that of --arch"},
{ROW("width"), LT_OPTION_INT, AT(width), "0", 0, 65536, .help = "features per patch; 0: that of --arch"},
{ROW("depth"), LT_OPTION_INT, AT(depth), "0", 0, 1000, .help = "number of blocks; 0: that of --arch"},
{ROW("heads"), LT_OPTION_INT, AT(heads), "0", 0, 65536, .help = "number of attention heads; 0: that of the file, of --arch, or as wide as those of --arch"},
{ROW("mlp-ratio"), LT_OPTION_DOUBLE, AT(mlp_ratio), "0", 0, 64, .help = "width of the mlp's hidden layer, as a multiple of --width; 0: that of --arch, 4"},
{ROW("attention-scale"), LT_OPTION_DOUBLE, AT(attention_scale), "0", 0, 16, .help = "factor of attention scores; 0: that of --weights, or 1/sqrt(features per head), which --mup changes if these grow"},
{ROW("pool"), LT_OPTION_CHOICE, AT(pool), .choices = "cls|mean", .help = "input of the last layer: a class token, or the mean of the patches"},
{ROW("drop"), LT_OPTION_DOUBLE, AT(dropout), "0", 0, 0.99, .help = "dropout probability after positions, attention and in the mlp"},
{ROW("drop-path"), LT_OPTION_DOUBLE, AT(drop_path), "0", 0, 0.99, .help = "probability that an image skips a branch of the last block; decreases linearly to 0 at the first"},
{ROW("interpolate-pos-embed"), LT_OPTION_BOOL, AT(interpolate), .help = "resize positions of --weights for images of another size", .after = "num-classes"},
};
/* clang-format on */

static lt_status resolve(void *config, const lt_model_spec *spec, const lt_model_facts *known)
{
    settings *s = config;
    (void)known;
    s->net = (lt_vit_config){
        .arch = s->arch,
        .patch = (int)s->patch,
        .width = (int)s->width,
        .depth = (int)s->depth,
        .heads = (int)s->heads,
        .channels = spec->channels,
        .size = spec->size,
        .classes = spec->classes,
        .mean_pool = s->pool == POOL_MEAN,
        .dropout = s->dropout,
        .attention_scale = s->attention_scale,
        .drop_path = s->drop_path,
        .seed = spec->seed,
        .is_loaded = spec->is_loaded,
        .interpolate = s->interpolate,
    };
    lt_vit_config usual = s->net;
    usual.hidden = 1;
    LT_TRY(lt_vit_resolve(&usual));
    s->net.hidden = (int)lround(s->mlp_ratio * usual.width);
    return lt_vit_resolve(&s->net);
}

static lt_status make(lt_module **out, lt_device *device, const void *config,
                      const lt_model_spec *spec)
{
    lt_vit_config net = ((const settings *)config)->net;
    net.parallel = spec->tensor_parallel;
    return lt_vit_new(out, device, &net);
}

static lt_status check_parallel(const void *config, const lt_model_spec *spec, int64_t batch)
{
    lt_vit_config net = ((const settings *)config)->net;
    net.parallel = spec->tensor_parallel;
    return lt_vit_check_parallel(&net, batch);
}

static lt_status cost(const void *config, const lt_model_spec *spec, lt_model_cost *out)
{
    lt_vit_config net = ((const settings *)config)->net;
    net.size = spec->size;
    return lt_vit_count_cost(out, &net);
}

/* Puts the facts. Shapes do not determine heads, and thus the name: those of a file are the usual ones or a guess. */
static void put_facts(lt_model_facts *out, const lt_vit_config *c)
{
    const char *name = lt_vit_name(c);
    lt_model_fact_put(out, "arch", "%s", name ? name : "")->source = LT_FACT_USUAL;
    lt_model_fact_put(out, "patch-size", "%d", c->patch);
    lt_model_fact_put(out, "width", "%d", c->width);
    lt_model_fact_put(out, "depth", "%d", c->depth);
    lt_model_fact_put(out, "heads", "%d", c->heads)->source = name ? LT_FACT_USUAL : LT_FACT_GUESS;
    lt_model_fact_put(out, "mlp-ratio", "%.17g", (double)c->hidden / c->width);
    lt_model_fact_put(out, "pool", "%s", c->mean_pool ? "mean" : "cls");
    lt_model_fact_put(out, "attention-scale", "%.17g", c->attention_scale)->source = LT_FACT_USUAL;
}

/* Sets the title: "vit_s_16", or "vit of 6 blocks of width 192, 3 heads, patches of 4". */
static lt_status describe_model(const void *config, const lt_model_spec *spec, lt_model_facts *out)
{
    const lt_vit_config *c = &((const settings *)config)->net;
    const char *name = lt_vit_name(c);
    (void)spec;
    put_facts(out, c);
    if (name)
        snprintf(out->title, sizeof out->title, "%s%s", name, c->mean_pool ? ", mean pooling" : "");
    else
        snprintf(out->title, sizeof out->title,
                 "vit of %d blocks of width %d, %d heads, patches of %d", c->depth, c->width,
                 c->heads, c->patch);
    return LT_OK;
}

/* Reads the heads of a ViT from the config.json that HuggingFace writes in the folder of its weights. */
static lt_status read_config(const char *weights, lt_model_facts *facts)
{
    enum { PATH = 1200 };
    char path[PATH];
    struct stat info;
    lt_json *json = NULL;
    int64_t heads = 0;
    const char *slash = strrchr(weights, '/'), *type = "";
    const bool is_folder = !stat(weights, &info) && S_ISDIR(info.st_mode);
    const int folder = is_folder ? (int)strlen(weights) : slash ? (int)(slash - weights) : 0;
    const int bytes =
        snprintf(path, PATH, "%.*s%sconfig.json", folder, weights, is_folder || slash ? "/" : "");
    if (bytes >= PATH || access(path, F_OK))
        return LT_OK;
    LT_TRY(lt_json_load(&json, path));
    const lt_json_value *root = lt_json_root(json);
    const bool is_vit = !lt_json_string(root, "model_type", &type)
                        && (!strcmp(type, "vit") || !strcmp(type, "deit"))
                        && !lt_json_integer(root, "num_attention_heads", &heads);
    for (size_t i = 0; is_vit && i < facts->count; i++)
        if (!strcmp(facts->item[i].key, "heads")) {
            facts->item[i].source = LT_FACT_CONFIG;
            snprintf(facts->item[i].text, LT_FACT_BYTES, "%lld", (long long)heads);
        }
    lt_json_free(&json);
    return LT_OK;
}

static lt_status infer_model_from_weights(const char *path, lt_model_facts *out,
                                          lt_model_spec *spec)
{
    lt_vit_config c;
    LT_TRY(lt_vit_infer_config(path, &c));
    spec->channels = c.channels;
    spec->classes = c.classes;
    spec->size = c.size;
    lt_vit_config guess = c; /* number of heads if the metadata lack it */
    guess.classes = 1;
    LT_TRY(lt_vit_resolve(&guess));
    c.heads = guess.heads;
    put_facts(out, &c);
    return read_config(path, out);
}

/* Parameter names of torchvision before 0.12, which its published weights have. */
static const lt_weights_alias alias[] = {
    {"mlp.0.", "mlp.linear_1."}, {"mlp.3.", "mlp.linear_2."}, {NULL, NULL}};

static const lt_model_family family = {
    .program = "train_vit",
    .name = "vit",
    .summary = "train, evaluate and use vision transformers",
    .about = "Trains a vision transformer on images.",
    .head = "heads.",
    .recipes = "models/vit/recipes",
    .recipe_names = "vit-b16-torchvision, vit-s16-algoperf",
    .option = option,
    .options = sizeof option / sizeof *option,
    .config_bytes = sizeof(settings),
    .make = make,
    .check_parallel = check_parallel,
    .resolve = resolve,
    .describe = describe_model,
    .infer = infer_model_from_weights,
    .cost = cost,
    .fit = lt_vit_resize_positions,
    .alias = alias,
};

const lt_model_family *lt_vit_family(void)
{
    return &family;
}
