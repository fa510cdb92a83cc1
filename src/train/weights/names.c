/* Names and layouts of other libraries' weight files, changed to those of the models here: timm's and HuggingFace's vision
 * transformers, HuggingFace's residual networks, nanoGPT. A library is known by one name that only its files have. */

#include "names.h"

#include "tensor/safetensors.h"

#include "lather/ext/fail.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 256, NUMBERS = 3, QKV = 3 };
#define BLOCK "encoder.layers.encoder_layer_#."

/* A pattern: '#' is a number, '*' the rest; in `to`, '+' is a number plus 1, and "|0" to "|2" after the name mark parts
 * that follow each other in one tensor. */
typedef struct row {
    const char *from, *to; /* to NULL: the entry is left out */
} row;

static const row timm_vit[] = {
    {"cls_token", "class_token"},
    {"pos_embed", "encoder.pos_embedding"},
    {"patch_embed.proj.*", "conv_proj.*"},
    {"blocks.#.norm1.*", BLOCK "ln_1.*"},
    {"blocks.#.attn.qkv.*", BLOCK "self_attention.in_proj_*"},
    {"blocks.#.attn.proj.*", BLOCK "self_attention.out_proj.*"},
    {"blocks.#.norm2.*", BLOCK "ln_2.*"},
    {"blocks.#.mlp.fc1.*", BLOCK "mlp.0.*"},
    {"blocks.#.mlp.fc2.*", BLOCK "mlp.3.*"},
    {"norm.*", "encoder.ln.*"},
    {"head.*", "heads.head.*"},
    {NULL, NULL},
};

static const row huggingface_vit[] = {
    {"embeddings.cls_token", "class_token"},
    {"embeddings.position_embeddings", "encoder.pos_embedding"},
    {"embeddings.patch_embeddings.projection.*", "conv_proj.*"},
    {"encoder.layer.#.layernorm_before.*", BLOCK "ln_1.*"},
    {"encoder.layer.#.attention.attention.query.*", BLOCK "self_attention.in_proj_*|0"},
    {"encoder.layer.#.attention.attention.key.*", BLOCK "self_attention.in_proj_*|1"},
    {"encoder.layer.#.attention.attention.value.*", BLOCK "self_attention.in_proj_*|2"},
    {"encoder.layer.#.attention.output.dense.*", BLOCK "self_attention.out_proj.*"},
    {"encoder.layer.#.layernorm_after.*", BLOCK "ln_2.*"},
    {"encoder.layer.#.intermediate.dense.*", BLOCK "mlp.0.*"},
    {"encoder.layer.#.output.dense.*", BLOCK "mlp.3.*"},
    {"layernorm.*", "encoder.ln.*"},
    {"pooler.*", NULL},
    {"classifier.*", "heads.head.*"},
    {NULL, NULL},
};

static const row huggingface_resnet[] = {
    {"embedder.embedder.convolution.*", "conv1.*"},
    {"embedder.embedder.normalization.*", "bn1.*"},
    {"encoder.stages.#.layers.#.layer.#.convolution.*", "layer+.#.conv+.*"},
    {"encoder.stages.#.layers.#.layer.#.normalization.*", "layer+.#.bn+.*"},
    {"encoder.stages.#.layers.#.shortcut.convolution.*", "layer+.#.downsample.0.*"},
    {"encoder.stages.#.layers.#.shortcut.normalization.*", "layer+.#.downsample.1.*"},
    {"classifier.1.*", "fc.*"},
    {NULL, NULL},
};

static const struct library {
    const char *marker, *prefix; /* a name that only its files have; what may precede names */
    const row *rows;
} libraries[] = {
    {"patch_embed.proj.weight", "", timm_vit},
    {"embeddings.patch_embeddings.projection.weight", "vit.", huggingface_vit},
    {"embedder.embedder.convolution.weight", "resnet.", huggingface_resnet},
};

/* --- Patterns --- */

static bool match(const char *from, const char *name, long number[NUMBERS], const char **rest)
{
    int count = 0;
    for (; *from && *from != '*'; from++) {
        if (*from == '#') {
            char *end;
            if (!isdigit((unsigned char)*name) || count == NUMBERS)
                return false;
            number[count++] = strtol(name, &end, 10);
            name = end;
        } else if (*from != *name++) {
            return false;
        }
    }
    *rest = name;
    return *from == '*' || !*name;
}

static bool expand(char to[NAME_BYTES], const char *pattern, const long number[NUMBERS],
                   const char *rest)
{
    size_t at = 0;
    for (int count = 0; *pattern && at < NAME_BYTES; pattern++) {
        char *end = to + at;
        const size_t left = NAME_BYTES - at;
        if (*pattern == '#' || *pattern == '+')
            at += (size_t)snprintf(end, left, "%ld", number[count++] + (*pattern == '+'));
        else if (*pattern == '*')
            at += (size_t)snprintf(end, left, "%s", rest);
        else
            at += (size_t)snprintf(end, left, "%c", *pattern);
    }
    return at < NAME_BYTES;
}

/* --- Entries --- */

static const char *copy_name(lt_safetensors *file, const char *name)
{
    const size_t bytes = strlen(name) + 1;
    char *copy = lt_safetensors_alloc(file, bytes);
    return copy ? memcpy(copy, name, bytes) : NULL;
}

static lt_status rename_entries(lt_safetensors *file, const struct library *l)
{
    size_t count, kept = 0;
    lt_safetensors_entry *e = lt_safetensors_entries(file, &count);
    for (size_t i = 0; i < count; i++) {
        const size_t bytes = strlen(l->prefix);
        const char *rest = "",
                   *name = e[i].name + (strncmp(e[i].name, l->prefix, bytes) ? 0 : bytes);
        char to[NAME_BYTES];
        long number[NUMBERS] = {0};
        const row *r = l->rows;
        while (r->from && !match(r->from, name, number, &rest))
            r++;
        if (r->from && !r->to)
            continue;
        e[kept] = e[i];
        if (r->from && expand(to, r->to, number, rest))
            e[kept].name = copy_name(file, to);
        if (!e[kept++].name)
            return LT_E_NOMEM;
    }
    return lt_safetensors_set_count(file, kept);
}

/* Joins query, key and value to one tensor in place of the first; base: bytes of the name before "|". */
static lt_status join_entry(lt_safetensors *file, lt_safetensors_entry *e, int base)
{
    char name[NAME_BYTES];
    const size_t bytes = e->bytes;
    char *data = bytes ? lt_safetensors_alloc(file, QKV * bytes) : NULL;
    for (int k = 0; k < QKV; k++) {
        snprintf(name, sizeof name, "%.*s|%d", base, e->name, k);
        const lt_safetensors_entry *part = lt_safetensors_find(file, name);
        if (!part || part->dtype != e->dtype || part->bytes != bytes || !bytes || !e->shape.ndim)
            return lt_fail(LT_E_FORMAT, "query, key and value of '%.*s' differ in shape", base,
                           e->name);
        if (data)
            memcpy(data + (size_t)k * bytes, part->data, bytes);
    }
    snprintf(name, sizeof name, "%.*s", base, e->name);
    e->name = copy_name(file, name);
    e->data = data;
    e->bytes = QKV * bytes;
    e->shape.dim[0] *= QKV;
    return data && e->name ? LT_OK : LT_E_NOMEM;
}

/* Joins all parts of tensors. Entries keep their order by name meanwhile. */
static lt_status join_parts(lt_safetensors *file)
{
    size_t count, kept = 0;
    lt_safetensors_entry *e = lt_safetensors_entries(file, &count);
    for (size_t i = 0; i < count; i++) {
        const char *bar = strchr(e[i].name, '|');
        if (bar && bar[1] == '0')
            LT_TRY(join_entry(file, &e[i], (int)(bar - e[i].name)));
    }
    for (size_t i = 0; i < count; i++)
        if (!strchr(e[i].name, '|'))
            e[kept++] = e[i];
    return lt_safetensors_set_count(file, kept);
}

/* --- nanoGPT: [out,in] matrices as nn.Linear has them, possibly without biases --- */

static bool ends_with(const char *name, const char *end)
{
    const size_t a = strlen(name), b = strlen(end);
    return a >= b && !strcmp(name + a - b, end);
}

static lt_status transpose(lt_safetensors *file, lt_safetensors_entry *e)
{
    const int64_t rows = e->shape.dim[0], columns = e->shape.dim[1];
    const size_t size = e->bytes / (size_t)(rows * columns);
    char *to = lt_safetensors_alloc(file, e->bytes);
    if (!to)
        return LT_E_NOMEM;
    for (int64_t i = 0; i < rows * columns; i++)
        memcpy(to + (size_t)(i % columns * rows + i / columns) * size,
               (const char *)e->data + (size_t)i * size, size);
    e->data = to;
    e->shape = LT_SHAPE(columns, rows);
    return LT_OK;
}

/* Makes the bias of a weight from zeros. */
static lt_status make_bias(lt_safetensors *file, const lt_safetensors_entry *weight,
                           lt_safetensors_entry *bias)
{
    const int64_t count = weight->shape.dim[weight->shape.ndim - 1];
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%.*sbias", (int)(strlen(weight->name) - strlen("weight")),
             weight->name);
    if (lt_safetensors_find(file, name))
        return LT_END;
    *bias = (lt_safetensors_entry){.dtype = LT_F32,
                                   .shape = LT_SHAPE(count),
                                   .bytes = (size_t)count * sizeof(float),
                                   .name = copy_name(file, name)};
    bias->data = lt_safetensors_alloc(file, bias->bytes);
    return bias->name && bias->data ? LT_OK : LT_E_NOMEM;
}

static lt_status adapt_nanogpt(lt_safetensors *file)
{
    size_t count;
    (void)lt_safetensors_entries(file, &count);
    LT_TRY(lt_safetensors_reserve(file, 2 * count));
    lt_safetensors_entry *e = lt_safetensors_entries(file, &count);
    size_t all = count;
    for (size_t i = 0; i < count; i++) {
        const bool norm = strstr(e[i].name, "ln_") && e[i].shape.ndim == 1;
        const bool matrix = e[i].shape.ndim == 2 && strstr(e[i].name, ".c_") && e[i].bytes;
        if (e[i].unsupported || !ends_with(e[i].name, ".weight") || !(norm || matrix))
            continue;
        if (matrix)
            LT_TRY(transpose(file, &e[i]));
        lt_status st = make_bias(file, &e[i], &e[all]);
        if (st && st != LT_END)
            return st;
        all += !st;
    }
    return lt_safetensors_set_count(file, all);
}

static bool is_nanogpt(const lt_safetensors *file)
{
    const lt_safetensors_entry *e = lt_safetensors_find(file, "h.0.attn.c_attn.weight");
    if (!e)
        e = lt_safetensors_find(file, "transformer.h.0.attn.c_attn.weight");
    return e && e->shape.ndim == 2 && e->shape.dim[1] > 0
           && e->shape.dim[0] / QKV == e->shape.dim[1] && e->shape.dim[0] % QKV == 0;
}

lt_status lt_weights_rename(lt_safetensors *file)
{
    if (is_nanogpt(file))
        return adapt_nanogpt(file);
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        const struct library *l = &libraries[i];
        char longer[NAME_BYTES];
        snprintf(longer, sizeof longer, "%s%s", l->prefix, l->marker);
        if (!lt_safetensors_find(file, l->marker) && !lt_safetensors_find(file, longer))
            continue;
        LT_TRY(rename_entries(file, l));
        return join_parts(file);
    }
    return LT_OK;
}
