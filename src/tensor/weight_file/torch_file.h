/* Weights in files of torch.save(). */
#ifndef LT_TENSOR_TORCH_FILE_H
#define LT_TENSOR_TORCH_FILE_H

#include "base/arena.h"

#include "lather/safetensors.h"

/* Entries of a file; start with {0}. */
typedef struct lt_torch_file {
    lt_arena arena; /* owns names, and the data of tensors that are not contiguous */
    lt_safetensors_entry *entry;
    size_t count, capacity;
    const char
        *part; /* key of the dict that holds the tensors: "state_dict"; NULL: the outermost */
    const char *heads; /* number of heads by nanoGPT's "model_args", or NULL if absent */
} lt_torch_file;

/* Returns true for a file of torch.save() by its first bytes: a ZIP archive, a pickle, or a tar archive. */
bool lt_torch_is_file(const char *map, size_t size);

/* Reads a mapped file, to which entries point. path is for messages. Errors: as lt_pickle_read() and lt_zip_open();
 * LT_E_FORMAT, naming the tensor. The caller clears *file, also on failure. */
LT_MUST_CHECK lt_status lt_torch_read(lt_torch_file *file, const char *path, const char *map,
                                      size_t size);
void lt_torch_clear(lt_torch_file *file);

#endif
