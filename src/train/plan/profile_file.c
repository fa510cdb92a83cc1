/* The file of --step-profile: what profile.c measured, as JSON, to be read again or written by hand. */

#include "planner.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Writing --- */

static void put_numbers(lt_json_writer *w, const char *key, const double *value, size_t count)
{
    lt_json_begin_array(w, key);
    for (size_t i = 0; i < count; i++)
        lt_json_put_number(w, NULL, value[i]);
    lt_json_end(w);
}

static void put_bucket(lt_json_writer *w, const lt_cost_bucket *b)
{
    lt_json_begin_object(w, NULL);
    lt_json_put_integer(w, "elements", b->elements);
    lt_json_put_number(w, "ready", b->ready);
    lt_json_put_integer(w, "rows", b->rows);
    lt_json_put_integer(w, "columns", b->columns);
    lt_json_put_integer(w, "dense", b->dense);
    lt_json_end(w);
}

static void put_optimizer(lt_json_writer *w, const plan_optimizer *o)
{
    lt_json_begin_object(w, NULL);
    lt_json_put_string(w, "name", o->name);
    lt_json_put_integer(w, "block", o->block);
    lt_json_put_string(w, "state", o->state);
    lt_json_put_number(w, "update", o->update);
    lt_json_put_number(w, "refresh", o->refresh);
    lt_json_put_number(w, "state_bytes", o->state_bytes);
    lt_json_begin_array(w, "blocks");
    for (size_t i = 0; i < o->blocks; i++) {
        lt_json_begin_object(w, NULL);
        lt_json_put_integer(w, "elements", o->block_elements[i]);
        lt_json_put_number(w, "update", o->block_update[i]);
        lt_json_put_number(w, "refresh", o->block_refresh[i]);
        lt_json_end(w);
    }
    lt_json_end(w);
    lt_json_end(w);
}

/* Members of the profile that are one number each. */
typedef struct number {
    const char *key;
    size_t offset;
    bool may_lack; /* then it is as it was */
} number;
static const number numbers[] = {
    {"fixed", offsetof(plan_profile, base.fixed), false},
    {"per_sample", offsetof(plan_profile, base.per_sample), false},
    {"backward", offsetof(plan_profile, base.backward), false},
    {"load_per_sample", offsetof(plan_profile, base.load_per_sample), false},
    {"staging", offsetof(plan_profile, base.staging), true},
    {"parameter_bytes", offsetof(plan_profile, base.parameter_bytes), false},
    {"activation_bytes", offsetof(plan_profile, base.activation_bytes), false},
    {"layers", offsetof(plan_profile, base.layers), false},
    {"hidden", offsetof(plan_profile, base.hidden), false},
    {"tokens", offsetof(plan_profile, base.tokens), false},
    {"vocabulary", offsetof(plan_profile, base.vocabulary), true},
    {"samples", offsetof(plan_profile, samples), false},
    {"copy", offsetof(plan_profile, copy), true},
    {"ranks", offsetof(plan_profile, ranks), true},
    {"spent", offsetof(plan_profile, spent), false},
};

static double number_at(const plan_profile *p, size_t i)
{
    double value;
    memcpy(&value, (const char *)p + numbers[i].offset, sizeof value);
    return value;
}

static void put_profile(lt_json_writer *w, const plan_profile *p)
{
    char hash[PLAN_NAME];
    const lt_cost_row *row;
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)p->samples_hash);
    lt_json_begin_object(w, NULL);
    lt_json_put_integer(w, "format", 1);
    lt_json_put_string(w, "program", p->program);
    lt_json_put_string(w, "model", p->model);
    lt_json_put_string(w, "samples_hash", hash);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        lt_json_put_number(w, numbers[i].key, number_at(p, i));
    for (size_t i = 0; i < PLAN_UNITS && (row = lt_cost_of_reducer(i)); i++)
        if (row->unit)
            lt_json_put_number(w, row->unit, p->unit[i]);
    put_numbers(w, "batch_sizes", p->batch, (size_t)p->batches);
    put_numbers(w, "batch_seconds", p->seconds, (size_t)p->batches);
    put_numbers(w, "step_seconds", p->step, p->base.steps);
    lt_json_begin_array(w, "buckets");
    for (size_t i = 0; i < p->base.buckets; i++)
        put_bucket(w, &p->bucket[i]);
    lt_json_end(w);
    lt_json_begin_array(w, "optimizers");
    for (int i = 0; i < p->optimizers; i++)
        put_optimizer(w, &p->optimizer[i]);
    lt_json_end(w);
    lt_json_end(w);
}

lt_status lt_plan_profile_save(const plan_profile *p, const char *path)
{
    lt_json_writer w = {0};
    put_profile(&w, p);
    lt_status st = lt_json_save(&w, path);
    lt_json_writer_clear(&w);
    return st;
}

/* --- Reading --- */

static lt_status get_array(const lt_json_value *object, const char *key, const lt_json_value **out)
{
    *out = lt_json_member(object, key);
    return *out && (*out)->type == LT_JSON_ARRAY
               ? LT_OK
               : lt_fail(LT_E_FORMAT, "'%s' is missing, or no array", key);
}

static lt_status get_positive(const lt_json_value *object, const char *key, double *out)
{
    LT_TRY(lt_json_number(object, key, out));
    return *out >= 0 && isfinite(*out)
               ? LT_OK
               : lt_fail(LT_E_FORMAT, "'%s' is %g, want 0 or more", key, *out);
}

static lt_status get_count(const lt_json_value *object, const char *key, int64_t *out)
{
    LT_TRY(lt_json_integer(object, key, out));
    return *out >= 0 ? LT_OK
                     : lt_fail(LT_E_FORMAT, "'%s' is %lld, want 0 or more", key, (long long)*out);
}

static lt_status get_text(const lt_json_value *object, const char *key, char *out, size_t size)
{
    const char *text;
    LT_TRY(lt_json_string(object, key, &text));
    snprintf(out, size, "%s", text);
    return LT_OK;
}

static lt_status get_numbers(const lt_json_value *root, const char *key, double *out, size_t most,
                             size_t *count)
{
    const lt_json_value *array, *v;
    LT_TRY(get_array(root, key, &array));
    if (array->count > most)
        return lt_fail(LT_E_FORMAT, "'%s' has %zu numbers, at most %zu are taken", key,
                       array->count, most);
    *count = 0;
    for (v = array->child; v; v = v->next) {
        if (v->type != LT_JSON_NUMBER || !(v->number > 0))
            return lt_fail(LT_E_FORMAT, "'%s': number %zu is not above 0", key, *count);
        out[(*count)++] = v->number;
    }
    return LT_OK;
}

static lt_status get_bucket(const lt_json_value *v, lt_cost_bucket *b)
{
    LT_TRY(get_count(v, "elements", &b->elements));
    LT_TRY(get_positive(v, "ready", &b->ready));
    LT_TRY(get_count(v, "rows", &b->rows));
    LT_TRY(get_count(v, "columns", &b->columns));
    return get_count(v, "dense", &b->dense);
}

static lt_status get_buckets(plan_profile *p, const lt_json_value *root)
{
    const lt_json_value *array, *v;
    LT_TRY(get_array(root, "buckets", &array));
    p->bucket = calloc(array->count + 1, sizeof *p->bucket);
    if (!p->bucket)
        return lt_fail(LT_E_NOMEM, "no memory for %zu buckets", array->count);
    for (v = array->child; v; v = v->next)
        LT_TRY(get_bucket(v, &p->bucket[p->base.buckets++]));
    p->base.bucket = p->bucket;
    return LT_OK;
}

static lt_status get_blocks(plan_optimizer *o, const lt_json_value *array)
{
    const lt_json_value *v;
    o->block_update = calloc(array->count + 1, sizeof *o->block_update);
    o->block_refresh = calloc(array->count + 1, sizeof *o->block_refresh);
    o->block_elements = calloc(array->count + 1, sizeof *o->block_elements);
    if (!o->block_update || !o->block_refresh || !o->block_elements)
        return lt_fail(LT_E_NOMEM, "no memory for %zu blocks", array->count);
    for (v = array->child; v; v = v->next, o->blocks++) {
        LT_TRY(get_count(v, "elements", &o->block_elements[o->blocks]));
        LT_TRY(get_positive(v, "update", &o->block_update[o->blocks]));
        LT_TRY(get_positive(v, "refresh", &o->block_refresh[o->blocks]));
    }
    return LT_OK;
}

static lt_status get_optimizer(plan_profile *p, const lt_json_value *v)
{
    const lt_json_value *blocks;
    if (p->optimizers == PLAN_OPTIMIZERS)
        return lt_fail(LT_E_FORMAT, "'optimizers': more than %d", PLAN_OPTIMIZERS);
    plan_optimizer *o = &p->optimizer[p->optimizers++];
    LT_TRY(get_text(v, "name", o->name, sizeof o->name));
    LT_TRY(get_count(v, "block", &o->block));
    if (lt_json_member(v, "state"))
        LT_TRY(get_text(v, "state", o->state, sizeof o->state));
    LT_TRY(get_positive(v, "update", &o->update));
    LT_TRY(get_positive(v, "refresh", &o->refresh));
    LT_TRY(get_positive(v, "state_bytes", &o->state_bytes));
    LT_TRY(get_array(v, "blocks", &blocks));
    return get_blocks(o, blocks);
}

static lt_status get_optimizers(plan_profile *p, const lt_json_value *root)
{
    const lt_json_value *array, *v;
    LT_TRY(get_array(root, "optimizers", &array));
    for (v = array->child; v; v = v->next)
        LT_TRY(get_optimizer(p, v));
    return LT_OK;
}

/* Those that a file leaves out are the usual ones. */
static lt_status get_units(plan_profile *p, const lt_json_value *root)
{
    const lt_cost_row *row;
    for (size_t i = 0; i < PLAN_UNITS && (row = lt_cost_of_reducer(i)); i++) {
        p->unit[i] = row->usual;
        if (row->unit && lt_json_member(root, row->unit))
            LT_TRY(get_positive(root, row->unit, &p->unit[i]));
    }
    return LT_OK;
}

static lt_status get_profile(plan_profile *p, const lt_json_value *root)
{
    int64_t format;
    size_t batches = 0, seconds = 0;
    char hash[PLAN_NAME];
    LT_TRY(lt_json_integer(root, "format", &format));
    if (format != 1)
        return lt_fail(LT_E_FORMAT, "'format' is %lld, want 1", (long long)format);
    LT_TRY(get_text(root, "program", p->program, sizeof p->program));
    LT_TRY(get_text(root, "model", p->model, sizeof p->model));
    LT_TRY(get_text(root, "samples_hash", hash, sizeof hash));
    p->samples_hash = strtoull(hash, NULL, 16);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        double value;
        if (numbers[i].may_lack && !lt_json_member(root, numbers[i].key))
            continue;
        LT_TRY(get_positive(root, numbers[i].key, &value));
        memcpy((char *)p + numbers[i].offset, &value, sizeof value);
    }
    LT_TRY(get_units(p, root));
    LT_TRY(get_numbers(root, "batch_sizes", p->batch, PLAN_BATCHES, &batches));
    LT_TRY(get_numbers(root, "batch_seconds", p->seconds, PLAN_BATCHES, &seconds));
    LT_TRY(get_numbers(root, "step_seconds", p->step, PLAN_STEPS, &p->base.steps));
    if (batches != seconds)
        return lt_fail(LT_E_FORMAT, "'batch_sizes' has %zu numbers, 'batch_seconds' %zu", batches,
                       seconds);
    p->batches = (int)batches;
    p->base.step_seconds = p->step;
    LT_TRY(get_buckets(p, root));
    return get_optimizers(p, root);
}

lt_status lt_plan_profile_load(plan_profile *p, const char *path)
{
    lt_json *json;
    LT_TRY(lt_json_load(&json, path));
    lt_status st = get_profile(p, lt_json_root(json));
    lt_json_free(&json);
    return st ? lt_fail(st, "--step-profile %s: %s", path, lt_error_message()) : LT_OK;
}

lt_status lt_plan_check_profile(const plan *p)
{
    const plan_profile *f = &p->profile;
    if (strcmp(f->program, p->family->program) != 0)
        return lt_fail(LT_E_ARG, "--step-profile %s: of %s, and this is %s",
                       p->options.step_profile, f->program, p->family->program);
    lt_trainer t = {0};
    plan_setting s;
    lt_status st = lt_plan_start(p, (int[PLAN_AXES]){0}, &t);
    if (!st)
        st = lt_plan_setting(&s, &t, 1, 1);
    lt_trainer_close(&t);
    if (st || !f->samples_hash || f->samples_hash == s.samples)
        return LT_OK;
    return lt_fail(LT_E_ARG,
                   "--step-profile %s: of %s, and other flags of data or model; without the file "
                   "it is measured anew",
                   p->options.step_profile, f->model);
}
