/* The file of --step-profile: a profile as JSON, which can be read again or written by hand. */

#include "base/alloc.h"
#include "planner.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Members of objects --- */

/* A member of a JSON object and its place in a struct: a double or an int64_t, both at least 0; a char array; or an
 * array of objects, which the struct owns. */
typedef struct field {
    const char *key;
    enum { NUMBER, COUNT, TEXT, OBJECTS } type;
    size_t offset;
    size_t size;            /* bytes of a char array, or of an object */
    bool optional;          /* if absent the struct is unchanged */
    size_t count;           /* offset of the number of objects, a size_t */
    const struct field *of; /* members of each object */
} field;

#define AT(type, member)    .offset = offsetof(type, member)
#define CHARS(type, member) AT(type, member), .size = sizeof(((type *)0)->member)
#define ITEMS(type, member, number, members)                                                \
    AT(type, member), .size = sizeof *((type *)0)->member, .count = offsetof(type, number), \
                      .of = members
/* clang-format off */
static const field of_bucket[] = {
    {"elements", COUNT, AT(lt_cost_bucket, elements)},
    {"ready", NUMBER, AT(lt_cost_bucket, ready)},
    {"rows", COUNT, AT(lt_cost_bucket, rows)},
    {"columns", COUNT, AT(lt_cost_bucket, columns)},
    {"dense", COUNT, AT(lt_cost_bucket, dense)},
    {0},
};
static const field of_block[] = {
    {"elements", COUNT, AT(lt_plan_block, elements)},
    {"update", NUMBER, AT(lt_plan_block, update)},
    {"refresh", NUMBER, AT(lt_plan_block, refresh)},
    {0},
};
static const field of_optimizer[] = {
    {"name", TEXT, CHARS(plan_optimizer, name)},
    {"block", COUNT, AT(plan_optimizer, block)},
    {"state", TEXT, CHARS(plan_optimizer, state), .optional = true},
    {"update", NUMBER, AT(plan_optimizer, update)},
    {"refresh", NUMBER, AT(plan_optimizer, refresh)},
    {"state_bytes", NUMBER, AT(plan_optimizer, state_bytes)},
    {"blocks", OBJECTS, ITEMS(plan_optimizer, blocks, block_count, of_block)},
    {0},
};
static const field of_profile[] = {
    {"program", TEXT, CHARS(plan_profile, program)},
    {"model", TEXT, CHARS(plan_profile, model)},
    {"fixed", NUMBER, AT(plan_profile, base.fixed)},
    {"per_sample", NUMBER, AT(plan_profile, base.per_sample)},
    {"backward", NUMBER, AT(plan_profile, base.backward)},
    {"load_per_sample", NUMBER, AT(plan_profile, base.load_per_sample)},
    {"staging", NUMBER, AT(plan_profile, base.staging), .optional = true},
    {"parameter_bytes", NUMBER, AT(plan_profile, base.parameter_bytes)},
    {"activation_bytes", NUMBER, AT(plan_profile, base.activation_bytes)},
    {"layers", NUMBER, AT(plan_profile, base.layers)},
    {"hidden", NUMBER, AT(plan_profile, base.hidden)},
    {"tokens", NUMBER, AT(plan_profile, base.tokens)},
    {"vocabulary", NUMBER, AT(plan_profile, base.vocabulary), .optional = true},
    {"samples", NUMBER, AT(plan_profile, samples)},
    {"copy", NUMBER, AT(plan_profile, copy), .optional = true},
    {"ranks", NUMBER, AT(plan_profile, ranks), .optional = true},
    {"spent", NUMBER, AT(plan_profile, spent)},
    {0},
};
/* Arrays of the profile, which the file has after its numbers. */
static const field of_arrays[] = {
    {"buckets", OBJECTS, ITEMS(plan_profile, bucket, base.buckets, of_bucket)},
    {"optimizers", OBJECTS, ITEMS(plan_profile, optimizer, optimizers, of_optimizer)},
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
        else if (f->type == TEXT)
            lt_json_put_string(w, f->key, at);
        if (f->type != OBJECTS)
            continue;
        const char *item = *(char *const *)at;
        const size_t count = *(const size_t *)((const char *)object + f->count);
        lt_json_begin_array(w, f->key);
        for (size_t i = 0; i < count; i++) {
            lt_json_begin_object(w, NULL);
            put_fields(w, f->of, item + i * f->size);
            lt_json_end(w);
        }
        lt_json_end(w);
    }
}

static lt_status get_array(const lt_json_value *object, const char *key, const lt_json_value **out)
{
    *out = lt_json_member(object, key);
    return *out && (*out)->type == LT_JSON_ARRAY
               ? LT_OK
               : lt_fail(LT_E_FORMAT, "'%s' is missing, or not an array", key);
}

static lt_status get_fields(const lt_json_value *v, const field *f, void *object);

static lt_status get_objects(const lt_json_value *v, const field *f, void *object)
{
    const lt_json_value *array;
    size_t *count = (size_t *)((char *)object + f->count);
    LT_TRY(get_array(v, f->key, &array));
    char *item = *(char **)((char *)object + f->offset) = lt_alloc(array->count, f->size);
    if (!item)
        return LT_E_NOMEM;
    for (v = array->child; v; v = v->next)
        LT_TRY(get_fields(v, f->of, item + (*count)++ * f->size));
    return LT_OK;
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
    for (; f->key; f++) {
        if (f->optional && !lt_json_member(v, f->key))
            continue;
        LT_TRY(f->type == OBJECTS ? get_objects(v, f, object)
                                  : get_field(v, f, (char *)object + f->offset));
    }
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
    put_fields(w, of_arrays, p);
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

/* Reads the cost unit of each gradient reducer; if the file lacks one, takes its usual value. */
static lt_status get_reducer_units(plan_profile *p, const lt_json_value *root)
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
    LT_TRY(get_reducer_units(p, root));
    LT_TRY(get_numbers(root, "batch_sizes", p->batch, PLAN_BATCHES, &batches));
    LT_TRY(get_numbers(root, "batch_seconds", p->seconds, PLAN_BATCHES, &seconds));
    LT_TRY(get_numbers(root, "step_seconds", p->step, PLAN_STEPS, &p->base.steps));
    if (batches != seconds)
        return lt_fail(LT_E_FORMAT, "'batch_sizes' has %zu numbers, 'batch_seconds' %zu", batches,
                       seconds);
    p->batches = (int)batches;
    p->base.step_seconds = p->step;
    const lt_status st = get_fields(root, of_arrays, p);
    p->base.bucket = p->bucket;
    return st;
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
    plan_config c;
    if (lt_plan_read_config(&c, &p->trainer->line, 1, 1) || !f->samples_hash
        || f->samples_hash == c.samples)
        return LT_OK;
    return lt_fail(LT_E_ARG,
                   "--step-profile %s: measured for %s with other flags of data or model; delete "
                   "the file to measure again",
                   p->options.step_profile, f->model);
}
