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

#include "base/options/options.h"
#include "fixture.h"
#include "optim/registry/field.h"
#include "optim/registry/registry.h"

#include "lather/averaging.h"
#include "lather/cautious.h"
#include "lather/detail/optim_flags.h"
#include "lather/shampoo.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SETTINGS = 160, TEXT = 96, MESSAGE = 240, STEPS = 7, PARAMS = 6, PRESETS = 8 };
enum { REFUSALS = 256, PAGE_BYTES = 1 << 17 };

typedef struct setting {
    char field[TEXT], value[TEXT], flag[2 * TEXT + 16];
    lt_averaging_kind averaging;
    lt_state_dtype state;
    lt_cautious_config cautious;
    bool f64;
} setting;

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
    setting set[SETTINGS];
    size_t count;
    result base, alone[SETTINGS];
    refusal refusal[REFUSALS];
    size_t refusals;
    size_t allowed, refused, ignored;
} table;

/* --- Settings --- */

static bool has_no_effect(const char *field)
{
    bool found = false;
    for (size_t i = 0; i < sizeof no_effect / sizeof *no_effect; i++)
        found = found || !strcmp(no_effect[i], field);
    return found;
}

static setting *add(table *t, const char *field, const char *value)
{
    setting *s = &t->set[t->count++];
    assert_true(t->count <= SETTINGS);
    snprintf(s->field, TEXT, "%s", field);
    snprintf(s->value, TEXT, "%s", value);
    return s;
}

static void add_flag(table *t, const lt_optim_field *f, const char *value)
{
    setting *s = add(t, f->name, value);
    snprintf(s->flag, sizeof s->flag, "--%s%s=%s", f->rare ? "opt-kwargs=" : "", f->name, value);
}

static void add_choices(table *t, const lt_optim_field *f, int usual)
{
    char word[TEXT];
    const char *item;
    int bytes;
    for (int i = 0; (item = lt_options_item(f->choices, i, &bytes)); i++) {
        snprintf(word, sizeof word, "%.*s", bytes, item);
        if (i != usual)
            add_flag(t, f, word);
    }
}

static void add_by_type(table *t, const lt_optim_field *f)
{
    const double usual = lt_field_number(f, t->family->preset[0].config);
    char text[TEXT];
    switch (f->type) {
    case LT_FIELD_CHOICE:
        add_choices(t, f, (int)usual);
        return;
    case LT_FIELD_FLAG:
        add_flag(t, f, usual > 0 ? "false" : "true");
        return;
    case LT_FIELD_SCOPE:
        add_flag(t, f, "true");
        return;
    case LT_FIELD_LIST:
        fail_msg("no value for %s", f->name);
        return;
    case LT_FIELD_REAL:
        snprintf(text, sizeof text, "%g",
                 usual > 0 && usual < 1e-3 ? 1000 * usual
                 : usual > 0               ? 0.75 * usual
                                           : 0.25);
        break;
    case LT_FIELD_COUNT:
    case LT_FIELD_LIMIT:
    case LT_FIELD_SMALL:
        snprintf(text, sizeof text, "%g", usual > 0 ? 2 * usual : 2);
        break;
    }
    add_flag(t, f, text);
}

static void add_field(table *t, const lt_optim_field *f)
{
    bool by_type = true;
    for (size_t i = 0; i < sizeof field_values / sizeof *field_values; i++)
        if (!strcmp(field_values[i][0], f->name)) {
            by_type = false;
            add_flag(t, f, field_values[i][1]);
        }
    if (!strcmp(f->name, "epsilon") && t->family->presets > 1) /* Shampoo */
        add_flag(t, f, "0");
    if (by_type)
        add_by_type(t, f);
}

static void list_settings(table *t)
{
    for (size_t i = 0; i < t->family->fields; i++)
        add_field(t, &t->family->field[i]);
    for (size_t i = 1; i < t->family->presets; i++) {
        setting *s = add(t, "preset", t->family->preset[i].name);
        snprintf(s->flag, sizeof s->flag, "--preset=%s", t->family->preset[i].name);
    }
    add(t, "iterate_averaging", "schedule-free")->averaging = LT_AVERAGING_SCHEDULE_FREE;
    add(t, "iterate_averaging", "primal")->averaging = LT_AVERAGING_PRIMAL;
    add(t, "iterate_averaging", "tail")->averaging = LT_AVERAGING_TAIL;
    add(t, "iterate_averaging", "ema-nesterov")->averaging = LT_AVERAGING_EMA_NESTEROV;
    add(t, "cautious_mask", "true")->cautious.mask = true;
    add(t, "cautious_weight_decay", "true")->cautious.decay = true;
    add(t, "hyperball", "true")->cautious.hyperball = true;
    add(t, "state_dtype", "bf16")->state = LT_STATE_BF16;
    add(t, "state_dtype", "int8")->state = LT_STATE_INT8;
    add(t, "dtype", "float64")->f64 = true;
}

/* --- A run --- */

static const struct {
    const char *name;
    lt_shape shape;
} shapes[PARAMS] = {{"m.weight", {2, {18, 3}}},     {"conv.weight", {4, {4, 3, 2, 2}}},
                    {"norm.bias", {1, {5}}},        {"wte.weight", {2, {10, 3}}},
                    {"c_attn.weight", {2, {4, 6}}}, {"small.weight", {2, {4, 2}}}};

/* A number in [-1,1) by step, tensor and element. */
static double value_of(int64_t step, size_t tensor, int64_t i)
{
    uint32_t x = (uint32_t)(step * 1000003 + (int64_t)tensor * 10007 + i * 101 + 1) * 2654435761U;
    x = (x ^ x >> 15) * 2246822519U;
    x = (x ^ x >> 13) * 3266489917U;
    return (double)(x ^ x >> 16) / 2147483648.0 - 1;
}

static void fill(lt_tensor *to, int64_t step, size_t tensor)
{
    double host[64];
    for (int64_t i = 0; i < lt_tensor_count(to); i++)
        host[i] = value_of(step, tensor, i);
    put(to, host);
}

static void add_to_hash(uint64_t *hash, const void *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        *hash = (*hash ^ ((const unsigned char *)memory)[i]) * 1099511628211U;
}

typedef struct run {
    lt_device *device;
    lt_param param[PARAMS];
    lt_params list;
    lt_optim *optim;
    lt_options *options;
} run;

static lt_optim_flags flags; /* rows for all runs */

static void open_run(run *r, bool f64)
{
    *r = (run){0};
    assert_ok(lt_device_open(&r->device, "cpu", &(lt_device_config){.f64 = f64, .threads = 1}));
    for (size_t i = 0; i < PARAMS; i++) {
        lt_param *p = &r->param[i];
        const lt_shape shape = shapes[i].shape;
        assert_ok(shape.ndim == 4 ? lt_param_init_filter(p, r->device, "", shapes[i].name, shape)
                                  : lt_param_init(p, r->device, "", shapes[i].name, shape, 0));
        p->role = shape.ndim > 1 ? LT_PARAM_WEIGHT : LT_PARAM_BIAS;
        assert_ok(lt_params_add(&r->list, p));
        fill(p->value, 0, i);
    }
}

static void close_run(run *r)
{
    lt_optim_free(&r->optim);
    lt_options_free(&r->options);
    for (size_t i = 0; i < PARAMS; i++)
        lt_param_clear(&r->param[i]);
    lt_params_clear(&r->list);
    lt_device_close(&r->device);
}

/* Makes the optimizer with up to two settings. */
static lt_status make_optim(run *r, const lt_optim_family *f, const setting *const *set, int count)
{
    static const lt_program program = {.name = "pairs", .selector = "optim"};
    char name[TEXT], flag[2][2 * TEXT + 16], *argv[4] = {(char[]){"pairs"}, name};
    int argc = 2;
    snprintf(name, sizeof name, "--optim=%s", f->name);
    for (int i = 0; i < count; i++)
        if (*set[i]->flag) {
            snprintf(flag[i], sizeof flag[i], "%s", set[i]->flag);
            argv[argc++] = flag[i];
        }
    const lt_option_table tables[] = {lt_optim_flags_table(&flags, LT_OPTIM_FLAGS_COMMON),
                                      lt_optim_flags_table(&flags, LT_OPTIM_FLAGS_OWN)};
    LT_TRY(lt_options_compose(&r->options, &program, tables, 2));
    LT_TRY(lt_options_parse(r->options, argc, argv));
    LT_TRY(lt_optim_flags_resolve(&flags, r->options));
    LT_TRY(lt_optim_flags_make(&r->optim, &flags, &r->list));
    lt_cautious_config cautious = {0};
    for (int i = 0; i < count; i++)
        cautious = (lt_cautious_config){cautious.mask || set[i]->cautious.mask,
                                        cautious.decay || set[i]->cautious.decay,
                                        cautious.hyperball || set[i]->cautious.hyperball};
    if (cautious.mask || cautious.decay || cautious.hyperball)
        LT_TRY(lt_optim_start_cautious(r->optim, &cautious));
    for (int i = 0; i < count; i++) {
        lt_averaging_config c = LT_AVERAGING_DEFAULTS;
        c.kind = set[i]->averaging;
        LT_TRY(lt_optim_set_state_dtype(r->optim, set[i]->state));
        if (c.kind)
            LT_TRY(lt_optim_start_averaging(r->optim, &r->list, &c));
    }
    return LT_OK;
}

static lt_status run_steps(run *r, uint64_t *hash)
{
    unsigned char host[64 * sizeof(double)];
    for (int64_t t = 1; t <= STEPS; t++) {
        const lt_step step = {.lr = 0.01 * (double)(8 - t), .attempt = t};
        for (size_t i = 0; i < PARAMS; i++) {
            r->param[i].has_grad = t != 2 || i != 1;
            fill(r->param[i].grad, t, i);
        }
        LT_TRY(lt_optim_step(r->optim, &step));
        for (size_t i = 0; i < PARAMS; i++) {
            LT_TRY(lt_tensor_read(r->param[i].value, host, lt_tensor_bytes(r->param[i].value)));
            add_to_hash(hash, host, lt_tensor_bytes(r->param[i].value));
        }
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
    for (size_t i = 0; i < t->count; i++) {
        const setting *one = &t->set[i];
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
    const setting *two[] = {&t->set[i], &t->set[k]};
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
    list_settings(t);
    run_alone(t);
    for (size_t i = 0; i < t->count; i++)
        for (size_t k = i + 1; k < t->count; k++)
            if (strcmp(t->set[i].field, t->set[k].field) != 0 && !(pair++ % every))
                run_pair(t, i, k);
}

/* --- The page --- */

static const char page_head[] =
    "# Pairs of optimizer settings\n\n"
    "This page lists which settings of an optimizer are refused, alone or in pairs, and with which message. `./check` runs a\n"
    "tenth of the pairs, `./check --full` all of them, seven steps of six small parameters each: none crashes, and each setting of\n"
    "an allowed pair changes a weight or the bytes of state, but for the reasons below. Shampoo has blocks of 8 and f = 2 here; its\n"
    "presets are settings, `soap` among them.\n\n"
    "    tests/optim/option_pairs > docs/results/option-pairs.md    # in a build folder\n\n"
    "| optimizer | settings | pairs allowed | refused |\n| --- | ---: | ---: | ---: |\n";

static void print_counts(table *t, FILE *out)
{
    fprintf(out, "| %s | %zu | %zu | %zu |\n", t->family->name, t->count, t->allowed, t->refused);
}

static void print_refused_alone(table *t, FILE *out)
{
    for (size_t i = 0; i < t->count; i++)
        if (!t->alone[i].allowed)
            fprintf(out, "| %s | `%s=%s` | %s |\n", t->family->name, t->set[i].field,
                    t->set[i].value, t->alone[i].message);
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

/* --- Shampoo with small blocks and frequent refreshes --- */

static lt_shampoo_config config[PRESETS];
static lt_optim_preset preset[PRESETS];
static lt_optim_family shampoo;

static void register_small_shampoo(void)
{
    shampoo = lt_optim_family_shampoo;
    shampoo.name = "shampoo_small";
    shampoo.preset = preset;
    for (size_t i = 0; i < shampoo.presets; i++) {
        preset[i] = lt_optim_family_shampoo.preset[i];
        config[i] = *(const lt_shampoo_config *)preset[i].config;
        config[i].precondition_frequency = config[i].precondition_frequency > 2 ? 2 : 1;
        config[i].max_preconditioner_dim = 8;
        preset[i].config = &config[i];
    }
    assert_ok(lt_optim_register(&shampoo));
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
        if (f == &lt_optim_family_shampoo || f == &lt_optim_family_soap)
            continue; /* shampoo_small has their rows */
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
    register_small_shampoo();
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
