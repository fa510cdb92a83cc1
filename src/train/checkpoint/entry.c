/* Names and loading of the entries of optim.safetensors: state of optimizers, local steps and reducers. */

#include "entry.h"

#include "base/alloc.h"
#include "optim/low_precision/quantized_state.h"
#include "train/weights/weights.h"

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

/* Reads the entry by way of the dequantized tensor that checkpoints store. */
static lt_status take_quantized(const lt_reading *r, const lt_safetensors_entry *e,
                                lt_quantized *state)
{
    lt_tensor *shown = NULL;
    LT_TRY(lt_quantized_to_checkpoint(state, &shown));
    lt_status st = lt_entry_load(e, r->path, shown, NULL, r->write);
    if (!st && r->write)
        st = lt_quantized_from_checkpoint(state, shown);
    lt_tensor_free(&shown);
    return st;
}

lt_status lt_reading_take(const lt_reading *r, const char *prefix, const lt_state_entry *entry,
                          char mark, bool *found)
{
    const lt_safetensors_entry *e = NULL;
    LT_TRY(lt_checkpoint_find(r->file, prefix, entry, mark, &e));
    *found = e;
    if (!e)
        return LT_OK;
    if (entry->quantized)
        return take_quantized(r, e, entry->quantized);
    if (!entry->tensor) /* another rank reads it */
        return LT_OK;
    const lt_place *place = entry->box ? entry->box->place : NULL;
    return lt_entry_load(e, r->path, entry->tensor, place, r->write);
}

char *lt_checkpoint_note(const lt_state_entry *entry)
{
    char offset[LT_SHAPE_TEXT], shape[LT_SHAPE_TEXT];
    return lt_format("offset %s shape %s", lt_shape_text(entry->offset, offset),
                     lt_shape_text(entry->shape, shape));
}

lt_status lt_skip_entry(void *context, const lt_state_entry *entry)
{
    (void)context;
    (void)entry;
    return LT_OK;
}

lt_status lt_skip_number(void *context, const char *name, int64_t *value)
{
    (void)context;
    (void)name;
    (void)value;
    return LT_OK;
}
