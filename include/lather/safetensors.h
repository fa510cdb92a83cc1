/** The safetensors file format: named tensors, nothing executable. */
#ifndef LATHER_SAFETENSORS_H
#define LATHER_SAFETENSORS_H

#include "lather/tensor.h"

/** A file opened for reading, its header checked. */
typedef struct lt_safetensors lt_safetensors;

/** One tensor of a file. Strings and data are borrowed from the file. */
typedef struct lt_safetensors_entry {
    const char *name;
    lt_dtype dtype;
    lt_shape shape;
    const void *data; /**< row-major, little-endian, mapped read-only */
    size_t bytes;
    const char *unsupported; /**< dtype without an lt_dtype, "BOOL": shape and bytes are known, the
                                  values are not; NULL: dtype is the file's */
} lt_safetensors_entry;

/** path: a file, or a folder with a model.safetensors. Errors: LT_E_IO; LT_E_FORMAT (truncated, header too long, bad JSON, duplicate names, overlapping
 *  or missing bytes, an unknown dtype, more than LT_MAX_DIMS dimensions), naming the tensor. */
LT_API LT_MUST_CHECK lt_status lt_safetensors_open(lt_safetensors **out, const char *path);
LT_API void lt_safetensors_close(lt_safetensors **file);
LT_API size_t lt_safetensors_count(const lt_safetensors *file);
/** Entries in the order of the header. index < lt_safetensors_count(). */
LT_API const lt_safetensors_entry *lt_safetensors_at(const lt_safetensors *file, size_t index);
/** NULL if there is none of that name. */
LT_API const lt_safetensors_entry *lt_safetensors_find(const lt_safetensors *file,
                                                       const char *name);
/** A string of __metadata__, or NULL. */
LT_API const char *lt_safetensors_metadata(const lt_safetensors *file, const char *key);

/** Writes a file: add tensors, then close. */
typedef struct lt_safetensors_writer lt_safetensors_writer;
LT_API LT_MUST_CHECK lt_status lt_safetensors_create(lt_safetensors_writer **out, const char *path);
LT_API LT_MUST_CHECK lt_status lt_safetensors_add_metadata(lt_safetensors_writer *writer,
                                                           const char *key, const char *value);
/** The tensor is lent until the writer is finished. Errors: LT_E_ARG (a name twice), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_safetensors_add(lt_safetensors_writer *writer, const char *name,
                                                  const lt_tensor *tensor);
/** Host data, row-major; lent until the writer is finished. */
LT_API LT_MUST_CHECK lt_status lt_safetensors_add_host(lt_safetensors_writer *writer,
                                                       const char *name, lt_dtype dtype,
                                                       lt_shape shape, const void *data);
/** Writes header and data, flushes to disk, frees *writer and sets it to NULL. On failure no file
 *  is left. Errors: LT_E_IO (also a full disk). */
LT_API LT_MUST_CHECK lt_status lt_safetensors_finish(lt_safetensors_writer **writer);
/** Frees *writer without writing. */
LT_API void lt_safetensors_discard(lt_safetensors_writer **writer);

#endif
