/* Saving and loading checkpoints. */

#include "train/checkpoint.h"

#include "base/alloc.h"
#include "base/commit.h"
#include "dist/agree.h"
#include "tensor/safetensors.h"
#include "train/machine.h"
#include "train/weights.h"

#include "lather/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

char *lt_checkpoint_entry_name(const lt_state_entry *entry)
{
    return entry->block < 0 ? lt_format("%s#%s", entry->param, entry->name)
                            : lt_format("%s#block.%d.%s", entry->param, entry->block, entry->name);
}

/* Saving. */

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
    if (entry->tensor)
        return lt_safetensors_add(s->writer, name, entry->tensor);
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
        st = lt_safetensors_note(s->writer, name, note);
    lt_free(name);
    lt_free(note);
    return st;
}

static lt_status add_model(const saving *s, const lt_checkpoint_parts *parts)
{
    lt_safetensors_writer *w = s->writer;
    for (size_t i = 0; i < parts->params->count; i++)
        LT_TRY(lt_safetensors_add(w, parts->params->item[i]->name, parts->params->item[i]->value));
    return lt_safetensors_note(w, "format", "pt");
}

static lt_status add_optim(const saving *s, const lt_checkpoint_parts *parts)
{
    saving all = *s;
    lt_state_visitor visitor = {.entry = add_entry, .number = keep_number, .context = &all};
    if (parts->optim)
        LT_TRY(lt_optim_visit(parts->optim, &visitor));
    for (size_t i = 0; i < parts->extra_count; i++)
        LT_TRY(lt_safetensors_add(s->writer, parts->extra[i].name, parts->extra[i].tensor));
    return LT_OK;
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
    lt_status st = lt_commit_make_folders(checkpoints);
    if (!st) {
        lt_commit_clean(checkpoints);
        st = save_into(checkpoints, parts, state, queue);
    }
    if (!st)
        st = lt_checkpoint_point(checkpoints, state->step, policy ? policy : &keep_all);
    lt_free(checkpoints);
    return st;
}

lt_status lt_checkpoint_save(const char *folder, const lt_checkpoint_parts *parts,
                             const lt_checkpoint_state *state, const lt_checkpoint_policy *policy)
{
    lt_checkpoint_queue queue = {0};
    lt_status st = lt_checkpoint_meet(parts, &queue);
    if (st) {
        lt_free(queue.entry);
        return st;
    }
    if (parts->comm && lt_comm_rank(parts->comm) > 0)
        st = lt_checkpoint_send(parts);
    else
        st = write_checkpoint(folder, parts, state, policy, &queue);
    lt_checkpoint_drain(&queue);
    return parts->comm ? lt_comm_agree(parts->comm, st) : st;
}

/* Loading: a pass that only checks, then one that writes. */

typedef struct loading {
    const char *path; /* of optim.safetensors */
    const lt_safetensors *file;
    const lt_json_value *numbers;
    bool write;
    size_t entries, numbers_seen;
} loading;

static lt_status load_tensor(loading *l, const char *name, lt_tensor *tensor)
{
    const lt_safetensors_entry *e = lt_safetensors_find(l->file, name);
    if (!e)
        return lt_fail(LT_E_FORMAT, "%s: state '%s' is missing", l->path, name);
    l->entries++;
    return l->write ? lt_entry_write(e, tensor) : lt_entry_check(e, l->path, tensor);
}

/* Whether this run cuts the parameter as the checkpoint's did. */
static lt_status check_block(const loading *l, const char *name, const lt_state_entry *entry)
{
    const char *stored = lt_safetensors_metadata(l->file, name);
    if (!stored)
        return LT_OK;
    char *note = lt_checkpoint_entry_note(entry);
    lt_status st = note ? LT_OK : LT_E_NOMEM;
    if (note && strcmp(note, stored) != 0)
        st = lt_fail(LT_E_FORMAT,
                     "%s: block %d of %s has %s there, %s here: other settings for merging and "
                     "splitting",
                     l->path, entry->block, entry->param, stored, note);
    lt_free(note);
    return st;
}

static lt_status load_entry(void *context, const lt_state_entry *entry)
{
    loading *l = context;
    char *name = lt_checkpoint_entry_name(entry);
    lt_status st = name ? check_block(l, name, entry) : LT_E_NOMEM;
    if (!st && entry->tensor)
        st = load_tensor(l, name, entry->tensor);
    else if (!st && !lt_safetensors_find(l->file, name))
        st = lt_fail(LT_E_FORMAT, "%s: state '%s' is missing", l->path, name);
    else if (!st)
        l->entries++; /* another rank reads it */
    lt_free(name);
    return st;
}

static lt_status load_number(void *context, const char *name, int64_t *value)
{
    loading *l = context;
    int64_t stored = 0;
    l->numbers_seen++;
    if (lt_json_integer(l->numbers, name, &stored))
        return lt_fail(LT_E_FORMAT, "%s: the optimizer's number '%s' is missing", l->path, name);
    if (l->write)
        *value = stored;
    return LT_OK;
}

static lt_status visit_all(loading *l, const lt_checkpoint_parts *parts)
{
    l->entries = l->numbers_seen = 0;
    lt_state_visitor visitor = {.entry = load_entry, .number = load_number, .context = l};
    if (parts->optim)
        LT_TRY(lt_optim_visit(parts->optim, &visitor));
    for (size_t i = 0; i < parts->extra_count; i++)
        LT_TRY(load_tensor(l, parts->extra[i].name, parts->extra[i].tensor));
    return LT_OK;
}

static lt_status check_complete(const loading *l)
{
    size_t stored = lt_safetensors_count(l->file);
    if (l->entries < stored)
        return lt_fail(LT_E_FORMAT, "%s: %zu state tensors, this run knows %zu of them", l->path,
                       stored, l->entries);
    if (!l->numbers || l->numbers_seen < l->numbers->count)
        return lt_fail(LT_E_FORMAT, "%s: numbers of another optimizer", l->path);
    return LT_OK;
}

/* The files of a checkpoint, open. */
typedef struct files {
    char *model_path, *optim_path;
    lt_safetensors *model, *optim;
    lt_json *json;
    lt_checkpoint_state state;
    loading loading;
} files;

static const lt_weights_rules rules = {.want_counts = true, .allow_nan = true};

static lt_status open_files(const char *path, files *f)
{
    LT_TRY(lt_checkpoint_read_state(path, &f->json, &f->state));
    f->model_path = lt_format("%s/%s", path, LT_CHECKPOINT_MODEL);
    f->optim_path = lt_format("%s/%s", path, LT_CHECKPOINT_OPTIM);
    if (!f->model_path || !f->optim_path)
        return LT_E_NOMEM;
    LT_TRY(lt_safetensors_open(&f->model, f->model_path));
    LT_TRY(lt_safetensors_open(&f->optim, f->optim_path));
    f->loading = (loading){.path = f->optim_path,
                           .file = f->optim,
                           .numbers = lt_json_member(lt_json_root(f->json), "numbers")};
    return LT_OK;
}

static void close_files(files *f)
{
    lt_safetensors_close(&f->model);
    lt_safetensors_close(&f->optim);
    lt_json_free(&f->json);
    lt_free(f->model_path);
    lt_free(f->optim_path);
}

/* Changes nothing. */
static lt_status check_files(const char *path, files *f, const lt_checkpoint_parts *parts)
{
    LT_TRY(open_files(path, f));
    if (parts->optim && strcmp(f->state.optim, lt_optim_name(parts->optim)) != 0)
        return lt_fail(LT_E_FORMAT, "%s: state of optimizer %s, this run uses %s", path,
                       f->state.optim, lt_optim_name(parts->optim));
    LT_TRY(lt_weights_check(f->model, f->model_path, parts->params, &rules));
    LT_TRY(visit_all(&f->loading, parts));
    return check_complete(&f->loading);
}

static lt_status apply_files(files *f, const lt_checkpoint_parts *parts)
{
    LT_TRY(lt_weights_apply(f->model, parts->params, &rules));
    f->loading.write = true;
    return visit_all(&f->loading, parts);
}

/* Bit equality is promised for the same build, CPU type, and threads. */
static void compare_machine(const char *path, const lt_json_value *root)
{
    char cpu[128];
    const char *stored_cpu = "", *version = "";
    if (lt_json_string(root, "cpu", &stored_cpu) || lt_json_string(root, "version", &version))
        return;
    if (strcmp(stored_cpu, lt_machine_cpu(cpu, sizeof cpu)) != 0)
        lt_log(LT_LOG_WARN, "train",
               "%s: saved on %s, this is %s: results may differ in the last bits", path, stored_cpu,
               cpu);
    if (strcmp(version, lt_version()) != 0)
        lt_log(LT_LOG_WARN, "train", "%s: saved by version %s, this is %s", path, version,
               lt_version());
}

lt_status lt_checkpoint_verify(const char *path, lt_checkpoint_state *state)
{
    lt_json *json = NULL;
    LT_TRY(lt_checkpoint_read_state(path, &json, state));
    lt_json_free(&json);
    return LT_OK;
}

/* What differs from the run that saved it, and may show in the last bits. */
static void compare_runs(const char *path, const files *f, const lt_checkpoint_state *now)
{
    const lt_checkpoint_state *s = &f->state;
    compare_machine(path, lt_json_root(f->json));
    if (s->threads != now->threads && now->threads)
        lt_log(LT_LOG_WARN, "train", "%s: saved with %d threads, this run has %d", path, s->threads,
               now->threads);
    if (s->ranks != now->ranks && now->ranks)
        lt_log(LT_LOG_WARN, "train", "%s: saved with %d ranks, this run has %d", path, s->ranks,
               now->ranks);
}

static lt_status agree(const lt_checkpoint_parts *parts, lt_status st)
{
    return parts->comm ? lt_comm_agree(parts->comm, st) : st;
}

lt_status lt_checkpoint_load(const char *path, const lt_checkpoint_parts *parts,
                             lt_checkpoint_state *state)
{
    files f = {0};
    lt_status st = agree(parts, check_files(path, &f, parts));
    if (!st)
        st = agree(parts, apply_files(&f, parts));
    if (!st) {
        if (!parts->comm || lt_comm_rank(parts->comm) == 0)
            compare_runs(path, &f, state);
        *state = f.state;
    }
    close_files(&f);
    return st;
}
