/* The dtypes of safetensors (huggingface/safetensors, "Format"). */

#include "tensor/weight_file/dtype.h"

#include "tensor/backend/dtype.h"

#include <string.h>

/* Dtypes of the header that lt_dtype has. */
static const struct {
    const char *name;
    lt_dtype dtype;
} dtypes[] = {{"F32", LT_F32}, {"F64", LT_F64}, {"F16", LT_F16}, {"BF16", LT_BF16},
              {"I32", LT_I32}, {"I64", LT_I64}, {"U8", LT_U8}};

/* Element sizes of the other dtypes. */
static const struct {
    const char *name;
    size_t bytes;
} others[] = {{"BOOL", 1},    {"I8", 1},          {"F8_E4M3", 1},     {"F8_E5M2", 1},
              {"F8_E8M0", 1}, {"F8_E4M3FNUZ", 1}, {"F8_E5M2FNUZ", 1}, {"I16", 2},
              {"U16", 2},     {"U32", 4},         {"U64", 8},         {"C64", 8}};

bool lt_weight_dtype(const char *name, lt_safetensors_entry *e, size_t *bytes)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (!strcmp(name, dtypes[i].name)) {
            e->dtype = dtypes[i].dtype;
            *bytes = lt_dtype_size(e->dtype);
            return true;
        }
    e->dtype = LT_U8;
    e->unsupported = name;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(name, others[i].name)) {
            *bytes = others[i].bytes;
            return true;
        }
    return false;
}
