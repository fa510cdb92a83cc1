/* Optimizers from JSON: the keys common to all, and those of the optimizer's fields. */

#include "base/alloc.h"
#include "base/options/options.h"
#include "base/text.h"
#include "field.h"
#include "registry.h"

#include "lather/optim_config.h"

#include <inttypes.h>
#include <string.h>

static lt_status require_key(const lt_json_value *object, const char *name)
{
    return lt_json_member(object, name)
               ? LT_OK
               : lt_fail(LT_E_ARG, "optimizer config: '%s' is missing", name);
}

/* --- Common keys --- */

static lt_status read_family(lt_optim_config *c, const lt_json_value *v)
{
    const char *name[LT_MAX_OPTIM_FAMILIES];
    size_t count = 0;
    if (v->type != LT_JSON_STRING)
        return lt_fail(LT_E_ARG, "optimizer config: optim must be a string");
    if ((c->family = lt_optim_family_named(v->string)))
        return LT_OK;
    for (; lt_optim_family_at(count); count++)
        name[count] = lt_optim_family_at(count)->name;
    return lt_fail(LT_E_ARG, "optimizer config: optim has no value '%s'; the nearest is '%s'",
                   v->string, lt_nearest_word(v->string, name, count));
}

static lt_status read_schedule(void *config, const lt_json_value *v)
{
    lt_optim_config *c = config;
    static const char message[] = "optimizer config: lr_schedule must be a list of numbers";
    if (v->type == LT_JSON_NULL)
        return LT_OK;
    if (v->type != LT_JSON_ARRAY)
        return lt_fail(LT_E_ARG, message);
    if (!v->count)
        return LT_OK;
    LT_TRY(LT_ALLOC(&c->schedule, v->count));
    for (const lt_json_value *m = v->child; m; m = m->next) {
        if (m->type != LT_JSON_NUMBER)
            return lt_fail(LT_E_ARG, message);
        c->schedule[c->schedule_count++] = m->number;
    }
    return LT_OK;
}

static lt_status ignore_value(void *config, const lt_json_value *v)
{
    (void)config, (void)v;
    return LT_OK;
}

#define AT(field) .offset = offsetof(lt_optim_config, field)
static const lt_optim_field common[] = {
    {"optim", LT_FIELD_LIST, .read = ignore_value}, /* read first: it selects the other keys */
    {"dtype", LT_FIELD_CHOICE, AT(dtype), .choices = "float32|float64"},
    {"lr", LT_FIELD_REAL, AT(lr)},
    {"lr_schedule", LT_FIELD_LIST, .read = read_schedule},
    {"iterate_averaging", LT_FIELD_CHOICE, AT(averaging.kind),
     .choices = "off|schedule-free|primal|tail|ema-nesterov"},
    {"train_interp_coeff", LT_FIELD_REAL, AT(averaging.train_interp_coeff)},
    {"eval_interp_coeff", LT_FIELD_REAL, AT(averaging.eval_interp_coeff)},
    {"eval_coeff_lr_power", LT_FIELD_REAL, AT(averaging.eval_coeff_lr_power)},
    {"tail_start", LT_FIELD_COUNT, AT(averaging.tail_start), .low = 1},
    {"lookahead", LT_FIELD_REAL, AT(averaging.lookahead)},
    {"lookahead_decay", LT_FIELD_REAL, AT(averaging.lookahead_decay)},
    {"lookahead_start", LT_FIELD_COUNT, AT(averaging.lookahead_start)},
    {"lookahead_end", LT_FIELD_COUNT, AT(averaging.lookahead_end)},
    {"cautious_mask", LT_FIELD_FLAG, AT(cautious.mask)},
    {"cautious_weight_decay", LT_FIELD_FLAG, AT(cautious.decay)},
    {"hyperball", LT_FIELD_FLAG, AT(cautious.hyperball)},
    {"decay_of_y", LT_FIELD_FLAG, AT(averaging.decay_of_y)},
};
#undef AT
enum { COMMON = sizeof common / sizeof *common };
_Static_assert(LT_F32 == 0 && LT_F64 == 1, "the choices of dtype are in the order of lt_dtype");
_Static_assert(sizeof(lt_dtype) == sizeof(int), "enumerations have the size of int");

/* --- Keys of the optimizer --- */

static lt_status fail_unknown_key(const lt_optim_family *f, const char *name)
{
    LT_TRY(lt_options_check_removed(name, strlen(name), NULL));
    const char **known = lt_alloc(COMMON + f->fields, sizeof *known);
    size_t count = COMMON;
    if (!known)
        return LT_E_NOMEM;
    for (size_t i = 0; i < COMMON; i++)
        known[i] = common[i].name;
    for (size_t i = 0; i < f->fields; i++)
        if (!f->field[i].flag_only)
            known[count++] = f->field[i].name;
    lt_status st = lt_fail(LT_E_ARG, "optimizer config: %s has no key '%s'; the nearest is '%s'",
                           f->name, name, lt_nearest_word(name, known, count));
    lt_free(known);
    return st;
}

static lt_status read_key(lt_optim_config *c, const lt_json_value *v)
{
    for (int i = 0; i < COMMON; i++)
        if (!strcmp(common[i].name, v->key))
            return lt_field_set_from_json(&common[i], c, v);
    const lt_optim_field *f = lt_optim_find_field(c->family, v->key);
    return f && !f->flag_only ? lt_field_set_from_json(f, c->settings, v)
                              : fail_unknown_key(c->family, v->key);
}

static lt_status read_object(lt_optim_config *c, const lt_json_value *object)
{
    if (object->type != LT_JSON_OBJECT)
        return lt_fail(LT_E_ARG, "optimizer config: not an object");
    LT_TRY(require_key(object, "optim"));
    LT_TRY(require_key(object, "lr"));
    LT_TRY(read_family(c, lt_json_member(object, "optim")));
    c->settings = lt_optim_copy_config(c->family, lt_optim_json_defaults(c->family));
    if (!c->settings)
        return LT_E_NOMEM;
    for (const lt_json_value *m = object->child; m; m = m->next)
        LT_TRY(read_key(c, m));
    return LT_OK;
}

/* Returns a copy in which each bare Infinity, which Python writes and JSON lacks, is a string. */
static char *quote_infinity(const char *json, size_t bytes)
{
    static const char word[] = "Infinity", with[] = "\"inf\"   ";
    const size_t length = sizeof word - 1;
    bool quoted = false;
    char *text = lt_alloc(bytes + 1, 1);
    if (!text)
        return NULL;
    memcpy(text, json, bytes);
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '"' && !(i && text[i - 1] == '\\'))
            quoted = !quoted;
        if (!quoted && i + length <= bytes && !memcmp(text + i, word, length))
            memcpy(text + i, with, length);
    }
    return text;
}

static lt_status parse_json(lt_optim_config *c, const char *json, size_t bytes)
{
    lt_json *document = NULL;
    char *text = quote_infinity(json, bytes);
    if (!text)
        return LT_E_NOMEM;
    lt_status st = lt_json_parse(&document, text, bytes, "optimizer config", 8);
    if (!st)
        st = read_object(c, lt_json_root(document));
    lt_json_free(&document);
    lt_free(text);
    return st;
}

lt_status lt_optim_config_parse(lt_optim_config *out, const char *json, size_t bytes)
{
    lt_optim_config c = {.dtype = LT_F64, .averaging = LT_AVERAGING_DEFAULTS};
    lt_status st = parse_json(&c, json, bytes);
    if (st) {
        lt_optim_config_clear(&c);
        return st;
    }
    *out = c;
    return LT_OK;
}

void lt_optim_config_clear(lt_optim_config *config)
{
    lt_free(config->schedule);
    lt_free(config->settings);
    *config = (lt_optim_config){0};
}

lt_status lt_optim_config_make(lt_optim **out, const lt_optim_config *config,
                               const lt_params *params)
{
    lt_optim *o = NULL;
    LT_TRY(config->family->make(&o, params, config->settings, config->lr));
    const lt_cautious_config *c = &config->cautious;
    const bool cautious = c->mask || c->decay || c->hyperball;
    lt_status st = cautious ? lt_optim_start_cautious(o, &config->cautious) : LT_OK;
    if (!st && config->averaging.kind)
        st = lt_optim_start_averaging(o, params, &config->averaging);
    if (st)
        lt_optim_free(&o);
    else
        *out = o;
    return st;
}

lt_status lt_optim_config_lr(const lt_optim_config *config, int64_t step, double *lr)
{
    if (config->schedule && (step < 1 || (size_t)step > config->schedule_count))
        return lt_fail(LT_E_ARG, "optimizer config: lr_schedule has no number for step %" PRId64,
                       step);
    *lr = config->schedule ? config->schedule[step - 1] : config->lr;
    return LT_OK;
}
