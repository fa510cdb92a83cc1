/* Saving checkpoints, and hashes of their contents. All ranks list the tensors; then each writes those that it owns
 * (parts.h), and rank 0 the rest and the index. Rank 0 renames the folder when all ranks have synced their parts. */

#include "base/alloc.h"
#include "base/atomic_dir.h"
#include "base/encoding/sha256.h"
#include "base/shared_file.h"
#include "base/text.h"
#include "checkpoint.h"
#include "dist/consensus.h"
#include "entry.h"
#include "optim/sharding/shard.h"
#include "parts.h"

#include "lather/detail/checkpoint_hash.h"
#include "lather/ext/comm.h"
#include "lather/ext/fail.h"

#include <inttypes.h>
#include <stdio.h>

/* A save on one rank. */
typedef struct saving {
    const lt_checkpoint_contents *parts;
    const lt_checkpoint_state *state;
    lt_shard_gather gather;
    lt_entry_kind kind; /* kind of the visited entry */
    size_t models;      /* number of tensors of model.safetensors, which come first */
} saving;

static bool is_alone(const lt_checkpoint_contents *parts)
{
    return !parts->comm || lt_comm_size(parts->comm) == 1;
}

/* --- The list --- */

/* Lists one entry. With groups, entry->owner is a rank of the group. */
static lt_status list_entry(void *context, const lt_state_entry *entry)
{
    saving *s = context;
    const lt_local_steps *local = s->parts->local;
    const bool own = s->kind == LT_ENTRY_OPTIM || s->kind == LT_ENTRY_GROUP;
    const int group = local && own ? lt_local_steps_group(local) : 0;
    char prefix[LT_CHECKPOINT_PREFIX];
    lt_gathered t = {.dtype = entry->dtype,
                     .stored = entry->dtype,
                     .shape = entry->extent,
                     .tensor = entry->tensor,
                     .quantized = entry->quantized,
                     .later = group > 0};
    t.owner = local ? lt_local_steps_rank(local, group, entry->owner) : entry->owner;
    if (entry->block >= 0 && !(t.note = lt_checkpoint_format_block(entry)))
        return LT_E_NOMEM;
    t.name = lt_checkpoint_entry_name(lt_checkpoint_prefix(group, prefix), s->kind, entry);
    return lt_gather_add(&s->gather, &t, entry->sharded_like);
}

/* Lists all tensors in the order of the files. */
static lt_status list_all_tensors(saving *s)
{
    const lt_checkpoint_contents *parts = s->parts;
    lt_state_visitor visitor = {list_entry, lt_skip_number, s};
    for (size_t i = 0; i < parts->params->count; i++)
        LT_TRY(lt_gather_add_param(&s->gather, parts->params->item[i],
                                   lt_shard_value_owner(parts->optim, parts->params->item[i])));
    s->models = s->gather.count;
    return lt_checkpoint_visit(parts, &visitor, &s->kind);
}

/* Creates missing state, shares the sharded optimizer's counters, and lists the tensors. Collective. Errors: those
 * of any rank. */
static lt_status list_on_all_ranks(saving *s)
{
    const lt_checkpoint_contents *parts = s->parts;
    lt_status st = lt_gather_open(&s->gather, parts->comm, parts->params);
    if (!st && parts->dp)
        st = lt_data_parallel_gather_state(parts->dp);
    if (!st)
        st = list_all_tensors(s);
    if (is_alone(parts))
        return st;
    st = lt_comm_agree_on_status(parts->comm, st);
    if (!st && parts->optim)
        st = lt_shard_share_counters(parts->optim);
    return st || !parts->local ? st : lt_gather_add_group_tensors(&s->gather, parts, s->state);
}

/* --- The folder, on rank 0 --- */

static lt_status begin_folder(lt_atomic_dir *commit, const char *checkpoints, int64_t step)
{
    LT_TRY(lt_make_shared_folder(checkpoints));
    lt_checkpoint_clean_in(checkpoints);
    char *path = lt_format("%s/step-%" PRId64, checkpoints, step);
    lt_status st = path ? lt_atomic_dir_begin(commit, path) : LT_E_NOMEM;
    lt_free(path);
    return st;
}

/* Completes the checkpoint when all parts are synced. */
static lt_status commit_checkpoint(const lt_parts *p, lt_atomic_dir *commit,
                                   const char *checkpoints, const lt_checkpoint_policy *policy)
{
    static const lt_checkpoint_policy keep_all = {0};
    LT_TRY(lt_parts_write_indices(p, commit->temp));
    LT_TRY(lt_checkpoint_write_state(commit->temp, p->contents, p->state));
    LT_TRY(lt_atomic_dir_commit(commit));
    return lt_checkpoint_link_and_prune(checkpoints, p->state, policy ? policy : &keep_all);
}

/* --- Hashes --- */

static void hash_to_hex(char text[LT_HASH_TEXT], const void *data, size_t bytes)
{
    uint8_t digest[LT_SHA256_BYTES];
    lt_sha256(digest, data, bytes);
    lt_text_hex(text, digest, sizeof digest);
}

/* Adds an entry to the record, and "NAME VALUE\n" to the text whose hash identifies all. */
static void put_hash(lt_checkpoint_hashes *h, const char *name, const char *value)
{
    lt_json_put_string(&h->record, name, value);
    lt_json_put_raw(&h->text, name);
    lt_json_put_raw(&h->text, " ");
    lt_json_put_raw(&h->text, value);
    lt_json_put_raw(&h->text, "\n");
}

static lt_status hash_number(void *context, const char *name, int64_t *value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, *value);
    put_hash(context, name, text);
    return LT_OK;
}

static lt_status hash_tensor(lt_checkpoint_hashes *h, lt_shard_gather *gather, size_t index)
{
    char text[LT_HASH_TEXT];
    void *data = NULL;
    size_t bytes = 0;
    lt_status st = lt_gather_read(gather, index, &data, &bytes);
    if (!st) {
        hash_to_hex(text, data, bytes);
        put_hash(h, gather->item[index].name, text);
    }
    lt_free(data);
    return st;
}

static lt_status write_hashes(lt_checkpoint_hashes *h, saving *s)
{
    lt_state_visitor visitor = {.entry = lt_skip_entry, .number = hash_number, .context = h};
    const char *text;
    size_t bytes;
    lt_json_begin_object(&h->record, NULL);
    lt_json_put_integer(&h->record, "step", s->state->step);
    lt_json_begin_object(&h->record, "tensors");
    for (size_t i = 0; i < s->gather.count; i++)
        LT_TRY(hash_tensor(h, &s->gather, i));
    lt_json_end(&h->record);
    lt_json_begin_object(&h->record, "numbers");
    if (s->parts->optim)
        LT_TRY(lt_optim_visit(s->parts->optim, &visitor));
    lt_json_end(&h->record);
    LT_TRY(lt_json_text(&h->text, &text, &bytes));
    hash_to_hex(h->all, text, bytes);
    lt_json_put_string(&h->record, "sha256", h->all);
    lt_json_end(&h->record);
    return LT_OK;
}

/* --- All ranks --- */

static lt_status agree_on_status(const lt_checkpoint_contents *parts, lt_status st)
{
    return is_alone(parts) ? st : lt_comm_agree_on_status(parts->comm, st);
}

/* Walks the rest of the list, in which other ranks may wait for this one. Returns st, or what failed on any rank. */
static lt_status finish_walk(saving *s, lt_status st)
{
    const lt_status walked = lt_gather_finish(&s->gather);
    return agree_on_status(s->parts, st ? st : walked);
}

/* Writes the parts to a folder that rank 0 has made. */
static lt_status write_parts(saving *s, lt_parts *p, const lt_atomic_dir *commit)
{
    const char *temp = commit->temp ? commit->temp : "";
    char *shared = NULL;
    lt_status st = p->is_shared ? lt_parts_share_folder(p, temp, &shared) : LT_OK;
    if (!st)
        st = lt_parts_write(p, shared ? shared : temp);
    st = finish_walk(s, st);
    if (!st && p->is_shared)
        st = lt_parts_exchange(p);
    lt_free(shared);
    return st;
}

static lt_status write_checkpoint(saving *s, const char *folder, const lt_checkpoint_policy *policy)
{
    lt_parts p = {.gather = &s->gather,
                  .contents = s->parts,
                  .state = s->state,
                  .end = {s->models, s->gather.count}};
    const bool is_first = is_alone(s->parts) || lt_comm_rank(s->parts->comm) == 0;
    char *checkpoints = is_first ? lt_format("%s/checkpoints", folder) : NULL;
    lt_atomic_dir commit = {0};
    lt_status st = lt_parts_plan(&p);
    if (!st && is_first)
        st = checkpoints ? begin_folder(&commit, checkpoints, s->state->step) : LT_E_NOMEM;
    st = agree_on_status(s->parts, st);
    if (!st)
        st = write_parts(s, &p, &commit);
    if (!st && is_first)
        st = commit_checkpoint(&p, &commit, checkpoints, policy);
    lt_atomic_dir_abandon(&commit);
    lt_free(checkpoints);
    lt_free(p.of);
    return agree_on_status(s->parts, st);
}

lt_status lt_checkpoint_save(const char *folder, const lt_checkpoint_contents *parts,
                             const lt_checkpoint_state *state, const lt_checkpoint_policy *policy)
{
    lt_local_steps *local = parts->local;
    saving s = {.parts = parts, .state = state};
    lt_status st = local ? lt_local_steps_gather_state(local) : LT_OK;
    if (!st)
        st = list_on_all_ranks(&s);
    if (!st)
        st = write_checkpoint(&s, folder, policy);
    lt_gather_close(&s.gather);
    if (local)
        (void)!lt_local_steps_free_gathered(local, false);
    return st;
}

lt_status lt_checkpoint_hash(const lt_checkpoint_contents *parts, const lt_checkpoint_state *state,
                             lt_checkpoint_hashes *out)
{
    saving s = {.parts = parts, .state = state};
    lt_status st = list_on_all_ranks(&s);
    if (!st) {
        const bool is_first = is_alone(parts) || lt_comm_rank(parts->comm) == 0;
        st = finish_walk(&s, is_first ? write_hashes(out, &s) : LT_OK);
    }
    lt_gather_close(&s.gather);
    return st;
}

void lt_checkpoint_hashes_clear(lt_checkpoint_hashes *hashes)
{
    lt_json_writer_clear(&hashes->record);
    lt_json_writer_clear(&hashes->text);
}
