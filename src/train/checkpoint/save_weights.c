/* Writing files of weights: one file, whichever ranks hold the parameters. */

#include "dist/agree.h"
#include "gather.h"
#include "train/weights/weights.h"

#include "lather/trainer.h"

/* Files of weights have no f64. */
static lt_status list_params(lt_gather *g, const lt_params *params)
{
    for (size_t i = 0; i < params->count; i++) {
        const lt_param *p = params->item[i];
        LT_TRY(lt_gather_add_tensor(g, p->name, p->value, p));
        if (g->item[i].stored == LT_F64)
            g->item[i].stored = LT_F32;
    }
    return LT_OK;
}

static lt_status write_file(const char *path, lt_gather *g, const lt_metadata *metadata,
                            size_t count)
{
    lt_safetensors_writer *w = NULL;
    lt_status st = lt_safetensors_create(&w, path);
    if (!st)
        st = lt_weights_add_metadata(w, metadata, count);
    if (!st)
        st = lt_gather_write(g, 0, g->count, w);
    if (!st)
        st = lt_safetensors_finish(&w);
    lt_safetensors_discard(&w);
    return st;
}

lt_status lt_weights_save_ranks(const char *path, const lt_params *params,
                                const lt_metadata *metadata, size_t count, lt_comm *comm)
{
    lt_gather g;
    lt_status st = lt_gather_open(&g, comm, params);
    const bool together = g.params, writes = !comm || lt_comm_rank(comm) == 0;
    if (!st && (together || writes))
        st = list_params(&g, params);
    if (together)
        st = lt_comm_agree(comm, st);
    const bool listed = !st;
    if (listed && writes)
        st = write_file(path, &g, metadata, count);
    else if (listed && together)
        st = lt_gather_send(&g);
    lt_gather_close(&g, listed && together);
    return listed && together ? lt_comm_agree(comm, st) : st;
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
