/* The functions of a model family, and defaults for those that it leaves out. */

#include "family.h"

#include "base/alloc.h"

#include "lather/ext/fail.h"
#include "lather/safetensors.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* --- Facts --- */

lt_model_fact *lt_model_fact_put(lt_model_facts *facts, const char *key, const char *format, ...)
{
    if (facts->count == LT_MODEL_FACTS)
        return NULL;
    lt_model_fact *f = &facts->item[facts->count];
    *f = (lt_model_fact){.key = key};
    va_list args;
    va_start(args, format);
    int bytes = vsnprintf(f->text, sizeof f->text, format, args);
    va_end(args);
    if (bytes < 0 || bytes >= LT_FACT_BYTES)
        return NULL;
    facts->count++;
    return f;
}

static const lt_model_fact *find_fact(const lt_model_facts *facts, const char *key)
{
    for (size_t i = 0; i < facts->count; i++)
        if (!strcmp(facts->item[i].key, key))
            return &facts->item[i];
    return NULL;
}

const char *lt_model_fact_text(const lt_model_facts *facts, const char *key)
{
    const lt_model_fact *f = find_fact(facts, key);
    return f ? f->text : "";
}

/* Puts the values of all options of the family. */
static lt_status put_options(const family_choice *c, lt_model_facts *out)
{
    char text[LT_FACT_BYTES + 1];
    for (size_t i = 0; i < c->family->options; i++) {
        const char *name = c->family->option[i].name;
        lt_options_text(c->options, name, text, sizeof text);
        if (lt_model_fact_put(out, name, "%s", text))
            continue;
        if (out->count == LT_MODEL_FACTS)
            return lt_fail(LT_E_ARG,
                           "family %s: has %zu options; without describe() at most %d are possible",
                           c->family->name, c->family->options, LT_MODEL_FACTS);
        return lt_fail(LT_E_ARG, "--%s: a text longer than %d bytes", name, LT_FACT_BYTES - 1);
    }
    return LT_OK;
}

static void put_metadata(const lt_model_family *family, const lt_safetensors *file,
                         lt_model_facts *out)
{
    for (size_t i = 0; i < family->options; i++) {
        const char *name = family->option[i].name, *text = lt_safetensors_metadata(file, name);
        lt_model_fact *f = text ? lt_model_fact_put(out, name, "%s", text) : NULL;
        if (f)
            f->source = LT_FACT_METADATA;
    }
}

/* --- The chosen model --- */

lt_status lt_family_open(family_choice *c, const lt_model_family *family)
{
    c->family = family;
    c->config = lt_alloc(1, family->config_bytes);
    return c->config ? LT_OK : LT_E_NOMEM;
}

lt_status lt_family_open_options(family_choice *c)
{
    const lt_option_table table = {c->family->option, c->family->options, c->config};
    c->own_program = (lt_program){.name = c->family->program};
    LT_TRY(lt_options_compose(&c->own, &c->own_program, &table, 1));
    c->options = c->own;
    return LT_OK;
}

void lt_family_close(family_choice *c)
{
    lt_options_free(&c->own);
    lt_free(c->config);
    *c = (family_choice){0};
}

static int read_number(const lt_safetensors *file, const char *key)
{
    enum { MOST = 1000000 };
    const char *text = key ? lt_safetensors_metadata(file, key) : NULL;
    long value = text ? strtol(text, NULL, 10) : 0;
    return value > 0 && value <= MOST ? (int)value : 0;
}

static lt_status infer_metadata(const family_choice *c, const char *path, lt_model_facts *facts,
                                lt_model_spec *spec)
{
    const lt_trainer_program *p = c->program;
    lt_safetensors *file = NULL;
    LT_TRY(lt_weights_open(&file, path));
    put_metadata(c->family, file, facts);
    for (size_t i = 0; c->trains && i < facts->count; i++)
        facts->item[i].source =
            LT_FACT_USUAL; /* includes dropout, too: the tensor shapes determine what the weights need */
    spec->channels = read_number(file, p->channels_key);
    spec->classes = read_number(file, p->classes_key);
    spec->size = read_number(file, p->size_key);
    lt_safetensors_close(&file);
    if (spec->classes && (spec->channels || !p->channels_key))
        return LT_OK;
    return lt_fail(LT_E_FORMAT, "%s: its metadata have no %s%s%s: not written by %s", path,
                   p->channels_key ? p->channels_key : "", p->channels_key ? " and " : "",
                   p->classes_key, c->family->program);
}

/* Replaces facts that tensor shapes do not determine by those in the file's metadata. */
static void apply_metadata_facts(const family_choice *c, const lt_safetensors *file,
                                 lt_model_facts *facts)
{
    lt_model_facts known = {0};
    put_metadata(c->family, file, &known);
    for (size_t i = 0; i < facts->count; i++) {
        const lt_model_fact *f = find_fact(&known, facts->item[i].key);
        if (f && facts->item[i].source > LT_FACT_METADATA)
            facts->item[i] = *f;
    }
}

lt_status lt_family_infer(const family_choice *c, const char *path, lt_model_facts *facts,
                          lt_model_spec *spec)
{
    lt_safetensors *file = NULL;
    if (!c->family->infer)
        return infer_metadata(c, path, facts, spec);
    LT_TRY(c->family->infer(path, facts, spec));
    if (!spec->classes && !c->new_head)
        return lt_fail(LT_E_FORMAT,
                       "%s: the last layer, '%s*', is missing or has other names: rename it, or "
                       "train with --reset-head, which makes a new one",
                       path, c->family->head ? c->family->head : "");
    LT_TRY(lt_weights_open(&file, path));
    apply_metadata_facts(c, file, facts);
    lt_safetensors_close(&file);
    return LT_OK;
}

/* --- Flags and files --- */

/* Returns true for an option value that leaves the choice to the weight file: "", "0" or "auto". */
static bool is_left_to_file(const char *text)
{
    return !*text || !strcmp(text, "0") || !strcmp(text, "auto");
}

static bool same_value(const char *a, const char *b)
{
    char *end_a, *end_b;
    const double x = strtod(a, &end_a), y = strtod(b, &end_b);
    return !strcmp(a, b) || (*a && *b && !*end_a && !*end_b && x >= y && x <= y);
}

/* Sets an option from the file, unless the user has set it. */
static lt_status set_option_from_fact(family_choice *c, const lt_model_fact *f, const char *path,
                                      lt_option_question *by_user)
{
    static const char *const source[] = {[LT_FACT_SHAPES] = "tensors",
                                         [LT_FACT_METADATA] = "metadata",
                                         [LT_FACT_CONFIG] = "config.json"};
    char given[LT_FACT_BYTES];
    lt_options_text(c->options, f->key, given, sizeof given);
    const bool is_given = by_user(c->options, f->key) && !is_left_to_file(given);
    if (is_given && f->source >= LT_FACT_USUAL)
        return LT_OK;
    if (is_given && strcmp(f->key, "arch") != 0 && !same_value(given, f->text))
        return lt_fail(LT_E_ARG, "--%s %s: %s has %s, by its %s", f->key, given, path, f->text,
                       source[f->source]);
    if (f->source == LT_FACT_GUESS)
        return lt_fail(
            LT_E_ARG,
            "%s: its %s is unknown: not in its metadata or its folder's config.json, and "
            "no published model has its sizes; --%s %s would be a guess",
            path, f->key, f->key, f->text);
    if (*f->text || lt_options_is_set(c->options, f->key)) /* "": same as without the option */
        LT_TRY(lt_options_set(c->options, f->key, f->text));
    return LT_OK;
}

bool lt_family_fits(family_choice *c, const lt_model_facts *facts, const char *path)
{
    bool fits = !lt_family_resolve(c, path);
    for (size_t i = 0; i < facts->count && fits; i++) {
        const lt_model_fact *f = &facts->item[i], *own = find_fact(&c->facts, f->key);
        fits = f->source == LT_FACT_GUESS || is_left_to_file(f->text)
               || (own && same_value(own->text, f->text));
    }
    return fits;
}

lt_status lt_family_set_options(family_choice *c, const lt_model_facts *facts, const char *path,
                                lt_option_question *by_user)
{
    char given[LT_FACT_BYTES] = "", name[LT_FACT_BYTES] = "";
    if (find_fact(facts, "arch") && by_user(c->options, "arch")) {
        lt_options_text(c->options, "arch", given, sizeof given);
        LT_TRY(lt_family_resolve(c, NULL)); /* includes numbers that other flags change */
        snprintf(name, sizeof name, "%s", lt_family_arch(c));
    }
    for (size_t i = 0; i < facts->count; i++)
        LT_TRY(set_option_from_fact(c, &facts->item[i], path, by_user));
    LT_TRY(lt_family_resolve(c, path));
    if (*name && strcmp(name, lt_family_arch(c)) != 0)
        return lt_fail(LT_E_ARG, "--arch %s: %s holds another model, %s", given, path,
                       c->facts.title);
    return LT_OK;
}

static lt_status describe_model(family_choice *c)
{
    c->facts = (lt_model_facts){0};
    if (c->family->describe)
        LT_TRY(c->family->describe(c->config, &c->spec, &c->facts));
    else
        LT_TRY(put_options(c, &c->facts));
    if (!c->facts.title[0])
        snprintf(c->facts.title, sizeof c->facts.title, "%s", c->family->name);
    return LT_OK;
}

lt_status lt_family_resolve(family_choice *c, const char *weights)
{
    lt_model_facts known = {0};
    if (c->family->resolve && weights && *weights) {
        lt_safetensors *file = NULL;
        LT_TRY(lt_weights_open(&file, weights));
        put_metadata(c->family, file, &known);
        lt_safetensors_close(&file);
    }
    if (c->family->resolve)
        LT_TRY(c->family->resolve(c->config, &c->spec, &known));
    return describe_model(c);
}

lt_weights_config lt_family_weights_config(const family_choice *c)
{
    const lt_model_family *f = c->family;
    return (lt_weights_config){.fit = f->fit,
                               .fit_context = c->config,
                               .prefix = f->prefix,
                               .unread = f->unread,
                               .alias = f->alias};
}

bool lt_family_has_fact(const family_choice *c, const char *option)
{
    family_choice usual = {0};
    bool found = false;
    if (!lt_family_open(&usual, c->family) && !lt_family_open_options(&usual)) {
        usual.spec = c->spec;
        if (!lt_family_resolve(&usual, NULL))
            for (size_t i = 0; i < usual.facts.count; i++)
                found = found || !strcmp(usual.facts.item[i].key, option);
    }
    lt_family_close(&usual);
    return found;
}

const char *lt_family_arch(const family_choice *c)
{
    const char *arch = lt_model_fact_text(&c->facts, "arch");
    return *arch ? arch : c->family->name;
}

void lt_family_format_facts(const family_choice *c, char *text, size_t size)
{
    size_t at = 0;
    *text = 0;
    for (size_t i = 0; i < c->facts.count && at < size; i++)
        if (strcmp(c->facts.item[i].key, "arch") != 0)
            at += (size_t)snprintf(text + at, size - at, "%s%s %s", at ? " " : "",
                                   c->facts.item[i].key, c->facts.item[i].text);
    if (c->spec.channels && at < size)
        snprintf(text + at, size - at, "%schannels %d", at ? " " : "", c->spec.channels);
}
