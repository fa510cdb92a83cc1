/* The list of the entries of optim.safetensors, which saving and loading walk; their names, and loading one. */

#include "entry.h"

#include "base/alloc.h"
#include "optim/low_precision/quantized_state.h"
#include "optim/sharding/shard.h"
#include "train/weights/weights.h"

#include "lather/ext/fail.h"

static lt_status visit_extra(const lt_checkpoint_contents *parts, const lt_checkpoint_tensor *extra,
                             const lt_state_visitor *visitor)
{
    const lt_shape shape = lt_tensor_shape(extra->tensor);
    const lt_state_entry entry = {.param = extra->name,
                                  .block = -1,
                                  .shape = shape,
                                  .dtype = lt_tensor_dtype(extra->tensor),
                                  .extent = shape,
                                  .owner = lt_shard_value_owner(parts->optim, extra->param),
                                  .sharded_like = extra->param,
                                  .tensor = extra->tensor};
    return visitor->entry(visitor->context, &entry);
}

static lt_status visit_optim(const lt_checkpoint_contents *parts, lt_state_visitor *visitor,
                             lt_entry_kind *kind)
{
    *kind = LT_ENTRY_OPTIM;
    return parts->optim ? lt_optim_visit(parts->optim, visitor) : LT_OK;
}

static lt_status reject_number(void *context, const char *name, int64_t *value)
{
    (void)context;
    (void)value;
    return lt_fail(LT_E_ARG, "checkpoint: a reducer's state is tensors, not the number '%s'", name);
}

lt_status lt_checkpoint_visit(const lt_checkpoint_contents *parts, lt_state_visitor *visitor,
                              lt_entry_kind *kind)
{
    const bool later = parts->local && lt_local_steps_group(parts->local) > 0;
    if (!later)
        LT_TRY(visit_optim(parts, visitor, kind));
    *kind = LT_ENTRY_EXTRA;
    for (size_t i = 0; i < parts->extra_count; i++)
        LT_TRY(visit_extra(parts, &parts->extra[i], visitor));
    *kind = LT_ENTRY_REDUCER;
    lt_state_visitor tensors = *visitor;
    tensors.number = reject_number;
    if (parts->dp)
        LT_TRY(lt_data_parallel_visit(parts->dp, &tensors));
    *kind = LT_ENTRY_OUTER;
    if (parts->local)
        LT_TRY(lt_local_steps_visit(parts->local, visitor));
    if (later)
        LT_TRY(visit_optim(parts, visitor, kind));
    *kind = LT_ENTRY_GROUP;
    return parts->local ? lt_local_steps_visit_group(parts->local, visitor) : LT_OK;
}

char *lt_checkpoint_entry_name(const char *prefix, lt_entry_kind kind, const lt_state_entry *entry)
{
    const char *mark = kind == LT_ENTRY_REDUCER ? "@" : "#";
    if (kind == LT_ENTRY_EXTRA)
        return lt_strdup(entry->param);
    return entry->block < 0 ? lt_format("%s%s%s%s", prefix, entry->param, mark, entry->name)
                            : lt_format("%s%s%sblock.%d.%s", prefix, entry->param, mark,
                                        entry->block, entry->name);
}

char *lt_checkpoint_format_block(const lt_state_entry *entry)
{
    char offset[LT_SHAPE_TEXT], shape[LT_SHAPE_TEXT];
    return lt_format("offset %s shape %s", lt_shape_text(entry->offset, offset),
                     lt_shape_text(entry->shape, shape));
}

/* Reads the entry by way of the dequantized tensor that checkpoints store. */
static lt_status load_quantized_entry(const lt_reading *r, const lt_safetensors_entry *e,
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

lt_status lt_reading_load_entry(const lt_reading *r, const lt_safetensors_entry *e,
                                const lt_state_entry *entry)
{
    if (entry->quantized)
        return load_quantized_entry(r, e, entry->quantized);
    if (!entry->tensor) /* another rank reads it */
        return LT_OK;
    const lt_shard_spec *spec = entry->sharded_like ? entry->sharded_like->spec : NULL;
    return lt_entry_load(e, r->path, entry->tensor, spec, r->write);
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

lt_status lt_numbers_append(void *numbers, const char *name, int64_t *value)
{
    lt_numbers *n = numbers;
    (void)name;
    LT_TRY(LT_GROW(&n->item, &n->capacity, n->count + 1));
    n->item[n->count++] = *value;
    return LT_OK;
}
