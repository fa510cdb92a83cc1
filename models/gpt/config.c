/* Reads the config.json that HuggingFace writes in the folder of GPT-2 weights: values that the tensors do not
 * determine, and features that this model lacks. */

#include "config.h"

#include "lather/detail/json.h"
#include "lather/ext/fail.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 1200 };

/* A key of the file. option: the option that it sets; NULL: only checked. values: supported values, with the
 * option's name for one after '='; NULL: all. */
static const struct row {
    const char *key, *option, *values;
} rows[] = {
    {"model_type", NULL, "gpt2"},
    {"n_head", "heads", NULL},
    {"n_embd", "width", NULL},
    {"n_layer", "layers", NULL},
    {"n_inner", "mlp-width", NULL},
    {"n_positions", "positions", NULL},
    {"vocab_size", "classes", NULL},
    {"activation_function", "activation",
     "gelu gelu_new=gelu-tanh gelu_fast=gelu-tanh gelu_pytorch_tanh=gelu-tanh"},
    {"layer_norm_epsilon", NULL, "1e-05"},
    {"scale_attn_weights", NULL, "true"},
    {"scale_attn_by_inverse_layer_idx", NULL, "false"},
    {"add_cross_attention", NULL, "false"},
    {"tie_word_embeddings", NULL, "true"},
};

static bool find_config_json(const char *weights, char path[PATH])
{
    struct stat info;
    const char *slash = strrchr(weights, '/');
    int folder = slash ? (int)(slash - weights) + 1 : 0;
    const bool is_folder = !stat(weights, &info) && S_ISDIR(info.st_mode);
    if (is_folder)
        folder = (int)strlen(weights);
    return snprintf(path, PATH, "%.*s%sconfig.json", folder, weights, is_folder ? "/" : "") < PATH
           && !access(path, F_OK);
}

/* Formats a scalar JSON value as text. Returns false for null, arrays and objects. */
static bool format_json_value(const lt_json_value *v, char text[LT_FACT_BYTES])
{
    if (v->type == LT_JSON_NUMBER)
        snprintf(text, LT_FACT_BYTES, "%.9g", v->number);
    else if (v->type == LT_JSON_STRING)
        snprintf(text, LT_FACT_BYTES, "%s", v->string);
    else if (v->type == LT_JSON_BOOL)
        snprintf(text, LT_FACT_BYTES, "%s", v->boolean ? "true" : "false");
    else
        return false;
    return true;
}

/* Replaces the file's text by the option's; false if it is not in values. */
static bool translate_value(const char *values, char text[LT_FACT_BYTES])
{
    const size_t bytes = strlen(text);
    for (const char *at = values; *at; at += strcspn(at, " "), at += strspn(at, " ")) {
        if (strncmp(at, text, bytes) != 0 || !strchr("= ", at[bytes]))
            continue;
        if (at[bytes] == '=')
            snprintf(text, LT_FACT_BYTES, "%.*s", (int)strcspn(at + bytes + 1, " "),
                     at + bytes + 1);
        return true;
    }
    return false;
}

/* Sets a fact that shapes leave open; one that they determine must match. */
static lt_status set_or_compare_fact(const struct row *r, const char *text, const char *path,
                                     lt_model_facts *facts, const lt_model_spec *spec)
{
    char classes[LT_FACT_BYTES];
    const char *found = NULL;
    snprintf(classes, sizeof classes, "%d", spec->classes);
    if (!strcmp(r->option, "classes"))
        found = classes;
    for (size_t i = 0; i < facts->count; i++) {
        lt_model_fact *f = &facts->item[i];
        if (strcmp(f->key, r->option) != 0)
            continue;
        if (f->source >= LT_FACT_USUAL) {
            f->source = LT_FACT_CONFIG;
            snprintf(f->text, sizeof f->text, "%s", text);
        }
        found = f->text;
    }
    return !found || !strcmp(found, text)
               ? LT_OK
               : lt_fail(LT_E_FORMAT, "%s: '%s' is %s, by the tensors %s", path, r->key, text,
                         found);
}

static lt_status apply_config_key(const struct row *r, const lt_json_value *root, const char *path,
                                  lt_model_facts *facts, const lt_model_spec *spec)
{
    char text[LT_FACT_BYTES];
    const lt_json_value *v = lt_json_member(root, r->key);
    if (!v || !format_json_value(v, text))
        return LT_OK;
    if (r->values && !translate_value(r->values, text))
        return lt_fail(LT_E_UNSUPPORTED, "%s: '%s' %s is not supported; supported: %s", path,
                       r->key, text, r->values);
    return r->option ? set_or_compare_fact(r, text, path, facts, spec) : LT_OK;
}

lt_status lt_gpt_read_config(const char *weights, lt_model_facts *facts, const lt_model_spec *spec)
{
    char path[PATH];
    lt_json *json = NULL;
    if (!find_config_json(weights, path))
        return LT_OK;
    lt_status st = lt_json_load(&json, path);
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !st; i++)
        st = apply_config_key(&rows[i], lt_json_root(json), path, facts, spec);
    lt_json_free(&json);
    return st;
}
