/* Checkpoint files in parts, which the ranks that own the tensors write. */

#include "parts.h"

#include "base/alloc.h"
#include "base/shared_file.h"
#include "dist/consensus.h"
#include "tensor/safetensors.h"

#include "lather/ext/comm.h"
#include "lather/ext/fail.h"
#include "lather/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const file_name[LT_PARTS_FILES] = {LT_CHECKPOINT_MODEL, LT_CHECKPOINT_OPTIM};

static int own_rank(const lt_parts *p)
{
    return p->contents->comm ? lt_comm_rank(p->contents->comm) : 0;
}

static size_t first_of(const lt_parts *p, int file)
{
    return file ? p->end[file - 1] : 0;
}

/* --- Who writes what --- */

static void count_own(lt_parts *p)
{
    for (int f = 0; f < LT_PARTS_FILES; f++)
        p->of[own_rank(p)].tensors[f] =
            (int64_t)lt_gather_count_own(p->gather, first_of(p, f), p->end[f]);
}

lt_status lt_parts_exchange(lt_parts *p)
{
    lt_comm *comm = p->contents->comm;
    const lt_rank_parts own = p->of[own_rank(p)];
    const lt_status st = lt_comm_allgather_equal(comm, &own, sizeof own, p->of);
    if (st)
        lt_comm_abort(comm);
    return st;
}

/* Numbers the parts of a file by rank. A file without tensors is rank 0's. */
static void number_parts(lt_parts *p, int file)
{
    p->count[file] = 0;
    for (int r = 0; r < p->ranks; r++)
        p->of[r].number[file] = p->of[r].tensors[file] ? ++p->count[file] : 0;
    if (!p->count[file])
        p->of[0].number[file] = p->count[file] = 1;
}

/* Has rank 0 write all tensors. */
static void join_parts(lt_parts *p)
{
    p->gather->in_parts = p->is_shared = false;
    for (int f = 0; f < LT_PARTS_FILES; f++) {
        for (int r = 0; r < p->ranks; r++)
            p->of[r].tensors[f] = r ? 0 : (int64_t)(p->end[f] - first_of(p, f));
        number_parts(p, f);
    }
}

lt_status lt_parts_plan(lt_parts *p)
{
    lt_comm *comm = p->contents->comm;
    p->ranks = comm ? lt_comm_size(comm) : 1;
    const lt_status st = LT_ALLOC(&p->of, p->ranks);
    if (st && comm) /* else the other ranks wait forever */
        lt_comm_abort(comm);
    if (st || p->ranks == 1) {
        if (!st)
            join_parts(p);
        return st;
    }
    p->gather->in_parts = true;
    count_own(p);
    LT_TRY(lt_parts_exchange(p));
    for (int f = 0; f < LT_PARTS_FILES; f++)
        number_parts(p, f);
    for (int r = 1; r < p->ranks; r++)
        p->is_shared = p->is_shared || p->of[r].number[0] || p->of[r].number[1];
    return LT_OK;
}

lt_status lt_parts_share_folder(lt_parts *p, const char *folder, char **path)
{
    lt_comm *comm = p->contents->comm;
    char *run = NULL;
    lt_status st = lt_comm_gather_texts(comm, folder, path); /* rank 0's is the first */
    if (!st)
        st = lt_comm_gather_texts(comm, p->state->run, &run);
    if (st) {
        lt_comm_abort(comm);
        return st;
    }
    snprintf(p->run, sizeof p->run, "%s", run);
    snprintf(p->step, sizeof p->step, "%" PRId64, p->state->step);
    lt_free(run);
    st = access(*path, W_OK) ? lt_fail(LT_E_IO, "%s: %s", *path, strerror(errno)) : LT_OK;
    st = lt_comm_agree_on_status(comm, st);
    if (st != LT_E_IO)
        return st;
    if (own_rank(p) == 0)
        lt_log(LT_LOG_WARN, "train",
               "%s: rank 0 receives and writes the state of all ranks; with a run folder that "
               "all ranks share each writes its part",
               lt_error_message());
    join_parts(p);
    return LT_OK;
}

/* Writes the name of a rank's part. */
static void name_part(const lt_parts *p, int file, int rank, char name[LT_PARTS_NAME])
{
    const char *whole = file_name[file];
    if (p->count[file] == 1)
        snprintf(name, LT_PARTS_NAME, "%s", whole);
    else
        snprintf(name, LT_PARTS_NAME, "%.*s-%05d-of-%05d.safetensors", (int)strcspn(whole, "."),
                 whole, p->of[rank].number[file], p->count[file]);
}

/* --- Writing --- */

/* Writes the own part of a file; of one in parts, sets size and checksum. */
static lt_status write_part(lt_parts *p, int file, const char *folder)
{
    const lt_checkpoint_contents *c = p->contents;
    const bool is_whole = p->count[file] == 1;
    lt_rank_parts *own = &p->of[own_rank(p)];
    char name[LT_PARTS_NAME];
    name_part(p, file, own_rank(p), name);
    char *path = lt_format("%s/%s", folder, name);
    const lt_gather_file part = {.path = path,
                                 .first = first_of(p, file),
                                 .last = p->end[file],
                                 .is_weights = file == 0,
                                 .in_atomic_dir = own_rank(p) == 0,
                                 .step = is_whole ? NULL : p->step,
                                 .run = is_whole ? NULL : p->run,
                                 .metadata = c->metadata,
                                 .metadata_count = file ? 0 : c->metadata_count};
    lt_status st = path ? lt_gather_write(p->gather, &part) : LT_E_NOMEM;
    if (!st && !is_whole)
        st = lt_checkpoint_sum_file(path, &own->bytes[file], &own->crc[file]);
    lt_free(path);
    return st;
}

lt_status lt_parts_write(lt_parts *p, const char *folder)
{
    for (int f = 0; f < LT_PARTS_FILES; f++)
        if (p->of[own_rank(p)].number[f])
            LT_TRY(write_part(p, f, folder));
    return LT_OK;
}

/* --- The index, on rank 0 --- */

static void put_index(lt_json_writer *w, const lt_parts *p, int file)
{
    char name[LT_PARTS_NAME];
    lt_json_begin_object(w, NULL);
    lt_json_begin_object(w, "metadata");
    lt_json_put_string(w, LT_PART_STEP, p->step);
    lt_json_put_string(w, LT_PART_RUN, p->run);
    lt_json_begin_object(w, LT_PART_FILES);
    for (int r = 0; r < p->ranks; r++) {
        name_part(p, file, r, name);
        if (p->of[r].number[file])
            lt_checkpoint_put_sum(w, name, p->of[r].bytes[file], p->of[r].crc[file]);
    }
    lt_json_end(w);
    lt_json_end(w);
    lt_json_begin_object(w, "weight_map");
    for (size_t i = first_of(p, file); i < p->end[file]; i++) {
        name_part(p, file, p->gather->item[i].owner, name);
        lt_json_put_string(w, p->gather->item[i].name, name);
    }
    lt_json_end(w);
    lt_json_end(w);
}

static lt_status write_index(const lt_parts *p, int file, const char *folder)
{
    const char *text;
    size_t bytes;
    lt_json_writer w = {0};
    char *path = lt_format("%s/%s" LT_INDEX_ENDING, folder, file_name[file]);
    put_index(&w, p, file);
    lt_status st = path ? lt_json_text(&w, &text, &bytes) : LT_E_NOMEM;
    if (!st)
        st = lt_shared_save(path, text, bytes);
    lt_json_writer_clear(&w);
    lt_free(path);
    return st;
}

lt_status lt_parts_write_indices(const lt_parts *p, const char *folder)
{
    for (int f = 0; f < LT_PARTS_FILES; f++)
        if (p->count[f] > 1)
            LT_TRY(write_index(p, f, folder));
    return LT_OK;
}
