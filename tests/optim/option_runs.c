/* Settings of optimizers from the rows of the registry, and runs with one or two of them. */

#include "option_runs.h"

#include "base/options/options.h"
#include "option_pairs.h"

#include "lather/prodigy.h"
#include "lather/shampoo.h"

#include <stdio.h>
#include <string.h>

enum { PRESETS = 8 };

/* --- Settings --- */

static setting *add(settings *t, const char *field, const char *value)
{
    setting *s = &t->set[t->count++];
    assert_true(t->count <= SETTINGS);
    snprintf(s->field, TEXT, "%s", field);
    snprintf(s->value, TEXT, "%s", value);
    return s;
}

static void add_flag(settings *t, const lt_optim_field *f, const char *value)
{
    setting *s = add(t, f->name, value);
    snprintf(s->flag, sizeof s->flag, "--%s%s=%s", f->rare ? "opt-kwargs=" : "", f->name, value);
}

static void add_choices(settings *t, const lt_optim_field *f, int usual)
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

static void add_by_type(settings *t, const lt_optim_family *family, const lt_optim_field *f)
{
    const double usual = lt_field_number(f, family->preset[0].config);
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

static void add_field(settings *t, const lt_optim_family *family, const lt_optim_field *f)
{
    bool by_type = true;
    for (size_t i = 0; i < sizeof field_values / sizeof *field_values; i++)
        if (!strcmp(field_values[i][0], f->name)) {
            by_type = false;
            add_flag(t, f, field_values[i][1]);
        }
    if (!strcmp(f->name, "epsilon") && family->presets > 1) /* Shampoo */
        add_flag(t, f, "0");
    if (by_type)
        add_by_type(t, family, f);
}

void list_settings(settings *t, const lt_optim_family *family)
{
    for (size_t i = 0; i < family->fields; i++)
        add_field(t, family, &family->field[i]);
    for (size_t i = 1; i < family->presets; i++) {
        setting *s = add(t, "preset", family->preset[i].name);
        snprintf(s->flag, sizeof s->flag, "--preset=%s", family->preset[i].name);
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

void add_to_hash(uint64_t *hash, const void *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        *hash = (*hash ^ ((const unsigned char *)memory)[i]) * 1099511628211U;
}

lt_optim_flags flags;

void open_run(run *r, bool f64)
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

void close_run(run *r)
{
    lt_optim_free(&r->optim);
    lt_options_free(&r->options);
    for (size_t i = 0; i < PARAMS; i++)
        lt_param_clear(&r->param[i]);
    lt_params_clear(&r->list);
    lt_device_close(&r->device);
}

lt_status make_optim(run *r, const lt_optim_family *f, const setting *const *set, int count)
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

lt_status make_step(run *r, int64_t t, unsigned present)
{
    const lt_step step = {.lr = 0.01 * (double)(8 - t), .attempt = t};
    for (size_t i = 0; i < PARAMS; i++) {
        r->param[i].has_grad = present >> i & 1;
        fill(r->param[i].grad, t, i);
    }
    return lt_optim_step(r->optim, &step);
}

lt_status add_values_to_hash(const run *r, uint64_t *hash)
{
    unsigned char host[64 * sizeof(double)];
    for (size_t i = 0; i < PARAMS; i++) {
        const lt_tensor *value = r->param[i].value;
        LT_TRY(lt_tensor_read(value, host, lt_tensor_bytes(value)));
        add_to_hash(hash, host, lt_tensor_bytes(value));
    }
    return LT_OK;
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

/* --- Prodigy with steps that f32 shows --- */

static void register_long_prodigy(void)
{
    static lt_prodigy_config long_config;
    static lt_optim_preset usual = {NULL, 1, &long_config};
    static lt_optim_family prodigy;
    long_config = LT_PRODIGY_DEFAULTS;
    long_config.d0 = 0.1;
    prodigy = lt_optim_family_prodigy;
    prodigy.name = "prodigy_long";
    prodigy.preset = &usual;
    assert_ok(lt_optim_register(&prodigy));
}

void register_replacements(void)
{
    register_small_shampoo();
    register_long_prodigy();
}

bool is_replaced(const lt_optim_family *f)
{
    return f == &lt_optim_family_shampoo || f == &lt_optim_family_soap
           || f == &lt_optim_family_prodigy;
}
