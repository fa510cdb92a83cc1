/* Registry of optimizers by name: built-in rows, defined next to each optimizer, and registered ones. */

#include "registry.h"

#include "base/alloc.h"
#include "base/text.h"
#include "field.h"

#include "lather/optim_config.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define ROW(name) &lt_optim_family_##name,
static const lt_optim_family *family[LT_MAX_OPTIM_FAMILIES] = {LT_OPTIM_FAMILIES(ROW)};
#undef ROW

static size_t count_families(void)
{
    size_t count = 0;
    while (count < LT_MAX_OPTIM_FAMILIES && family[count])
        count++;
    return count;
}

const lt_optim_family *lt_optim_family_at(size_t index)
{
    return index < LT_MAX_OPTIM_FAMILIES ? family[index] : NULL;
}

const lt_optim_family *lt_optim_family_named(const char *name)
{
    for (size_t i = 0; i < count_families(); i++)
        if (!strcmp(family[i]->name, name))
            return family[i];
    return NULL;
}

/* --- Configs and presets --- */

void *lt_optim_copy_config(const lt_optim_family *f, const void *config)
{
    void *copy = lt_alloc(1, f->config_bytes);
    return copy ? memcpy(copy, config, f->config_bytes) : NULL;
}

const void *lt_optim_json_defaults(const lt_optim_family *f)
{
    return f->published ? f->published : f->preset[0].config;
}

const lt_optim_preset *lt_optim_find_preset(const lt_optim_family *f, const char *name)
{
    for (size_t i = 0; i < f->presets; i++)
        if (!name || (f->preset[i].name && !strcmp(f->preset[i].name, name)))
            return &f->preset[i];
    return NULL;
}

/* --- Validation of rows --- */

static lt_status fail_bad_field(const lt_optim_family *f, const lt_optim_field *field,
                                const char *why)
{
    return lt_fail(LT_E_ARG, "optimizer %s: field %s: %s", f->name, field->name, why);
}

static size_t field_bytes(const lt_optim_field *field)
{
    static const size_t bytes[] = {
        [LT_FIELD_REAL] = sizeof(double),   [LT_FIELD_COUNT] = sizeof(int64_t),
        [LT_FIELD_LIMIT] = sizeof(int64_t), [LT_FIELD_SMALL] = sizeof(int),
        [LT_FIELD_FLAG] = sizeof(bool),     [LT_FIELD_CHOICE] = sizeof(int),
        [LT_FIELD_SCOPE] = sizeof(int),     [LT_FIELD_LIST] = 1,
    };
    return bytes[field->type];
}

static bool is_name(const char *name)
{
    return name && *name && strlen(name) < 48
           && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == strlen(name);
}

static lt_status check_field(const lt_optim_family *f, const lt_optim_field *field)
{
    if (!is_name(field->name))
        return lt_fail(LT_E_ARG, "optimizer %s: field %zu: invalid name '%s'", f->name,
                       (size_t)(field - f->field), field->name ? field->name : "");
    if (lt_optim_find_field(f, field->name) != field)
        return fail_bad_field(f, field, "listed twice");
    if (field->offset + field_bytes(field) > f->config_bytes)
        return fail_bad_field(f, field, "outside of the config struct");
    if ((field->type == LT_FIELD_CHOICE) != (field->choices != NULL))
        return fail_bad_field(f, field,
                              "choices are required for LT_FIELD_CHOICE and for no other type");
    if (field->type == LT_FIELD_SMALL && !(field->high <= INT_MAX && field->low >= INT_MIN))
        return fail_bad_field(f, field, "range exceeds that of int");
    if (field->type == LT_FIELD_LIST && !(field->set && (field->read || field->flag_only)))
        return fail_bad_field(f, field, "a list needs set and read");
    return LT_OK;
}

/* Checks that a field which several optimizers share has one type and one list of choices. */
static lt_status check_shared(const lt_optim_family *f, const lt_optim_field *field,
                              const lt_optim_family *other)
{
    const lt_optim_field *o = lt_optim_find_field(other, field->name);
    if (!o)
        return LT_OK;
    if (o->type != field->type
        || (o->choices && (!field->choices || strcmp(o->choices, field->choices) != 0)))
        return lt_fail(LT_E_ARG, "optimizer %s: field %s: type or choices differ from those of %s",
                       f->name, field->name, other->name);
    return LT_OK;
}

static lt_status check_defaults(const lt_optim_family *f, const void *config, const char *what)
{
    lt_status st = lt_optim_check(f, config);
    return st ? lt_fail(st, "%s (in the defaults%s%s)", lt_error_message(),
                        what ? " of preset " : "", what ? what : "")
              : LT_OK;
}

lt_status lt_optim_check_family(const lt_optim_family *f, const lt_optim_family *const *known,
                                size_t count)
{
    if (!is_name(f->name) || !f->config_bytes || !f->presets || !f->make)
        return lt_fail(LT_E_ARG,
                       "optimizer %s: a row needs a lower-case name, a config struct, a preset "
                       "and make",
                       f->name ? f->name : "");
    for (size_t k = 0; k < count; k++)
        if (!strcmp(known[k]->name, f->name))
            return lt_fail(LT_E_ARG, "optimizer %s: the name is already registered", f->name);
    for (size_t i = 0; i < f->fields; i++) {
        LT_TRY(check_field(f, &f->field[i]));
        for (size_t k = 0; k < count; k++)
            LT_TRY(check_shared(f, &f->field[i], known[k]));
    }
    for (size_t i = 0; i < f->presets; i++)
        LT_TRY(check_defaults(f, f->preset[i].config, f->preset[i].name));
    return check_defaults(f, lt_optim_json_defaults(f), NULL);
}

lt_status lt_optim_register(const lt_optim_family *f)
{
    size_t count = count_families();
    LT_TRY(lt_optim_check_family(f, family, count));
    if (count == LT_MAX_OPTIM_FAMILIES)
        return lt_fail(LT_E_NOMEM, "optimizer %s: at most %d optimizers can be registered", f->name,
                       LT_MAX_OPTIM_FAMILIES);
    family[count] = f;
    return LT_OK;
}

/* --- Lookup by name --- */

enum { NAMES = 64, NAME = 96 }; /* names considered for a message */

/* Finds the name at an index of the list of names: "shampoo" is its first preset, "shampoo-paper" another. */
static bool find_name_at_index(size_t index, char *name, size_t size, const lt_optim_family **of,
                               const lt_optim_preset **preset)
{
    for (size_t i = 0; i < count_families(); i++)
        for (size_t k = 0; k < family[i]->presets; k++) {
            const lt_optim_preset *p = &family[i]->preset[k];
            if ((k && lt_optim_family_named(p->name)) || index--)
                continue;
            snprintf(name, size, k ? "%s-%s" : "%s", family[i]->name, p->name);
            *of = family[i];
            *preset = p;
            return true;
        }
    return false;
}

const char *lt_optim_name_at(size_t index, char *text, size_t size)
{
    const lt_optim_family *of;
    const lt_optim_preset *preset;
    return find_name_at_index(index, text, size, &of, &preset) ? text : NULL;
}

lt_status lt_optim_open(lt_optim **out, const char *name, const lt_params *params)
{
    char text[NAMES][NAME], last[NAME] = "";
    const char *known[NAMES];
    const lt_optim_family *of;
    const lt_optim_preset *preset;
    size_t i = 0;
    for (; find_name_at_index(i, last, NAME, &of, &preset); i++) {
        if (!strcmp(last, name))
            return of->make(out, params, preset->config, preset->lr);
        if (i < NAMES)
            known[i] = memcpy(text[i], last, NAME);
    }
    return lt_fail(LT_E_ARG, "optim: no optimizer '%s'; the nearest is '%s'", name,
                   lt_nearest_word(name, known, i < NAMES ? i : NAMES));
}
