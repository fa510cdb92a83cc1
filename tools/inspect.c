/* Lists a safetensors file or a checkpoint: names, shapes, dtypes, and the values in a few numbers. */

#include "inspect.h"

#include "lather/detail/run_folder.h"
#include "lather/detail/text.h"
#include "lather/ext/fail.h"
#include "lather/options.h"
#include "lather/safetensors.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct arguments {
    bool json, values, optim;
    const char *join;
} arguments;

static const lt_option table[] = {
    {"Output", "json", 'j', LT_OPTION_BOOL, offsetof(arguments, json),
     .help = "one JSON object instead of a table"},
    {"Output", "values", 0, LT_OPTION_BOOL, offsetof(arguments, values), .value = "true",
     .help = "statistics of the values: smallest, largest, mean, deviation, NaN"},
    {"Output", "optim", 0, LT_OPTION_BOOL, offsetof(arguments, optim),
     .help =
         "of checkpoints, or the latest of a run: rules, norms and spectra of factors, from the optimizer's state, "
         "instead of the tensors; --optim-stats of training writes more"},
    {"Output", "join", 0, LT_OPTION_STRING, offsetof(arguments, join), .meta = "OUT",
     .help =
         "write the tensors of one FILE to the safetensors file OUT, and list nothing: joins the parts of "
         "CHECKPOINT/model.safetensors or optim.safetensors, or of a model.safetensors.index.json"},
};

static const lt_program program = {
    .name = "inspect",
    .summary = "list the tensors of safetensors files and checkpoints, sum up runs",
    .usage = "[OPTION]... FILE|CHECKPOINT|RUN...",
    .description =
        "A checkpoint's sizes and checksums are verified first. For a run folder: settings, results "
        "and the latest checkpoint without its tensors. Exit status 1: a file is "
        "damaged or cannot be read.",
    .option = table,
    .count = sizeof table / sizeof *table,
    .rest = true,
};

/* Statistics of a tensor's values; NaNs are only counted. */
typedef struct statistics {
    int64_t count, nan, infinite;
    double min, max, mean, std;
} statistics;

/* The file's dtype. */
static const char *dtype_of(const lt_safetensors_entry *e)
{
    return e->unsupported ? e->unsupported : lt_dtype_name(e->dtype);
}

/* Computes the statistics by Welford's recurrence (Technometrics 4, 1962); none for an unsupported dtype. */
static statistics look(const lt_safetensors_entry *e)
{
    statistics s = {.min = (double)INFINITY, .max = -(double)INFINITY};
    double square = 0;
    int64_t all = e->unsupported ? 0 : lt_shape_count(e->shape);
    for (int64_t i = 0; i < all; i++) {
        double value = lt_safetensors_element(e, i);
        if (isnan(value)) {
            s.nan++;
            continue;
        }
        s.infinite += isinf(value) != 0;
        s.min = fmin(s.min, value);
        s.max = fmax(s.max, value);
        double before = value - s.mean;
        s.mean += before / (double)++s.count;
        square += before * (value - s.mean);
    }
    s.std = s.count ? sqrt(square / (double)s.count) : (double)NAN;
    return s;
}

/* JSON has no NaN and no infinity. */
void inspect_number(const char *key, double value)
{
    if (isfinite(value))
        printf(",\"%s\":%.9g", key, value);
    else
        printf(",\"%s\":null", key);
}

/* Text from a file, escaped, for free(). */
static char *escape(const char *text)
{
    const size_t bytes = lt_text_escape_bytes(text);
    char *shown = malloc(bytes);
    if (!shown)
        abort();
    lt_text_escape(shown, bytes, text);
    return shown;
}

void inspect_quoted(const char *text)
{
    char *shown = escape(text);
    putchar('"');
    for (const char *c = shown; *c; c++) {
        if (*c == '"' || *c == '\\')
            putchar('\\');
        putchar(*c);
    }
    putchar('"');
    free(shown);
}

static void print_json_entry(const lt_safetensors_entry *e, const arguments *a)
{
    printf("{\"name\":");
    inspect_quoted(e->name);
    printf(",\"dtype\":\"%s\",\"shape\":[", dtype_of(e));
    for (int d = 0; d < e->shape.ndim; d++)
        printf("%s%" PRId64, d ? "," : "", e->shape.dim[d]);
    printf("],\"bytes\":%zu", e->bytes);
    if (a->values) {
        statistics s = look(e);
        inspect_number("min", s.count ? s.min : (double)NAN);
        inspect_number("max", s.count ? s.max : (double)NAN);
        inspect_number("mean", s.count ? s.mean : (double)NAN);
        inspect_number("std", s.std);
        printf(",\"nan\":%" PRId64 ",\"infinite\":%" PRId64, s.nan, s.infinite);
    }
    printf("}");
}

static void print_row(const lt_safetensors_entry *e, const arguments *a)
{
    char shape[LT_SHAPE_TEXT], *name = escape(e->name);
    printf("%-48s %-5s %-20s", name, dtype_of(e), lt_shape_text(e->shape, shape));
    free(name);
    if (a->values) {
        statistics s = look(e);
        if (s.count)
            printf(" %12.5g %12.5g %12.5g %12.5g", s.min, s.max, s.mean, s.std);
        else
            printf(" %12s %12s %12s %12s", "-", "-", "-", "-");
        printf(" %6" PRId64, s.nan);
    }
    putchar('\n');
}

static int fail(void)
{
    fprintf(stderr, "inspect: %s\n", lt_error_message());
    return 1;
}

static void print_head(const arguments *a)
{
    printf("%-48s %-5s %-20s", "name", "dtype", "shape");
    if (a->values)
        printf(" %12s %12s %12s %12s %6s", "min", "max", "mean", "std", "NaN");
    putchar('\n');
}

/* One file: an element of "files", or a table. */
static int show_file(const char *path, const arguments *a)
{
    lt_safetensors *file = NULL;
    if (lt_safetensors_open(&file, path))
        return fail();
    size_t count = lt_safetensors_count(file), bytes = 0;
    int64_t elements = 0;
    if (a->json) {
        printf("{\"path\":");
        inspect_quoted(path);
        printf(",\"tensors\":[");
    } else {
        char *shown = escape(path);
        printf("%s\n", shown);
        free(shown);
        print_head(a);
    }
    for (size_t i = 0; i < count; i++) {
        const lt_safetensors_entry *e = lt_safetensors_at(file, i);
        bytes += e->bytes;
        elements += lt_shape_count(e->shape);
        if (a->json && i)
            putchar(',');
        (a->json ? print_json_entry : print_row)(e, a);
    }
    if (a->json)
        printf("],\"bytes\":%zu}", bytes);
    else
        printf("%zu tensors, %" PRId64 " elements, %zu bytes\n\n", count, elements, bytes);
    lt_safetensors_close(&file);
    return 0;
}

static void print_quoted(const char *key, const char *text)
{
    putchar(',');
    inspect_quoted(key);
    putchar(':');
    inspect_quoted(text);
}

static void print_state_json(const char *path, const lt_checkpoint_state *s)
{
    printf("\"path\":");
    inspect_quoted(path);
    printf(",\"step\":%" PRId64 ",\"epoch\":%" PRId64 ",\"batch\":%" PRId64, s->step, s->epoch,
           s->batch);
    for (int i = 0; i < s->facts; i++)
        if (!s->fact[i].later && !s->fact[i].is_number)
            print_quoted(s->fact[i].key, s->fact[i].text);
    print_quoted("optim", s->optim);
    for (int i = 0; i < s->facts; i++)
        if (!s->fact[i].later && s->fact[i].is_number) {
            putchar(',');
            inspect_quoted(s->fact[i].key);
            printf(":%" PRId64, s->fact[i].number);
        }
    printf(",\"seed\":\"%" PRIu64 "\"", s->seed);
    char key[LT_CHECKPOINT_NAME + 8], shown[2 * LT_CHECKPOINT_NAME];
    snprintf(key, sizeof key, "best_%s", s->best_name);
    if (*s->best_name)
        inspect_number(lt_text_escape(shown, sizeof shown, key), s->best);
    if (*s->ended_by)
        print_quoted("ended_by", s->ended_by);
}

static void print_best(const lt_checkpoint_state *s)
{
    char name[2 * LT_CHECKPOINT_NAME];
    if (!*s->best_name || s->best_step < 1)
        return;
    if (!strcmp(s->best_name, "top1"))
        printf("best top-1 %.2f %%", s->best);
    else
        printf("best %s %.6g", lt_text_escape(name, sizeof name, s->best_name), s->best);
    printf(" at step %" PRId64 "\n", s->best_step);
}

void inspect_state(const char *path, const lt_checkpoint_state *s, bool json)
{
    if (json) {
        print_state_json(path, s);
        return;
    }
    char *optim = escape(s->optim), *shown = escape(path), by[2 * LT_CHECKPOINT_NAME];
    printf("%s: complete, checksums hold\n", shown);
    for (int i = 0; i < s->facts; i++) {
        char *text = escape(s->fact[i].text), *key = escape(s->fact[i].key);
        if (!s->fact[i].later && !s->fact[i].is_number)
            printf("%s, ", text);
        else if (!s->fact[i].later)
            printf("%" PRId64 " %s, ", s->fact[i].number, key);
        free(text);
        free(key);
    }
    printf("optimizer %s, step %" PRId64 ", epoch %" PRId64 ", batch %" PRId64 ", seed %" PRIu64
           "\n",
           optim, s->step, s->epoch, s->batch, s->seed);
    free(optim);
    free(shown);
    print_best(s);
    if (*s->ended_by)
        printf("ended by %s\n", lt_text_escape(by, sizeof by, s->ended_by));
    putchar('\n');
}

static int show_checkpoint(const char *path, const arguments *a)
{
    static const char *const names[] = {"model.safetensors", "optim.safetensors"};
    lt_checkpoint_state state;
    if (lt_checkpoint_verify(path, &state))
        return fail();
    if (a->json)
        putchar('{');
    inspect_state(path, &state, a->json);
    if (a->json)
        printf(a->optim ? "," : "},");
    if (a->optim) {
        if (inspect_optim(path, state.optim, a->json))
            return fail();
        printf(a->json ? "}" : "");
        return 0;
    }
    int status = 0;
    for (int i = 0; i < 2; i++) {
        char file[4096];
        snprintf(file, sizeof file, "%s/%s", path,
                 names[i]); /* not cut: lt_checkpoint_verify() opened it */
        if (a->json && i)
            putchar(',');
        status |= show_file(file, a);
    }
    return status;
}

static int show_folder(const char *path, const arguments *a)
{
    char file[4096];
    snprintf(file, sizeof file, "%s/state.json", path);
    if (!access(file, F_OK))
        return show_checkpoint(path, a);
    if (lt_run_is_used(path) && a->optim) {
        snprintf(file, sizeof file, "%s/checkpoints/latest", path);
        return show_checkpoint(file, a);
    }
    if (lt_run_is_used(path))
        return inspect_run(path, a->json) ? fail() : 0;
    (void)lt_fail(LT_E_ARG, "%s: neither a checkpoint, which has a state.json, nor a run folder",
                  path);
    return fail();
}

static int show_all(const lt_options *options, const arguments *a)
{
    int status = 0;
    if (a->json)
        printf("{\"files\":[");
    for (size_t i = 0; i < lt_options_positional_count(options) && !status; i++) {
        const char *path = lt_options_positional(options, i);
        struct stat info;
        if (a->json && i)
            putchar(',');
        bool is_folder = !stat(path, &info) && S_ISDIR(info.st_mode);
        status = (is_folder ? show_folder : show_file)(path, a);
    }
    if (a->json)
        printf("]}\n");
    if (fflush(stdout)) {
        perror("inspect: stdout");
        status = 1;
    }
    return status;
}

/* Returns the exit status. */
static int join(const lt_options *options, const char *out)
{
    if (lt_options_positional_count(options) != 1) {
        fprintf(stderr, "inspect: --join %s: %zu files, want one\n", out,
                lt_options_positional_count(options));
        return 2;
    }
    return lt_safetensors_join(lt_options_positional(options, 0), out) ? fail() : 0;
}

int main(int argc, char **argv)
{
    arguments a = {0};
    lt_options *options = NULL;
    int status = 2;
    if (lt_options_new(&options, &program, &a) || lt_options_parse(options, argc, argv))
        (void)fail();
    else if (lt_options_requested(options) != LT_OPTIONS_RUN)
        status = lt_options_print_request(options, stdout) ? fail() : 0;
    else if (lt_options_positional_count(options) == 0)
        fprintf(stderr,
                "inspect: a file, a checkpoint or a run folder is wanted; --help says more\n");
    else
        status = a.join ? join(options, a.join) : show_all(options, &a);
    lt_options_free(&options);
    return status;
}
