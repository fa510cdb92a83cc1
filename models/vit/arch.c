/* The table of vision transformers, their cost, and the size of the model in a weight file. Dosovitskiy et al.,
 * ICLR 2021, table 1; Touvron et al., "Training data-efficient image transformers", ICML 2021, table 1 (Ti and S). */

#include "vit.h"

#include "lather/embedding_layers.h"
#include "lather/ext/fail.h"
#include "lather/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_SIDE = 4096,
    MAX_WIDTH = 65536,
    MAX_DEPTH = 1000,
    MAX_CLASSES = 1000000,
    HEAD_WIDTH = 64
};

static const lt_vit_config table[] = {
    {.arch = "vit_b_16", .patch = 16, .width = 768, .depth = 12, .heads = 12, .hidden = 3072},
    {.arch = "vit_ti_16", .patch = 16, .width = 192, .depth = 12, .heads = 3, .hidden = 768},
    {.arch = "vit_s_16", .patch = 16, .width = 384, .depth = 12, .heads = 6, .hidden = 1536},
    {.arch = "vit_b_32", .patch = 32, .width = 768, .depth = 12, .heads = 12, .hidden = 3072},
    {.arch = "vit_l_16", .patch = 16, .width = 1024, .depth = 24, .heads = 16, .hidden = 4096},
    {.arch = "vit_l_32", .patch = 32, .width = 1024, .depth = 24, .heads = 16, .hidden = 4096},
    {.arch = "vit_h_14", .patch = 14, .width = 1280, .depth = 32, .heads = 16, .hidden = 5120},
};
enum { ARCHS = sizeof table / sizeof *table };

const char *lt_vit_name(const lt_vit_config *c)
{
    for (int i = 0; i < ARCHS; i++) {
        const lt_vit_config *a = &table[i];
        if (a->patch == c->patch && a->width == c->width && a->depth == c->depth
            && a->heads == c->heads && a->hidden == c->hidden)
            return a->arch;
    }
    return NULL;
}

static const lt_vit_config *find_arch(const char *arch)
{
    for (int i = 0; i < ARCHS; i++)
        if (!arch || !*arch || !strcmp(arch, table[i].arch))
            return &table[i];
    return NULL;
}

static lt_status check_config(const lt_vit_config *c)
{
    const struct {
        const char *name;
        int value, most;
    } field[] = {{"patch", c->patch, MAX_SIDE},       {"width", c->width, MAX_WIDTH},
                 {"depth", c->depth, MAX_DEPTH},      {"hidden", c->hidden, MAX_WIDTH},
                 {"heads", c->heads, MAX_WIDTH},      {"channels", c->channels, MAX_SIDE},
                 {"classes", c->classes, MAX_CLASSES}};
    for (size_t i = 0; i < sizeof field / sizeof *field; i++)
        if (field[i].value < 1 || field[i].value > field[i].most)
            return lt_fail(LT_E_ARG, "vit: %s is %d, want 1 to %d", field[i].name, field[i].value,
                           field[i].most);
    if (c->width % c->heads)
        return lt_fail(LT_E_ARG, "vit: %d heads do not divide the width, %d", c->heads, c->width);
    if (!(c->drop_path >= 0 && c->drop_path < 1 && c->dropout >= 0 && c->dropout < 1))
        return lt_fail(LT_E_ARG, "vit: dropout %g, drop_path %g; want numbers in [0,1)", c->dropout,
                       c->drop_path);
    return LT_OK;
}

lt_status lt_vit_resolve(lt_vit_config *c)
{
    const lt_vit_config *a = find_arch(c->arch);
    if (!a)
        return lt_fail(LT_E_ARG,
                       "vit: no architecture '%s'; there are vit_ti_16, vit_s_16, vit_b_16, "
                       "vit_b_32, vit_l_16, vit_l_32, vit_h_14",
                       c->arch);
    /* For another width: heads and mlp in the proportions of the table. */
    const int head = a->width / a->heads;
    if (!c->heads)
        c->heads = !c->width ? a->heads : c->width > head ? c->width / head : 1;
    if (!c->hidden)
        c->hidden = c->width ? c->width * (a->hidden / a->width) : a->hidden;
    c->patch = c->patch ? c->patch : a->patch;
    c->width = c->width ? c->width : a->width;
    c->depth = c->depth ? c->depth : a->depth;
    c->channels = c->channels ? c->channels : 3;
    c->arch = NULL;
    return check_config(c);
}

lt_status lt_vit_count_cost(lt_model_cost *out, const lt_vit_config *config)
{
    lt_vit_config c = *config;
    LT_TRY(lt_vit_resolve(&c));
    if (c.size < 1 || c.size % c.patch)
        return lt_fail(
            LT_E_ARG,
            "vit: images of %dx%d pixels; their side must be a multiple of the patch, %d "
            "(--image-size, --patch-size)",
            c.size, c.size, c.patch);
    const int64_t side = c.size / c.patch, patches = side * side, rows = patches + !c.mean_pool;
    const int64_t w = c.width, h = c.hidden, pixels = (int64_t)c.channels * c.patch * c.patch;
    const int64_t matrices = 4 * w * w + 2 * w * h, vectors = 9 * w + h; /* per block */
    const int64_t wide = 3 * w > h ? 3 * w : h;
    *out = (lt_model_cost){
        .params = (pixels + 1) * w + (rows + !c.mean_pool) * w + c.depth * (matrices + vectors)
                  + 2 * w + (w + 1) * c.classes,
        .multiply_adds =
            patches * pixels * w + c.depth * rows * (matrices + 2 * rows * w) + w * c.classes,
        /* Per block: its two sums, q, k, v, attention's output, and the mlp's hidden layer. */
        .kept = 2 * rows * w + c.depth * rows * (6 * w + h),
        .recomputable = c.depth * rows * (2 * w + h), /* both norms and gelu */
        .largest = rows * wide,
        .rows = rows,
        .features = w,
    };
    return LT_OK;
}

/* --- Weights --- */

static const lt_safetensors_entry *find_entry(const lt_safetensors *file, const char *name,
                                              int ndim)
{
    const lt_safetensors_entry *e = lt_safetensors_find(file, name);
    return e && e->shape.ndim == ndim ? e : NULL;
}

static int count_blocks(const lt_safetensors *file)
{
    char name[96];
    int blocks = 0;
    do
        snprintf(name, sizeof name, "encoder.layers.encoder_layer_%d.ln_1.weight", blocks++);
    while (lt_safetensors_find(file, name));
    return blocks - 1;
}

/* Returns the number of heads, which shapes do not determine: from the metadata, or from an arch of this width;
 * otherwise 0. */
static int known_heads(const lt_safetensors *file, const lt_vit_config *c)
{
    const char *known = lt_safetensors_metadata(file, "heads");
    long heads = known ? strtol(known, NULL, 10) : 0;
    if (heads > 0 && heads <= c->width)
        return (int)heads;
    for (int i = 0; i < ARCHS; i++)
        if (table[i].width == c->width)
            return table[i].heads;
    return 0;
}

static lt_status infer_config(const lt_safetensors *file, const char *path, lt_vit_config *c)
{
    const lt_safetensors_entry *patch = find_entry(file, "conv_proj.weight", 4);
    const lt_safetensors_entry *rows = find_entry(file, "encoder.pos_embedding", 3);
    const lt_safetensors_entry *head = find_entry(file, "heads.head.weight", 2);
    const lt_safetensors_entry *mlp =
        find_entry(file, "encoder.layers.encoder_layer_0.mlp.0.weight", 2);
    if (!mlp) /* torchvision before 0.12 */
        mlp = find_entry(file, "encoder.layers.encoder_layer_0.mlp.linear_1.weight", 2);
    if (!patch || !rows || !mlp)
        return lt_fail(LT_E_FORMAT,
                       "%s: no '%s': not the weights of a vision transformer with names of "
                       "torchvision, timm or HuggingFace",
                       path,
                       !patch  ? "conv_proj.weight"
                       : !rows ? "encoder.pos_embedding"
                               : "encoder.layers.encoder_layer_0.mlp.0.weight");
    *c = (lt_vit_config){.width = (int)patch->shape.dim[0],
                         .channels = (int)patch->shape.dim[1],
                         .patch = (int)patch->shape.dim[2],
                         .hidden = (int)mlp->shape.dim[0],
                         .depth = count_blocks(file),
                         .mean_pool = !lt_safetensors_find(file, "class_token"),
                         .classes = head ? (int)head->shape.dim[0] : 0};
    const int64_t patches = rows->shape.dim[1] - !c->mean_pool;
    c->size = (int)lround(sqrt((double)patches)) * c->patch;
    c->heads = known_heads(file, c);
    return LT_OK;
}

lt_status lt_vit_infer_config(const char *path, lt_vit_config *config)
{
    lt_safetensors *file = NULL;
    LT_TRY(lt_weights_open(&file, path));
    lt_status st = infer_config(file, path, config);
    lt_safetensors_close(&file);
    return st;
}

/* --- Positions of another grid --- */

lt_status lt_vit_resize_positions(const void *config, const char *name, lt_shape have,
                                  const double *from, lt_shape want, double *to)
{
    const lt_vit_config *c = config;
    char a[LT_SHAPE_TEXT], b[LT_SHAPE_TEXT];
    const int token = !c->mean_pool;
    const int old = (int)lround(sqrt((double)(have.dim[1] - token)));
    const int side = (int)lround(sqrt((double)(want.dim[1] - token)));
    if (strcmp(name, "encoder.pos_embedding") != 0 || have.ndim != 3 || have.dim[0] != 1
        || have.dim[2] != want.dim[2] || old < 1 || (int64_t)old * old + token != have.dim[1])
        return lt_fail(LT_E_SHAPE, "'%s' is %s, but the model needs %s", name,
                       lt_shape_text(have, a), lt_shape_text(want, b));
    if (!c->interpolate)
        return lt_fail(LT_E_SHAPE,
                       "'%s' is for %dx%d patches, but images of %d pixels have %dx%d; "
                       "--interpolate-pos-embed resizes it",
                       name, old, old, c->size, side, side);
    if (!to)
        return LT_OK;
    const int64_t width = want.dim[2];
    for (int64_t i = 0; i < token * width; i++)
        to[i] = from[i];
    lt_positions_resize(from + token * width, old, to + token * width, side, width);
    return LT_OK;
}
