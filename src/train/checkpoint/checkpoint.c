/* Saving checkpoints. */

#include "checkpoint.h"

#include "base/alloc.h"
#include "base/commit.h"
#include "base/shared_file.h"
#include "dist/agree.h"
#include "optim/low_precision/quantized_state.h"
#include "tensor/safetensors.h"
#include "train/weights/weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

char *lt_checkpoint_entry_name(const lt_state_entry *entry)
{
    return entry->block < 0 ? lt_format("%s#%s", entry->param, entry->name)
                            : lt_format("%s#block.%d.%s", entry->param, entry->block, entry->name);
}

static lt_status keep_number(void *context, const char *name, int64_t *value)
{
    (void)context;
    (void)name;
    (void)value;
    return LT_OK;
}

char *lt_checkpoint_entry_note(const lt_state_entry *entry)
{
    char offset[LT_SHAPE_TEXT], shape[LT_SHAPE_TEXT];
    return lt_format("offset %s shape %s", lt_shape_text(entry->offset, offset),
                     lt_shape_text(entry->shape, shape));
}

/* The writer, and what comes from other ranks. */
typedef struct saving {
    lt_safetensors_writer *writer;
    lt_checkpoint_queue *queue;
} saving;

static lt_status add_tensor(const saving *s, const char *name, const lt_state_entry *entry)
{
    if (entry->box)
        return lt_checkpoint_add_boxes(s->queue, s->writer, name, entry->tensor, entry->box,
                                       entry->dtype);
    if (entry->tensor)
        return lt_safetensors_add(s->writer, name, entry->tensor);
    if (entry->quantized)
        return lt_safetensors_add_source(s->writer, name, entry->dtype, entry->extent,
                                         lt_quantized_read, entry->quantized);
    if (!s->queue->count)
        return lt_fail(LT_E_ARG, "checkpoint: state '%s' of %s is on rank %d: save with all ranks",
                       entry->name, entry->param, entry->owner);
    return lt_safetensors_add_source(s->writer, name, entry->dtype, entry->extent,
                                     lt_checkpoint_receive, s->queue);
}

static lt_status add_entry(void *context, const lt_state_entry *entry)
{
    const saving *s = context;
    char *name = lt_checkpoint_entry_name(entry);
    char *note = lt_checkpoint_entry_note(entry);
    lt_status st = name && note ? add_tensor(s, name, entry) : LT_E_NOMEM;
    if (!st && entry->block >= 0)
        st = lt_safetensors_add_metadata(s->writer, name, note);
    lt_free(name);
    lt_free(note);
    return st;
}

static lt_status add_of_reducer(void *context, const lt_state_entry *entry)
{
    char *name = lt_checkpoint_reducer_name(entry);
    lt_status st = name ? add_tensor(context, name, entry) : LT_E_NOMEM;
    lt_free(name);
    return st;
}

static lt_status add_model(const saving *s, const lt_checkpoint_parts *parts)
{
    lt_safetensors_writer *w = s->writer;
    for (size_t i = 0; i < parts->params->count; i++) {
        const lt_param *p = parts->params->item[i];
        LT_TRY(
            lt_checkpoint_add_boxes(s->queue, w, p->name, p->value, p, lt_tensor_dtype(p->value)));
    }
    return lt_weights_add_metadata(w, parts->metadata, parts->metadata_count);
}

/* The first group's, then what the others send. */
static lt_status add_groups(const saving *s, lt_local_steps *local, lt_state_visitor *visitor)
{
    const lt_checkpoint_queue *q = s->queue;
    LT_TRY(lt_local_steps_visit(local, visitor));
    LT_TRY(lt_local_steps_visit_group(local, visitor));
    for (size_t i = q->groups_at; i < q->count; i++)
        LT_TRY(lt_safetensors_add_source(s->writer, q->entry[i].name, q->entry[i].dtype,
                                         q->entry[i].extent, lt_checkpoint_receive, s->queue));
    return LT_OK;
}

static lt_status add_optim(const saving *s, const lt_checkpoint_parts *parts)
{
    saving all = *s;
    lt_state_visitor visitor = {.entry = add_entry, .number = keep_number, .context = &all};
    if (parts->optim)
        LT_TRY(lt_optim_visit(parts->optim, &visitor));
    for (size_t i = 0; i < parts->extra_count; i++) {
        const lt_checkpoint_tensor *t = &parts->extra[i];
        LT_TRY(lt_checkpoint_add_boxes(s->queue, s->writer, t->name, t->tensor, t->param,
                                       lt_tensor_dtype(t->tensor)));
    }
    lt_state_visitor of_reducer = {.entry = add_of_reducer, .number = keep_number, .context = &all};
    if (parts->dp)
        LT_TRY(lt_data_parallel_visit(parts->dp, &of_reducer));
    return parts->local ? add_groups(s, parts->local, &visitor) : LT_OK;
}

typedef lt_status add_fn(const saving *s, const lt_checkpoint_parts *parts);

static lt_status write_tensors(const char *folder, const char *name, add_fn *add,
                               const lt_checkpoint_parts *parts, lt_checkpoint_queue *queue)
{
    char *path = lt_format("%s/%s", folder, name);
    saving s = {.queue = queue};
    lt_status st = path ? lt_safetensors_create(&s.writer, path) : LT_E_NOMEM;
    if (!st)
        st = add(&s, parts);
    if (!st)
        st = lt_safetensors_finish_part(&s.writer);
    lt_safetensors_discard(&s.writer);
    lt_free(path);
    return st;
}

static lt_status write_all(const char *folder, const lt_checkpoint_parts *parts,
                           const lt_checkpoint_state *state, lt_checkpoint_queue *queue)
{
    LT_TRY(write_tensors(folder, LT_CHECKPOINT_MODEL, add_model, parts, queue));
    LT_TRY(write_tensors(folder, LT_CHECKPOINT_OPTIM, add_optim, parts, queue));
    return lt_checkpoint_write_state(folder, parts, state);
}

static lt_status save_into(const char *checkpoints, const lt_checkpoint_parts *parts,
                           const lt_checkpoint_state *state, lt_checkpoint_queue *queue)
{
    char *path = lt_format("%s/step-%" PRId64, checkpoints, state->step);
    if (!path)
        return LT_E_NOMEM;
    lt_commit commit = {0};
    lt_status st = lt_commit_begin(&commit, path);
    lt_free(path);
    LT_TRY(st);
    st = write_all(commit.temp, parts, state, queue);
    if (st) {
        lt_commit_abandon(&commit);
        return st;
    }
    return lt_commit_finish(&commit);
}

static lt_status write_checkpoint(const char *folder, const lt_checkpoint_parts *parts,
                                  const lt_checkpoint_state *state,
                                  const lt_checkpoint_policy *policy, lt_checkpoint_queue *queue)
{
    static const lt_checkpoint_policy keep_all = {0};
    char *checkpoints = lt_format("%s/checkpoints", folder);
    if (!checkpoints)
        return LT_E_NOMEM;
    lt_status st = lt_shared_folder(checkpoints);
    if (!st) {
        lt_checkpoint_clean_in(checkpoints);
        st = save_into(checkpoints, parts, state, queue);
    }
    if (!st)
        st = lt_checkpoint_point(checkpoints, state, policy ? policy : &keep_all);
    lt_free(checkpoints);
    return st;
}

static lt_status save_all(const char *folder, const lt_checkpoint_parts *parts,
                          const lt_checkpoint_state *state, const lt_checkpoint_policy *policy,
                          lt_checkpoint_queue *queue)
{
    lt_status st = lt_checkpoint_meet(parts, state, queue);
    if (st) {
        queue->count = 0; /* no rank sends */
        lt_checkpoint_drain(queue);
        return st;
    }
    if (parts->comm && lt_comm_rank(parts->comm) > 0)
        st = lt_checkpoint_send(parts, queue);
    else
        st = write_checkpoint(folder, parts, state, policy, queue);
    lt_checkpoint_drain(queue);
    return parts->comm ? lt_comm_agree(parts->comm, st) : st;
}

lt_status lt_checkpoint_save(const char *folder, const lt_checkpoint_parts *parts,
                             const lt_checkpoint_state *state, const lt_checkpoint_policy *policy)
{
    lt_checkpoint_queue queue = {0};
    lt_status st = parts->local ? lt_local_steps_unfold(parts->local) : LT_OK;
    if (!st)
        st = save_all(folder, parts, state, policy, &queue);
    if (parts->local)
        (void)!lt_local_steps_fold(parts->local, false);
    return st;
}
