/* Saving and loading checkpoints. */

#include "train/checkpoint.h"

#include "base/alloc.h"
#include "base/commit.h"
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

static lt_status add_entry(void *context, const lt_state_entry *entry)
{
    lt_safetensors_writer *w = context;
    if (!entry->tensor)
        return lt_fail(LT_E_UNSUPPORTED, "checkpoint: state '%s' of %s is on rank %d", entry->name,
                       entry->param, entry->owner);
    char offset[LT_SHAPE_TEXT], shape[LT_SHAPE_TEXT];
    char *name = lt_checkpoint_entry_name(entry);
    char *note = lt_format("offset %s shape %s", lt_shape_text(entry->offset, offset),
                           lt_shape_text(entry->shape, shape));
    lt_status st = name && note ? lt_safetensors_add(w, name, entry->tensor) : LT_E_NOMEM;
    if (!st && entry->block >= 0)
        st = lt_safetensors_note(w, name, note);
    lt_free(name);
    lt_free(note);
    return st;
}

static lt_status add_model(lt_safetensors_writer *w, const lt_checkpoint_parts *parts)
{
    for (size_t i = 0; i < parts->params->count; i++)
        LT_TRY(lt_safetensors_add(w, parts->params->item[i]->name, parts->params->item[i]->value));
    return lt_safetensors_note(w, "format", "pt");
}

static lt_status add_optim(lt_safetensors_writer *w, const lt_checkpoint_parts *parts)
{
    lt_state_visitor visitor = {.entry = add_entry, .number = keep_number, .context = w};
    if (parts->optim)
        LT_TRY(lt_optim_visit(parts->optim, &visitor));
    for (size_t i = 0; i < parts->extra_count; i++)
        LT_TRY(lt_safetensors_add(w, parts->extra[i].name, parts->extra[i].tensor));
    return LT_OK;
}

static lt_status write_tensors(const char *folder, const char *name,
                               lt_status (*add)(lt_safetensors_writer *w,
                                                const lt_checkpoint_parts *parts),
                               const lt_checkpoint_parts *parts)
{
    char *path = lt_format("%s/%s", folder, name);
    lt_safetensors_writer *w = NULL;
    lt_status st = path ? lt_safetensors_create(&w, path) : LT_E_NOMEM;
    if (!st)
        st = add(w, parts);
    if (!st)
        st = lt_safetensors_finish_part(&w);
    lt_safetensors_discard(&w);
    lt_free(path);
    return st;
}

static lt_status write_all(const char *folder, const lt_checkpoint_parts *parts,
                           const lt_checkpoint_state *state)
{
    LT_TRY(write_tensors(folder, LT_CHECKPOINT_MODEL, add_model, parts));
    LT_TRY(write_tensors(folder, LT_CHECKPOINT_OPTIM, add_optim, parts));
    return lt_checkpoint_write_state(folder, parts, state);
}

static lt_status save_into(const char *checkpoints, const lt_checkpoint_parts *parts,
                           const lt_checkpoint_state *state)
{
    char *path = lt_format("%s/step-%" PRId64, checkpoints, state->step);
    if (!path)
        return LT_E_NOMEM;
    lt_commit commit = {0};
    lt_status st = lt_commit_begin(&commit, path);
    lt_free(path);
    LT_TRY(st);
    st = write_all(commit.temp, parts, state);
    if (st) {
        lt_commit_abandon(&commit);
        return st;
    }
    return lt_commit_finish(&commit);
}

lt_status lt_checkpoint_save(const char *folder, const lt_checkpoint_parts *parts,
                             const lt_checkpoint_state *state, const lt_checkpoint_policy *policy)
{
    static const lt_checkpoint_policy keep_all = {0};
    char *checkpoints = lt_format("%s/checkpoints", folder);
    if (!checkpoints)
        return LT_E_NOMEM;
    lt_status st = lt_commit_make_folders(checkpoints);
    if (!st) {
        lt_commit_clean(checkpoints);
        st = save_into(checkpoints, parts, state);
    }
    if (!st)
        st = lt_checkpoint_point(checkpoints, state->step, policy ? policy : &keep_all);
    lt_free(checkpoints);
    return st;
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

static lt_status load_entry(void *context, const lt_state_entry *entry)
{
    char *name = lt_checkpoint_entry_name(entry);
    lt_status st = !name           ? LT_E_NOMEM
                   : entry->tensor ? load_tensor(context, name, entry->tensor)
                                   : LT_OK;
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

static lt_status load_files(const lt_safetensors *model, const char *model_path, loading *l,
                            const lt_checkpoint_parts *parts)
{
    const lt_weights_rules rules = {.want_counts = true, .allow_nan = true};
    LT_TRY(lt_weights_check(model, model_path, parts->params, &rules));
    LT_TRY(visit_all(l, parts));
    LT_TRY(check_complete(l));
    LT_TRY(lt_weights_apply(model, parts->params, &rules));
    l->write = true;
    return visit_all(l, parts);
}

static lt_status open_and_load(const char *path, const lt_checkpoint_parts *parts,
                               const lt_json_value *root)
{
    char *model_path = lt_format("%s/%s", path, LT_CHECKPOINT_MODEL);
    char *optim_path = lt_format("%s/%s", path, LT_CHECKPOINT_OPTIM);
    lt_safetensors *model = NULL, *optim = NULL;
    lt_status st = model_path && optim_path ? LT_OK : LT_E_NOMEM;
    if (!st)
        st = lt_safetensors_open(&model, model_path);
    if (!st)
        st = lt_safetensors_open(&optim, optim_path);
    if (!st) {
        loading l = {.path = optim_path, .file = optim, .numbers = lt_json_member(root, "numbers")};
        st = load_files(model, model_path, &l, parts);
    }
    lt_safetensors_close(&model);
    lt_safetensors_close(&optim);
    lt_free(model_path);
    lt_free(optim_path);
    return st;
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

lt_status lt_checkpoint_load(const char *path, const lt_checkpoint_parts *parts,
                             lt_checkpoint_state *state)
{
    lt_json *json = NULL;
    lt_checkpoint_state s;
    LT_TRY(lt_checkpoint_read_state(path, &json, &s));
    lt_status st = LT_OK;
    if (parts->optim && strcmp(s.optim, lt_optim_name(parts->optim)) != 0)
        st = lt_fail(LT_E_FORMAT, "%s: state of optimizer %s, this run uses %s", path, s.optim,
                     lt_optim_name(parts->optim));
    if (!st)
        st = open_and_load(path, parts, lt_json_root(json));
    if (!st) {
        compare_machine(path, lt_json_root(json));
        if (s.threads != state->threads && state->threads)
            lt_log(LT_LOG_WARN, "train", "%s: saved with %d threads, this run has %d", path,
                   s.threads, state->threads);
        *state = s;
    }
    lt_json_free(&json);
    return st;
}
