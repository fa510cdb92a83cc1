/* Constructor, destructor and getters that all data sets share, and the memory of records. */

#include "lather/ext/dataset.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "data/formats/decoder.h"
#include "data/formats/image.h"

#include <string.h>

lt_status lt_dataset_new(lt_dataset **out, const lt_dataset_ops *ops)
{
    LT_ASSERT(ops->bytes >= sizeof(lt_dataset) && ops->read);
    lt_dataset *d = lt_alloc(1, ops->bytes);
    if (!d)
        return LT_E_NOMEM;
    d->ops = ops;
    *out = d;
    return LT_OK;
}

void lt_dataset_free(lt_dataset **dataset)
{
    lt_dataset *d = *dataset;
    *dataset = NULL;
    if (!d)
        return;
    lt_free_texts(d->map_name, (size_t)d->map_classes);
    lt_free(d->label_map);
    if (d->ops->destroy)
        d->ops->destroy(d);
    lt_free(d);
}

int64_t lt_dataset_count(const lt_dataset *dataset)
{
    return dataset->count;
}

int lt_dataset_classes(const lt_dataset *dataset)
{
    return dataset->label_map ? dataset->map_classes : dataset->classes;
}

lt_shape lt_dataset_shape(const lt_dataset *dataset)
{
    return dataset->shape;
}

int lt_dataset_channels(const lt_dataset *dataset)
{
    return dataset->channels ? dataset->channels : 3;
}

const char *lt_dataset_class_name(const lt_dataset *dataset, int label)
{
    if (label < 0 || label >= lt_dataset_classes(dataset))
        return NULL;
    if (dataset->label_map)
        return dataset->map_name[label];
    if (!dataset->ops->class_name)
        return NULL;
    return dataset->ops->class_name(dataset, label);
}

const char *lt_dataset_sample_name(const lt_dataset *dataset, int64_t index)
{
    if (!dataset->ops->sample_name || index < 0 || index >= dataset->count)
        return NULL;
    return dataset->ops->sample_name(dataset, index);
}

static lt_status check_label(const lt_dataset *d, int64_t index, int label)
{
    if (label >= 0 && label < d->classes)
        return LT_OK;
    const char *name = lt_dataset_sample_name(d, index);
    return lt_fail(LT_E_FORMAT, "%s: sample %lld has label %d, want 0 .. %d",
                   name ? name : d->ops->name, (long long)index, label, d->classes - 1);
}

lt_status lt_dataset_label(const lt_dataset *d, int64_t index, int *label)
{
    lt_record record = {0};
    LT_ASSERT(index >= 0 && index < d->count);
    lt_status st = d->ops->label ? d->ops->label(d, index, label) : d->ops->read(d, index, &record);
    if (!st && !d->ops->label)
        *label = record.label;
    lt_free(record.bytes);
    if (!st)
        st = check_label(d, index, *label);
    if (!st && d->label_map)
        *label = d->label_map[*label];
    return st;
}

uint64_t lt_dataset_fingerprint(const lt_dataset *d)
{
    const int64_t numbers[] = {d->count, d->classes};
    const bool has_names = !d->tokens && lt_dataset_sample_name(d, 0);
    uint64_t hash = lt_fnv1a(LT_FNV1A_BEGIN, numbers, sizeof numbers);
    /* The data set's own class names, not those of lt_dataset_map_classes(). */
    for (int i = 0; i < d->classes && d->ops->class_name && d->ops->class_name(d, i); i++)
        hash = lt_fnv1a_text(lt_fnv1a(hash, "", 1), d->ops->class_name(d, i));
    for (int64_t i = 0; has_names && i < d->count; i++) {
        const char *name = lt_dataset_sample_name(d, i), *slash = name ? strrchr(name, '/') : NULL;
        hash = lt_fnv1a_text(hash, slash ? slash + 1 : name ? name : "");
    }
    if (!has_names && d->ops->fingerprint)
        hash = d->ops->fingerprint(d, hash);
    return hash ? hash : 1;
}

int64_t lt_dataset_bytes(const lt_dataset *dataset)
{
    return dataset->ops->bytes_of_files ? dataset->ops->bytes_of_files(dataset) : 0;
}

lt_status lt_dataset_short_side(const lt_dataset *dataset, int *side)
{
    const lt_image_limits any = {.pixels = INT64_MAX}; /* only the header is read */
    lt_record record = {0};
    int32_t width = 0, height = 0;
    *side = 0;
    if (!dataset->count)
        return LT_OK;
    lt_status st = dataset->ops->read(dataset, 0, &record);
    if (!st && record.encoding == LT_ENCODING_FILE) {
        if (lt_image_size(record.bytes, record.size, &any, &width, &height))
            width = height = 0; /* a corrupt image; the loader reports it */
    } else if (!st) {
        width = record.width;
        height = record.height;
    }
    lt_free(record.bytes);
    *side = width < height ? width : height;
    return st;
}

lt_status lt_record_reserve(lt_record *record, size_t bytes)
{
    if (record->bytes && record->capacity >= bytes)
        return LT_OK;
    lt_free(record->bytes);
    *record = (lt_record){.epoch_key = record->epoch_key};
    LT_TRY(LT_ALLOC(&record->bytes, bytes + LT_IMAGE_PADDING));
    record->capacity = bytes;
    return LT_OK;
}
