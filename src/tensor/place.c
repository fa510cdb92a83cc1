/* Shards as boxes of views. The trailing dimensions that a box holds completely, and the one before them,
 * form one run of consecutive elements in the logical tensor; the elements between runs are outside the box. */

#include "lather/detail/place.h"

#include "lather/detail/exchange_ops.h"
#include "lather/ext/fail.h"

#include <stdio.h>
#include <string.h>

int64_t lt_exchange_part(int64_t whole, int parts, int index)
{
    return whole / parts + (index < whole % parts);
}

int64_t lt_exchange_first(int64_t whole, int parts, int index)
{
    const int64_t longer = whole % parts;
    return whole / parts * index + (index < longer ? index : longer);
}

lt_place lt_place_whole(lt_shape shape)
{
    return (lt_place){shape, shape, {.ndim = shape.ndim}, shape};
}

lt_place lt_place_shard(lt_shape logical, lt_shape view, int dim, int parts, int index)
{
    lt_place place = {logical, view, {.ndim = view.ndim}, view};
    lt_place_cut(&place, dim, parts, index);
    return place;
}

void lt_place_cut(lt_place *place, int dim, int parts, int index)
{
    LT_ASSERT(dim >= 0 && dim < place->view.ndim && index >= 0 && index < parts);
    const int64_t whole = place->extent.dim[dim];
    place->offset.dim[dim] += lt_exchange_first(whole, parts, index);
    place->extent.dim[dim] = lt_exchange_part(whole, parts, index);
}

const char *lt_place_text(const lt_place *place, char *text)
{
    char view[LT_SHAPE_TEXT];
    int used = 0;
    for (int d = 0; d < place->extent.ndim; d++)
        used += snprintf(text + used, (size_t)(LT_PLACE_TEXT - used), "%c%lld:%lld", d ? ',' : '[',
                         (long long)place->offset.dim[d],
                         (long long)(place->offset.dim[d] + place->extent.dim[d]));
    snprintf(text + used, (size_t)(LT_PLACE_TEXT - used), "%s of %s", used ? "]" : "[]",
             lt_shape_text(place->view, view));
    return text;
}

static bool is_box_in_view(const lt_place *place)
{
    const lt_shape *offset = &place->offset, *extent = &place->extent, *view = &place->view;
    if (view->ndim < 0 || view->ndim > LT_MAX_DIMS || offset->ndim != view->ndim
        || extent->ndim != view->ndim)
        return false;
    for (int d = 0; d < view->ndim; d++)
        if (offset->dim[d] < 0 || extent->dim[d] < 1
            || extent->dim[d] > view->dim[d] - offset->dim[d])
            return false;
    return true;
}

lt_status lt_place_check(const lt_place *place, const char *name, int64_t count)
{
    char text[LT_PLACE_TEXT], shape[LT_SHAPE_TEXT];
    const int64_t logical = lt_shape_count(place->logical);
    if (!is_box_in_view(place))
        return lt_fail(LT_E_SHAPE, "%s: %s is not a box within the view", name,
                       lt_place_text(place, text));
    if (lt_shape_count(place->view) != logical)
        return lt_fail(LT_E_SHAPE,
                       "%s: the view has %lld elements, the logical shape %s has %lld: %s", name,
                       (long long)lt_shape_count(place->view), lt_shape_text(place->logical, shape),
                       (long long)logical, lt_place_text(place, text));
    if (lt_place_count(place) != count)
        return lt_fail(LT_E_SHAPE, "%s: the tensor has %lld elements, its shard %lld: %s", name,
                       (long long)count, (long long)lt_place_count(place),
                       lt_place_text(place, text));
    return LT_OK;
}

bool lt_place_is_whole(const lt_place *place)
{
    return lt_shape_equal(place->extent, place->view);
}

bool lt_place_equal(const lt_place *a, const lt_place *b)
{
    lt_place_run x = {0}, y = {0};
    if (!lt_shape_equal(a->logical, b->logical) || lt_place_count(a) != lt_place_count(b))
        return false;
    while (lt_place_next_run(a, &x) && lt_place_next_run(b, &y))
        if (x.logical != y.logical || x.count != y.count)
            return false;
    return true;
}

int64_t lt_place_count(const lt_place *place)
{
    return lt_shape_count(place->extent);
}

int64_t lt_place_index(const lt_place *place, int64_t element)
{
    int64_t index = 0, step = 1;
    for (int d = place->view.ndim - 1; d >= 0; d--) {
        index += (place->offset.dim[d] + element % place->extent.dim[d]) * step;
        element /= place->extent.dim[d];
        step *= place->view.dim[d];
    }
    return index;
}

/* Returns the number of elements in each run. */
static int64_t run_length(const lt_place *place)
{
    int64_t count = 1;
    for (int d = place->view.ndim - 1; d >= 0; d--) {
        count *= place->extent.dim[d];
        if (place->extent.dim[d] != place->view.dim[d])
            break;
    }
    return count;
}

bool lt_place_next_run(const lt_place *place, lt_place_run *run)
{
    const int64_t local = run->local + run->count;
    if (local >= lt_place_count(place))
        return false;
    *run = (lt_place_run){lt_place_index(place, local), local, run_length(place)};
    return true;
}

void lt_place_read(const lt_place *place, const void *logical, void *local, size_t element_bytes)
{
    for (lt_place_run run = {0}; lt_place_next_run(place, &run);)
        memcpy((char *)local + (size_t)run.local * element_bytes,
               (const char *)logical + (size_t)run.logical * element_bytes,
               (size_t)run.count * element_bytes);
}

void lt_place_write(const lt_place *place, const void *local, void *logical, size_t element_bytes)
{
    for (lt_place_run run = {0}; lt_place_next_run(place, &run);)
        memcpy((char *)logical + (size_t)run.logical * element_bytes,
               (const char *)local + (size_t)run.local * element_bytes,
               (size_t)run.count * element_bytes);
}
