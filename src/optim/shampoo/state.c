/* Shampoo's state for checkpoints: per block, in logical order. */

#include "optim/shampoo/shampoo.h"

#include <stdio.h>

enum { BLOCK_STATES = 3 * LT_MAX_DIMS + 4, NAME = 16 };

typedef struct state {
    char name[NAME];
    lt_tensor *tensor;
} state;

/* All tensors of a block in a fixed order; absent ones are left out. Returns how many. */
static int list_state(const lt_shampoo *s, const lt_block *b, state *list)
{
    lt_preconditioner kind = s->config.preconditioner;
    bool root = kind == LT_PRECONDITIONER_ROOT || kind == LT_PRECONDITIONER_KL;
    const struct {
        const char *name;
        lt_tensor *tensor;
    } vectors[] = {
        {"m", b->m}, {"graft", b->graft}, {"momentum", b->momentum}, {"corrected", b->corrected}};
    int n = 0;
    for (int d = 0; d < LT_MAX_DIMS; d++) {
        const lt_factor *f = &b->factor[d];
        if (f->diagonal) {
            snprintf(list[n].name, NAME, "diagonal.%d", d);
            list[n++].tensor = f->diagonal;
        }
        if (!f->gram)
            continue;
        snprintf(list[n].name, NAME, "factor.%d", d);
        list[n++].tensor = f->gram;
        snprintf(list[n].name, NAME, "%s.%d", root ? "root" : "basis", d);
        list[n++].tensor = f->root;
        if (!f->power)
            continue;
        snprintf(list[n].name, NAME, "power.%d", d);
        list[n++].tensor = f->power;
    }
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        if (vectors[i].tensor) {
            snprintf(list[n].name, NAME, "%s", vectors[i].name);
            list[n++].tensor = vectors[i].tensor;
        }
    return n;
}

/* "rooted.3.conv1.weight" */
static lt_status visit_number(const lt_block *b, const lt_state_visitor *visitor, const char *name,
                              int64_t *value)
{
    char full[2 * NAME];
    snprintf(full, sizeof full, "%s.%d", name, b->index);
    return lt_optim_visit_number(visitor, full, b->slot->param->name, value);
}

static lt_status visit_block(const lt_shampoo *s, lt_block *b, const lt_state_visitor *visitor)
{
    state list[BLOCK_STATES];
    int count = list_state(s, b, list);
    LT_TRY(visit_number(b, visitor, "failures", &b->failures));
    LT_TRY(visit_number(b, visitor, "rooted", &b->rooted));
    for (int i = 0; i < count; i++) {
        const lt_state_entry entry = {
            .param = b->slot->param->name,
            .name = list[i].name,
            .block = b->index,
            .offset = b->box.offset,
            .shape = b->box.shape,
            .dtype = lt_tensor_dtype(list[i].tensor),
            .extent = lt_tensor_shape(list[i].tensor),
            .tensor = list[i].tensor,
        };
        LT_TRY(visitor->entry(visitor->context, &entry));
    }
    return LT_OK;
}

lt_status lt_shampoo_visit(lt_optim *self, lt_state_visitor *visitor)
{
    lt_shampoo *s = (lt_shampoo *)self;
    for (size_t i = 0; i < s->count; i++)
        LT_TRY(visit_block(s, &s->block[i], visitor));
    return LT_OK;
}

size_t lt_shampoo_state_bytes(const lt_optim *self)
{
    const lt_shampoo *s = (const lt_shampoo *)self;
    size_t bytes = 0;
    for (size_t i = 0; i < s->count; i++) {
        state list[BLOCK_STATES];
        int count = list_state(s, &s->block[i], list);
        for (int k = 0; k < count; k++)
            bytes += lt_tensor_bytes(list[k].tensor);
    }
    return bytes;
}
