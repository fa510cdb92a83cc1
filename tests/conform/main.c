/* conform [--backend NAME | --levels] [--part K/N] [--filter TEXT] [--only TEXT] [--first] [--also ROW]... [--fused auto|on|off] [--deterministic] [--own]
 * [--tf32] [--bench] [--verbose] [--isolate SECONDS] [--control]: compares every kernel of a backend with ref in double,
 * with computed bounds. Without --backend: ref in single precision.
 *   --levels   ref and all instruction sets of the cpu backend; ref's results in double are computed once
 *   --part     the K-th of N samples of the rows, from 0
 *   --only     rows whose "ENTRY DTYPE NAME", as in a failure's line, begins with the text
 *   --first    only the first row of each kernel and dtype
 *   --also     a further row, by its whole "ENTRY DTYPE NAME", even if --first or --own excludes it
 *   --own      without kernels that external libraries compute, for memory checkers
 *   --tf32     only kernels of products, whose factors may be rounded to TF32
 *   --isolate  runs rows in a process that is replaced after a failure, a crash or a row that takes longer
 *   --control  of the chosen rows the second crashes, the fourth hangs, the sixth makes the device unusable for its
 *              process; exits 0 if exactly these fail
 * Exits 0 if all conform, 1 if not, 77 if the backend cannot be opened here. */

#include "conform.h"
#include "driver.h"
#include "isolate.h"
#include "targets.h"
#include "tensor/backend/kernel_stubs.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CANNOT_RUN = 77, MOST_ALSO = 32 };

typedef struct options {
    const char *backend, *filter, *only;
    lt_fused fused;
    bool bench, own, tf32, verbose, isolate, control, first, deterministic, levels;
    int seconds; /* time limit per row, with isolate */
    int part, parts;
    const char *also[MOST_ALSO];
    int also_count;
} options;

static bool parse_fused(const char *text, lt_fused *fused)
{
    static const char *const names[] = {
        [LT_FUSED_AUTO] = "auto", [LT_FUSED_ON] = "on", [LT_FUSED_OFF] = "off"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (!strcmp(text, names[i])) {
            *fused = (lt_fused)i;
            return true;
        }
    return false;
}

/* Returns the field of an option without value; NULL if the text is not one. */
static bool *flag(options *o, const char *text)
{
    const struct {
        const char *name;
        bool *value;
    } flags[] = {{"--bench", &o->bench},     {"--own", &o->own},
                 {"--tf32", &o->tf32},       {"--verbose", &o->verbose},
                 {"--first", &o->first},     {"--deterministic", &o->deterministic},
                 {"--control", &o->control}, {"--levels", &o->levels}};
    for (size_t i = 0; i < COUNT_OF(flags); i++)
        if (!strcmp(text, flags[i].name))
            return flags[i].value;
    return NULL;
}

/* Returns the field of an option with a text value; NULL if the name is not one. */
static const char **text_option(options *o, const char *name)
{
    return !strcmp(name, "--backend")  ? &o->backend
           : !strcmp(name, "--filter") ? &o->filter
           : !strcmp(name, "--only")   ? &o->only
                                       : NULL;
}

static bool parse_seconds(const char *text, options *o)
{
    o->seconds = atoi(text);
    o->isolate = true;
    return o->seconds > 0;
}

static bool parse_part(const char *text, options *o)
{
    return sscanf(text, "%d/%d", &o->part, &o->parts) == 2 && o->part >= 0 && o->part < o->parts;
}

static bool parse_also(const char *row, options *o)
{
    if (o->also_count == MOST_ALSO)
        return false;
    o->also[o->also_count++] = row;
    return true;
}

static bool parse_fusion(const char *text, options *o)
{
    return parse_fused(text, &o->fused);
}

/* Parses an option whose value is not plain text; returns true if it is valid. */
static bool parse_value(options *o, const char *name, const char *value)
{
    static const struct {
        const char *name;
        bool (*parse)(const char *value, options *o);
    } all[] = {{"--also", parse_also},
               {"--part", parse_part},
               {"--isolate", parse_seconds},
               {"--fused", parse_fusion}};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (!strcmp(name, all[i].name))
            return all[i].parse(value, o);
    return false;
}

static bool parse(int argc, char **argv, options *o)
{
    *o = (options){.backend = "ref", .filter = "", .only = "", .parts = 1};
    for (int i = 1; i < argc; i++) {
        if (flag(o, argv[i])) {
            *flag(o, argv[i]) = true;
            continue;
        }
        const char *name = argv[i], *value = argv[++i]; /* NULL past the last */
        if (value && text_option(o, name))
            *text_option(o, name) = value;
        else if (!value || !parse_value(o, name, value))
            return false;
    }
    return true;
}

/* Every kernel of the table must have rows. */
#define ENTRY_NAME(name, kind, cpu) #name,
static const char *const entries[] = {LT_BACKEND_ENTRIES(ENTRY_NAME)};

static tests_fn *const files[] = {
    elementwise_tests, pointwise_tests, product_tests, norm_tests,      group_norm_tests,
    layernorm_tests,   pool_tests,      loss_tests,    optim_tests,     matrix_tests,
    rational_tests,    scratch_tests,   fused_tests,   attention_tests, rotary_tests,
    embedding_tests,   select_tests};

static bool has_rows(const char *entry)
{
    for (size_t f = 0; f < COUNT_OF(files); f++) {
        test t = {0};
        for (size_t i = 0; files[f](i, &t); i++)
            if (!strcmp(t.entry, entry))
                return true;
    }
    return false;
}

static int without_rows(void)
{
    int missing = 0;
    for (size_t e = 0; e < COUNT_OF(entries); e++)
        if (!has_rows(entries[e])) {
            printf("FAIL %s: an entry without rows\n", entries[e]);
            missing++;
        }
    return missing;
}

/* Returns true if the table lacks a basic kernel. */
static bool is_incomplete(const lt_backend *be)
{
    const char *missing = lt_backend_missing(be);
    if (missing)
        printf("%s: no kernel for the basic entry %s\n", be->name, missing);
    return missing;
}

/* Returns the number of the table's controls that were accepted. */
static int table_controls(const lt_backend *be)
{
    lt_backend broken = *be;
    broken.name = "control";
    broken.gram = NULL;
    const char *missing = lt_backend_missing(&broken);
    return has_rows("no_such_entry") + !(missing && !strcmp(missing, "gram"));
}

/* Returns true if cuDNN, cuBLAS or cuSOLVER compute the kernel on a device. */
static bool is_a_librarys(const char *entry)
{
    static const char *const names[] = {"matmul",       "linear", "conv2d", "gram",
                                        "mode_product", "eigh",   "qr",     "rational"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (!strncmp(entry, names[i], strlen(names[i])))
            return true;
    return false;
}

static bool is_chosen(const options *o, const test *t)
{
    return (o->bench || !t->large) && !(o->own && is_a_librarys(t->entry))
           && (!o->tf32 || multiplies(t))
           && (strstr(t->entry, o->filter) || strstr(t->name, o->filter));
}

enum { MOST_NAME = sizeof((rows *)NULL)->running };

static void name_row(char name[MOST_NAME], const test *t, lt_dtype dtype)
{
    snprintf(name, MOST_NAME, "%s %s %s", t->entry, lt_dtype_name(dtype), t->name);
}

static bool is_also(const options *o, const test *t, lt_dtype dtype)
{
    char name[MOST_NAME];
    name_row(name, t, dtype);
    for (int i = 0; i < o->also_count; i++)
        if (!strcmp(o->also[i], name))
            return true;
    return false;
}

/* The cpu's products accept 16-bit operands on every processor, though they are not always fast. */
static bool takes(const lt_backend *be, void *ctx, const test *t, lt_dtype dtype)
{
    const bool slowly = !strcmp(be->name, "cpu") && multiplies(t);
    return dtype == LT_F32
           || (!t->master && (!t->rounded || be->rounds_grad_w)
               && (slowly || be->has_fast(ctx, dtype)));
}

static const lt_dtype dtypes[] = {LT_F32, LT_BF16, LT_F16};

/* A row that runs on several devices. */
typedef struct run {
    test *t;
    lt_dtype dtype;
    const options *o;
    expected want;
    const char *problem; /* failure of ref in double */
    bool is_expected;
} run;

/* Returns the reason for which the row fails on a device, or NULL. */
static const char *conform_on(run *x, const target *to, double *microseconds)
{
    if (!x->is_expected)
        x->problem = expect(x->t, x->dtype, &x->want);
    x->is_expected = true;
    return x->problem ? x->problem
                      : conform_to(x->t, x->dtype, &x->want, to->be, to->ctx, microseconds);
}

/* Returns true if the process can continue. */
static bool run_on_one(run *x, const target *to, rows *r)
{
    const options *o = x->o;
    char what[MOST_NAME];
    double microseconds = 0;
    name_row(what, x->t, x->dtype);
    strncat(what, to->label, MOST_NAME - strlen(what) - 1);
    if (!rows_begin(r, what, o->verbose))
        return true;
    const char *problem = o->control ? rows_control(r->next) : NULL;
    if (!problem)
        problem = conform_on(x, to, o->bench ? &microseconds : NULL);
    if (problem)
        printf("FAIL %s: %s\n", what, problem);
    else if (o->bench)
        printf("%10.1f us  %s\n", microseconds, what);
    return rows_end(r, !problem);
}

static bool is_of(const target *to, const test *t)
{
    return strstr(t->entry, to->filter) || strstr(t->name, to->filter);
}

/* Assigns rows to parts by Fibonacci hashing, so that adjacent rows, of one kernel or dtype, go to different
 * parts. */
static bool is_other_part(const options *o, int row)
{
    const uint32_t spread = (uint32_t)row * 2654435769U >> 16;
    return (int)(spread % (uint32_t)o->parts) != o->part;
}

/* Runs the row on every device that supports it. Returns true if the process can continue. */
static bool run_row(test *t, lt_dtype dtype, const options *o, const targets *to, rows *r)
{
    char name[MOST_NAME];
    run x = {.t = t, .dtype = dtype, .o = o};
    bool goes_on = true;
    name_row(name, t, dtype);
    if (strncmp(name, o->only, strlen(o->only)) != 0 || is_other_part(o, r->row++))
        return true;
    t->tf32 = o->tf32;
    for (int i = 0; i < to->count && goes_on; i++)
        if (is_of(&to->at[i], t) && takes(to->at[i].be, to->at[i].ctx, t, dtype))
            goes_on = run_on_one(&x, &to->at[i], r);
    if (x.is_expected)
        expected_free(t, &x.want);
    return goes_on;
}

/* Returns true if no earlier chosen row of the file is of the same kernel. */
static bool is_first(tests_fn *tests, size_t row, const options *o, const char *entry)
{
    for (size_t i = 0; i < row; i++) {
        test t = {0};
        tests(i, &t);
        if (is_chosen(o, &t) && !strcmp(t.entry, entry))
            return false;
    }
    return true;
}

static bool is_row(const char *name)
{
    for (size_t f = 0; f < COUNT_OF(files); f++) {
        test t = {0};
        for (size_t i = 0; files[f](i, &t); i++)
            for (size_t d = 0; d < COUNT_OF(dtypes); d++)
                if (is_also(&(options){.also = {name}, .also_count = 1}, &t, dtypes[d]))
                    return true;
    }
    return false;
}

/* Counts requested row names that do not exist. */
static int unknown_rows(const options *o)
{
    int unknown = 0;
    for (int i = 0; i < o->also_count; i++)
        if (!is_row(o->also[i])) {
            printf("FAIL --also: no row is called \"%s\"\n", o->also[i]);
            unknown++;
        }
    return unknown;
}

static bool run_file(tests_fn *tests, const options *o, const targets *to, rows *r)
{
    for (size_t i = 0;; i++) {
        test t = {0};
        if (!tests(i, &t))
            return true;
        const bool all = is_chosen(o, &t) && !(o->first && !is_first(tests, i, o, t.entry));
        tests(i, &t); /* a formatted name is valid until the next call */
        for (size_t d = 0; d < COUNT_OF(dtypes); d++)
            if ((all || is_also(o, &t, dtypes[d])) && !run_row(&t, dtypes[d], o, to, r))
                return false;
    }
}

/* The work of a process: all rows, on a device that it opens. */
static int run_all(void *context, rows *r)
{
    const options *o = context;
    const lt_device_config config = {
        .fused = o->fused, .tf32 = o->tf32, .deterministic = o->deterministic};
    targets to;
    if (o->levels ? targets_open_levels(&to, &config) : targets_open(&to, o->backend, &config)) {
        fprintf(stderr, "conform: backend %s: %s\n", o->backend, lt_error_message());
        if (!strcmp(o->backend, "cuda"))
            say_what_the_driver_says();
        return CANNOT_RUN;
    }
    r->next = 0;
    r->row = 0;
    bool is_well = true;
    for (size_t i = 0; is_well && i < COUNT_OF(files); i++)
        is_well = run_file(files[i], o, &to, r);
    if (is_well)
        targets_close(&to);
    return is_well ? 0 : ROWS_GO_ON;
}

int main(int argc, char **argv)
{
    options o;
    rows sum = {0};
    setvbuf(stdout, NULL, _IOLBF, 0); /* so that a log shows the last row */
    if (!parse(argc, argv, &o)) {
        fprintf(
            stderr,
            "usage: conform [--backend NAME | --levels] [--part K/N] [--filter TEXT] [--only TEXT] [--first] "
            "[--also ROW]... [--fused auto|on|off] [--deterministic] [--own] "
            "[--tf32] [--bench] [--verbose] [--isolate SECONDS] [--control]\n");
        return 2;
    }
    int code = o.isolate ? run_isolated(&sum, o.seconds, run_all, &o) : run_all(&o, &sum);
    if (code == CANNOT_RUN && !sum.failed)
        return code;
    sum.failed += unknown_rows(&o);
    const lt_backend *be = backend_of(o.levels ? "cpu" : o.backend);
    sum.failed += without_rows() + pointwise_without_rows() + is_incomplete(be);

    int accepted = controls() + table_controls(be);
    printf("%s: %d passed, %d failed; %d broken kernels accepted\n",
           o.levels ? "all levels" : o.backend, sum.passed, sum.failed, accepted);
    if (o.control)
        return !(sum.passed && sum.failed == ROWS_CONTROLS);
    return code || sum.failed || accepted || !sum.passed;
}
