/* The table of GPT-2's sizes, their cost, and the size of the model in a weight file. Radford et al. 2019, table
 * 2; widths of 1600 have 25 heads in the released weights. */

#include "gpt.h"

#include "lather/ext/fail.h"
#include "lather/safetensors.h"
#include "lather/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_WIDTH = 65536,
    MAX_LAYERS = 1000,
    MAX_IDS = 100000000,
    MAX_POSITIONS = 10000000,
    HEAD_WIDTH = 64,
    MLP_RATIO = 4
};

static const lt_gpt_config table[] = {
    {.arch = "gpt2", .width = 768, .layers = 12, .heads = 12},
    {.arch = "gpt2-medium", .width = 1024, .layers = 24, .heads = 16},
    {.arch = "gpt2-large", .width = 1280, .layers = 36, .heads = 20},
    {.arch = "gpt2-xl", .width = 1600, .layers = 48, .heads = 25},
};
enum { ARCHS = sizeof table / sizeof *table };

const char *lt_gpt_name(const lt_gpt_config *c)
{
    const bool plain = !c->rms && !c->rotary && c->mlp == LT_MLP_GELU_TANH
                       && c->kv_heads == c->heads && c->hidden == MLP_RATIO * c->width;
    for (int i = 0; plain && i < ARCHS; i++)
        if (table[i].width == c->width && table[i].layers == c->layers
            && table[i].heads == c->heads)
            return table[i].arch;
    return NULL;
}

static const lt_gpt_config *find_arch(const char *arch)
{
    for (int i = 0; i < ARCHS; i++)
        if (!arch || !*arch || !strcmp(arch, table[i].arch))
            return &table[i];
    return NULL;
}

static lt_status check_config(const lt_gpt_config *c)
{
    const struct {
        const char *name;
        int value, most;
    } field[] = {{"width", c->width, MAX_WIDTH},
                 {"layers", c->layers, MAX_LAYERS},
                 {"hidden", c->hidden, MAX_WIDTH * MLP_RATIO},
                 {"heads", c->heads, MAX_WIDTH},
                 {"kv_heads", c->kv_heads, MAX_WIDTH},
                 {"positions", c->positions, MAX_POSITIONS},
                 {"vocabulary", c->vocabulary, MAX_IDS}};
    for (size_t i = 0; i < sizeof field / sizeof *field; i++)
        if (field[i].value < 1 || field[i].value > field[i].most)
            return lt_fail(LT_E_ARG, "gpt: %s is %d, want 1 to %d", field[i].name, field[i].value,
                           field[i].most);
    if (c->width % c->heads)
        return lt_fail(LT_E_ARG, "gpt: %d heads do not divide the width, %d", c->heads, c->width);
    if (c->heads % c->kv_heads)
        return lt_fail(LT_E_ARG, "gpt: %d heads of keys and values do not divide the %d of queries",
                       c->kv_heads, c->heads);
    return c->dropout >= 0 && c->dropout < 1
               ? LT_OK
               : lt_fail(LT_E_ARG, "gpt: dropout %g, want a number in [0,1)", c->dropout);
}

lt_status lt_gpt_resolve(lt_gpt_config *c)
{
    const lt_gpt_config *a = find_arch(c->arch);
    if (!a)
        return lt_fail(
            LT_E_ARG, "gpt: no architecture '%s'; there are gpt2, gpt2-medium, gpt2-large, gpt2-xl",
            c->arch);
    /* For another width: heads as wide as the table's. */
    if (!c->heads)
        c->heads = !c->width ? a->heads : c->width > HEAD_WIDTH ? c->width / HEAD_WIDTH : 1;
    c->width = c->width ? c->width : a->width;
    c->layers = c->layers ? c->layers : a->layers;
    c->kv_heads = c->kv_heads ? c->kv_heads : c->heads;
    c->hidden = c->hidden ? c->hidden : MLP_RATIO * c->width;
    c->arch = NULL;
    return check_config(c);
}

lt_status lt_gpt_count_cost(lt_model_cost *out, const lt_gpt_config *config, int64_t length)
{
    lt_gpt_config c = *config;
    LT_TRY(lt_gpt_resolve(&c));
    if (!c.rotary && length > c.positions)
        return lt_fail(LT_E_ARG, "gpt: sequences of %lld tokens; the model has %d positions",
                       (long long)length, c.positions);
    const int64_t w = c.width, h = c.hidden, qkv = w + 2 * (w / c.heads * c.kv_heads);
    const int64_t ups = c.mlp == LT_MLP_SWIGLU ? 2 : 1, norm = c.rms ? w : 2 * w;
    const int64_t matrices = w * qkv + w * w + (ups + 1) * w * h;
    const int64_t vectors = 2 * norm + qkv + w + ups * h + w;
    const int64_t wide = c.vocabulary > qkv ? c.vocabulary : qkv;
    *out = (lt_model_cost){
        .params = c.vocabulary * w + (c.rotary ? 0 : c.positions * w)
                  + c.layers * (matrices + vectors) + norm,
        .multiply_adds = length * (c.layers * (matrices + length * w) + w * c.vocabulary),
        /* Per block: its two sums, q, k, v, attention's output, and the mlp's hidden layer. */
        .kept = length * (2 * w + c.layers * (3 * w + qkv + ups * h) + c.vocabulary),
        .recomputable = c.layers * length * (2 * w + h), /* both norms and gelu */
        .largest = length * wide,
        .rows = length,
        .features = w,
    };
    return LT_OK;
}

/* --- Weights --- */

static const lt_safetensors_entry *find_entry(const lt_safetensors *file, const char *name,
                                              int ndim)
{
    char longer[96];
    snprintf(longer, sizeof longer, LT_GPT_PREFIX "%s", name);
    const lt_safetensors_entry *e = lt_safetensors_find(file, name);
    if (!e)
        e = lt_safetensors_find(file, longer);
    return e && e->shape.ndim == ndim ? e : NULL;
}

static int count_blocks(const lt_safetensors *file)
{
    char name[64];
    int blocks = 0;
    do
        snprintf(name, sizeof name, "h.%d.ln_1.weight", blocks++);
    while (find_entry(file, name, 1));
    return blocks - 1;
}

/* Returns the number of heads, which shapes do not determine. */
static int guess_heads(const lt_safetensors *file, int width)
{
    const char *known = lt_safetensors_metadata(file, "heads");
    const long heads = known ? strtol(known, NULL, 10) : 0;
    if (heads > 0 && heads <= width)
        return (int)heads;
    for (int i = 0; i < ARCHS; i++)
        if (table[i].width == width)
            return table[i].heads;
    return width > HEAD_WIDTH ? width / HEAD_WIDTH : 1;
}

/* Fails if the file has a separate last layer, which would be lost. */
static lt_status check_tied_lm_head(const lt_safetensors *file, const char *path,
                                    const lt_safetensors_entry *tokens)
{
    const lt_safetensors_entry *head = lt_safetensors_find(file, "lm_head.weight");
    if (!head || (head->bytes == tokens->bytes && !memcmp(head->data, tokens->data, tokens->bytes)))
        return LT_OK;
    return lt_fail(LT_E_FORMAT,
                   "%s: 'lm_head.weight' differs from 'wte.weight': the last layer is not the "
                   "embeddings",
                   path);
}

/* Returns the heads of keys and values from the columns of the joint projection: q, k and v. */
static int kv_heads_of(const lt_gpt_config *c, int64_t columns)
{
    return (int)((columns - c->width) / 2 / (c->width / c->heads));
}

static lt_status infer_config(const lt_safetensors *file, const char *path, lt_gpt_config *c)
{
    const lt_safetensors_entry *tokens = find_entry(file, "wte.weight", 2);
    const lt_safetensors_entry *positions = find_entry(file, "wpe.weight", 2);
    const lt_safetensors_entry *qkv = find_entry(file, "h.0.attn.c_attn.weight", 2);
    const lt_safetensors_entry *up = find_entry(file, "h.0.mlp.c_fc.weight", 2);
    const char *known = lt_safetensors_metadata(file, "activation");
    if (!tokens || !qkv || !up)
        return lt_fail(LT_E_FORMAT, "%s: no '%s' of 2 dimensions: not a GPT-2's weights", path,
                       !tokens ? "wte.weight"
                       : !qkv  ? "h.0.attn.c_attn.weight"
                               : "h.0.mlp.c_fc.weight");
    *c = (lt_gpt_config){.width = (int)tokens->shape.dim[1],
                         .vocabulary = (int)tokens->shape.dim[0],
                         .hidden = (int)up->shape.dim[1],
                         .layers = count_blocks(file),
                         .positions = positions ? (int)positions->shape.dim[0] : 0,
                         .rotary = !positions,
                         .rms = !find_entry(file, "ln_f.bias", 1),
                         .mlp = LT_MLP_GELU_TANH};
    if (find_entry(file, "h.0.mlp.c_gate.weight", 2))
        c->mlp = LT_MLP_SWIGLU;
    else if (known && !strcmp(known, "gelu"))
        c->mlp = LT_MLP_GELU;
    c->heads = guess_heads(file, c->width);
    c->kv_heads = c->width % c->heads ? c->heads : kv_heads_of(c, qkv->shape.dim[1]);
    return check_tied_lm_head(file, path, tokens);
}

lt_status lt_gpt_infer_config(const char *path, lt_gpt_config *config, bool *says_heads)
{
    lt_safetensors *file = NULL;
    LT_TRY(lt_weights_open(&file, path));
    lt_status st = infer_config(file, path, config);
    *says_heads = lt_safetensors_metadata(file, "heads") != NULL;
    lt_safetensors_close(&file);
    return st;
}
