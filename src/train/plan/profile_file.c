/* The file of --step-profile: a profile as JSON, which can be read again or written by hand. */

#include "planner.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Members of objects --- */

/* A member of a JSON object and its place in a struct: a double or an int64_t, both at least 0, or a char array. */
typedef struct field {
    const char *key;
    size_t offset;
    enum { NUMBER, COUNT, TEXT } type;
    size_t size;   /* bytes of a char array */
    bool optional; /* if absent the struct is unchanged */
} field;

/* clang-format off */
static const field of_profile[] = {
    {"program", offsetof(plan_profile, program), TEXT, sizeof(((plan_profile *)0)->program), false},
    {"model", offsetof(plan_profile, model), TEXT, sizeof(((plan_profile *)0)->model), false},
    {"fixed", offsetof(plan_profile, base.fixed), NUMBER, 0, false},
    {"per_sample", offsetof(plan_profile, base.per_sample), NUMBER, 0, false},
    {"backward", offsetof(plan_profile, base.backward), NUMBER, 0, false},
    {"load_per_sample", offsetof(plan_profile, base.load_per_sample), NUMBER, 0, false},
    {"staging", offsetof(plan_profile, base.staging), NUMBER, 0, true},
    {"parameter_bytes", offsetof(plan_profile, base.parameter_bytes), NUMBER, 0, false},
    {"activation_bytes", offsetof(plan_profile, base.activation_bytes), NUMBER, 0, false},
    {"layers", offsetof(plan_profile, base.layers), NUMBER, 0, false},
    {"hidden", offsetof(plan_profile, base.hidden), NUMBER, 0, false},
    {"tokens", offsetof(plan_profile, base.tokens), NUMBER, 0, false},
    {"vocabulary", offsetof(plan_profile, base.vocabulary), NUMBER, 0, true},
    {"samples", offsetof(plan_profile, samples), NUMBER, 0, false},
    {"copy", offsetof(plan_profile, copy), NUMBER, 0, true},
    {"ranks", offsetof(plan_profile, ranks), NUMBER, 0, true},
    {"spent", offsetof(plan_profile, spent), NUMBER, 0, false},
    {0},
};
static const field of_bucket[] = {
    {"elements", offsetof(lt_cost_bucket, elements), COUNT, 0, false},
    {"ready", offsetof(lt_cost_bucket, ready), NUMBER, 0, false},
    {"rows", offsetof(lt_cost_bucket, rows), COUNT, 0, false},
    {"columns", offsetof(lt_cost_bucket, columns), COUNT, 0, false},
    {"dense", offsetof(lt_cost_bucket, dense), COUNT, 0, false},
    {0},
};
static const field of_optimizer[] = {
    {"name", offsetof(plan_optimizer, name), TEXT, PLAN_NAME, false},
    {"block", offsetof(plan_optimizer, block), COUNT, 0, false},
    {"state", offsetof(plan_optimizer, state), TEXT, PLAN_STATE, true},
    {"update", offsetof(plan_optimizer, update), NUMBER, 0, false},
    {"refresh", offsetof(plan_optimizer, refresh), NUMBER, 0, false},
    {"state_bytes", offsetof(plan_optimizer, state_bytes), NUMBER, 0, false},
    {0},
};
static const field of_block[] = {
    {"elements", offsetof(lt_plan_block, elements), COUNT, 0, false},
    {"update", offsetof(lt_plan_block, update), NUMBER, 0, false},
    {"refresh", offsetof(lt_plan_block, refresh), NUMBER, 0, false},
    {0},
};
/* clang-format on */

static void put_fields(lt_json_writer *w, const field *f, const void *object)
{
    for (; f->key; f++) {
        const void *at = (const char *)object + f->offset;
        if (f->type == NUMBER)
            lt_json_put_number(w, f->key, *(const double *)at);
        else if (f->type == COUNT)
            lt_json_put_integer(w, f->key, *(const int64_t *)at);
        else
            lt_json_put_string(w, f->key, at);
    }
}

static lt_status get_field(const lt_json_value *v, const field *f, void *at)
{
    const char *text;
    if (f->type == TEXT) {
        LT_TRY(lt_json_string(v, f->key, &text));
        snprintf(at, f->size, "%s", text);
        return LT_OK;
    }
    if (f->type == COUNT) {
        int64_t *count = at;
        LT_TRY(lt_json_integer(v, f->key, count));
        return *count >= 0 ? LT_OK
                           : lt_fail(LT_E_FORMAT, "'%s' is %lld, want 0 or more", f->key,
                                     (long long)*count);
    }
    double *number = at;
    LT_TRY(lt_json_number(v, f->key, number));
    return *number >= 0 && isfinite(*number)
               ? LT_OK
               : lt_fail(LT_E_FORMAT, "'%s' is %g, want 0 or more", f->key, *number);
}

static lt_status get_fields(const lt_json_value *v, const field *f, void *object)
{
    for (; f->key; f++)
        if (!f->optional || lt_json_member(v, f->key))
            LT_TRY(get_field(v, f, (char *)object + f->offset));
    return LT_OK;
}

/* Objects without further members: buckets, blocks. */
static void put_objects(lt_json_writer *w, const char *key, const field *f, const void *item,
                        size_t count, size_t size)
{
    lt_json_begin_array(w, key);
    for (size_t i = 0; i < count; i++) {
        lt_json_begin_object(w, NULL);
        put_fields(w, f, (const char *)item + i * size);
        lt_json_end(w);
    }
    lt_json_end(w);
}

static lt_status get_array(const lt_json_value *object, const char *key, const lt_json_value **out)
{
    *out = lt_json_member(object, key);
    return *out && (*out)->type == LT_JSON_ARRAY
               ? LT_OK
               : lt_fail(LT_E_FORMAT, "'%s' is missing, or not an array", key);
}

/* *out: [*count] objects of `size` bytes, for free(), also on failure. */
static lt_status get_objects(const lt_json_value *object, const char *key, const field *f,
                             size_t size, void **out, size_t *count)
{
    const lt_json_value *array, *v;
    LT_TRY(get_array(object, key, &array));
    *out = calloc(array->count + 1, size);
    if (!*out)
        return lt_fail(LT_E_NOMEM, "no memory for %zu %s", array->count, key);
    for (v = array->child; v; v = v->next)
        LT_TRY(get_fields(v, f, (char *)*out + (*count)++ * size));
    return LT_OK;
}

/* --- Writing --- */

static void put_numbers(lt_json_writer *w, const char *key, const double *value, size_t count)
{
    lt_json_begin_array(w, key);
    for (size_t i = 0; i < count; i++)
        lt_json_put_number(w, NULL, value[i]);
    lt_json_end(w);
}

static void put_profile(lt_json_writer *w, const plan_profile *p)
{
    char hash[PLAN_NAME];
    const lt_cost_row *row;
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)p->samples_hash);
    lt_json_begin_object(w, NULL);
    lt_json_put_integer(w, "format", 1);
    lt_json_put_string(w, "samples_hash", hash);
    put_fields(w, of_profile, p);
    for (size_t i = 0; i < PLAN_UNITS && (row = lt_cost_of_reducer(i)); i++)
        if (row->unit)
            lt_json_put_number(w, row->unit, p->unit[i]);
    put_numbers(w, "batch_sizes", p->batch, (size_t)p->batches);
    put_numbers(w, "batch_seconds", p->seconds, (size_t)p->batches);
    put_numbers(w, "step_seconds", p->step, p->base.steps);
    put_objects(w, "buckets", of_bucket, p->bucket, p->base.buckets, sizeof *p->bucket);
    lt_json_begin_array(w, "optimizers");
    for (int i = 0; i < p->optimizers; i++) {
        const plan_optimizer *o = &p->optimizer[i];
        lt_json_begin_object(w, NULL);
        put_fields(w, of_optimizer, o);
        put_objects(w, "blocks", of_block, o->blocks, o->block_count, sizeof *o->blocks);
        lt_json_end(w);
    }
    lt_json_end(w);
    lt_json_end(w);
}

lt_status lt_plan_profile_save(const plan_profile *p, const char *path)
{
    lt_json_writer w = {0};
    put_profile(&w, p);
    const lt_status st = lt_json_save(&w, path);
    lt_json_writer_clear(&w);
    return st;
}

/* --- Reading --- */

static lt_status get_numbers(const lt_json_value *root, const char *key, double *out, size_t most,
                             size_t *count)
{
    const lt_json_value *array, *v;
    LT_TRY(get_array(root, key, &array));
    if (array->count > most)
        return lt_fail(LT_E_FORMAT, "'%s' has %zu numbers, want at most %zu", key, array->count,
                       most);
    *count = 0;
    for (v = array->child; v; v = v->next) {
        if (v->type != LT_JSON_NUMBER || !(v->number > 0))
            return lt_fail(LT_E_FORMAT, "'%s': number %zu is not above 0", key, *count);
        out[(*count)++] = v->number;
    }
    return LT_OK;
}

static lt_status get_optimizer(plan_profile *p, const lt_json_value *v)
{
    void *blocks = NULL;
    if (p->optimizers == PLAN_OPTIMIZERS)
        return lt_fail(LT_E_FORMAT, "'optimizers': more than %d", PLAN_OPTIMIZERS);
    plan_optimizer *o = &p->optimizer[p->optimizers++];
    LT_TRY(get_fields(v, of_optimizer, o));
    const lt_status st =
        get_objects(v, "blocks", of_block, sizeof *o->blocks, &blocks, &o->block_count);
    o->blocks = blocks;
    return st;
}

static lt_status get_buckets_and_optimizers(plan_profile *p, const lt_json_value *root)
{
    const lt_json_value *array, *v;
    void *buckets = NULL;
    const lt_status st =
        get_objects(root, "buckets", of_bucket, sizeof *p->bucket, &buckets, &p->base.buckets);
    p->base.bucket = p->bucket = buckets;
    LT_TRY(st);
    LT_TRY(get_array(root, "optimizers", &array));
    for (v = array->child; v; v = v->next)
        LT_TRY(get_optimizer(p, v));
    return LT_OK;
}

/* Units of reducers; where a file leaves one out, its usual value. */
static lt_status get_units(plan_profile *p, const lt_json_value *root)
{
    const lt_cost_row *row;
    for (size_t i = 0; i < PLAN_UNITS && (row = lt_cost_of_reducer(i)); i++) {
        const field unit = {.key = row->unit, .type = NUMBER};
        p->unit[i] = row->usual;
        if (row->unit && lt_json_member(root, row->unit))
            LT_TRY(get_field(root, &unit, &p->unit[i]));
    }
    return LT_OK;
}

static lt_status get_profile(plan_profile *p, const lt_json_value *root)
{
    int64_t format;
    size_t batches = 0, seconds = 0;
    const char *hash;
    LT_TRY(lt_json_integer(root, "format", &format));
    if (format != 1)
        return lt_fail(LT_E_FORMAT, "'format' is %lld, want 1", (long long)format);
    LT_TRY(lt_json_string(root, "samples_hash", &hash));
    p->samples_hash = strtoull(hash, NULL, 16);
    LT_TRY(get_fields(root, of_profile, p));
    LT_TRY(get_units(p, root));
    LT_TRY(get_numbers(root, "batch_sizes", p->batch, PLAN_BATCHES, &batches));
    LT_TRY(get_numbers(root, "batch_seconds", p->seconds, PLAN_BATCHES, &seconds));
    LT_TRY(get_numbers(root, "step_seconds", p->step, PLAN_STEPS, &p->base.steps));
    if (batches != seconds)
        return lt_fail(LT_E_FORMAT, "'batch_sizes' has %zu numbers, 'batch_seconds' %zu", batches,
                       seconds);
    p->batches = (int)batches;
    p->base.step_seconds = p->step;
    return get_buckets_and_optimizers(p, root);
}

lt_status lt_plan_profile_load(plan_profile *p, const char *path)
{
    lt_json *json;
    LT_TRY(lt_json_load(&json, path));
    const lt_status st = get_profile(p, lt_json_root(json));
    lt_json_free(&json);
    return st ? lt_fail(st, "--step-profile %s: %s", path, lt_error_message()) : LT_OK;
}

lt_status lt_plan_check_profile(const plan *p)
{
    const plan_profile *f = &p->profile;
    if (strcmp(f->program, p->family->program) != 0)
        return lt_fail(LT_E_ARG, "--step-profile %s: measured by %s, but this program is %s",
                       p->options.step_profile, f->program, p->family->program);
    lt_trainer t = {0};
    plan_config c;
    lt_status st = lt_plan_open_trainer(p, (int[PLAN_AXES]){0}, &t);
    if (!st)
        st = lt_plan_read_config(&c, &t, 1, 1);
    lt_trainer_close(&t);
    if (st || !f->samples_hash || f->samples_hash == c.samples)
        return LT_OK;
    return lt_fail(LT_E_ARG,
                   "--step-profile %s: measured for %s with other flags of data or model; delete "
                   "the file to measure again",
                   p->options.step_profile, f->model);
}
