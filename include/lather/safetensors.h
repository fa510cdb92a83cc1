/** Reader and writer of the safetensors file format: named tensors, without executable code. */
#ifndef LATHER_SAFETENSORS_H
#define LATHER_SAFETENSORS_H

#include "lather/tensor.h"

/** A file opened for reading, with a valid header. */
typedef struct lt_safetensors lt_safetensors;

/** One tensor of a file. Strings and data are borrowed from the file. */
typedef struct lt_safetensors_entry {
    const char *name;
    lt_dtype dtype;
    lt_shape shape;
    const void *data; /**< elements, row-major, little-endian, mapped read-only */
    size_t bytes;
    /** Name of a dtype that has no lt_dtype, for example "BOOL"; shape and bytes are then valid,
     *  dtype is not. NULL if supported. */
    const char *unsupported;
} lt_safetensors_entry;

/** Opens a file for reading: safetensors, HuggingFace's model.safetensors.index.json, or the tensors
 *  of a file of torch.save(), which executes nothing. In a folder: model.safetensors, its index, or
 *  pytorch_model.bin. For a missing PATH opens PATH.index.json, whose entries are those of all its
 *  parts. Errors: LT_E_IO; LT_E_FORMAT, naming the tensor (truncated file, header too
 *  long, invalid JSON or pickle, duplicate names, overlapping or missing bytes, unknown dtype, more
 *  than LT_MAX_DIMS dimensions); LT_E_UNSUPPORTED (a pickle that names other functions, compressed
 *  archives). */
LT_API LT_MUST_CHECK lt_status lt_safetensors_open(lt_safetensors **out, const char *path);
LT_API void lt_safetensors_close(lt_safetensors **file);
LT_API size_t lt_safetensors_count(const lt_safetensors *file);
/** Returns an entry, in the order of the header. index < lt_safetensors_count(). */
LT_API const lt_safetensors_entry *lt_safetensors_at(const lt_safetensors *file, size_t index);
/** Returns the entry with that name, or NULL if absent. */
LT_API const lt_safetensors_entry *lt_safetensors_find(const lt_safetensors *file,
                                                       const char *name);
/** Returns a string of __metadata__, or NULL if absent. */
LT_API const char *lt_safetensors_metadata(const lt_safetensors *file, const char *key);

/** Returns element index of a supported entry as a double; i64 beyond 2^53 loses digits. */
LT_API double lt_safetensors_element(const lt_safetensors_entry *entry, int64_t index);

/** Writes a file: create, add tensors and metadata, finish. */
typedef struct lt_safetensors_writer lt_safetensors_writer;
/** Starts a file in memory; lt_safetensors_finish() writes it to path. Errors: LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_safetensors_create(lt_safetensors_writer **out, const char *path);
/** Adds a string to __metadata__. Copies both. Errors: LT_E_ARG (a key twice), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_safetensors_add_metadata(lt_safetensors_writer *writer,
                                                           const char *key, const char *value);
/** Adds a tensor, borrowed until the writer is finished. Errors: LT_E_ARG (a name twice),
 *  LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_safetensors_add(lt_safetensors_writer *writer, const char *name,
                                                  const lt_tensor *tensor);
/** Adds row-major host data, borrowed until the writer is finished. Errors: as
 *  lt_safetensors_add(). */
LT_API LT_MUST_CHECK lt_status lt_safetensors_add_host(lt_safetensors_writer *writer,
                                                       const char *name, lt_dtype dtype,
                                                       lt_shape shape, const void *data);
/** Writes header and data, flushes them to disk, frees *writer and sets it to NULL. Removes the
 *  file on failure. Errors: LT_E_IO (for example a full disk). */
LT_API LT_MUST_CHECK lt_status lt_safetensors_finish(lt_safetensors_writer **writer);
/** Writes the tensors of a file or an index to one file. Its bytes are those that one rank would have
 *  written, whatever parts a checkpoint has. Errors: as lt_safetensors_open() and
 *  lt_safetensors_finish(); LT_E_UNSUPPORTED (a dtype without lt_dtype). */
LT_API LT_MUST_CHECK lt_status lt_safetensors_join(const char *path, const char *out);
/** Frees *writer without writing a file. */
LT_API void lt_safetensors_discard(lt_safetensors_writer **writer);

#endif
