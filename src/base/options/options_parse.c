/* Command line parser: long options as in GNU getopt_long, from one table. */

#include "base/alloc.h"
#include "base/encoding/yaml.h"
#include "options.h"

#include <string.h>

static const lt_option_row *find_known_row(const lt_options *o, const char *name)
{
    const lt_option_row *row = lt_options_find(o, name, strlen(name));
    LT_ASSERT(row); /* the program asks about its own table */
    return row;
}

/* --- Construction --- */

static lt_status set_defaults(lt_options *o)
{
    char text[256];
    for (size_t i = 0; i < o->count; i++) {
        lt_option_row *row = &o->row[i];
        const char *value = lt_options_default(o, row->option, text, sizeof text);
        if (row->source == LT_OPTION_FROM_TABLE && value)
            LT_TRY(lt_options_assign(row, value, LT_OPTION_FROM_TABLE));
    }
    return LT_OK;
}

/* Zeroes all fields; defaults follow. */
static void clear_fields(lt_options *o)
{
    static const size_t bytes[] = {
        [LT_OPTION_BOOL] = sizeof(bool),
        [LT_OPTION_INT] = sizeof(int64_t),
        [LT_OPTION_DOUBLE] = sizeof(double),
        [LT_OPTION_STRING] = sizeof(const char *),
        [LT_OPTION_CHOICE] = sizeof(int),
        [LT_OPTION_LIST] = sizeof(lt_option_list),
        [LT_OPTION_PAIR] = 0,
    };
    for (size_t i = 0; i < o->count; i++)
        memset(o->row[i].field, 0, bytes[o->row[i].option->type]);
}

lt_status lt_options_compose(lt_options **out, const lt_program *program,
                             const lt_option_table *table, size_t count)
{
    lt_options *o = NULL;
    LT_TRY(LT_ALLOC(&o, 1));
    o->program = program;
    lt_status st = lt_options_gather(o, table, count);
    clear_fields(o);
    /* Twice: defaults depend on the selector, which may come after the rows that depend on it. */
    for (int pass = 0; pass < 2 && !st; pass++)
        st = set_defaults(o);
    if (st) {
        lt_options_free(&o);
        return st;
    }
    *out = o;
    return LT_OK;
}

lt_status lt_options_new(lt_options **out, const lt_program *program, void *values)
{
    lt_option_table whole = {program->option, program->count, values};
    return lt_options_compose(out, program, &whole, 1);
}

static void clear_lists(lt_options *o)
{
    for (size_t i = 0; i < o->count; i++) {
        if (o->row[i].option->type != LT_OPTION_LIST)
            continue;
        lt_option_list *list = o->row[i].field;
        lt_free_texts(list->item, list->count);
        *list = (lt_option_list){0};
    }
}

void lt_options_free(lt_options **options)
{
    lt_options *o = *options;
    if (!o)
        return;
    clear_lists(o);
    for (size_t i = 0; i < o->count; i++)
        lt_free(o->row[i].string);
    lt_free_texts(o->rest, o->rest_count);
    lt_free_texts(o->argument, (size_t)o->argument_count);
    lt_free(o->row);
    lt_free(o);
    *options = NULL;
}

/* --- Parsing --- */

typedef struct arguments {
    int count, at;
    char *const *value;
} arguments;

static lt_status add_positional(lt_options *o, const char *text)
{
    if (!o->program->rest)
        return lt_fail(LT_E_ARG, "'%s': expected an option, got a plain word", text);
    LT_TRY(LT_RESIZE(&o->rest, o->rest_count + 1));
    o->rest[o->rest_count] = lt_strdup(text);
    return o->rest[o->rest_count] ? (o->rest_count++, LT_OK) : LT_E_NOMEM;
}

/* Gets the value after '=', or else the next argument. */
static lt_status take_value(arguments *args, const char *name, const char *equal,
                            const char **value)
{
    if (equal) {
        *value = equal + 1;
        return LT_OK;
    }
    if (args->at == args->count)
        return lt_fail(LT_E_ARG, "--%s: missing value", name);
    *value = args->value[args->at++];
    return LT_OK;
}

/* Parses NAME=VALUE of a pair option, where NAME is an option set through it. */
static lt_status assign_pair(const lt_options *o, const lt_option *pair, const char *text,
                             lt_option_source source)
{
    const char *equal = strchr(text, '=');
    if (!equal)
        return lt_fail(LT_E_ARG, "--%s: '%s': want NAME=VALUE", pair->name, text);
    lt_option_row *row = lt_options_find(o, text, (size_t)(equal - text));
    if (!row || !row->option->through || strcmp(row->option->through, pair->name) != 0)
        return lt_fail(LT_E_ARG, "--%s: unknown setting '%.*s'; --help %s lists them", pair->name,
                       (int)(equal - text), text, pair->name);
    return lt_options_assign(row, equal + 1, source);
}

static lt_status assign_value(const lt_options *o, lt_option_row *row, const char *value,
                              lt_option_source source)
{
    return row->option->type == LT_OPTION_PAIR ? assign_pair(o, row->option, value, source)
                                               : lt_options_assign(row, value, source);
}

static lt_status apply_option(const lt_options *o, arguments *args, lt_option_row *row,
                              const char *equal)
{
    const char *value = "true";
    if (row->option->through)
        return lt_fail(LT_E_ARG, "--%s has no flag: use --%s %s=VALUE", row->option->name,
                       row->option->through, row->option->name);
    if (row->option->type != LT_OPTION_BOOL || equal)
        LT_TRY(take_value(args, row->option->name, equal, &value));
    return assign_value(o, row, value, LT_OPTION_FROM_USER);
}

/* Handles --help [TOPIC]; ignores later arguments. */
static lt_status parse_help_topic(lt_options *o, arguments *args, const char *equal)
{
    const char *topic = equal ? equal + 1 : args->at < args->count ? args->value[args->at] : "";
    o->asked = LT_OPTIONS_HELP;
    args->at = args->count;
    LT_TRY(lt_options_check_topic(o, topic));
    snprintf(o->topic, sizeof o->topic, "%s", topic);
    return LT_OK;
}

static lt_status apply_builtin(lt_options *o, arguments *args, const lt_option_builtin *b,
                               const char *equal)
{
    const char *path = NULL;
    if (b->asks == LT_OPTIONS_HELP)
        return parse_help_topic(o, args, equal);
    if (b->asks) {
        if (equal)
            return lt_fail(LT_E_ARG, "--%s: takes no value", b->name);
        o->asked = b->asks;
        return LT_OK;
    }
    LT_TRY(take_value(args, b->name, equal, &path));
    return lt_options_load(o, path);
}

static lt_status parse_long(lt_options *o, arguments *args, const char *name)
{
    const char *equal = strchr(name, '=');
    size_t bytes = equal ? (size_t)(equal - name) : strlen(name);
    lt_option_row *row = lt_options_find(o, name, bytes);
    if (row)
        return apply_option(o, args, row, equal);
    const lt_option_builtin *builtin = lt_options_find_builtin(name, bytes);
    if (builtin)
        return apply_builtin(o, args, builtin, equal);
    if (bytes > 3 && !strncmp(name, "no-", 3)) {
        row = lt_options_find(o, name + 3, bytes - 3);
        if (row && row->option->type != LT_OPTION_BOOL)
            return lt_fail(LT_E_ARG, "--%.*s: --%s takes a value and cannot be disabled",
                           (int)bytes, name, row->option->name);
        if (row && equal)
            return lt_fail(LT_E_ARG, "--%.*s: takes no value", (int)bytes, name);
        if (row && row->option->through)
            return apply_option(o, args, row, NULL);
        if (row)
            return lt_options_assign(row, "false", LT_OPTION_FROM_USER);
    }
    return lt_options_unknown_error(o, name, bytes);
}

/* Parses -b 32 or -b32; options cannot be bundled. */
static lt_status parse_short(lt_options *o, arguments *args, const char *text)
{
    for (size_t i = 0; i < lt_option_builtin_count; i++)
        if (text[0] == lt_option_builtins[i].alias && !text[1])
            return apply_builtin(o, args, &lt_option_builtins[i], NULL);
    for (size_t i = 0; i < o->count; i++) {
        const lt_option *option = o->row[i].option;
        if (!option->alias || option->alias != text[0])
            continue;
        if (option->type == LT_OPTION_BOOL && text[1])
            break;
        return apply_option(o, args, &o->row[i], text[1] ? text : NULL); /* the value is text + 1 */
    }
    return lt_fail(LT_E_ARG, "-%s: no such option; --help lists them", text);
}

static lt_status copy_arguments(lt_options *o, int argc, char *const *argv)
{
    LT_TRY(LT_ALLOC(&o->argument, argc));
    for (; o->argument_count < argc; o->argument_count++) {
        o->argument[o->argument_count] = lt_strdup(argv[o->argument_count]);
        if (!o->argument[o->argument_count])
            return LT_E_NOMEM;
    }
    return LT_OK;
}

static lt_status parse_all(lt_options *o, arguments *args)
{
    bool only_rest = false;
    while (args->at < args->count) {
        const char *text = args->value[args->at++];
        if (only_rest || text[0] != '-' || !text[1])
            LT_TRY(add_positional(o, text));
        else if (!strcmp(text, "--"))
            only_rest = true;
        else if (text[1] == '-')
            LT_TRY(parse_long(o, args, text + 2));
        else
            LT_TRY(parse_short(o, args, text + 1));
    }
    return LT_OK;
}

/* Rejects options that were set but that the selector's choice or the other options do not read. */
static lt_status check_options_apply(const lt_options *o)
{
    for (size_t i = 0; i < o->count; i++) {
        const lt_option *option = o->row[i].option;
        if (o->row[i].source != LT_OPTION_FROM_TABLE && !lt_options_applies(o, option->name))
            return lt_fail(LT_E_ARG, "--%s: --%s %s does not read it (read by: %s)", option->name,
                           o->program->selector, lt_options_choice(o, o->program->selector),
                           option->applies);
    }
    return lt_options_check_needs(o);
}

lt_status lt_options_parse(lt_options *o, int argc, char *const *argv)
{
    if (!o->argument)
        LT_TRY(copy_arguments(o, argc, argv));
    arguments args = {.count = argc, .at = argc ? 1 : 0, .value = argv};
    LT_TRY(parse_all(o, &args));
    LT_TRY(set_defaults(o)); /* for the selector's choice */
    return o->asked == LT_OPTIONS_RUN || o->asked == LT_OPTIONS_PRINT_CONFIG
               ? check_options_apply(o)
               : LT_OK;
}

lt_status lt_options_set(lt_options *o, const char *name, const char *value)
{
    lt_option_row *row = lt_options_find(o, name, strlen(name));
    if (!row)
        return lt_options_unknown_error(o, name, strlen(name));
    LT_TRY(assign_value(o, row, value, LT_OPTION_FROM_USER));
    const char *selector = o->program->selector;
    return selector && !strcmp(row->option->name, selector) ? set_defaults(o) : LT_OK;
}

typedef struct loading {
    lt_options *options;
    bool (*wanted)(const lt_option *option); /* NULL: all options */
} loading;

static lt_status assign_config_line(void *context, const char *key, const char *value, int line)
{
    const loading *l = context;
    lt_options *o = l->options;
    lt_option_row *row = lt_options_find(o, key, strlen(key));
    if (row && l->wanted && !l->wanted(row->option))
        return LT_OK;
    if (!row && lt_options_is_removed_default(key, value))
        return LT_OK;
    lt_status st = row ? assign_value(o, row, value, LT_OPTION_FROM_FILE)
                       : lt_options_unknown_error(o, key, strlen(key));
    return st ? lt_fail(st, "line %d: %s", line, lt_error_message()) : LT_OK;
}

lt_status lt_options_load(lt_options *o, const char *path)
{
    return lt_options_load_some(o, path, NULL);
}

lt_status lt_options_load_some(lt_options *o, const char *path,
                               bool (*wanted)(const lt_option *option))
{
    loading l = {o, wanted};
    return lt_yaml_read(path, assign_config_line, &l);
}

/* --- Queries --- */

lt_options_request lt_options_requested(const lt_options *o)
{
    return o->asked;
}

const lt_option *lt_options_at(const lt_options *o, size_t index)
{
    return index < o->count ? o->row[index].option : NULL;
}

bool lt_options_is_set(const lt_options *o, const char *name)
{
    return find_known_row(o, name)->source != LT_OPTION_FROM_TABLE;
}

bool lt_options_is_typed(const lt_options *o, const char *name)
{
    return find_known_row(o, name)->source == LT_OPTION_FROM_USER;
}

bool lt_options_applies(const lt_options *o, const char *name)
{
    const lt_option *option = find_known_row(o, name)->option;
    return !option->applies || lt_options_needs(option) || !o->program->selector
           || lt_options_has_word(option->applies, lt_options_choice(o, o->program->selector), " ");
}

size_t lt_options_positional_count(const lt_options *o)
{
    return o->rest_count;
}

const char *lt_options_positional(const lt_options *o, size_t index)
{
    return index < o->rest_count ? o->rest[index] : NULL;
}

const char *lt_options_argument(const lt_options *o, int index)
{
    return index >= 0 && index < o->argument_count ? o->argument[index] : NULL;
}
