/* Results of steps: read at once, or copied to the host while the next step runs. */

#include "base/alloc.h"
#include "optim/averaging/averaging.h"
#include "optim/slots.h"
#include "tensor/readback.h"

#include <string.h>

enum { MOST = 2 };

typedef struct lt_results {
    lt_readback *readback[MOST];
    bool advanced[MOST]; /* the host counted that update as applied */
    unsigned sent, taken;
} lt_results;

static lt_status make_readbacks(lt_optim *o)
{
    lt_results *r = o->results ? o->results : lt_alloc(1, sizeof *r);
    if (!r)
        return LT_E_NOMEM;
    o->results = r;
    for (int i = 0; i < MOST; i++)
        if (!r->readback[i])
            LT_TRY(lt_readback_new(&r->readback[i], o->device, sizeof(lt_scalars)));
    return LT_OK;
}

void lt_optim_free_results(lt_optim *o)
{
    for (int i = 0; o->results && i < MOST; i++)
        lt_readback_free(&o->results->readback[i]);
    lt_free(o->results);
    o->results = NULL;
}

bool lt_optim_has_results_in_flight(const lt_optim *o)
{
    return o->results && o->results->sent != o->results->taken;
}

lt_status lt_optim_send_result(lt_optim *o)
{
    LT_TRY(make_readbacks(o));
    lt_results *r = o->results;
    if (r->sent - r->taken == MOST)
        return lt_fail(LT_E_ARG, "%s: %d results are in flight already", o->ops->name, MOST);
    lt_readback *readback = r->readback[r->sent % MOST];
    lt_readback_begin(readback);
    LT_TRY(lt_readback_add_memory(readback, o->scalars, sizeof(lt_scalars)));
    LT_TRY(lt_readback_send(readback));
    r->advanced[r->sent++ % MOST] = o->advanced;
    o->advanced = false;
    return LT_OK;
}

/* Takes the oldest result in flight; *advanced: the host counted that update as applied. */
static lt_status take_oldest_result(lt_optim *o, lt_scalars *s, bool *advanced)
{
    lt_results *r = o->results;
    const void *data;
    LT_TRY(lt_readback_wait(r->readback[r->taken % MOST], &data));
    memcpy(s, data, sizeof *s);
    *advanced = r->advanced[r->taken++ % MOST];
    return LT_OK;
}

lt_status lt_optim_result(lt_optim *o, lt_step_result *result)
{
    lt_scalars s;
    bool advanced = o->advanced;
    if (lt_optim_has_results_in_flight(o)) {
        LT_TRY(take_oldest_result(o, &s, &advanced));
    } else {
        LT_TRY(lt_optim_read_scalars(o, &s));
        o->advanced = false;
    }
    if (!s.finite && advanced) { /* only now the host learns that it was skipped */
        lt_optim_add_to_update_counts(o, -1);
        lt_averaging_undo_weight(o);
    }
    *result = (lt_step_result){.grad_norm = s.grad_norm,
                               .applied = s.finite != 0,
                               .steps = s.applied,
                               .loss_scale = s.loss_scale,
                               .good_steps = s.good_steps};
    return LT_OK;
}
