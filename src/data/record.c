/* Allocates the memory of a record. */

#include "base/alloc.h"
#include "data/formats/decoder.h"

#include "lather/ext/dataset.h"

lt_status lt_record_reserve(lt_record *record, size_t bytes)
{
    if (record->bytes && record->capacity >= bytes)
        return LT_OK;
    lt_free(record->bytes);
    *record = (lt_record){.epoch_key = record->epoch_key};
    record->bytes = lt_alloc(bytes + LT_IMAGE_PADDING, 1);
    if (!record->bytes)
        return LT_E_NOMEM;
    record->capacity = bytes;
    return LT_OK;
}
