/* Weight files: torchvision's names and shapes. */

#include "weights.h"

#include "base/alloc.h"
#include "open.h"
#include "tensor/safetensors.h"

#include "lather/log.h"
#include "lather/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 256 }; /* longest name of a parameter with its prefix */

/* --- Conversion on the host: small, and only if the dtypes differ --- */

static void put_element(void *host, lt_dtype dtype, int64_t i, double value)
{
    if (dtype == LT_F32)
        ((float *)host)[i] = (float)value;
    else if (dtype == LT_F64)
        ((double *)host)[i] = value;
    else
        ((int64_t *)host)[i] = (int64_t)value;
}

static lt_status copy_entry_to_tensor(const lt_safetensors_entry *e, lt_tensor *tensor,
                                      const lt_shard_spec *spec)
{
    size_t bytes = lt_tensor_bytes(tensor);
    lt_dtype dtype = lt_tensor_dtype(tensor);
    const lt_shard_spec all = spec ? *spec : lt_shard_spec_whole(lt_tensor_shape(tensor));
    void *host = lt_alloc_aligned(64, bytes); /* the file's data may be unaligned */
    if (!host)
        return LT_E_NOMEM;
    if (dtype == e->dtype)
        lt_shard_spec_read(&all, e->data, host, lt_dtype_size(dtype));
    else
        for (lt_shard_run run = {0}; lt_shard_spec_next_run(&all, &run);)
            for (int64_t i = 0; i < run.count; i++)
                put_element(host, dtype, run.local + i, lt_safetensors_element(e, run.logical + i));
    lt_status st = lt_tensor_write(tensor, host, bytes);
    lt_free(host);
    return st;
}

/* Checks the range of a counter, which is incremented in each batch and must not overflow. */
static lt_status check_counter_range(const lt_safetensors_entry *e, const char *path)
{
    const double most = 0x1p53;
    for (int64_t i = 0; i < lt_shape_count(e->shape); i++) {
        const double count = lt_safetensors_element(e, i);
        if (!(count >= 0 && count <= most))
            return lt_fail(LT_E_FORMAT, "%s: '%s' %.0f is not in [0,%.0f]", path, e->name, count,
                           most);
    }
    return LT_OK;
}

static bool is_float(const lt_safetensors_entry *e)
{
    return e->dtype == LT_F32 || e->dtype == LT_F64 || e->dtype == LT_F16 || e->dtype == LT_BF16;
}

static lt_status check_dtype(const lt_safetensors_entry *e, const char *path, lt_dtype want)
{
    const lt_dtype have = e->dtype;
    bool wants_float = want == LT_F32 || want == LT_F64;
    bool converts = (is_float(e) && wants_float) || (have == LT_I32 && want == LT_I64);
    if (e->unsupported || (have != want && !converts))
        return lt_fail(LT_E_FORMAT, "%s: '%s' is %s, but the model needs %s", path, e->name,
                       e->unsupported ? e->unsupported : lt_dtype_name(have), lt_dtype_name(want));
    return want == LT_I64 ? check_counter_range(e, path) : LT_OK;
}

static lt_status check_shape_and_dtype(const lt_safetensors_entry *e, const char *path,
                                       const lt_tensor *tensor, const lt_shard_spec *spec)
{
    char a[LT_SHAPE_TEXT], b[LT_SHAPE_TEXT];
    const lt_shape want = spec ? spec->logical : lt_tensor_shape(tensor);
    if (!lt_shape_equal(e->shape, want))
        return lt_fail(LT_E_SHAPE, "%s: '%s' is %s, but the model needs %s", path, e->name,
                       lt_shape_text(e->shape, a), lt_shape_text(want, b));
    return check_dtype(e, path, lt_tensor_dtype(tensor));
}

lt_status lt_entry_load(const lt_safetensors_entry *e, const char *path, lt_tensor *tensor,
                        const lt_shard_spec *spec, bool write)
{
    return write ? copy_entry_to_tensor(e, tensor, spec)
                 : check_shape_and_dtype(e, path, tensor, spec);
}

static lt_status copy_mean_to_tensor(const lt_safetensors_entry *const *e, int count, int parts,
                                     lt_tensor *tensor)
{
    const size_t bytes = lt_tensor_bytes(tensor);
    void *host = lt_alloc_aligned(64, bytes);
    if (!host)
        return LT_E_NOMEM;
    for (int64_t i = 0; i < lt_tensor_count(tensor); i++) {
        double sum = 0;
        for (int k = 0; k < count; k++)
            sum += e[k] ? lt_safetensors_element(e[k], i) : 0;
        put_element(host, lt_tensor_dtype(tensor), i, sum / parts);
    }
    lt_status st = lt_tensor_write(tensor, host, bytes);
    lt_free(host);
    return st;
}

lt_status lt_entry_load_mean(const lt_safetensors_entry *const *e, int count, int parts,
                             const char *path, lt_tensor *tensor, bool write)
{
    for (int k = 0; k < count && !write; k++)
        if (e[k])
            LT_TRY(check_shape_and_dtype(e[k], path, tensor, NULL));
    return write ? copy_mean_to_tensor(e, count, parts, tensor) : LT_OK;
}

/* Checks an entry of another shape by rules->config.fit. */
static lt_status check_fit(const lt_safetensors_entry *e, const char *path, const lt_param *p,
                           const lt_weights_rules *rules)
{
    char why[256];
    lt_status st = rules->config.fit(rules->config.fit_context, p->name, e->shape, NULL,
                                     lt_param_shard_spec(p).logical, NULL);
    snprintf(why, sizeof why, "%s", lt_error_message());
    return st ? lt_fail(st, "%s: %s", path, why) : check_dtype(e, path, lt_tensor_dtype(p->value));
}

static bool needs_fit(const lt_safetensors_entry *e, const lt_param *p,
                      const lt_weights_rules *rules)
{
    return rules->config.fit && !lt_shape_equal(e->shape, lt_param_shard_spec(p).logical);
}

static lt_status check_entry(const lt_safetensors_entry *e, const char *path, const lt_param *p,
                             const lt_weights_rules *rules)
{
    return needs_fit(e, p, rules) ? check_fit(e, path, p, rules)
                                  : check_shape_and_dtype(e, path, p->value, p->spec);
}

static lt_status copy_fitted_entry_to_param(const lt_safetensors_entry *e, lt_param *p,
                                            const lt_weights_rules *rules)
{
    const lt_shard_spec spec = lt_param_shard_spec(p);
    const int64_t have = lt_shape_count(e->shape), want = lt_shape_count(spec.logical);
    const lt_dtype dtype = lt_tensor_dtype(p->value);
    double *from = lt_alloc((size_t)have, sizeof *from), *to = lt_alloc((size_t)want, sizeof *to);
    void *host = lt_alloc_aligned(64, lt_tensor_bytes(p->value));
    lt_status st = from && to && host ? LT_OK : LT_E_NOMEM;
    for (int64_t i = 0; i < have && !st; i++)
        from[i] = lt_safetensors_element(e, i);
    if (!st)
        st =
            rules->config.fit(rules->config.fit_context, p->name, e->shape, from, spec.logical, to);
    for (int64_t i = 0; i < lt_tensor_count(p->value) && !st; i++)
        put_element(host, dtype, i, to[lt_shard_spec_index(&spec, i)]);
    if (!st)
        st = lt_tensor_write(p->value, host, lt_tensor_bytes(p->value));
    lt_free(from);
    lt_free(to);
    lt_free(host);
    return st;
}

static lt_status check_no_nan(const lt_safetensors_entry *e, const char *path)
{
    if (e->dtype == LT_I64 || e->dtype == LT_I32 || e->dtype == LT_U8)
        return LT_OK;
    int64_t count = lt_shape_count(e->shape);
    for (int64_t i = 0; i < count; i++)
        if (isnan(lt_safetensors_element(e, i)))
            return lt_fail(LT_E_FORMAT, "%s: '%s' has a NaN at element %lld", path, e->name,
                           (long long)i);
    return LT_OK;
}

/* --- Names --- */

static bool is_skipped(const char *name, const lt_weights_rules *rules)
{
    return rules->config.skip && !strncmp(name, rules->config.skip, strlen(rules->config.skip));
}

/* Writes name with `from` replaced by `to`; false if absent or too long. */
static bool replace_in_name(char out[NAME_BYTES], const char *name, const char *from,
                            const char *to)
{
    const char *at = strstr(name, from);
    return at
           && snprintf(out, NAME_BYTES, "%.*s%s%s", (int)(at - name), name, to, at + strlen(from))
                  < NAME_BYTES;
}

/* Returns the parameter's entry, or NULL if absent. */
static const lt_safetensors_entry *find_entry(const lt_safetensors *file, const lt_param *p,
                                              const lt_weights_rules *rules)
{
    char name[NAME_BYTES];
    const lt_safetensors_entry *e = lt_safetensors_find(file, p->name);
    for (const lt_weights_alias *a = rules->config.alias; !e && a && a->name; a++)
        if (replace_in_name(name, p->name, a->name, a->in_file))
            e = lt_safetensors_find(file, name);
    if (!e && rules->config.prefix
        && snprintf(name, sizeof name, "%s%s", rules->config.prefix, p->name) < NAME_BYTES)
        e = lt_safetensors_find(file, name);
    /* State dicts converted by v.half() have counters in 16-bit floats, possibly infinite: treated as absent. */
    return e && p->role == LT_PARAM_COUNT && is_float(e) && !rules->is_checkpoint ? NULL : e;
}

static bool is_unread(const char *name, const lt_weights_rules *rules)
{
    const size_t length = strlen(name);
    for (const char *const *end = rules->config.unread; end && *end; end++) {
        const size_t bytes = strlen(*end);
        if (length >= bytes && !strcmp(name + length - bytes, *end))
            return true;
    }
    return false;
}

static bool is_expected(const char *name, const lt_params *params, const lt_weights_rules *rules)
{
    const char *prefix = rules->config.prefix;
    char renamed[NAME_BYTES];
    for (const lt_weights_alias *a = rules->config.alias; a && a->name; a++)
        if (replace_in_name(renamed, name, a->in_file, a->name) && lt_params_find(params, renamed))
            return true;
    if (is_skipped(name, rules) || lt_params_find(params, name) || is_unread(name, rules))
        return true;
    return prefix && !strncmp(name, prefix, strlen(prefix))
           && lt_params_find(params, name + strlen(prefix));
}

static lt_status check_missing(const lt_safetensors *file, const char *path,
                               const lt_params *params, const lt_weights_rules *rules)
{
    const char *first = NULL;
    size_t missing = 0;
    for (size_t i = 0; i < params->count; i++) {
        const lt_param *p = params->item[i];
        if (is_skipped(p->name, rules) || (p->role == LT_PARAM_COUNT && !rules->is_checkpoint)
            || find_entry(file, p, rules))
            continue;
        first = missing++ ? first : p->name;
    }
    return missing ? lt_fail(LT_E_FORMAT, "%s: '%s' is missing, one of %zu that the model needs",
                             path, first, missing)
                   : LT_OK;
}

static lt_status check_unexpected(const lt_safetensors *file, const char *path,
                                  const lt_params *params, const lt_weights_rules *rules)
{
    const char *first = NULL;
    size_t unexpected = 0;
    for (size_t i = 0; i < lt_safetensors_count(file); i++) {
        const lt_safetensors_entry *e = lt_safetensors_at(file, i);
        const bool is_buffer = !is_float(e) && !rules->is_checkpoint; /* masks, indices */
        if (is_buffer || is_expected(e->name, params, rules))
            continue;
        first = unexpected++ ? first : e->name;
    }
    return unexpected ? lt_fail(LT_E_FORMAT, "%s: '%s' is not in the model, one of %zu", path,
                                first, unexpected)
                      : LT_OK;
}

lt_status lt_weights_check(const lt_safetensors *file, const char *path, const lt_params *params,
                           const lt_weights_rules *rules)
{
    /* Shapes first: a class count that differs is more telling than missing names. */
    for (size_t i = 0; i < params->count; i++) {
        const lt_param *p = params->item[i];
        const lt_safetensors_entry *e = find_entry(file, p, rules);
        if (!e || is_skipped(p->name, rules))
            continue;
        LT_TRY(check_entry(e, path, p, rules));
        if (!rules->is_checkpoint)
            LT_TRY(check_no_nan(e, path));
    }
    LT_TRY(check_missing(file, path, params, rules));
    return check_unexpected(file, path, params, rules);
}

lt_status lt_weights_apply(const lt_safetensors *file, const lt_params *params,
                           const lt_weights_rules *rules)
{
    for (size_t i = 0; i < params->count; i++) {
        lt_param *p = params->item[i];
        const lt_safetensors_entry *e = find_entry(file, p, rules);
        if (!e || is_skipped(p->name, rules))
            continue;
        LT_TRY(needs_fit(e, p, rules) ? copy_fitted_entry_to_param(e, p, rules)
                                      : copy_entry_to_tensor(e, p->value, p->spec));
    }
    return LT_OK;
}

/* Logs which of the weights of a run or a checkpoint are read. */
static lt_status log_source(const lt_safetensors *file, const char *path)
{
    char *found = NULL;
    LT_TRY(lt_weights_find(&found, path));
    if (strcmp(found, path) != 0)
        lt_log(LT_LOG_INFO, "weights", "%s: reading %s", path, found);
    if (lt_safetensors_part(file))
        lt_log(LT_LOG_INFO, "weights", "%s: reading its '%s'", path, lt_safetensors_part(file));
    lt_free(found);
    return LT_OK;
}

lt_status lt_weights_load(const char *path, const lt_params *params,
                          const lt_weights_config *config)
{
    const lt_weights_rules rules = {.config = config ? *config : (lt_weights_config){0}};
    lt_safetensors *file = NULL;
    LT_TRY(lt_weights_open(&file, path));
    lt_status st = lt_weights_check(file, path, params, &rules);
    if (!st)
        st = log_source(file, path);
    if (!st)
        st = lt_weights_apply(file, params, &rules);
    lt_safetensors_close(&file);
    return st;
}

lt_status lt_weights_load_model(const char *path, lt_module *model)
{
    lt_params list = {0};
    lt_status st = lt_module_params(model, &list);
    if (!st)
        st = lt_weights_load(path, &list, NULL);
    lt_params_clear(&list);
    return st;
}
