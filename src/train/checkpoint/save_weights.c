/* Writing weight files: one file, whichever ranks hold the parameters. */

#include "dist/consensus.h"
#include "gather.h"

#include "lather/ext/fail.h"

/* Lists the parameters; weight files store f64 as f32. */
static lt_status list_params(lt_shard_gather *g, const lt_params *params)
{
    for (size_t i = 0; i < params->count; i++) {
        LT_TRY(lt_gather_add_param(g, params->item[i], 0));
        if (g->item[i].stored == LT_F64)
            g->item[i].stored = LT_F32;
    }
    return LT_OK;
}

lt_status lt_weights_save_ranks(const char *path, const lt_params *params,
                                const lt_metadata *metadata, size_t count, lt_comm *comm)
{
    lt_shard_gather g;
    lt_status st = lt_gather_open(&g, comm, params);
    const bool together = g.params, writes = !comm || lt_comm_rank(comm) == 0;
    if (!st && (together || writes))
        st = list_params(&g, params);
    if (together)
        st = lt_comm_agree_on_status(comm, st);
    const bool listed = !st;
    if (listed && writes)
        st = lt_gather_write(&g, &(lt_gather_file){.path = path,
                                                   .last = g.count,
                                                   .is_weights = true,
                                                   .metadata = metadata,
                                                   .metadata_count = count});
    if (listed && together) {
        const lt_status sent = lt_gather_finish(&g);
        st = st ? st : sent;
    }
    lt_gather_close(&g);
    return listed && together ? lt_comm_agree_on_status(comm, st) : st;
}

lt_status lt_weights_save_with(const char *path, const lt_params *params,
                               const lt_metadata *metadata, size_t count)
{
    return lt_weights_save_ranks(path, params, metadata, count, NULL);
}

lt_status lt_weights_save(const char *path, const lt_params *params)
{
    return lt_weights_save_with(path, params, NULL, 0);
}
