/* Runs every pair of optimizer settings, lists which are refused, and fails if one is ignored.
 *
 *     option_pairs             prints the page docs/results/option-pairs.md
 *     option_pairs PAGE        exit status 1 if a setting is ignored, or PAGE is another; LATHER_TEST_FULL=1: all pairs
 *     option_pairs --control   exit status 0 if a planted setting that is never read is found
 *
 * Settings come from the rows of the registry: of each field a value that differs from the default, of a choice each
 * other one; and presets, weight averaging, dtypes of state and device. A setting is ignored where a run with it has the
 * weights of every step, and the bytes of state, of a run without it. */

#include "option_pairs.h"

#include "option_runs.h"

#include <stdio.h>
#include <string.h>

enum { REFUSALS = 256, PAGE_BYTES = 1 << 17 };

typedef struct result {
    bool allowed, decays;
    uint64_t hash, config; /* weights and bytes of state; resolved settings */
    char message[MESSAGE];
} result;

typedef struct refusal {
    char pair[4 * TEXT + 8], message[MESSAGE];
} refusal;

typedef struct table {
    const lt_optim_family *family;
    settings list;
    result base, alone[SETTINGS];
    refusal refusal[REFUSALS];
    size_t refusals;
    size_t allowed, refused, ignored;
} table;

/* --- A run --- */

static lt_status run_steps(run *r, uint64_t *hash)
{
    enum { ALL = (1 << PARAMS) - 1, MISSES = 1 << 1 };
    for (int64_t t = 1; t <= STEPS; t++) {
        LT_TRY(make_step(r, t, t == 2 ? ALL & ~MISSES : ALL));
        LT_TRY(add_values_to_hash(r, hash));
    }
    const size_t bytes = lt_optim_state_bytes(r->optim);
    add_to_hash(hash, &bytes, sizeof bytes);
    return LT_OK;
}

/* Stores the resolved settings' hash, and whether they have weight decay. */
static void note_settings(result *out)
{
    const lt_optim_field *decay = lt_optim_find_field(flags.family, "weight_decay");
    out->config = 14695981039346656037U;
    add_to_hash(&out->config, flags.settings, flags.family->config_bytes);
    out->decays = decay && lt_field_number(decay, flags.settings) > 0;
}

static result run_with(const lt_optim_family *f, const setting *const *set, int count)
{
    result out = {.allowed = true, .hash = 14695981039346656037U};
    run r;
    bool f64 = false;
    for (int i = 0; i < count; i++)
        f64 = f64 || set[i]->f64;
    open_run(&r, f64);
    lt_status st = make_optim(&r, f, set, count);
    st = st ? st : run_steps(&r, &out.hash);
    if (!st)
        note_settings(&out);
    if (st) {
        out.allowed = false;
        snprintf(out.message, MESSAGE, "%s", lt_error_message());
    }
    close_run(&r);
    return out;
}

static bool has_no_effect(const char *field)
{
    bool found = false;
    for (size_t i = 0; i < sizeof no_effect / sizeof *no_effect; i++)
        found = found || !strcmp(no_effect[i], field);
    return found;
}

/* --- Pairs --- */

static bool is_setting(const setting *s, const char *text)
{
    char full[2 * TEXT];
    snprintf(full, sizeof full, "%s=%s", s->field, s->value);
    return !strcmp(text, s->field) || !strcmp(text, full);
}

static bool has_reason(const setting *s, const setting *with)
{
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (is_setting(s, reasons[i].setting)
            && (!*reasons[i].with || (with && is_setting(with, reasons[i].with))))
            return true;
    return false;
}

/* Counts a setting that changes nothing. Not counted: one that the other one implies, one of weight decay without
 * weight decay. */
static void check_effect(table *t, const setting *s, const setting *with, const result *got,
                         const result *without)
{
    if (!got->allowed || !without->allowed || got->hash != without->hash || has_no_effect(s->field)
        || has_reason(s, with) || (!got->decays && strstr(s->field, "weight_decay"))
        || (*s->flag && got->config == without->config))
        return;
    t->ignored++;
    fprintf(stderr, "%s: %s=%s has no effect with %s=%s\n", t->family->name, s->field, s->value,
            with ? with->field : "the defaults", with ? with->value : "");
}

static void run_alone(table *t)
{
    t->base = run_with(t->family, NULL, 0);
    for (size_t i = 0; i < t->list.count; i++) {
        const setting *one = &t->list.set[i];
        t->alone[i] = run_with(t->family, &one, 1);
        check_effect(t, one, NULL, &t->alone[i], &t->base);
    }
}

/* Notes a pair that is refused though each of its settings is allowed alone. */
static void note_refused(table *t, const setting *const *two, const char *message)
{
    refusal *r = &t->refusal[t->refusals++];
    assert_true(t->refusals <= REFUSALS);
    snprintf(r->pair, sizeof r->pair, "%s=%s, %s=%s", two[0]->field, two[0]->value, two[1]->field,
             two[1]->value);
    snprintf(r->message, sizeof r->message, "%s", message);
}

static void run_pair(table *t, size_t i, size_t k)
{
    const setting *two[] = {&t->list.set[i], &t->list.set[k]};
    const result got = run_with(t->family, two, 2);
    t->allowed += got.allowed;
    t->refused += !got.allowed;
    check_effect(t, two[1], two[0], &got, &t->alone[i]);
    check_effect(t, two[0], two[1], &got, &t->alone[k]);
    if (!got.allowed && t->alone[i].allowed && t->alone[k].allowed)
        note_refused(t, two, got.message);
}

/* Runs one pair in `every`. */
static void run_pairs(table *t, size_t every)
{
    size_t pair = 0;
    list_settings(&t->list, t->family);
    run_alone(t);
    for (size_t i = 0; i < t->list.count; i++)
        for (size_t k = i + 1; k < t->list.count; k++)
            if (strcmp(t->list.set[i].field, t->list.set[k].field) != 0 && !(pair++ % every))
                run_pair(t, i, k);
}

/* --- The page --- */

static const char page_head[] =
    "# Pairs of optimizer settings\n\n"
    "This page lists which settings of an optimizer are refused, alone or in pairs, and with which message. `./check` runs a\n"
    "tenth of the pairs, `./check --full` all of them, seven steps of six small parameters each: none crashes, and each setting of\n"
    "an allowed pair changes a weight or the bytes of state, but for the reasons below. Shampoo has blocks of 8 and f = 2 here,\n"
    "Prodigy a first distance of 0.1; Shampoo's presets are settings, `soap` among them.\n\n"
    "    tests/optim/option_pairs > docs/results/option-pairs.md    # in a build folder\n\n"
    "| optimizer | settings | pairs allowed | refused |\n| --- | ---: | ---: | ---: |\n";

static void print_counts(table *t, FILE *out)
{
    fprintf(out, "| %s | %zu | %zu | %zu |\n", t->family->name, t->list.count, t->allowed,
            t->refused);
}

static void print_refused_alone(table *t, FILE *out)
{
    for (size_t i = 0; i < t->list.count; i++)
        if (!t->alone[i].allowed)
            fprintf(out, "| %s | `%s=%s` | %s |\n", t->family->name, t->list.set[i].field,
                    t->list.set[i].value, t->alone[i].message);
}

static void print_refused_pairs(table *t, FILE *out)
{
    for (size_t i = 0; i < t->refusals; i++) {
        const char *message = t->refusal[i].message, *between = "";
        if (!*message)
            continue;
        fprintf(out, "| %s | %s | ", t->family->name, message);
        for (size_t k = t->refusals; k-- > i;)
            if (!strcmp(t->refusal[k].message, message)) {
                fprintf(out, "%s`%s`", between, t->refusal[k].pair);
                between = "; ";
                if (k > i)
                    *t->refusal[k].message = 0;
            }
        fprintf(out, " |\n");
    }
}

/* A part of the page: its head, and the rows of an optimizer. */
static const struct {
    const char *head;
    void (*print)(table *t, FILE *out);
} parts[] = {
    {page_head, print_counts},
    {"\n## Refused alone\n\nA pair with one of these is refused too, unless it has what the message names.\n\n"
     "| optimizer | setting | message |\n| --- | --- | --- |\n",
     print_refused_alone},
    {"\n## Refused together\n\n"
     "State below f32 is refused in f64, which is for comparison with formulas: rounding would leave 3 of 16 digits. With\n"
     "`refresh=async` a thread reads f32 roots that the step frees, were they stored in fewer bytes.\n\n"
     "| optimizer | message | pairs |\n| --- | --- | --- |\n",
     print_refused_pairs},
};

static void print_page(table *const *t, size_t count, FILE *out)
{
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        fputs(parts[k].head, out);
        for (size_t i = 0; i < count; i++)
            parts[k].print(t[i], out);
    }
    fputs("\n## Without effect\n\n| setting | with | because |\n| --- | --- | --- |\n", out);
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        fprintf(out, "| `%s` | `%s` | %s |\n", reasons[i].setting, reasons[i].with,
                reasons[i].reason);
    fputs("| `norm_weight_decay`, `weight_decay_type` | `weight_decay=0` | nothing decays |\n",
          out);
    for (size_t i = 0; i < sizeof no_effect / sizeof *no_effect; i++)
        fprintf(out, "| `%s` | | it changes time, or what follows a failure |\n", no_effect[i]);
}

/* --- Control: an optimizer with a setting that it never reads --- */

typedef struct planted_config {
    lt_sgd_config sgd;
    double unread;
} planted_config;

static lt_status make(lt_optim **out, const lt_params *params, const void *c, double lr)
{
    (void)lr;
    return lt_optim_sgd(out, params, c); /* begins with SGD's */
}

static const lt_optim_field fields[] = {
    {"momentum", LT_FIELD_REAL, offsetof(planted_config, sgd.momentum), .high = 1, .below = true},
    {"unread", LT_FIELD_REAL, offsetof(planted_config, unread), .high = 1, .help = "nothing"},
};
static const lt_optim_preset planted_preset = {NULL, 0.1, &(planted_config){{.momentum = 0.9}, 0}};
static const lt_optim_family planted = {LT_OPTIM_ROW("planted", planted_config, planted_preset)};

/* --- The program --- */

/* Returns true if the file's text is the page, or, of a part of the pairs, has all that is refused alone. */
static bool is_page(const char *path, const char *page, bool whole)
{
    char *text = calloc(1, PAGE_BYTES);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    (void)!fread(text, 1, PAGE_BYTES - 1, file);
    fclose(file);
    const char *from = strstr(page, "\n## Refused alone");
    char *part = strndup(from, (size_t)(strstr(from + 1, "\n## ") - from));
    const bool same = whole ? !strcmp(text, page) : strstr(text, part) != NULL;
    if (!same)
        fprintf(stderr, "%s: is not what option_pairs prints: write it again\n", path);
    free(part);
    free(text);
    return same;
}

/* Fills the tables of all optimizers; returns how many settings were ignored. */
static size_t run_families(table **t, size_t *count, size_t every)
{
    const lt_optim_family *f;
    size_t ignored = 0;
    for (size_t i = 0; (f = lt_optim_family_at(i)); i++) {
        if (is_replaced(f))
            continue;
        t[*count] = calloc(1, sizeof **t);
        t[*count]->family = f;
        run_pairs(t[*count], every);
        ignored += t[(*count)++]->ignored;
    }
    return ignored;
}

int main(int argc, char **argv)
{
    table *t[LT_MAX_OPTIM_FAMILIES];
    size_t count = 0, bytes;
    char *page = NULL;
    const bool control = argc > 1 && !strcmp(argv[1], "--control");
    const bool whole = argc < 2 || getenv("LATHER_TEST_FULL");
    setenv("LATHER_LOG", "error", 1);
    register_replacements();
    if (control)
        assert_ok(lt_optim_register(&planted));
    assert_ok(lt_optim_flags_open(&flags));
    const size_t ignored = run_families(t, &count, control ? 1000 : whole ? 1 : 10);
    FILE *out = open_memstream(&page, &bytes);
    print_page(t, count, out);
    fclose(out);
    bool passed = control ? ignored && t[count - 1]->ignored == ignored : !ignored;
    if (argc < 2)
        fputs(page, stdout);
    else if (!control)
        passed = is_page(argv[1], page, whole) && passed;
    for (size_t i = 0; i < count; i++)
        free(t[i]);
    free(page);
    lt_optim_flags_close(&flags);
    return !passed;
}
