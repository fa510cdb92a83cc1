/* Private declarations of lather/safetensors.h. */
#ifndef LT_TENSOR_SAFETENSORS_H
#define LT_TENSOR_SAFETENSORS_H

#include "tensor/weight_file/index.h"

#include "lather/safetensors.h"

/* Callback that writes a tensor's data to host memory, row-major, when the file is written. */
typedef lt_status lt_safetensors_source(void *context, void *host, size_t bytes);
/* lt_safetensors_add() for data that is not in host memory yet. Sources are called in the order of adding. */
LT_MUST_CHECK lt_status lt_safetensors_add_source(lt_safetensors_writer *writer, const char *name,
                                                  lt_dtype dtype, lt_shape shape,
                                                  lt_safetensors_source *source, void *context);

/* lt_safetensors_finish() for a file of an lt_atomic_dir, which does the syncing. */
LT_MUST_CHECK lt_status lt_safetensors_finish_unsynced(lt_safetensors_writer **writer);

/* Finds entry `index` of __metadata__, of all parts in turn; returns false after the last. */
bool lt_safetensors_metadata_at(const lt_safetensors *file, size_t index, const char **key,
                                const char **value);

/* Returns the key of the dict that was read, if a file of torch.save() has several; otherwise NULL. */
const char *lt_safetensors_part(const lt_safetensors *file);

/* Returns the entries, to be changed in place and then indexed by lt_safetensors_set_count(). */
lt_safetensors_entry *lt_safetensors_entries(lt_safetensors *file, size_t *count);
/* Allocates capacity for more entries after the present ones. Errors: LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_safetensors_reserve(lt_safetensors *file, size_t capacity);
/* Keeps the first `count` entries, and sorts them by name. Errors: LT_E_FORMAT (duplicate names), LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_safetensors_set_count(lt_safetensors *file, size_t count);
/* Returns zeroed memory that lives as long as the file, for names and data; NULL without memory. */
void *lt_safetensors_alloc(lt_safetensors *file, size_t bytes);

/* Removes a prefix from all names if all begin with it; returns true if it did. */
bool lt_safetensors_strip_prefix(lt_safetensors *file, const char *prefix);

#endif
