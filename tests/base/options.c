/* The option table: parsing, ranges, the selector's options, config files, help. */

#include "base/options/options.h"

#include "base/alloc.h"
#include "near.h"

#include "lather/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct values {
    bool nesterov, amp;
    int64_t batch, workers;
    double lr, beta1;
    const char *data;
    int optim;
    lt_option_list freeze;
} values;

#define FIELD(name) offsetof(values, name)

static const lt_option table[] = {
    {"Data", "data", 'd', LT_OPTION_STRING, FIELD(data), .meta = "DIR", .help = "the images",
     .common = true},
    {"Data", "batch-size", 'b', LT_OPTION_INT, FIELD(batch), "32", 1, 65536,
     .help = "images per step", .also = "bs per-step"},
    {"Data", "workers", 0, LT_OPTION_INT, FIELD(workers), "2", 0, 9, .common = true,
     .help = "threads that read"},
    {"Optimizer", "lr", 0, LT_OPTION_DOUBLE, FIELD(lr), "0.5", 0, 100,
     .defaults = "sgd=0.1 adam=0.001", .help = "learning rate"},
    {"Optimizer", "beta1", 0, LT_OPTION_DOUBLE, FIELD(beta1), "0.9", 0, 0.999999,
     .applies = "adam shampoo", .help = "memory of the mean"},
    {"Optimizer", "nesterov", 0, LT_OPTION_BOOL, FIELD(nesterov), "true", .applies = "sgd",
     .help = "look ahead"},
    {"Optimizer", "optim", 'o', LT_OPTION_CHOICE, FIELD(optim), "shampoo",
     .choices = "sgd|adam|shampoo", .help = "the optimizer"},
    {"Optimizer", "freeze", 0, LT_OPTION_LIST, FIELD(freeze), .meta = "REGEX",
     .help = "leave parameters of such names as they were loaded"},
};

static const lt_program program = {.name = "prog",
                                   .summary = "tries options",
                                   .usage = "--data DIR [OPTION]...",
                                   .description = "A description.",
                                   .option = table,
                                   .count = COUNT_OF(table),
                                   .selector = "optim"};

enum { MAX_ARGS = 12 };

/* Parses words divided by spaces. */
static lt_status parse(lt_options **o, values *v, const char *line)
{
    static char words[512];
    char *argv[MAX_ARGS + 1] = {(char[]){"prog"}};
    int argc = 1;
    snprintf(words, sizeof words, "%s", line);
    for (char *word = strtok(words, " "); word && argc < MAX_ARGS; word = strtok(NULL, " "))
        argv[argc++] = word;
    memset(v, 0, sizeof *v);
    assert_ok(lt_options_new(o, &program, v));
    return lt_options_parse(*o, argc, argv);
}

typedef struct error_row {
    const char *line, *message;
} error_row;

static const error_row errors[] = {
    {"--batchsize 3", "--batchsize: no such option; the nearest is --batch-size"},
    {"--per-stp 3", "the nearest is --per-step (--batch-size)"},
    {"--fre x",
     "--fre: no such option; the nearest is --freeze"}, /* --lr has a letter less to change */
    {"--bs 0", "--batch-size: 0 is not in 1..65536"},
    {"--dtype f16", "--dtype: no such option; --help all lists them"},
    {"--early-stopping 3", "--early-stopping: no such option; --help all lists them"},
    {"--hepl", "--hepl: no such option; the nearest is --help"},
    {"--batch-size 0", "--batch-size: 0 is not in 1..65536"},
    {"--batch-size 3x", "--batch-size: '3x' is not an integer"},
    {"--batch-size 99999999999999999999", "is not an integer"},
    {"--batch-size", "--batch-size: missing value"},
    {"--workers often", "--workers: 'often' is not an integer"},
    {"--lr 101", "--lr: 101 is not in [0, 100]"},
    {"--lr nan", "--lr: 'nan' is not a number"},
    {"--lr=", "--lr: '' is not a number"},
    {"--optim sdg", "--optim: unknown value 'sdg'; valid: sgd|adam|shampoo"},
    {"--optim adam --nesterov", "--nesterov: --optim adam does not read it (read by: sgd)"},
    {"--optim sgd --beta1 0.5", "--beta1: --optim sgd does not read it"},
    {"--nesterov=maybe --optim sgd", "--nesterov: 'maybe' is neither true nor false"},
    {"--no-lr", "--lr takes a value and cannot be disabled"},
    {"--no-nesterov=3", "--no-nesterov: takes no value"},
    {"--version=3", "--version: takes no value"},
    {"--help 3", "--help 3: no such section or option; --help all lists them"},
    {"--help=optimiser", "--help optimiser: no such section or option; the nearest is Optimizer"},
    {"--help optimi", "the nearest is Optimizer"},
    {"-h --batchsize", "--help --batchsize: no such section or option; the nearest is batch-size"},
    {"--help no-read-ahead", "--read-ahead is gone since 0.2: use --workers"},
    {"-z", "-z: no such option"},
    {"word", "'word': expected an option, got a plain word"},
    {"--config /nowhere/at/all.yaml", "/nowhere/at/all.yaml: "},
};

static void test_error(void **state)
{
    const error_row *row = *state;
    lt_options *o = NULL;
    values v;
    assert_int_not_equal(parse(&o, &v, row->line), LT_OK);
    if (!strstr(lt_error_message(), row->message))
        fail_msg("'%s' does not say '%s'", lt_error_message(), row->message);
    lt_options_free(&o);
}

static void test_values(void **state)
{
    (void)state;
    lt_options *o = NULL;
    values v;
    assert_ok(parse(&o, &v, "--data /d -b64 --optim=sgd --no-nesterov --freeze a --freeze b"));
    assert_string_equal(v.data, "/d");
    assert_int_equal(v.batch, 64);
    assert_int_equal(v.optim, 0);
    assert_false(v.nesterov);
    assert_near(v.lr, 0.1, 0); /* sgd's default */
    assert_int_equal(v.freeze.count, 2);
    assert_string_equal(v.freeze.item[1], "b");
    assert_true(lt_options_is_set(o, "batch-size"));
    assert_false(lt_options_is_set(o, "lr"));
    assert_true(lt_options_applies(o, "nesterov"));
    assert_false(lt_options_applies(o, "beta1"));
    assert_string_equal(lt_options_choice(o, "optim"), "sgd");
    v.lr = 0.3; /* as a preset chooses another default */
    assert_ok(lt_options_set(o, "workers", "3"));
    assert_near(v.lr, 0.3, 0);
    assert_ok(lt_options_set(o, "optim", "adam"));
    assert_near(v.lr, 0.001, 0);
    assert_ok(lt_options_set(o, "optim", "sgd"));
    assert_string_equal(lt_options_argument(o, 2), "/d");
    assert_null(lt_options_argument(o, 99));
    lt_options_free(&o);
    assert_ok(parse(&o, &v, "--batch_size 64 --per_step=65")); /* one option by two of its names */
    assert_int_equal(v.batch, 65);
    assert_true(lt_options_is_set(o, "batch-size"));
    assert_int_equal(v.workers, 2);
    lt_options_free(&o);
    assert_ok(parse(&o, &v, ""));
    assert_near(v.lr, 0.5, 0); /* shampoo has no own default */
    assert_null(v.data);
    lt_options_free(&o);
}

static void read_all(FILE *file, char *text, size_t size)
{
    rewind(file);
    size_t bytes = fread(text, 1, size - 1, file);
    text[bytes] = 0;
    fclose(file);
}

/* A request, up to five strings that its output contains, and one that it lacks. */
static const struct {
    const char *line;
    const char *say[5];
    const char *lacks;
} answers[] = {
    {"--help",
     {"Usage: prog --data DIR", "-d, --data DIR", "threads that read [2]", "General:\n",
      "These are 2 of 8 options. --help all lists all; --help SECTION those of Data, Optimizer; "
      "--help\nOPTION one"},
     "--lr"},
    {"--help all --lr nonsense",
     {"Usage: prog --data DIR", "images per step; also --bs, --per-step [32]",
      "[sgd=0.1 adam=0.001]", "(adam shampoo only)", "--[no-]nesterov"},
     "--help SECTION"},
    {"--help optimizer",
     {"\nOptimizer:\n", "learning rate [sgd=0.1 adam=0.001]", "--[no-]nesterov", "--freeze REGEX",
      "Defaults in [brackets]"},
     "Usage"},
    {"--help data", {"\nData:\n", "--data DIR", "--workers N", "per-step", "[32]"}, "--lr"},
    {"-h General", {"General:\n", "--config FILE", "--version", "-h, --help", "\n"}, "--data"},
    {"--help --data",
     {"-d, --data DIR", "the images\n", "Section Data\n", "no default\n"},
     "--workers"},
    {"--help lr",
     {"--lr X", "learning rate [sgd=0.1", "Section Optimizer; values: numbers from 0 to 100\n"},
     "no default"},
    {"--help=per_step",
     {"-b, --batch-size N", "values: whole numbers from 1 to 65536\n"},
     "--data"},
    {"--help workers", {"values: whole numbers from 0 to 9\n"}, "--data"},
    {"--help no-nesterov", {"--[no-]nesterov", "values: on or off\n"}, "--data"},
    {"--help optim", {"values: sgd|adam|shampoo\n"}, "--data"},
    {"--help freeze",
     {"as they were loaded; may be\n"},
     "loaded; may be repeated"}, /* it has 101 columns */
    {"--help config", {"--config FILE", "read options from a YAML file"}, "--data"},
    {"--help-man",
     {".TH PROG 1", ".SH OPTIONS", "\\-\\-batch\\-size N", "also \\-\\-bs", "\\-b, "},
     "These are"},
    {"--print-config --workers 0",
     {"workers: 0\n", "optim: shampoo\n", "\n", "batch-size: 32\n", "lr: 0.5\n"},
     "nesterov"},
    {"--print-config --optim sgd",
     {"batch-size: 32\n", "lr: 0.1\n", "nesterov: true\n", "optim: sgd\n", "\n"},
     "beta1"},
    {"--version", {"prog 0.", "prog", "prog", "prog", "prog"}, "  --"},
};

static void test_answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(answers); i++) {
        lt_options *o = NULL;
        values v;
        char text[8192];
        assert_ok(parse(&o, &v, answers[i].line));
        FILE *file = tmpfile();
        assert_non_null(file);
        assert_ok(lt_options_print_request(o, file));
        read_all(file, text, sizeof text);
        for (int k = 0; k < 5 && answers[i].say[k]; k++)
            if (!strstr(text, answers[i].say[k]))
                fail_msg("%s does not say '%s' but:\n%s", answers[i].line, answers[i].say[k], text);
        if (answers[i].lacks && strstr(text, answers[i].lacks))
            fail_msg("%s says '%s':\n%s", answers[i].line, answers[i].lacks, text);
        lt_options_free(&o);
    }
}

/* A config file in a fresh folder; the caller unlinks. */
static void write_config(char *path, const char *text)
{
    strcpy(path, "/tmp/lather-options-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static lt_status parse_config(lt_options **o, values *v, const char *before, const char *text,
                              const char *after)
{
    char path[64], line[256];
    write_config(path, text);
    snprintf(line, sizeof line, "%s --config %s %s", before, path, after);
    lt_status st = parse(o, v, line);
    unlink(path);
    return st;
}

static void test_config(void **state)
{
    (void)state;
    lt_options *o = NULL;
    values v;
    lt_status st =
        parse_config(&o, &v, "-b 8",
                     "# comment\nbatch-size: 16\nlr: 2.5\nfreeze:\n  - a b\n  - c\n", "--data x");
    if (st == LT_E_UNSUPPORTED) /* a build without libyaml */
        skip();
    assert_ok(st);
    assert_int_equal(v.batch, 8); /* the command line wins, wherever it stands */
    assert_near(v.lr, 2.5, 0);
    assert_int_equal(v.freeze.count, 2);
    assert_string_equal(v.freeze.item[0], "a b");
    assert_true(lt_options_is_set(o, "lr"));
    lt_options_free(&o);

    static const char *const bad[] = {
        "batch-sise: 3\n", "lr: 3\nlr: 4\n", "lr:\n  deep: 3\n", "- a\n",
        "lr: [1\n",        "lr: 1000\n",     "nesterov: true\n", "freeze:\n  - [a]\n"};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        assert_int_not_equal(parse_config(&o, &v, "", bad[i], ""), LT_OK);
        lt_options_free(&o);
    }
}

/* A text that ends early would leave out what follows. */
static void test_nul_in_config(void **state)
{
    (void)state;
    static const char *const bad[] = {"batch-size: 8\nlr: \"1\\0\"\n",
                                      "data: x\nfreeze: [a, \"b\\0c\"]\n"};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        lt_options *o = NULL;
        values v;
        const lt_status st = parse_config(&o, &v, "", bad[i], "");
        lt_options_free(&o);
        if (st == LT_E_UNSUPPORTED)
            skip();
        assert_status(st, LT_E_FORMAT);
        assert_non_null(strstr(lt_error_message(), ": line 2: a NUL in a value"));
    }
}

/* A mistake in a file is one on the day when nothing overrides it, too. */
static void test_overridden_config(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {{"bs: big\n", "line 1: --batch-size: 'big' is not an integer"},
               {"lr: 1\nbatch_size: 0\n", "line 2: --batch-size: 0 is not in 1..65536"}};
    for (size_t i = 0; i < 2 * COUNT_OF(bad); i++) {
        lt_options *o = NULL;
        values v;
        lt_status st =
            parse_config(&o, &v, i % 2 ? "-b 8" : "", bad[i / 2].text, i % 2 ? "" : "-b 8");
        lt_options_free(&o);
        if (st == LT_E_UNSUPPORTED)
            skip();
        assert_status(st, LT_E_ARG);
        if (!strstr(lt_error_message(), bad[i / 2].says))
            fail_msg("'%s' does not say '%s'", lt_error_message(), bad[i / 2].says);
    }
}

static bool is_lr(const lt_option *option)
{
    return !strcmp(option->name, "lr");
}

/* The output of --print-config reads back as the same values. */
static void test_config_round_trip(void **state)
{
    (void)state;
    lt_options *o = NULL, *again = NULL;
    values v, w = {0};
    char text[4096], path[64];
    assert_ok(parse(&o, &v, "--data /a:#b --lr 0.1234567890123 --freeze ^layer[12] --freeze x:y"));
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_ok(lt_options_write_config(o, file));
    read_all(file, text, sizeof text);
    write_config(path, text);
    assert_ok(lt_options_new(&again, &program, &w));
    lt_status st = lt_options_load_some(again, path, is_lr);
    if (st != LT_E_UNSUPPORTED) {
        assert_ok(st);
        assert_near(w.lr, v.lr, 0);
        assert_true(!w.freeze.count && !lt_options_is_set(again, "data"));
    }
    st = lt_options_load(again, path);
    unlink(path);
    if (st != LT_E_UNSUPPORTED) {
        assert_ok(st);
        assert_string_equal(w.data, v.data);
        assert_near(w.lr, v.lr, 0);
        assert_int_equal(w.freeze.count, 2);
        assert_string_equal(w.freeze.item[0], "^layer[12]");
        assert_string_equal(w.freeze.item[1], "x:y");
    }
    lt_options_free(&o);
    lt_options_free(&again);
}

/* Options and values that earlier versions had are refused by name, on the command line and in a file, where their
 * default asks for nothing. */
static void test_gone(void **state)
{
    (void)state;
    const char *name, *value;
    char line[128], text[128], says[128];
    size_t i = 0;
    for (; lt_options_list_removed(i, &name, &value); i++) {
        lt_options *o = NULL;
        values v;
        if (value) { /* the program lacks the option */
            assert_status(lt_options_check_removed(name, strlen(name), value), LT_E_ARG);
            assert_ok(lt_options_check_removed(name, strlen(name), NULL));
            continue;
        }
        snprintf(line, sizeof line, "--%s", name);
        snprintf(says, sizeof says, "--%s is gone since 0.", name);
        assert_status(parse(&o, &v, line), LT_E_ARG);
        assert_true(!strncmp(lt_error_message(), says, strlen(says)));
        assert_non_null(strstr(lt_error_message(), ": use "));
        lt_options_free(&o);
        snprintf(text, sizeof text, "lr: 1\n%s: an impossible value\n", name);
        const lt_status st = parse_config(&o, &v, "", text, "");
        lt_options_free(&o);
        if (st == LT_E_UNSUPPORTED)
            skip();
        assert_status(st, LT_E_ARG);
        assert_non_null(strstr(lt_error_message(), ": line 2: --"));
        assert_non_null(strstr(lt_error_message(), says));
    }
    assert_true(i > 0);
    assert_true(lt_options_is_removed_default("read_ahead", "64"));
    assert_false(lt_options_is_removed_default("read-ahead", "6"));
    assert_false(lt_options_is_removed_default("lr", "64"));
    assert_status(lt_options_check_removed("no-read-ahead", strlen("no-read-ahead"), NULL),
                  LT_E_ARG);
}

/* A program of two tables, each with its own struct. */

typedef struct more {
    int64_t depth;
    bool wide;
} more;

static const lt_option model_rows[] = {
    {"Model", "depth", 'n', LT_OPTION_INT, offsetof(more, depth), "3", 1, 99, .help = "layers",
     .after = "nothing"},
    {"Data", "wide", 0, LT_OPTION_BOOL, offsetof(more, wide), .help = "twice the width",
     .after = "data"},
};

static void test_tables(void **state)
{
    (void)state;
    values v;
    more m;
    lt_options *o = NULL;
    const lt_option_table tables[] = {{model_rows, COUNT_OF(model_rows), &m},
                                      {table, COUNT_OF(table), &v}};
    char *argv[] = {(char[]){"prog"}, (char[]){"-n5"}, (char[]){"--bs=7"}, (char[]){"--wide"}};
    char *text = NULL;
    size_t bytes;
    assert_ok(lt_options_compose(&o, &program, tables, 2));
    assert_ok(lt_options_parse(o, COUNT_OF(argv), argv));
    assert_int_equal(m.depth, 5);
    assert_true(m.wide);
    assert_int_equal(v.batch, 7);
    FILE *out = open_memstream(&text, &bytes);
    assert_ok(lt_options_write_config(o, out));
    fclose(out);
    assert_non_null(strstr(text, "wide: true\nbatch-size: 7\nworkers: 2\nlr: 0.5\n"));
    assert_string_equal(text + bytes - strlen("depth: 5\n"), "depth: 5\n");
    free(text);
    lt_options_free(&o);
}

/* Options that are set through another one, by the command line; a file has their names. */
static void test_pairs(void **state)
{
    (void)state;
    static const lt_option rows[] = {
        {"Model", "kwargs", .type = LT_OPTION_PAIR, .help = "rare settings"},
        {"Model", "depth", 'n', LT_OPTION_INT, offsetof(more, depth), "3", 1, 99, .help = "layers",
         .through = "kwargs"},
        {"Model", "wide", 0, LT_OPTION_BOOL, offsetof(more, wide), .help = "twice the width",
         .through = "kwargs"},
    };
    static const struct {
        const char *words[2], *says; /* NULL: depth becomes 5 */
    } lines[] = {
        {{"--kwargs", "depth=5"}, NULL},
        {{"--kwargs=wide=yes", "--kwargs=depth=5"}, NULL},
        {{"--kwargs", "depth=100"}, "--depth: 100 is not in 1..99"},
        {{"--kwargs", "depth"}, "--kwargs: 'depth': want NAME=VALUE"},
        {{"--kwargs", "lr=1"}, "--kwargs: unknown setting 'lr'; --help kwargs lists them"},
        {{"--depth", "5"}, "--depth has no flag: use --kwargs depth=VALUE"},
        {{"-n5"}, "--depth has no flag: use --kwargs depth=VALUE"},
        {{"--no-wide"}, "--wide has no flag: use --kwargs wide=VALUE"},
        {{"--config", ""}, NULL},
    };
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        lt_options *o = NULL;
        values v;
        more m;
        char path[64], text[4096];
        const lt_option_table tables[] = {{rows, COUNT_OF(rows), &m}, {table, COUNT_OF(table), &v}};
        write_config(path, "depth: 5\nkwargs:\n  - wide=true\n");
        char *argv[3] = {(char[]){"prog"}};
        int argc = 1;
        for (; argc < 3 && lines[i].words[argc - 1]; argc++)
            argv[argc] = (char *)(uintptr_t)lines[i].words[argc - 1];
        if (!strcmp(argv[1], "--config"))
            argv[2] = path;
        assert_ok(lt_options_compose(&o, &program, tables, 2));
        const lt_status st = lt_options_parse(o, argc, argv);
        unlink(path);
        if (lines[i].says) {
            assert_status(st, LT_E_ARG);
            assert_string_equal(lt_error_message(), lines[i].says);
        } else if (st != LT_E_UNSUPPORTED) {
            assert_ok(st);
            assert_int_equal(m.depth, 5);
            FILE *file = tmpfile();
            assert_ok(lt_options_write_config(o, file));
            read_all(file, text, sizeof text);
            assert_non_null(strstr(text, "depth: 5\n"));
            assert_null(strstr(text, "kwargs"));
            assert_ok(lt_options_set(o, "kwargs", "depth=6"));
            assert_int_equal(m.depth, 6);
            assert_status(lt_options_set(o, "kwargs", "depth"), LT_E_ARG);
        }
        lt_options_free(&o);
    }
}

typedef struct table_row {
    const char *name;
    lt_option option;
    const char *message;
} table_row;

static const table_row wrong_tables[] = {
    {"a name that an earlier table has",
     {"Model", "lr", .help = "twice"},
     "options: duplicate name --lr: --lr (Model) and --lr (Optimizer)"},
    {"a name that is another one's second name",
     {"Model", "per-step", .help = "twice"},
     "options: duplicate name --per-step: --per-step (Model) and --batch-size (Data)"},
    {"a second name that another option has",
     {"Model", "rate", .also = "speed lr", .help = "twice"},
     "options: duplicate name --lr: --rate (Model) and --lr (Optimizer)"},
    {"a name that every program has",
     {"Model", "config", .help = "twice"},
     "options: duplicate name --config: --config (Model) and --config (General)"},
    {"an alias that another option has",
     {"Model", "bogus", 'b', .help = "twice"},
     "options: -b is --batch-size and --bogus"},
    {"an alias that every program has",
     {"Model", "height", 'h', .help = "twice"},
     "options: -h is --help and --height"},
    {"a default out of range",
     {"Model", "depth", 0, LT_OPTION_INT, 0, "0", 1, 99, .help = "layers"},
     "options: invalid default of --depth: 0 is not in 1..99"},
    {"a default of an unchosen optimizer out of range",
     {"Model", "rate", 0, LT_OPTION_DOUBLE, 0, NULL, 0, 1, .defaults = "sgd=0.5 adam=2"},
     "options: invalid default of --rate: 2 is not in [0, 1]"},
    {"read by an optimizer that there is not",
     {"Model", "rate", 0, LT_OPTION_DOUBLE, .applies = "sgd lamb"},
     "options: --rate: refers to --optim lamb; valid: sgd|adam|shampoo"},
    {"needs an option that there is not",
     {"Model", "rate", 0, LT_OPTION_DOUBLE, .applies = "--freeze --height"},
     "options: --rate needs --height, which does not exist"},
    {"needs a choice that there is not",
     {"Model", "rate", 0, LT_OPTION_DOUBLE, .applies = "--optim=sgd|lamb"},
     "options: --rate needs --optim lamb, which does not exist"},
};

static void test_wrong_table(void **state)
{
    const table_row *row = *state;
    values v;
    more m;
    lt_options *o = NULL;
    const lt_option_table tables[] = {{table, COUNT_OF(table), &v}, {&row->option, 1, &m}};
    assert_status(lt_options_compose(&o, &program, tables, 2), LT_E_ARG);
    assert_string_equal(lt_error_message(), row->message);
    assert_null(o);
}

/* Each allocation fails once. */
static void test_no_memory(void **state)
{
    (void)state;
    char *argv[] = {(char[]){"prog"}, (char[]){"--data=x"}, (char[]){"--freeze=a"},
                    (char[]){"--freeze=b"}};
    lt_status st = LT_E_NOMEM;
    int64_t n = 1;
    for (; st && n < 1000; n++) {
        values v = {0};
        lt_options *o = NULL;
        lt_alloc_fail_at(n);
        st = lt_options_new(&o, &program, &v);
        if (!st)
            st = lt_options_parse(o, COUNT_OF(argv), argv);
        lt_alloc_fail_at(0);
        if (st)
            assert_status(st, LT_E_NOMEM);
        lt_options_free(&o);
    }
    assert_in_range(n, 8, 999);
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(errors) + COUNT_OF(wrong_tables) + 10];
    size_t n = 0;
    for (size_t i = 0; i < COUNT_OF(errors); i++)
        tests[n++] = (struct CMUnitTest){.name = errors[i].line,
                                         .test_func = test_error,
                                         .initial_state = (void *)(uintptr_t)&errors[i]};
    for (size_t i = 0; i < COUNT_OF(wrong_tables); i++)
        tests[n++] = (struct CMUnitTest){.name = wrong_tables[i].name,
                                         .test_func = test_wrong_table,
                                         .initial_state = (void *)(uintptr_t)&wrong_tables[i]};
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_tables);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_pairs);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_values);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_answers);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_config);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_nul_in_config);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_overridden_config);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_gone);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_config_round_trip);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_no_memory);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
