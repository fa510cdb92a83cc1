/* Flags of optimizers: rows for lt_options made of the fields of all families, and the config that
 * they amount to. A field that several families have is one row; its text says who reads it, and
 * with which default. */

#include "base/alloc.h"
#include "base/options.h"
#include "optim/registry.h"

#include "lather/optim_flags.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 48, NUMBER = 40 };
static const char common_group[] = "Optimizer";

typedef union value {
    bool flag;
    int64_t integer;
    double real;
    int choice;
    lt_option_list list;
} value;

/* What a row points to. */
typedef struct texts {
    char *name, *applies, *defaults, *value, *choices;
} texts;

typedef struct table {
    const lt_optim_field **field; /* of the row; NULL: a row of the flags' own */
    lt_option *row;
    texts *text;
    value *value;
    size_t count, most;
} table;

struct lt_optim_rows {
    table table[LT_OPTIM_FLAGS_TABLES];
};

/* --- Texts --- */

/* Appends to a text that starts as NULL, behind between if it has something. */
static lt_status append(char **text, const char *between, const char *more)
{
    char *longer = lt_format("%s%s%s", *text ? *text : "", *text ? between : "", more);
    if (!longer)
        return LT_E_NOMEM;
    lt_free(*text);
    *text = longer;
    return LT_OK;
}

/* "shampoo=0.1" */
static lt_status append_default(texts *t, const lt_optim_family *f, const char *text)
{
    char word[2 * NAME + NUMBER];
    snprintf(word, sizeof word, "%s=%s", f->name, text);
    return append(&t->defaults, " ", word);
}

/* "1e-06" as one would write it: "1e-6". */
static void shorten(char *text)
{
    char *zero = strstr(text, "e-0");
    if (zero)
        memmove(zero + 2, zero + 3, strlen(zero + 3) + 1);
}

static void write_flag(char flag[NAME], const char *field)
{
    snprintf(flag, NAME, "%s", field);
    for (char *c = flag; *c; c++)
        if (*c == '_')
            *c = '-';
}

/* --- Rows --- */

static const lt_optim_field *field_of(const lt_optim_family *f, const char *name)
{
    for (size_t i = 0; i < f->fields; i++)
        if (!strcmp(f->field[i].name, name))
            return &f->field[i];
    return NULL;
}

/* Its default with this family, and whether the family's other defaults let it count. */
static lt_status find_default(const lt_optim_family *f, const lt_optim_field *field, char *text,
                              bool *counts)
{
    void *config = lt_optim_new_config(f, f->preset[0].fill);
    if (!config)
        return LT_E_NOMEM;
    *counts = !field->is_read || field->is_read(config);
    if (field->flag_only)
        snprintf(text, NUMBER, "%s", field->type == LT_FIELD_REAL ? "0" : "false");
    else
        lt_field_text(field, config, text, NUMBER);
    shorten(text);
    lt_free(config);
    return LT_OK;
}

/* One default for all, or each family's. A default that does not count is no reason to tell them
 * apart. */
static lt_status describe_defaults(const table *t, size_t i)
{
    const lt_optim_family *f;
    const lt_optim_field *field;
    char text[NUMBER], first[NUMBER] = "";
    bool counts, counted = false, same = true;
    for (size_t k = 0; (f = lt_optim_family_at(k)); k++) {
        if (!(field = field_of(f, t->field[i]->name)))
            continue;
        LT_TRY(find_default(f, field, text, &counts));
        LT_TRY(append_default(&t->text[i], f, text));
        same = same && (!counted || !counts || !strcmp(first, text));
        if (!*first || (counts && !counted))
            snprintf(first, sizeof first, "%s", text);
        counted = counted || counts;
    }
    LT_TRY(append(&t->text[i].value, "", first));
    t->row[i].value = t->text[i].value;
    t->row[i].defaults = same ? NULL : t->text[i].defaults;
    return LT_OK;
}

static double lowest(const lt_optim_field *f)
{
    return f->unset_means && f->unset < f->low ? f->unset : f->low;
}

static double highest(const lt_optim_field *f)
{
    return f->below && isfinite(f->high) ? nextafter(f->high, f->low) : f->high;
}

/* Who reads it, in which range, and what it is for. */
static lt_status describe_readers(const table *t, size_t i)
{
    lt_option *row = &t->row[i];
    const lt_optim_family *f;
    bool all = true;
    for (size_t k = 0; (f = lt_optim_family_at(k)); k++) {
        const lt_optim_field *field = field_of(f, t->field[i]->name);
        if (!field) {
            all = false;
            continue;
        }
        LT_TRY(append(&t->text[i].applies, " ", f->name));
        row->min = fmin(row->min, lowest(field));
        row->max = fmax(row->max, highest(field));
        row->help = row->help ? row->help : field->help;
        row->meta = row->meta ? row->meta : field->meta;
        row->also = row->also ? row->also : field->also;
    }
    row->applies = all ? NULL : t->text[i].applies;
    row->help = row->help ? row->help : "";
    return LT_OK;
}

static lt_status describe(const table *t, size_t i)
{
    static const lt_option_type types[] = {
        [LT_FIELD_REAL] = LT_OPTION_DOUBLE, [LT_FIELD_COUNT] = LT_OPTION_INT,
        [LT_FIELD_LIMIT] = LT_OPTION_INT,   [LT_FIELD_SMALL] = LT_OPTION_INT,
        [LT_FIELD_FLAG] = LT_OPTION_BOOL,   [LT_FIELD_CHOICE] = LT_OPTION_CHOICE,
        [LT_FIELD_SCOPE] = LT_OPTION_BOOL,  [LT_FIELD_LIST] = LT_OPTION_LIST,
    };
    const lt_optim_field *field = t->field[i];
    char flag[NAME];
    lt_option *row = &t->row[i];
    write_flag(flag, field->name);
    LT_TRY(append(&t->text[i].name, "", flag));
    row->name = t->text[i].name;
    row->type = types[field->type];
    row->choices = field->choices;
    row->min = lowest(field);
    row->max = highest(field);
    LT_TRY(describe_readers(t, i));
    return field->type == LT_FIELD_LIST ? LT_OK : describe_defaults(t, i);
}

/* --- The order of rows --- */

static lt_status reserve(table *t)
{
    size_t most = 2; /* optim and lr, or preset */
    const lt_optim_family *f;
    for (size_t k = 0; (f = lt_optim_family_at(k)); k++)
        most += f->fields;
    t->most = most;
    t->field = lt_alloc(most, sizeof *t->field);
    t->row = lt_alloc(most, sizeof *t->row);
    t->text = lt_alloc(most, sizeof *t->text);
    t->value = lt_alloc(most, sizeof *t->value);
    return t->field && t->row && t->text && t->value ? LT_OK : LT_E_NOMEM;
}

/* Index of the row of that field, or count. */
static size_t find_row(const table *t, const char *name)
{
    size_t i = 0;
    while (i < t->count && !(t->field[i] && !strcmp(t->field[i]->name, name)))
        i++;
    return i;
}

/* A new field stands behind the one before it in its own family, if that is there. */
static void place_fields(table *t, const lt_optim_family *f, bool common)
{
    size_t at = t->count;
    for (size_t k = 0; k < f->fields; k++) {
        const lt_optim_field *field = &f->field[k];
        if ((field->shared || !f->group) != common)
            continue;
        size_t found = find_row(t, field->name);
        if (found < t->count) {
            at = found + 1;
            continue;
        }
        memmove(t->field + at + 1, t->field + at, (t->count - at) * sizeof *t->field);
        memmove(t->row + at + 1, t->row + at, (t->count - at) * sizeof *t->row);
        t->field[at] = field;
        t->row[at] = (lt_option){.group = common ? common_group : f->group};
        t->count++;
        at++;
    }
}

/* --- The flags' own rows --- */

static lt_status add_optim(table *t)
{
    const lt_optim_family *f;
    char lr[NUMBER];
    texts *optim = &t->text[0], *rate = &t->text[1];
    t->count = 2;
    for (size_t k = 0; (f = lt_optim_family_at(k)); k++) {
        lt_options_number(lr, sizeof lr, f->preset[0].lr);
        LT_TRY(append(&optim->choices, "|", f->name));
        LT_TRY(append_default(rate, f, lr));
    }
    t->row[0] = (lt_option){.group = common_group,
                            .name = "optim",
                            .type = LT_OPTION_CHOICE,
                            .choices = optim->choices,
                            .help = "optimizer; soap: shampoo with --preset soap"};
    t->row[1] = (lt_option){.group = common_group,
                            .name = "lr",
                            .type = LT_OPTION_DOUBLE,
                            .max = 1e6,
                            .defaults = rate->defaults,
                            .also = "learning-rate",
                            .help = "learning rate of the whole batch; never rescaled"};
    return LT_OK;
}

static bool has_word(const char *words, const char *word)
{
    return words && lt_options_has_word(words, word, "|");
}

/* --preset, if a family has several. */
static lt_status add_preset(table *t)
{
    const lt_optim_family *f;
    texts *text = &t->text[0];
    lt_option row = {.name = "preset", .type = LT_OPTION_CHOICE};
    for (size_t k = 0; (f = lt_optim_family_at(k)); k++) {
        if (!f->preset[0].name)
            continue;
        LT_TRY(append(&text->applies, " ", f->name));
        LT_TRY(append_default(text, f, f->preset[0].name));
        row.group = row.group ? row.group : f->group;
        row.help = row.help ? row.help : f->preset_help;
        for (size_t i = 0; i < f->presets; i++)
            if (!has_word(text->choices, f->preset[i].name))
                LT_TRY(append(&text->choices, "|", f->preset[i].name));
    }
    if (!text->applies)
        return LT_OK;
    row.applies = text->applies;
    row.defaults = text->defaults;
    row.choices = text->choices;
    t->row[t->count++] = row;
    return LT_OK;
}

/* --- Life --- */

static lt_status fill_table(table *t, bool common)
{
    const lt_optim_family *f;
    LT_TRY(reserve(t));
    LT_TRY(common ? add_optim(t) : add_preset(t));
    for (size_t k = 0; (f = lt_optim_family_at(k)); k++)
        place_fields(t, f, common);
    for (size_t i = 0; i < t->count; i++) {
        t->row[i].offset = i * sizeof *t->value;
        if (t->field[i])
            LT_TRY(describe(t, i));
    }
    return LT_OK;
}

lt_status lt_optim_flags_open(lt_optim_flags *flags)
{
    flags->rows = lt_alloc(1, sizeof *flags->rows);
    lt_status st = flags->rows ? LT_OK : LT_E_NOMEM;
    for (int i = 0; i < LT_OPTIM_FLAGS_TABLES && !st; i++)
        st = fill_table(&flags->rows->table[i], i == LT_OPTIM_FLAGS_COMMON);
    if (st)
        lt_optim_flags_close(flags);
    return st;
}

static void free_table(table *t)
{
    for (size_t i = 0; t->text && i < t->most; i++) {
        lt_free(t->text[i].name);
        lt_free(t->text[i].applies);
        lt_free(t->text[i].defaults);
        lt_free(t->text[i].value);
        lt_free(t->text[i].choices);
    }
    lt_free(t->field);
    lt_free(t->row);
    lt_free(t->text);
    lt_free(t->value);
}

void lt_optim_flags_close(lt_optim_flags *flags)
{
    for (int i = 0; flags->rows && i < LT_OPTIM_FLAGS_TABLES; i++)
        free_table(&flags->rows->table[i]);
    lt_free(flags->rows);
    lt_free(flags->settings);
    *flags = (lt_optim_flags){0};
}

lt_option_table lt_optim_flags_table(const lt_optim_flags *flags, int number)
{
    const table *t = &flags->rows->table[number];
    return (lt_option_table){t->row, t->count, t->value};
}

/* --- From flags to the config --- */

static lt_option_row *row_named(const lt_options *o, const char *field)
{
    char flag[NAME];
    write_flag(flag, field);
    lt_option_row *row = lt_options_find(o, flag, strlen(flag));
    LT_ASSERT(row); /* lt_optim_flags_open() made it */
    return row;
}

static bool is_set(const lt_option_row *row)
{
    return row->source != LT_OPTION_FROM_TABLE;
}

/* NULL: LT_E_ARG, as the message says. */
static const lt_optim_preset *find_preset(const lt_optim_family *family, const lt_options *o)
{
    const lt_optim_family *f = family;
    const char *name = family->preset[0].name ? lt_options_choice(o, "preset") : NULL;
    const lt_optim_preset *found = lt_optim_find_preset(family, name);
    if (found)
        return found;
    for (size_t k = 0; f && !lt_optim_find_preset(f, name); k++)
        f = lt_optim_family_at(k);
    (void)lt_fail(LT_E_ARG, "--preset %s: contradicts --optim %s; use --optim %s", name,
                  family->name, f ? f->name : "");
    return NULL;
}

/* What the user says, over the preset. */
static lt_status take_flag(const lt_optim_field *f, void *config, const lt_options *o)
{
    char text[NUMBER];
    const lt_option_row *row = row_named(o, f->name);
    if (f->type == LT_FIELD_LIST) {
        const lt_option_list *list = row->field;
        for (size_t i = 0; i < list->count; i++)
            LT_TRY(lt_field_set(f, config, list->item[i]));
        return LT_OK;
    }
    if (!is_set(row) && !f->flag_only)
        return LT_OK;
    return lt_field_set(f, config, lt_options_text(o, row->option->name, text, sizeof text));
}

/* A neutral value is no contradiction: a run's config.yaml has one for every flag. */
static lt_status check_read(const lt_optim_field *f, void *config, const lt_options *o)
{
    const lt_option_row *row = row_named(o, f->name);
    char text[NUMBER];
    if (!f->is_read || f->is_read(config))
        return LT_OK;
    bool list = f->type == LT_FIELD_LIST;
    if (is_set(row) && (list || lt_field_number(f, config) != f->neutral))
        return lt_fail(LT_E_ARG, "--%s: needs %s", row->option->name, f->needs);
    if (f->type == LT_FIELD_FLAG)
        snprintf(text, sizeof text, "%s", f->neutral > 0 ? "true" : "false");
    else
        lt_options_number(text, sizeof text, f->neutral);
    return list ? LT_OK : lt_field_set(f, config, text);
}

/* The resolved settings are what --print-config and config.yaml show. */
static lt_status show(const lt_optim_field *f, const void *config, const lt_options *o)
{
    char text[NUMBER];
    lt_option_row *row = row_named(o, f->name);
    if (is_set(row) || f->type == LT_FIELD_LIST || f->flag_only)
        return LT_OK;
    return lt_options_assign(row, lt_field_text(f, config, text, sizeof text),
                             LT_OPTION_FROM_TABLE);
}

static lt_status choose_lr(lt_optim_flags *flags, const lt_options *o, double preset)
{
    char text[NUMBER];
    lt_option_row *row = row_named(o, "lr");
    if (!is_set(row)) {
        lt_options_number(text, sizeof text, preset);
        LT_TRY(lt_options_assign(row, text, LT_OPTION_FROM_TABLE));
    }
    flags->lr = *(const double *)row->field;
    return LT_OK;
}

lt_status lt_optim_flags_resolve(lt_optim_flags *flags, lt_options *o)
{
    const lt_optim_family *family =
        lt_optim_family_at((size_t) * (const int *)row_named(o, "optim")->field);
    const lt_optim_preset *preset = find_preset(family, o);
    if (!preset)
        return LT_E_ARG;
    LT_TRY(choose_lr(flags, o, preset->lr));
    lt_free(flags->settings);
    flags->family = family;
    flags->settings = lt_optim_new_config(family, preset->fill);
    if (!flags->settings)
        return LT_E_NOMEM;
    for (size_t i = 0; i < family->fields; i++)
        LT_TRY(take_flag(&family->field[i], flags->settings, o));
    for (size_t i = 0; i < family->fields; i++)
        if (family->field[i].derive && !is_set(row_named(o, family->field[i].name)))
            family->field[i].derive(flags->settings);
    for (size_t i = 0; i < family->fields; i++)
        LT_TRY(check_read(&family->field[i], flags->settings, o));
    for (size_t i = 0; i < family->fields; i++)
        LT_TRY(show(&family->field[i], flags->settings, o));
    return LT_OK;
}

lt_status lt_optim_flags_make(lt_optim **out, const lt_optim_flags *flags, const lt_params *params)
{
    return flags->family->make(out, params, flags->settings, flags->lr);
}
