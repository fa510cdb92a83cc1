/* conform: compares every kernel of a backend with ref in double, with computed bounds. Exits 0 if all conform, 1 if not,
 * 77 if the backend cannot be opened here. */

#include "command_line.h"
#include "conform.h"
#include "driver.h"
#include "isolate.h"
#include "targets.h"
#include "tensor/backend/kernel_stubs.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CANNOT_RUN = 77 };

typedef struct options {
    const char *backend, *filter, *only, *part_text;
    int fused; /* lt_fused */
    bool bench, own, tf32, verbose, control, first, deterministic, levels;
    int64_t seconds; /* time limit per row, in a process; 0: all rows run in this one */
    int part, parts;
    lt_option_list also;
} options;

static const lt_option table[] = {
    {"Device", "backend", 0, LT_OPTION_STRING, offsetof(options, backend), .value = "ref",
     .meta = "NAME", .help = "Backend to check; ref: in single precision"},
    {"Device", "levels", 0, LT_OPTION_BOOL, offsetof(options, levels),
     .help = "Check ref and all instruction sets of cpu; ref in double is computed once"},
    {"Device", "fused", 0, LT_OPTION_CHOICE, offsetof(options, fused), .choices = "auto|on|off",
     .help = "Fusion of convolutions and batch norm"},
    {"Device", "deterministic", 0, LT_OPTION_BOOL, offsetof(options, deterministic),
     .help = "Deterministic kernels only"},
    {"Rows", "filter", 0, LT_OPTION_STRING, offsetof(options, filter), .value = "", .meta = "TEXT",
     .help = "Rows whose kernel or name contains the text"},
    {"Rows", "only", 0, LT_OPTION_STRING, offsetof(options, only), .value = "", .meta = "TEXT",
     .help = "Rows whose \"ENTRY DTYPE NAME\", as in a failure's line, begins with the text"},
    {"Rows", "part", 0, LT_OPTION_STRING, offsetof(options, part_text), .value = "0/1",
     .meta = "K/N", .help = "Sample K of N of the rows, from 0"},
    {"Rows", "first", 0, LT_OPTION_BOOL, offsetof(options, first),
     .help = "The first row of each kernel and dtype"},
    {"Rows", "also", 0, LT_OPTION_LIST, offsetof(options, also), .meta = "ROW",
     .help =
         "A further row, by its whole \"ENTRY DTYPE NAME\", even if --first or --own excludes it"},
    {"Rows", "own", 0, LT_OPTION_BOOL, offsetof(options, own),
     .help = "No kernels that external libraries compute, for memory checkers"},
    {"Rows", "tf32", 0, LT_OPTION_BOOL, offsetof(options, tf32),
     .help = "Kernels of products, whose factors may be rounded to TF32"},
    {"Run", "bench", 0, LT_OPTION_BOOL, offsetof(options, bench),
     .help = "Print microseconds per call, of large rows too"},
    {"Run", "verbose", 0, LT_OPTION_BOOL, offsetof(options, verbose),
     .help = "Print each row before it runs"},
    {"Run", "isolate", 0, LT_OPTION_INT, offsetof(options, seconds), .min = 0, .max = 1e6,
     .meta = "SECONDS",
     .help = "Run rows in a process; replace it after a failure, a crash or a longer row"},
    {"Run", "control", 0, LT_OPTION_BOOL, offsetof(options, control),
     .help = "Spoil three rows: a crash, a hang, a broken device; exit 0 if only they fail"},
};

static const lt_program program = {.name = "conform",
                                   .summary = "Compare a backend's kernels with ref in double",
                                   .usage = "[OPTION]...",
                                   .option = table,
                                   .count = COUNT_OF(table)};

static bool parse_part(options *o)
{
    return sscanf(o->part_text, "%d/%d", &o->part, &o->parts) == 2 && o->part >= 0
           && o->part < o->parts;
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
    const char *missing = lt_backend_find_missing_kernel(be);
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
    const char *missing = lt_backend_find_missing_kernel(&broken);
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
    for (size_t i = 0; i < o->also.count; i++)
        if (!strcmp(o->also.item[i], name))
            return true;
    return false;
}

/* Returns true for kernels that only backends with host memory have. */
static bool is_for_host(const char *entry)
{
#define IS_BASIC(name)
#define IS_FUSED(name)
#define IS_HOST(name)          \
    if (!strcmp(entry, #name)) \
        return true;
#define IS(name, kind, cpu) IS_##kind(name)
    LT_BACKEND_ENTRIES(IS)
    return false;
}

/* The cpu's products accept 16-bit operands on every processor, though they are not always fast. */
static bool takes(const lt_backend *be, void *ctx, const test *t, lt_dtype dtype)
{
    const bool slowly = !strcmp(be->name, "cpu") && multiplies(t);
    if (is_for_host(t->entry) && !be->host_memory)
        return false;
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

static bool is_row(char *name)
{
    const options also = {.also = {&name, 1}};
    for (size_t f = 0; f < COUNT_OF(files); f++) {
        test t = {0};
        for (size_t i = 0; files[f](i, &t); i++)
            for (size_t d = 0; d < COUNT_OF(dtypes); d++)
                if (is_also(&also, &t, dtypes[d]))
                    return true;
    }
    return false;
}

/* Counts requested row names that do not exist. */
static int unknown_rows(const options *o)
{
    int unknown = 0;
    for (size_t i = 0; i < o->also.count; i++)
        if (!is_row(o->also.item[i])) {
            printf("FAIL --also: no row is called \"%s\"\n", o->also.item[i]);
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
        .fused = (lt_fused)o->fused, .tf32 = o->tf32, .deterministic = o->deterministic};
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

/* Runs all rows, prints the result and returns the exit status. */
static int check(options *o)
{
    rows sum = {0};
    const int code =
        o->seconds ? run_isolated(&sum, (int)o->seconds, run_all, o) : run_all(o, &sum);
    if (code == CANNOT_RUN && !sum.failed)
        return code;
    sum.failed += unknown_rows(o);
    const lt_backend *be = backend_of(o->levels ? "cpu" : o->backend);
    sum.failed += without_rows() + pointwise_without_rows() + is_incomplete(be);

    const int accepted = controls() + table_controls(be);
    printf("%s: %d passed, %d failed; %d broken kernels accepted\n",
           o->levels ? "all levels" : o->backend, sum.passed, sum.failed, accepted);
    if (o->control)
        return !(sum.passed && sum.failed == ROWS_CONTROLS);
    return code || sum.failed || accepted || !sum.passed;
}

int main(int argc, char **argv)
{
    options o = {0};
    lt_options *parsed;
    setvbuf(stdout, NULL, _IOLBF, 0); /* so that a log shows the last row */
    int code = read_command_line(&parsed, &program, &o, argc, argv);
    if (code == RUN && !parse_part(&o)) {
        fprintf(stderr, "conform: --part %s: want K/N with K from 0 to N - 1\n", o.part_text);
        code = USAGE_ERROR;
    }
    if (code == RUN)
        code = check(&o);
    lt_options_free(&parsed);
    return code;
}
