/* Implements lt_dataset_arrays(): f32 records in memory. */

#include "base/alloc.h"
#include "data/files/files.h"

#include <inttypes.h>
#include <string.h>

typedef struct arrays {
    lt_dataset base;
    const float *values;
    const int64_t *labels;
    float *own_values; /* NULL if the values are borrowed */
    int64_t *own_labels;
    size_t bytes; /* per record */
} arrays;

static lt_status read_sample(const lt_dataset *self, int64_t index, lt_record *record)
{
    const arrays *a = (const arrays *)self;
    LT_TRY(lt_record_reserve(record, a->bytes));
    memcpy(record->bytes, (const char *)a->values + (size_t)index * a->bytes, a->bytes);
    record->size = a->bytes;
    record->encoding = LT_ENCODING_FLOATS;
    record->label = (int32_t)a->labels[index];
    return LT_OK;
}

static void destroy(lt_dataset *self)
{
    arrays *a = (arrays *)self;
    lt_free(a->own_values);
    lt_free(a->own_labels);
}

static lt_status read_label(const lt_dataset *self, int64_t index, int *label)
{
    *label = (int)((const arrays *)self)->labels[index];
    return LT_OK;
}

static const lt_dataset_ops ops = {
    .name = "arrays",
    .bytes = sizeof(arrays),
    .read = read_sample,
    .label = read_label,
    .destroy = destroy,
};

/* Checks the shape and sets *bytes to the size of a record. The size of all records must fit a size_t. */
static lt_status check_shape(const lt_arrays *a, size_t *bytes)
{
    char text[LT_SHAPE_TEXT];
    size_t all;
    bool good = a->count > 0 && a->shape.ndim > 0 && a->shape.ndim < LT_MAX_DIMS;
    *bytes = sizeof(float);
    for (int d = 0; good && d < a->shape.ndim; d++)
        good =
            a->shape.dim[d] > 0 && !__builtin_mul_overflow(*bytes, (size_t)a->shape.dim[d], bytes);
    if (!good || __builtin_mul_overflow(*bytes, (size_t)a->count, &all))
        return lt_fail(LT_E_ARG,
                       "arrays: got %" PRId64
                       " records of shape %s; want at least 1 record of 1 to %d dimensions",
                       a->count, lt_shape_text(a->shape, text), LT_MAX_DIMS - 1);
    return a->values && a->labels ? LT_OK : lt_fail(LT_E_ARG, "arrays: values or labels are NULL");
}

static lt_status check_labels(const lt_arrays *a, int32_t *classes)
{
    int64_t most = a->classes ? a->classes : INT32_MAX, largest = 0;
    for (int64_t i = 0; i < a->count; i++) {
        if (a->labels[i] < 0 || a->labels[i] >= most)
            return lt_fail(LT_E_ARG,
                           "arrays: label %" PRId64 " of record %" PRId64 ", want 0 .. %" PRId64,
                           a->labels[i], i, most - 1);
        largest = a->labels[i] > largest ? a->labels[i] : largest;
    }
    *classes = a->classes ? a->classes : (int32_t)largest + 1;
    return LT_OK;
}

static lt_status copy_given_data(arrays *a)
{
    size_t count = (size_t)a->base.count;
    a->own_values = lt_alloc(count, a->bytes);
    a->own_labels = lt_alloc(count, sizeof *a->own_labels);
    if (!a->own_values || !a->own_labels)
        return LT_E_NOMEM;
    memcpy(a->own_values, a->values, count * a->bytes);
    memcpy(a->own_labels, a->labels, count * sizeof *a->own_labels);
    a->values = a->own_values;
    a->labels = a->own_labels;
    return LT_OK;
}

lt_status lt_dataset_arrays(lt_dataset **out, const lt_arrays *given)
{
    size_t bytes = 0;
    int32_t classes = 0;
    LT_TRY(check_shape(given, &bytes));
    if (given->classes < 0)
        return lt_fail(LT_E_ARG, "arrays: got %d classes, want 0 or more", given->classes);
    LT_TRY(check_labels(given, &classes));
    lt_dataset *d = NULL;
    LT_TRY(lt_dataset_new(&d, &ops));
    arrays *a = (arrays *)d;
    d->count = given->count;
    d->classes = classes;
    d->channels = 1;
    d->shape = given->shape;
    a->values = given->values;
    a->labels = given->labels;
    a->bytes = bytes;
    return lt_dataset_set_or_free(out, d, given->copy ? copy_given_data(a) : LT_OK);
}
