/* The family of GPT-2 and similar models: options, construction, metadata, costs. */

#include "config.h"
#include "gpt.h"

#include "lather/ext/fail.h"

#include <stdio.h>
#include <string.h>

enum { NORM_LAYER, NORM_RMS };
enum { POSITIONS_LEARNED, POSITIONS_ROTARY };

typedef struct settings {
    const char *arch;
    int64_t layers, heads, width, kv_heads, hidden, positions;
    double dropout, attention_scale;
    int norm, activation, position;
    lt_gpt_config net; /* set by resolve() from the other fields */
} settings;

#define ROW(name) "Model", (name), 0
#define AT(field) offsetof(settings, field)

/* clang-format off */
static const lt_option option[] = {
{ROW("arch"), LT_OPTION_STRING, AT(arch), "gpt2", .also = "model", .common = true, .help = "gpt2, gpt2-medium, gpt2-large or gpt2-xl; with --weights alone: the file's model"},
{ROW("layers"), LT_OPTION_INT, AT(layers), "0", 0, 1000, .also = "depth n-layer", .common = true, .help = "number of blocks; 0: that of --arch"},
{ROW("heads"), LT_OPTION_INT, AT(heads), "0", 0, 65536, .also = "n-head", .help = "number of attention heads; 0: that of the file, of --arch, or width / 64"},
{ROW("width"), LT_OPTION_INT, AT(width), "0", 0, 65536, .also = "n-embd", .common = true, .help = "features per token; 0: that of --arch"},
{ROW("kv-heads"), LT_OPTION_INT, AT(kv_heads), "0", 0, 65536, .help = "heads of keys and values; 0: as many as of queries"},
{ROW("attention-scale"), LT_OPTION_DOUBLE, AT(attention_scale), "0", 0, 16, .help = "factor of attention scores; 0: that of --weights, or 1/sqrt(features per head), which --mup changes if these grow"},
{ROW("mlp-width"), LT_OPTION_INT, AT(hidden), "0", 0, 262144, .help = "width of the mlp's hidden layer; 0: four times --width"},
{ROW("positions"), LT_OPTION_INT, AT(positions), "0", 0, 10000000, .help = "longest sequence of a new model, in tokens; 0: --seq-len"},
{ROW("norm"), LT_OPTION_CHOICE, AT(norm), .choices = "layernorm|rmsnorm", .help = "normalisation"},
{ROW("activation"), LT_OPTION_CHOICE, AT(activation), "gelu-tanh", .choices = "gelu|gelu-tanh|swiglu", .help = "activation of the mlp"},
{ROW("position"), LT_OPTION_CHOICE, AT(position), .choices = "learned|rotary", .help = "position encoding"},
{ROW("dropout"), LT_OPTION_DOUBLE, AT(dropout), "0", 0, 0.99, .help = "dropout probability, after embeddings, attention and mlp"},
};
/* clang-format on */

static lt_status resolve(void *config, const lt_model_spec *spec, const lt_model_facts *known)
{
    settings *s = config;
    const int64_t positions = s->positions ? s->positions : spec->size;
    (void)known;
    if (s->position == POSITIONS_LEARNED && positions < spec->size)
        return lt_fail(LT_E_ARG, "--seq-len %d: the model has %lld positions", spec->size,
                       (long long)positions);
    s->net = (lt_gpt_config){
        .arch = s->arch,
        .width = (int)s->width,
        .layers = (int)s->layers,
        .heads = (int)s->heads,
        .kv_heads = (int)s->kv_heads,
        .hidden = (int)s->hidden,
        .positions = positions > 1 ? (int)positions : 1,
        .vocabulary = spec->classes,
        .rms = s->norm == NORM_RMS,
        .rotary = s->position == POSITIONS_ROTARY,
        .mlp = (lt_mlp_kind)s->activation,
        .dropout = s->dropout,
        .attention_scale = s->attention_scale,
        .seed = spec->seed,
        .is_loaded = spec->is_loaded,
    };
    return lt_gpt_resolve(&s->net);
}

static lt_status make(lt_module **out, lt_device *device, const void *config,
                      const lt_model_spec *spec)
{
    lt_gpt_config net = ((const settings *)config)->net;
    net.parallel = spec->tensor_parallel;
    return lt_gpt_new(out, device, &net);
}

static lt_status check_parallel(const void *config, const lt_model_spec *spec, int64_t batch)
{
    lt_gpt_config net = ((const settings *)config)->net;
    net.parallel = spec->tensor_parallel;
    return lt_gpt_check_parallel(&net, batch);
}

static lt_status cost(const void *config, const lt_model_spec *spec, lt_model_cost *out)
{
    return lt_gpt_count_cost(out, &((const settings *)config)->net, spec->size);
}

/* Puts the values of the options above. Shapes determine neither heads, and thus the name, nor the kind of gelu:
 * those of a file are the usual ones or a guess, and 0 heads of keys and values mean as many as of queries. */
static void put_facts(lt_model_facts *out, const lt_gpt_config *c, bool of_file)
{
    static const char *const activation[] = {"gelu", "gelu-tanh", "swiglu"};
    const char *name = lt_gpt_name(c);
    lt_model_fact_put(out, "arch", "%s", name ? name : "")->source = LT_FACT_USUAL;
    lt_model_fact_put(out, "layers", "%d", c->layers);
    lt_model_fact_put(out, "heads", "%d", c->heads)->source = name ? LT_FACT_USUAL : LT_FACT_GUESS;
    lt_model_fact_put(out, "width", "%d", c->width);
    lt_model_fact_put(out, "kv-heads", "%d", of_file && c->kv_heads == c->heads ? 0 : c->kv_heads)
        ->source = LT_FACT_USUAL;
    lt_model_fact_put(out, "mlp-width", "%d", c->hidden);
    lt_model_fact_put(out, "positions", "%d", c->positions)->source =
        c->rotary ? LT_FACT_USUAL : LT_FACT_SHAPES; /* rotary positions have no limit */
    lt_model_fact_put(out, "norm", "%s", c->rms ? "rmsnorm" : "layernorm");
    lt_model_fact_put(out, "activation", "%s", activation[c->mlp])->source =
        c->mlp == LT_MLP_SWIGLU ? LT_FACT_SHAPES : LT_FACT_USUAL;
    lt_model_fact_put(out, "position", "%s", c->rotary ? "rotary" : "learned");
    lt_model_fact_put(out, "attention-scale", "%.17g", c->attention_scale)->source = LT_FACT_USUAL;
}

static lt_status describe_model(const void *config, const lt_model_spec *spec, lt_model_facts *out)
{
    const lt_gpt_config *c = &((const settings *)config)->net;
    const char *name = lt_gpt_name(c);
    (void)spec;
    put_facts(out, c, false);
    if (name)
        snprintf(out->title, sizeof out->title, "%s", name);
    else
        snprintf(out->title, sizeof out->title, "gpt of %d blocks of width %d, %d heads", c->layers,
                 c->width, c->heads);
    return LT_OK;
}

static lt_status infer_model_from_weights(const char *path, lt_model_facts *out,
                                          lt_model_spec *spec)
{
    lt_gpt_config c;
    bool says_heads = false;
    LT_TRY(lt_gpt_infer_config(path, &c, &says_heads));
    spec->channels = 0;
    spec->classes = c.vocabulary;
    spec->size = c.positions;
    put_facts(out, &c, true);
    return says_heads ? LT_OK : lt_gpt_read_config(path, out, spec);
}

static const lt_model_family family = {
    .program = "train_gpt",
    .name = "gpt",
    .summary = "train, evaluate and sample language models",
    .about = "Trains a GPT-2 on text.",
    .option = option,
    .options = sizeof option / sizeof *option,
    .config_bytes = sizeof(settings),
    .make = make,
    .check_parallel = check_parallel,
    .resolve = resolve,
    .describe = describe_model,
    .infer = infer_model_from_weights,
    .prefix = LT_GPT_PREFIX,
    .last_norm = "ln_f.",
    .recipes = "models/gpt/recipes",
    .recipe_names = "shakespeare-char, gpt2-124m",
    .unread = LT_GPT_UNREAD,
    .cost = cost,
};

const lt_model_family *lt_gpt_family(void)
{
    return &family;
}
