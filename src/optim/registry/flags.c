/* Flags of optimizers: rows for lt_options made from the fields of all optimizers, and the config that results from
 * them. A field of several optimizers is one row, whose help lists its readers and their defaults. */

#include "base/alloc.h"
#include "base/arena.h"
#include "base/options/options.h"
#include "field.h"
#include "registry.h"

#include "lather/detail/optim_flags.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { NAME = 48, NUMBER = 40 };
static const char common_group[] = "Optimizer", pairs[] = "opt-kwargs";

typedef struct lt_optim_rows lt_optim_rows;

typedef union value {
    bool flag;
    int64_t integer;
    double real;
    int choice;
    lt_option_list list;
} value;

typedef struct table {
    lt_option *row;
    value *value;
    size_t count;
} table;

struct lt_optim_rows {
    lt_arena arena; /* the tables and the texts of their rows */
    lt_status status;
    table table[LT_OPTIM_FLAGS_TABLES];
};

static void *allocate_or_set_status(lt_optim_rows *r, size_t bytes)
{
    void *memory = lt_arena_alloc(&r->arena, bytes);
    if (!memory)
        r->status = LT_E_NOMEM;
    return memory;
}

/* --- Texts --- */

/* Appends to a text that starts as NULL, separated by `between` unless empty. */
static LT_PRINTF(4, 5) void append_text(lt_optim_rows *r, const char **text, const char *between,
                                        const char *fmt, ...)
{
    char more[2 * NAME + NUMBER];
    va_list list;
    va_start(list, fmt);
    vsnprintf(more, sizeof more, fmt, list);
    va_end(list);
    const char *old = *text ? *text : "";
    size_t bytes = strlen(old) + strlen(between) + strlen(more) + 1;
    char *longer = allocate_or_set_status(r, bytes);
    if (!longer)
        return;
    snprintf(longer, bytes, "%s%s%s", old, *text ? between : "", more);
    *text = longer;
}

/* Shortens "1e-06" to "1e-6". */
static void shorten_exponent(char *text)
{
    char *zero = strstr(text, "e-0");
    if (zero)
        memmove(zero + 2, zero + 3, strlen(zero + 3) + 1);
}

static void write_flag_name(char flag[NAME], const char *field)
{
    snprintf(flag, NAME, "%s", field);
    for (char *c = flag; *c; c++)
        if (*c == '_')
            *c = '-';
}

/* --- Rows --- */

/* Writes a field's default of an optimizer; returns true if the optimizer's other defaults let it be read. */
static bool write_default_text(const lt_optim_family *f, const lt_optim_field *field,
                               char text[NUMBER])
{
    const void *config = f->preset[0].config;
    if (field->flag_only)
        snprintf(text, NUMBER, "%s", field->type == LT_FIELD_REAL ? "0" : "false");
    else
        lt_field_text(field, config, text, NUMBER);
    shorten_exponent(text);
    return !field->is_read || field->is_read(config);
}

/* Sets one default for all optimizers, or one per optimizer. Defaults that are not read do not count as different. */
static void set_row_defaults(lt_optim_rows *r, const char *field, lt_option *row)
{
    const lt_optim_family *f;
    char text[NUMBER] = "", first[NUMBER] = "";
    bool counted = false, same = true;
    for (size_t k = 0; (f = lt_optim_family_at(k)); k++) {
        const lt_optim_field *own = lt_optim_find_field(f, field);
        if (!own)
            continue;
        bool counts = write_default_text(f, own, text);
        append_text(r, &row->defaults, " ", "%s=%s", f->name, text);
        same = same && (!counted || !counts || !strcmp(first, text));
        if (!*first || (counts && !counted))
            snprintf(first, sizeof first, "%s", text);
        counted = counted || counts;
    }
    append_text(r, &row->value, "", "%s", first);
    row->defaults = same ? NULL : row->defaults;
}

static double lowest_accepted_value(const lt_optim_field *f)
{
    return f->unset_means && f->unset < f->low ? f->unset : f->low;
}

static bool excludes_its_maximum(const lt_optim_field *f)
{
    return f->below && isfinite(f->high);
}

/* Widens the range of a flag to include that of another optimizer's field; the optimizer checks its own range. */
static void widen_range(lt_option *row, const lt_optim_field *f)
{
    const bool beyond = f->high > row->max;
    row->below = beyond || !(f->high < row->max) ? excludes_its_maximum(f) && (beyond || row->below)
                                                 : row->below;
    row->min = fmin(row->min, lowest_accepted_value(f));
    row->max = fmax(row->max, f->high);
}

/* Sets the optimizers that read a flag, its range and help. */
static void set_row_readers_and_range(lt_optim_rows *r, const char *name, lt_option *row)
{
    const lt_optim_family *f;
    bool all = true;
    for (size_t k = 0; (f = lt_optim_family_at(k)); k++) {
        const lt_optim_field *field = lt_optim_find_field(f, name);
        all = all && field;
        if (!field)
            continue;
        append_text(r, &row->applies, " ", "%s", f->name);
        widen_range(row, field);
        row->help = row->help ? row->help : field->help;
        row->meta = row->meta ? row->meta : field->meta;
        row->also = row->also ? row->also : field->also;
        row->common = row->common || field->common;
        if (field->in_state)
            append_text(r, &row->in_state, " ", "%s", f->name);
        row->through = field->rare ? pairs : row->through;
    }
    row->applies = all ? NULL : row->applies;
    row->help = row->help ? row->help : "";
}

/* Makes a flag's row from a field. after: the preceding field in --help, or NULL. */
static lt_option make_option_row(lt_optim_rows *r, const lt_optim_field *field, const char *group,
                                 const char *after)
{
    static const lt_option_type types[] = {
        [LT_FIELD_REAL] = LT_OPTION_DOUBLE, [LT_FIELD_COUNT] = LT_OPTION_INT,
        [LT_FIELD_LIMIT] = LT_OPTION_INT,   [LT_FIELD_SMALL] = LT_OPTION_INT,
        [LT_FIELD_FLAG] = LT_OPTION_BOOL,   [LT_FIELD_CHOICE] = LT_OPTION_CHOICE,
        [LT_FIELD_SCOPE] = LT_OPTION_BOOL,  [LT_FIELD_LIST] = LT_OPTION_LIST,
    };
    lt_option row = {.group = group,
                     .type = types[field->type],
                     .choices = field->choices,
                     .min = lowest_accepted_value(field),
                     .max = field->high,
                     .below = excludes_its_maximum(field),
                     .after = after};
    char flag[NAME];
    write_flag_name(flag, field->name);
    append_text(r, &row.name, "", "%s", flag);
    set_row_readers_and_range(r, field->name, &row);
    if (field->type != LT_FIELD_LIST)
        set_row_defaults(r, field->name, &row);
    return row;
}

/* --- The tables --- */

static void add_row(table *t, lt_option row)
{
    row.offset = t->count * sizeof *t->value;
    t->row[t->count++] = row;
}

static bool has_row(const table *t, const char *field)
{
    char flag[NAME];
    write_flag_name(flag, field);
    for (size_t i = 0; i < t->count; i++)
        if (t->row[i].name && !strcmp(t->row[i].name, flag))
            return true;
    return false;
}

/* Returns true if an optimizer has this field in the group "Optimizer": one flag has one group. */
static bool is_in_common_group(const char *name)
{
    const lt_optim_family *f;
    for (size_t k = 0; (f = lt_optim_family_at(k)); k++) {
        const lt_optim_field *field = lt_optim_find_field(f, name);
        if (field && (field->shared || !f->group))
            return true;
    }
    return false;
}

/* Adds the fields of an optimizer; a new one follows its predecessor in the optimizer's own list. */
static void add_fields(lt_optim_rows *r, table *t, const lt_optim_family *f, bool common)
{
    const char *after = NULL;
    for (size_t k = 0; k < f->fields; k++) {
        const lt_optim_field *field = &f->field[k];
        if (is_in_common_group(field->name) != common)
            continue;
        if (!has_row(t, field->name))
            add_row(t, make_option_row(r, field, common ? common_group : f->group, after));
        after = field->name;
    }
}

static void add_optim_and_lr_rows(lt_optim_rows *r, table *t)
{
    const lt_optim_family *f;
    lt_option optim = {.group = common_group,
                       .name = "optim",
                       .type = LT_OPTION_CHOICE,
                       .also = "opt",
                       .common = true,
                       .help = "optimizer; soap is shampoo with --preset soap",
                       .hint = "others are those of a --plugin FILE.so"},
              lr = {.group = common_group,
                    .name = "lr",
                    .type = LT_OPTION_DOUBLE,
                    .max = 1e6,
                    .also = "learning-rate",
                    .common = true,
                    .help = "peak learning rate for the whole batch; not scaled by ranks or batch "
                            "size; auto: found by short trials, before the run"},
              kwargs = {.group = common_group,
                        .name = pairs,
                        .type = LT_OPTION_PAIR,
                        .help = "set an optimizer option that has no flag, as NAME=VALUE"};
    for (size_t k = 0; (f = lt_optim_family_at(k)); k++) {
        char rate[NUMBER];
        lt_options_number(rate, sizeof rate, f->preset[0].lr);
        append_text(r, &optim.choices, "|", "%s", f->name);
        append_text(r, &lr.defaults, " ", "%s=%s", f->name, rate);
    }
    add_row(t, optim);
    add_row(t, lr);
    add_row(t, kwargs);
}

/* Adds --preset if an optimizer has several presets. */
static void add_preset(lt_optim_rows *r, table *t)
{
    const lt_optim_family *f;
    lt_option row = {.name = "preset", .type = LT_OPTION_CHOICE, .common = true};
    for (size_t k = 0; (f = lt_optim_family_at(k)); k++) {
        if (!f->preset[0].name)
            continue;
        append_text(r, &row.applies, " ", "%s", f->name);
        append_text(r, &row.defaults, " ", "%s=%s", f->name, f->preset[0].name);
        row.group = row.group ? row.group : f->group;
        row.help = row.help ? row.help : f->preset_help;
        for (size_t i = 0; i < f->presets; i++)
            if (!row.choices || !lt_options_has_word(row.choices, f->preset[i].name, "|"))
                append_text(r, &row.choices, "|", "%s", f->preset[i].name);
    }
    if (row.applies)
        add_row(t, row);
}

/* --- Construction --- */

static void fill_table(lt_optim_rows *r, table *t, bool common)
{
    size_t most = 3; /* optim, lr and opt-kwargs, or preset */
    const lt_optim_family *f;
    for (size_t k = 0; (f = lt_optim_family_at(k)); k++)
        most += f->fields;
    t->row = allocate_or_set_status(r, most * sizeof *t->row);
    t->value = allocate_or_set_status(r, most * sizeof *t->value);
    if (r->status)
        return;
    if (common)
        add_optim_and_lr_rows(r, t);
    else
        add_preset(r, t);
    for (size_t k = 0; (f = lt_optim_family_at(k)); k++)
        add_fields(r, t, f, common);
}

lt_status lt_optim_flags_open(lt_optim_flags *flags)
{
    lt_optim_rows *r = flags->rows = lt_alloc(1, sizeof *flags->rows);
    if (!r)
        return LT_E_NOMEM;
    for (int i = 0; i < LT_OPTIM_FLAGS_TABLES; i++)
        fill_table(r, &r->table[i], i == LT_OPTIM_FLAGS_COMMON);
    lt_status st = r->status;
    if (st)
        lt_optim_flags_close(flags);
    return st;
}

void lt_optim_flags_close(lt_optim_flags *flags)
{
    if (flags->rows)
        lt_arena_free(&flags->rows->arena);
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
    lt_option_row *row = lt_options_find(o, field, strlen(field)); /* '_' matches '-' */
    LT_ASSERT(row); /* made by lt_optim_flags_open() */
    return row;
}

static bool is_set_by_user(const lt_option_row *row)
{
    return row->source != LT_OPTION_FROM_TABLE;
}

/* Returns the chosen preset, or NULL after lt_fail() with LT_E_ARG. */
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

/* Overrides the preset by the user's flag. */
static lt_status apply_user_flag(const lt_optim_field *f, void *config, const lt_options *o)
{
    char text[NUMBER];
    const lt_option_row *row = row_named(o, f->name);
    if (!is_set_by_user(row) && !f->flag_only)
        return LT_OK;
    if (f->type == LT_FIELD_LIST) {
        const lt_option_list *list = row->field;
        for (size_t i = 0; i < list->count; i++)
            LT_TRY(lt_field_set_from_text(f, config, list->item[i]));
        return LT_OK;
    }
    return lt_field_set_from_text(f, config,
                                  lt_options_text(o, row->option->name, text, sizeof text));
}

static void write_choice(const lt_optim_field *f, int number, char text[NUMBER])
{
    int bytes = 0;
    const char *word = lt_options_item(f->choices, number, &bytes);
    snprintf(text, NUMBER, "%.*s", bytes, word ? word : "");
}

/* Rejects a flag that the other settings leave unread, unless it has its neutral value: config.yaml lists all
 * flags. */
static lt_status reject_unread_flag(const lt_optim_field *f, void *config, const lt_options *o)
{
    const lt_option_row *row = row_named(o, f->name);
    char text[NUMBER];
    if (!f->is_read || f->is_read(config))
        return LT_OK;
    bool list = f->type == LT_FIELD_LIST;
    if (is_set_by_user(row) && (list || lt_field_number(f, config) != f->neutral))
        return lt_fail(LT_E_ARG, "--%s: needs %s", row->option->name, f->needs);
    if (f->type == LT_FIELD_FLAG)
        snprintf(text, sizeof text, "%s", f->neutral > 0 ? "true" : "false");
    else if (f->type == LT_FIELD_CHOICE)
        write_choice(f, (int)f->neutral, text);
    else
        lt_options_number(text, sizeof text, f->neutral);
    return list ? LT_OK : lt_field_set_from_text(f, config, text);
}

/* Sets a list flag to the preset's list, in place of that of an earlier call. */
static lt_status assign_preset_list(const lt_optim_field *f, const void *config, lt_option_row *row)
{
    char text[4 * NUMBER] = "";
    lt_option_list *list = row->field;
    while (list->count)
        lt_free(list->item[--list->count]);
    if (f->write && (!f->is_read || f->is_read(config)))
        f->write(config, text, sizeof text);
    return *text ? lt_options_assign(row, text, LT_OPTION_FROM_TABLE) : LT_OK;
}

/* Stores the resolved setting for --print-config and config.yaml. */
static lt_status store_resolved_value(const lt_optim_field *f, const void *config,
                                      const lt_options *o)
{
    char text[NUMBER];
    lt_option_row *row = row_named(o, f->name);
    if (is_set_by_user(row) || f->flag_only)
        return LT_OK;
    if (f->type == LT_FIELD_LIST)
        return assign_preset_list(f, config, row);
    return lt_options_assign(row, lt_field_text(f, config, text, sizeof text),
                             LT_OPTION_FROM_TABLE);
}

static lt_status choose_lr(lt_optim_flags *flags, const lt_options *o, double preset)
{
    char text[NUMBER];
    lt_option_row *row = row_named(o, "lr");
    if (!is_set_by_user(row)) {
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
    flags->settings = lt_optim_copy_config(family, preset->config);
    if (!flags->settings)
        return LT_E_NOMEM;
    for (size_t i = 0; i < family->fields; i++)
        LT_TRY(apply_user_flag(&family->field[i], flags->settings, o));
    for (size_t i = 0; i < family->fields; i++)
        if (family->field[i].derive && !is_set_by_user(row_named(o, family->field[i].name)))
            family->field[i].derive(flags->settings);
    for (size_t i = 0; i < family->fields; i++)
        LT_TRY(reject_unread_flag(&family->field[i], flags->settings, o));
    for (size_t i = 0; i < family->fields; i++)
        LT_TRY(store_resolved_value(&family->field[i], flags->settings, o));
    return LT_OK;
}

lt_status lt_optim_flags_make(lt_optim **out, const lt_optim_flags *flags, const lt_params *params)
{
    return flags->family->make(out, params, flags->settings, flags->lr);
}
