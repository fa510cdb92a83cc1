/* Shards as boxes of views. The trailing dimensions that a box holds completely, and the one before them,
 * form one run of consecutive elements in the logical tensor; the elements between runs are outside the box. */

#include "lather/detail/shard_spec.h"

#include "lather/detail/process_group.h"
#include "lather/ext/fail.h"

#include <stdio.h>
#include <string.h>

int64_t lt_even_shard_size(int64_t whole, int parts, int index)
{
    return whole / parts + (index < whole % parts);
}

int64_t lt_even_shard_offset(int64_t whole, int parts, int index)
{
    const int64_t longer = whole % parts;
    return whole / parts * index + (index < longer ? index : longer);
}

lt_shard_spec lt_shard_spec_whole(lt_shape shape)
{
    return (lt_shard_spec){shape, shape, {.ndim = shape.ndim}, shape};
}

lt_shard_spec lt_shard_spec_even(lt_shape logical, lt_shape view, int dim, int parts, int index)
{
    lt_shard_spec spec = {logical, view, {.ndim = view.ndim}, view};
    lt_shard_spec_split(&spec, dim, parts, index);
    return spec;
}

void lt_shard_spec_split(lt_shard_spec *spec, int dim, int parts, int index)
{
    LT_ASSERT(dim >= 0 && dim < spec->view.ndim && index >= 0 && index < parts);
    const int64_t whole = spec->extent.dim[dim];
    spec->offset.dim[dim] += lt_even_shard_offset(whole, parts, index);
    spec->extent.dim[dim] = lt_even_shard_size(whole, parts, index);
}

const char *lt_shard_spec_text(const lt_shard_spec *spec, char *text)
{
    char view[LT_SHAPE_TEXT];
    int used = 0;
    for (int d = 0; d < spec->extent.ndim; d++)
        used += snprintf(text + used, (size_t)(LT_SHARD_SPEC_TEXT - used), "%c%lld:%lld",
                         d ? ',' : '[', (long long)spec->offset.dim[d],
                         (long long)(spec->offset.dim[d] + spec->extent.dim[d]));
    snprintf(text + used, (size_t)(LT_SHARD_SPEC_TEXT - used), "%s of %s", used ? "]" : "[]",
             lt_shape_text(spec->view, view));
    return text;
}

static bool is_box_in_view(const lt_shard_spec *spec)
{
    const lt_shape *offset = &spec->offset, *extent = &spec->extent, *view = &spec->view;
    if (view->ndim < 0 || view->ndim > LT_MAX_DIMS || offset->ndim != view->ndim
        || extent->ndim != view->ndim)
        return false;
    for (int d = 0; d < view->ndim; d++)
        if (offset->dim[d] < 0 || extent->dim[d] < 1
            || extent->dim[d] > view->dim[d] - offset->dim[d])
            return false;
    return true;
}

lt_status lt_shard_spec_check(const lt_shard_spec *spec, const char *name, int64_t count)
{
    char text[LT_SHARD_SPEC_TEXT], shape[LT_SHAPE_TEXT];
    const int64_t logical = lt_shape_count(spec->logical);
    if (!is_box_in_view(spec))
        return lt_fail(LT_E_SHAPE, "%s: %s is not a box within the view", name,
                       lt_shard_spec_text(spec, text));
    if (lt_shape_count(spec->view) != logical)
        return lt_fail(LT_E_SHAPE,
                       "%s: the view has %lld elements, the logical shape %s has %lld: %s", name,
                       (long long)lt_shape_count(spec->view), lt_shape_text(spec->logical, shape),
                       (long long)logical, lt_shard_spec_text(spec, text));
    if (lt_shard_spec_count(spec) != count)
        return lt_fail(LT_E_SHAPE, "%s: the tensor has %lld elements, its shard %lld: %s", name,
                       (long long)count, (long long)lt_shard_spec_count(spec),
                       lt_shard_spec_text(spec, text));
    return LT_OK;
}

bool lt_shard_spec_is_whole(const lt_shard_spec *spec)
{
    return lt_shape_equal(spec->extent, spec->view);
}

bool lt_shard_spec_equal(const lt_shard_spec *a, const lt_shard_spec *b)
{
    lt_shard_run x = {0}, y = {0};
    if (!lt_shape_equal(a->logical, b->logical) || lt_shard_spec_count(a) != lt_shard_spec_count(b))
        return false;
    while (lt_shard_spec_next_run(a, &x) && lt_shard_spec_next_run(b, &y))
        if (x.logical != y.logical || x.count != y.count)
            return false;
    return true;
}

int64_t lt_shard_spec_count(const lt_shard_spec *spec)
{
    return lt_shape_count(spec->extent);
}

int64_t lt_shard_spec_index(const lt_shard_spec *spec, int64_t element)
{
    int64_t index = 0, step = 1;
    for (int d = spec->view.ndim - 1; d >= 0; d--) {
        index += (spec->offset.dim[d] + element % spec->extent.dim[d]) * step;
        element /= spec->extent.dim[d];
        step *= spec->view.dim[d];
    }
    return index;
}

/* Returns the number of elements in each run. */
static int64_t run_length(const lt_shard_spec *spec)
{
    int64_t count = 1;
    for (int d = spec->view.ndim - 1; d >= 0; d--) {
        count *= spec->extent.dim[d];
        if (spec->extent.dim[d] != spec->view.dim[d])
            break;
    }
    return count;
}

bool lt_shard_spec_next_run(const lt_shard_spec *spec, lt_shard_run *run)
{
    const int64_t local = run->local + run->count;
    if (local >= lt_shard_spec_count(spec))
        return false;
    *run = (lt_shard_run){lt_shard_spec_index(spec, local), local, run_length(spec)};
    return true;
}

void lt_shard_spec_read(const lt_shard_spec *spec, const void *logical, void *local,
                        size_t element_bytes)
{
    for (lt_shard_run run = {0}; lt_shard_spec_next_run(spec, &run);)
        memcpy((char *)local + (size_t)run.local * element_bytes,
               (const char *)logical + (size_t)run.logical * element_bytes,
               (size_t)run.count * element_bytes);
}

void lt_shard_spec_write(const lt_shard_spec *spec, const void *local, void *logical,
                         size_t element_bytes)
{
    for (lt_shard_run run = {0}; lt_shard_spec_next_run(spec, &run);)
        memcpy((char *)logical + (size_t)run.logical * element_bytes,
               (const char *)local + (size_t)run.local * element_bytes,
               (size_t)run.count * element_bytes);
}
