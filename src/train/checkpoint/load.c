/* Loading checkpoints: the first pass only checks, the second writes. Both write the optimizer's numbers, as these
 * determine which tensors exist; if the check fails, a third pass restores them. */

#include "base/alloc.h"
#include "checkpoint.h"
#include "dist/consensus.h"
#include "entry.h"
#include "optim/slots.h"
#include "train/run/processor.h"
#include "train/weights/weights.h"

#include "lather/log.h"

#include <stdio.h>
#include <string.h>

typedef struct loading {
    lt_reading reading; /* optim.safetensors */
    const lt_json_value *numbers;
    int64_t step;
    size_t entries, numbers_seen;
    lt_numbers old; /* this run's own numbers, to restore */
    lt_checkpoint_groups groups;
    lt_checkpoint_reducer reducer;
} loading;

/* Flags that determine the blocks of Shampoo's state. */
#define BLOCK_FLAGS "--max-preconditioner-dim, --target-dimensionality, --large-dims, --split"

static lt_status fail_missing(const loading *l, const char *what, const char *name)
{
    return lt_fail(LT_E_FORMAT,
                   "%s: %s '%s' is missing: the checkpointed run had other settings of the "
                   "optimizer; set them as it did, or start a new run",
                   l->reading.path, what, name);
}

/* Fails unless this run partitions the parameter as the checkpointed run did. */
static lt_status check_block(const loading *l, const char *name, const lt_state_entry *entry)
{
    const char *stored = lt_safetensors_metadata(l->reading.file, name);
    if (!stored)
        return LT_OK;
    char *note = lt_checkpoint_format_block(entry);
    lt_status st = note ? LT_OK : LT_E_NOMEM;
    if (note && strcmp(note, stored) != 0)
        st = lt_fail(LT_E_FORMAT,
                     "%s: block %d of %s has %s there, %s here: set " BLOCK_FLAGS
                     " as the checkpointed run did, or start a new run",
                     l->reading.path, entry->block, entry->param, stored, note);
    lt_free(note);
    return st;
}

/* Fails unless it is state of the outer step that settings without it do not store; it is then 0, as at the start. */
static lt_status fail_unless_optional(const loading *l, bool outer, const lt_state_entry *entry,
                                      const char *name)
{
    if (!outer)
        return fail_missing(l, "state", name);
    return strcmp(entry->name, "outer.start") != 0 && strcmp(entry->name, "outer.value") != 0
               ? LT_OK
               : lt_fail(LT_E_FORMAT, "%s: state '%s' is missing", l->reading.path, name);
}

static lt_status load_entry(void *context, const lt_state_entry *entry)
{
    loading *l = context;
    const lt_reading *r = &l->reading;
    const int groups = (int)l->groups.stored;
    const bool own = r->kind == LT_ENTRY_OPTIM || r->kind == LT_ENTRY_GROUP,
               outer = r->kind == LT_ENTRY_OUTER || r->kind == LT_ENTRY_GROUP;
    if (r->kind == LT_ENTRY_REDUCER)
        return lt_checkpoint_load_reducer(&l->reducer, r, entry);
    if (outer && !groups)
        return LT_OK;
    if (r->kind == LT_ENTRY_GROUP && !l->groups.same) /* the mean: their sum is unchanged */
        return lt_checkpoint_load_sum_share(r, entry, groups, groups);
    const char *prefix = own ? l->groups.prefix : "";
    char *name = lt_checkpoint_entry_name(prefix, r->kind, entry);
    if (!name)
        return LT_E_NOMEM;
    const lt_safetensors_entry *e = lt_safetensors_find(r->file, name);
    lt_status st = check_block(l, name + strlen(prefix), entry);
    if (!st)
        st = e ? lt_reading_load_entry(r, e, entry) : fail_unless_optional(l, outer, entry, name);
    l->entries += e && !outer;
    lt_free(name);
    return st;
}

/* Reads the next number of a later group: these are stored by position, without names. */
static lt_status number_of_group(const loading *l, const char *name, int64_t *value)
{
    int64_t low, high;
    if (l->numbers_seen >= l->groups.number.count)
        return lt_fail(LT_E_FORMAT, "%s: '%snumbers' has no '%s'", l->reading.path,
                       l->groups.prefix, name);
    *value = l->groups.number.item[l->numbers_seen];
    lt_optim_counter_range(name, l->step, &low, &high);
    if (*value >= low && *value <= high)
        return LT_OK;
    return lt_fail(LT_E_FORMAT, "%s: '%s' of '%snumbers' is %lld, not in [%lld,%lld]",
                   l->reading.path, name, l->groups.prefix, (long long)*value, (long long)low,
                   (long long)high);
}

static lt_status load_number(void *context, const char *name, int64_t *value)
{
    loading *l = context;
    int64_t stored = 0;
    if (l->reading.kind != LT_ENTRY_OPTIM) {
        if (l->groups.stored && !strcmp(name, "outer.since"))
            *value = l->groups.since;
        return LT_OK;
    }
    if (l->groups.number.item) {
        LT_TRY(number_of_group(l, name, &stored));
    } else if (lt_json_integer(l->numbers, name, &stored))
        return fail_missing(l, "the optimizer's number", name);
    if (!l->reading.write)
        LT_TRY(lt_numbers_append(&l->old, name, value));
    l->numbers_seen++;
    *value = stored;
    return LT_OK;
}

static lt_status restore_number(void *context, const char *name, int64_t *value)
{
    loading *l = context;
    (void)name;
    if (l->numbers_seen < l->old.count)
        *value = l->old.item[l->numbers_seen++];
    return LT_OK;
}

static lt_status check_or_load_state(loading *l, const lt_checkpoint_contents *parts)
{
    lt_state_visitor visitor = {.entry = load_entry, .number = load_number, .context = l};
    l->entries = l->numbers_seen = 0;
    LT_TRY(lt_checkpoint_begin_reducer(&l->reducer, parts->dp));
    LT_TRY(lt_checkpoint_visit(parts, &visitor, &l->reading.kind));
    if (l->reading.write && (!parts->comm || lt_comm_rank(parts->comm) == 0))
        lt_checkpoint_report_reducer(&l->reducer, &l->reading);
    return LT_OK;
}

/* Counts the entries that belong neither to later groups nor to the reducer. */
static size_t count_stored(const loading *l)
{
    size_t count = 0;
    for (size_t i = 0; i < lt_safetensors_count(l->reading.file); i++) {
        const char *name = lt_safetensors_at(l->reading.file, i)->name;
        count +=
            !lt_checkpoint_is_of_groups(&l->groups, name) && !lt_checkpoint_is_of_reducer(name);
    }
    return count;
}

/* Rejects state that versions before 0.2 stored for options that are gone. */
static lt_status reject_removed_option(const loading *l)
{
    int64_t stored;
    if (!l->numbers || lt_json_integer(l->numbers, "precondition_interval", &stored))
        return LT_OK;
    return lt_fail(
        LT_E_FORMAT,
        "%s: precondition_interval %lld belongs to --precondition-budget, which is gone since "
        "0.2: version 0.1 resumes it",
        l->reading.path, (long long)stored);
}

static lt_status check_complete(const loading *l)
{
    size_t stored = count_stored(l);
    LT_TRY(reject_removed_option(l));
    if (l->entries < stored)
        return lt_fail(LT_E_FORMAT,
                       "%s: %zu state tensors, of which this run has %zu: the checkpointed run had "
                       "other settings of the optimizer; set them as it did, or start a new run",
                       l->reading.path, stored, l->entries);
    enum { OUTER = 2 }; /* "outer.groups", "outer.since" */
    const size_t numbers = !l->numbers             ? SIZE_MAX
                           : l->groups.number.item ? l->groups.number.count
                           : l->groups.stored      ? l->numbers->count - OUTER
                                                   : l->numbers->count;
    if (l->numbers_seen < numbers)
        return lt_fail(LT_E_FORMAT, "%s: its numbers belong to another optimizer", l->reading.path);
    return LT_OK;
}

/* Open files of a checkpoint. */
typedef struct files {
    char *model_path, *optim_path;
    lt_safetensors *model, *optim;
    lt_json *json;
    lt_checkpoint_state state;
    loading loading;
} files;

static const lt_weights_rules rules = {.is_checkpoint = true};

static lt_status open_files(const char *path, files *f)
{
    LT_TRY(lt_checkpoint_read_state(path, &f->json, &f->state));
    f->model_path = lt_format("%s/%s", path, LT_CHECKPOINT_MODEL);
    f->optim_path = lt_format("%s/%s", path, LT_CHECKPOINT_OPTIM);
    if (!f->model_path || !f->optim_path)
        return LT_E_NOMEM;
    LT_TRY(lt_safetensors_open(&f->model, f->model_path));
    LT_TRY(lt_safetensors_open(&f->optim, f->optim_path));
    f->loading = (loading){.reading = {.path = f->optim_path, .file = f->optim},
                           .numbers = lt_json_member(lt_json_root(f->json), "numbers"),
                           .step = f->state.step};
    return LT_OK;
}

static void close_files(files *f)
{
    lt_safetensors_close(&f->model);
    lt_safetensors_close(&f->optim);
    lt_json_free(&f->json);
    lt_free(f->loading.old.item);
    lt_free(f->loading.groups.number.item);
    lt_free(f->model_path);
    lt_free(f->optim_path);
}

static bool has_tensors(const lt_safetensors *file, const char *prefix)
{
    bool found = false;
    for (size_t i = 0; i < lt_safetensors_count(file) && !found; i++)
        found = !strncmp(lt_safetensors_at(file, i)->name, prefix, strlen(prefix));
    return found;
}

/* Fails unless checkpoint and run agree on --ema-decay and on --iterate-averaging. */
static lt_status check_averages(const char *path, const lt_safetensors *file,
                                const lt_checkpoint_contents *parts)
{
    static const struct {
        const char *prefix, *flag;
    } kind[] = {{"weight_buffer.", "--iterate-averaging"}, {"ema.", "--ema-decay"}};
    for (size_t k = 0; k < sizeof kind / sizeof *kind; k++) {
        const bool stored = has_tensors(file, kind[k].prefix);
        bool wanted = false;
        for (size_t i = 0; i < parts->extra_count && !wanted; i++)
            wanted = !strncmp(parts->extra[i].name, kind[k].prefix, strlen(kind[k].prefix));
        if (stored != wanted)
            return lt_fail(LT_E_FORMAT,
                           "%s: %s was %sset in the checkpointed run; %s it or start a new run",
                           path, kind[k].flag, stored ? "" : "not ", stored ? "set" : "remove");
    }
    return LT_OK;
}

/* Opens and checks everything; changes nothing but the optimizer's numbers, see restore_after_failed_check(). */
static lt_status check_files(const char *path, files *f, const lt_checkpoint_contents *parts)
{
    LT_TRY(open_files(path, f));
    if (parts->optim && strcmp(f->state.optim, lt_optim_name(parts->optim)) != 0)
        return lt_fail(LT_E_FORMAT, "%s: state of optimizer %s, this run uses %s", path,
                       f->state.optim, lt_optim_name(parts->optim));
    LT_TRY(lt_checkpoint_find_groups(&f->loading.groups, path, f->optim, f->loading.numbers, parts,
                                     f->state.step));
    LT_TRY(lt_weights_check(f->model, f->model_path, parts->params, &rules));
    LT_TRY(check_averages(path, f->optim, parts));
    LT_TRY(check_or_load_state(&f->loading, parts));
    return check_complete(&f->loading);
}

static lt_status apply_files(files *f, const lt_checkpoint_contents *parts)
{
    LT_TRY(lt_weights_apply(f->model, parts->params, &rules));
    f->loading.reading.write = true;
    LT_TRY(check_or_load_state(&f->loading, parts));
    return lt_checkpoint_load_scaling(&f->loading.groups, &f->loading.reading, &f->state);
}

/* Bitwise equality is promised for the same build, CPU type, kernels and threads only, unless both are reproducible. */
static void compare_machine(const char *path, const lt_json_value *root, bool reproducible)
{
    char changed[LT_PROCESSOR_TEXT];
    const char *version = "";
    if (*lt_processor_compare(root, reproducible, changed, sizeof changed))
        lt_log(LT_LOG_WARN, "train", "%s: results may differ in the last bits: %s", path, changed);
    if (lt_json_string(root, "version", &version))
        return;
    if (strcmp(version, lt_version()) != 0)
        lt_log(LT_LOG_WARN, "train", "%s: saved by version %s, this is %s", path, version,
               lt_version());
}

/* Logs differences from the run that saved it, which may change results by rounding. */
static void compare_runs(const char *path, const files *f, const lt_checkpoint_state *now)
{
    const lt_checkpoint_state *s = &f->state;
    const bool same = s->reproducible && now->reproducible;
    compare_machine(path, lt_json_root(f->json), now->reproducible);
    if (s->reproducible != now->reproducible)
        lt_log(LT_LOG_WARN, "train",
               "%s: saved %s --reproducible, this run is %s it: it is not reproducible as a whole",
               path, s->reproducible ? "with" : "without", now->reproducible ? "with" : "without");
    if (!same && s->threads != now->threads && now->threads)
        lt_log(LT_LOG_WARN, "train", "%s: saved with %d threads, this run has %d", path, s->threads,
               now->threads);
    if (!same && s->ranks != now->ranks && now->ranks)
        lt_log(LT_LOG_WARN, "train", "%s: saved with %d ranks, this run has %d", path, s->ranks,
               now->ranks);
}

static lt_status agree_on_status(const lt_checkpoint_contents *parts, lt_status st)
{
    return parts->comm ? lt_comm_agree_on_status(parts->comm, st) : st;
}

/* Restores the numbers after a failed check; keeps its message. */
static void restore_after_failed_check(loading *l, const lt_checkpoint_contents *parts)
{
    char text[512];
    lt_state_visitor visitor = {lt_skip_entry, restore_number, l};
    snprintf(text, sizeof text, "%s", lt_error_message());
    l->numbers_seen = 0;
    if (l->old.count && lt_optim_visit(parts->optim, &visitor))
        lt_log(LT_LOG_WARN, "train", "%s: %s", l->reading.path, lt_error_message());
    (void)lt_fail(LT_E_FORMAT, "%s", text);
}

/* Continues the stored round of local steps, or begins one. */
static lt_status begin_round(const files *f, const lt_checkpoint_contents *parts, lt_status st)
{
    if (!parts->local)
        return st;
    lt_status folded = lt_local_steps_free_gathered(parts->local, !st && f->loading.groups.stored);
    if (!st)
        st = folded;
    return st || lt_local_steps_since_sync(parts->local) ? st : lt_local_steps_begin(parts->local);
}

/* Writes the checked state; then all ranks redistribute the reducer's state. */
static lt_status load_files(files *f, const lt_checkpoint_contents *parts)
{
    LT_TRY(agree_on_status(parts, apply_files(f, parts)));
    return parts->dp ? lt_data_parallel_finish_load(parts->dp) : LT_OK;
}

lt_status lt_checkpoint_load(const char *path, const lt_checkpoint_contents *parts,
                             lt_checkpoint_state *state)
{
    files f = {0};
    if (parts->local)
        LT_TRY(lt_local_steps_gather_state(parts->local));
    lt_status st = agree_on_status(parts, check_files(path, &f, parts));
    if (!st)
        st = agree_on_status(parts, load_files(&f, parts));
    else
        restore_after_failed_check(&f.loading, parts);
    st = begin_round(&f, parts, st);
    if (!st) {
        if (!parts->comm || lt_comm_rank(parts->comm) == 0)
            compare_runs(path, &f, state);
        *state = f.state;
    }
    close_files(&f);
    return st;
}
