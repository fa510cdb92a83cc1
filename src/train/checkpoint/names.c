/* Names of state in optim.safetensors. */

#include "names.h"

#include "base/alloc.h"

char *lt_checkpoint_name(const char *prefix, const lt_state_entry *entry, char mark)
{
    return entry->block < 0 ? lt_format("%s%s%c%s", prefix, entry->param, mark, entry->name)
                            : lt_format("%s%s%cblock.%d.%s", prefix, entry->param, mark,
                                        entry->block, entry->name);
}

lt_status lt_checkpoint_find(const lt_safetensors *file, const char *prefix,
                             const lt_state_entry *entry, char mark,
                             const lt_safetensors_entry **out)
{
    char *name = lt_checkpoint_name(prefix, entry, mark);
    *out = name ? lt_safetensors_find(file, name) : NULL;
    lt_free(name);
    return name ? LT_OK : LT_E_NOMEM;
}

char *lt_checkpoint_note(const lt_state_entry *entry)
{
    char offset[LT_SHAPE_TEXT], shape[LT_SHAPE_TEXT];
    return lt_format("offset %s shape %s", lt_shape_text(entry->offset, offset),
                     lt_shape_text(entry->shape, shape));
}
