/* Values of optimizers' options: in the config struct, as text and in JSON, and their range check, which every
 * constructor calls. */

#include "field.h"

#include "base/options/options.h"
#include "base/text.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 16, WORD = 32 }; /* most choices of a field, and bytes of one */

_Static_assert(sizeof(lt_decay_scope) == sizeof(int), "enumerations have the size of int");

const lt_optim_field *lt_optim_find_field(const lt_optim_family *family, const char *name)
{
    for (size_t i = 0; i < family->fields; i++)
        if (!strcmp(family->field[i].name, name))
            return &family->field[i];
    return NULL;
}

/* --- Ranges --- */

static bool is_integer(const lt_optim_field *f)
{
    return f->type == LT_FIELD_COUNT || f->type == LT_FIELD_LIMIT || f->type == LT_FIELD_SMALL;
}

/* Returns true if a value is in range or unset; a real below the range counts as unset. */
static bool is_in_range_or_unset(const lt_optim_field *f, double value)
{
    if (f->unset_means && (value == f->unset || (f->type == LT_FIELD_REAL && value < f->low)))
        return true;
    return value >= f->low && (f->below || isinf(f->high) ? value < f->high : value <= f->high);
}

/* Fails with "5 is not in [0,1); -1: beta1". */
static lt_status fail_out_of_range(const char *who, const lt_optim_field *f, const char *value)
{
    char unset[WORD] = "";
    if (f->unset_means)
        snprintf(unset, sizeof unset, "; %g: ", f->unset);
    return lt_fail(LT_E_ARG, "%s: %s %s is not in [%.10g,%.10g%c%s%s", who, f->name, value, f->low,
                   f->high, f->below || isinf(f->high) ? ')' : ']', unset,
                   f->unset_means ? f->unset_means : "");
}

static int count_choices(const char *choices)
{
    int bytes, count = 0;
    while (lt_options_item(choices, count, &bytes))
        count++;
    return count;
}

static lt_status check_field_range(const char *who, const lt_optim_field *f, const void *config)
{
    char text[WORD];
    double value = lt_field_number(f, config);
    if (f->type == LT_FIELD_CHOICE && !(value >= 0 && value < count_choices(f->choices)))
        return lt_fail(LT_E_ARG, "%s: %s has no value %g; they are in [0,%d]", who, f->name, value,
                       count_choices(f->choices) - 1);
    if ((f->type == LT_FIELD_REAL || is_integer(f)) && !is_in_range_or_unset(f, value)) {
        lt_field_text(f, config, text, sizeof text);
        return fail_out_of_range(who, f, text);
    }
    return LT_OK;
}

lt_status lt_optim_check(const lt_optim_family *family, const void *config)
{
    for (size_t i = 0; i < family->fields; i++)
        LT_TRY(check_field_range(family->name, &family->field[i], config));
    return LT_OK;
}

/* --- Struct and text --- */

static const void *field_address(const lt_optim_field *f, const void *config)
{
    return (const char *)config + f->offset;
}

double lt_field_number(const lt_optim_field *f, const void *config)
{
    const void *from = field_address(f, config);
    switch (f->type) {
    case LT_FIELD_REAL:
        return *(const double *)from;
    case LT_FIELD_COUNT:
    case LT_FIELD_LIMIT:
        return (double)*(const int64_t *)from;
    case LT_FIELD_SMALL:
    case LT_FIELD_CHOICE:
        return *(const int *)from;
    case LT_FIELD_FLAG:
        return *(const bool *)from;
    case LT_FIELD_SCOPE:
        return *(const int *)from == LT_DECAY_ALL;
    case LT_FIELD_LIST:
        break;
    }
    return 0;
}

const char *lt_field_text(const lt_optim_field *f, const void *config, char *text, size_t size)
{
    int bytes = 0;
    double value = lt_field_number(f, config);
    const char *word;
    *text = 0;
    switch (f->type) {
    case LT_FIELD_REAL:
        lt_options_number(text, size, value);
        break;
    case LT_FIELD_COUNT:
    case LT_FIELD_LIMIT:
        snprintf(text, size, "%" PRId64, *(const int64_t *)field_address(f, config));
        break;
    case LT_FIELD_SMALL:
        snprintf(text, size, "%d", *(const int *)field_address(f, config));
        break;
    case LT_FIELD_CHOICE:
        word = lt_options_item(f->choices, (int)value, &bytes);
        snprintf(text, size, "%.*s", bytes, word ? word : "");
        break;
    case LT_FIELD_FLAG:
    case LT_FIELD_SCOPE:
        snprintf(text, size, "%s", value > 0 ? "true" : "false");
        break;
    case LT_FIELD_LIST:
        break;
    }
    return text;
}

/* Returns the index of word among choices, or -1. */
static int find_choice(const char *choices, const char *word)
{
    int bytes;
    const char *item;
    for (int i = 0; (item = lt_options_item(choices, i, &bytes)); i++)
        if (strlen(word) == (size_t)bytes && !strncmp(item, word, (size_t)bytes))
            return i;
    return -1;
}

lt_status lt_field_set_from_text(const lt_optim_field *f, void *config, const char *text)
{
    void *to = (char *)config + f->offset;
    switch (f->type) {
    case LT_FIELD_REAL:
        *(double *)to = strtod(text, NULL);
        break;
    case LT_FIELD_COUNT:
    case LT_FIELD_LIMIT:
        *(int64_t *)to = strtoll(text, NULL, 10);
        break;
    case LT_FIELD_SMALL:
        *(int *)to = (int)strtoll(text, NULL, 10);
        break;
    case LT_FIELD_CHOICE:
        *(int *)to = find_choice(f->choices, text);
        break;
    case LT_FIELD_FLAG:
        *(bool *)to = !strcmp(text, "true");
        break;
    case LT_FIELD_SCOPE:
        *(int *)to = strcmp(text, "true") ? LT_DECAY_WEIGHTS : LT_DECAY_ALL;
        break;
    case LT_FIELD_LIST:
        return f->set(config, text);
    }
    return LT_OK;
}

/* --- JSON --- */

static const char json[] = "optimizer config";

static lt_status fail_wrong_type(const lt_optim_field *f, const char *what)
{
    return lt_fail(LT_E_ARG, "%s: %s must be %s", json, f->name, what);
}

/* Returns the index of the choice, or -1 after lt_fail() with LT_E_ARG, naming the nearest. */
static int find_choice_or_fail(const lt_optim_field *f, const char *word)
{
    char text[WORDS][WORD];
    const char *words[WORDS], *item;
    int bytes, found = find_choice(f->choices, word);
    size_t count = 0;
    if (found >= 0)
        return found;
    for (; count < WORDS && (item = lt_options_item(f->choices, (int)count, &bytes)); count++) {
        snprintf(text[count], WORD, "%.*s", bytes, item);
        words[count] = text[count];
    }
    (void)lt_fail(LT_E_ARG, "%s: %s has no value '%s'; the nearest is '%s'", json, f->name, word,
                  lt_nearest_word(word, words, count));
    return -1;
}

static lt_status read_choice(const lt_optim_field *f, int *to, const lt_json_value *v)
{
    if (v->type != LT_JSON_STRING)
        return fail_wrong_type(f, "a string");
    int found = find_choice_or_fail(f, v->string);
    if (found < 0)
        return LT_E_ARG;
    *to = found;
    return LT_OK;
}

static lt_status read_real(const lt_optim_field *f, double *to, const lt_json_value *v)
{
    bool null = v->type == LT_JSON_NULL && f->unset_means;
    if (v->type != LT_JSON_NUMBER && !null)
        return fail_wrong_type(f, f->unset_means ? "a number or null" : "a number");
    if (f->unset_means && !null && v->number < f->low && v->number != f->unset)
        return lt_fail(LT_E_ARG, "%s: %s %g is below %g", json, f->name, v->number, f->low);
    *to = null ? f->unset : v->number;
    return LT_OK;
}

static lt_status read_integer(const lt_optim_field *f, void *to, const lt_json_value *v)
{
    bool infinite = v->type == LT_JSON_STRING && !strcmp(v->string, "inf");
    bool limit = f->type == LT_FIELD_LIMIT;
    char text[WORD];
    if (infinite && f->type != LT_FIELD_SMALL) {
        *(int64_t *)to = limit ? 0 : INT64_MAX;
        return LT_OK;
    }
    if (v->type != LT_JSON_NUMBER || !v->is_integer)
        return fail_wrong_type(f, "an integer");
    if (limit && v->integer < 1)
        return lt_fail(LT_E_ARG, "%s: %s %" PRId64 " is not in [1,inf]", json, f->name, v->integer);
    if (f->type == LT_FIELD_SMALL && (v->integer < INT_MIN || v->integer > INT_MAX)) {
        snprintf(text, sizeof text, "%" PRId64, v->integer);
        return fail_out_of_range(json, f, text);
    }
    if (f->type == LT_FIELD_SMALL)
        *(int *)to = (int)v->integer;
    else
        *(int64_t *)to = v->integer;
    return LT_OK;
}

lt_status lt_field_set_from_json(const lt_optim_field *f, void *config, const lt_json_value *v)
{
    void *to = (char *)config + f->offset;
    if (f->read)
        return f->read(config, v);
    if (v->type == LT_JSON_STRING)
        LT_TRY(lt_options_check_removed(f->name, strlen(f->name), v->string));
    if (f->type == LT_FIELD_REAL)
        return read_real(f, to, v);
    if (f->type == LT_FIELD_CHOICE)
        return read_choice(f, to, v);
    if (f->type != LT_FIELD_FLAG)
        return read_integer(f, to, v);
    if (v->type != LT_JSON_BOOL)
        return fail_wrong_type(f, "true or false");
    *(bool *)to = v->boolean;
    return LT_OK;
}
