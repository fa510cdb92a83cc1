/* The sides of Shampoo's factors, as a list that `bench roots --sizes` and `bench_peer.py --eigh` read:
 * "2048x7,1152x4", the largest first. */

#include "bench.h"

#include <stdio.h>
#include <string.h>

enum { MOST_SIDES = 256 };

typedef struct tally {
    int64_t side[MOST_SIDES], count[MOST_SIDES];
    int sides;
} tally;

static lt_status add_factor(void *context, const lt_state_entry *entry)
{
    tally *t = context;
    int i = 0;
    if (strncmp(entry->name, "factor.", 7) != 0 || entry->extent.ndim != 2)
        return LT_OK;
    while (i < t->sides && t->side[i] != entry->extent.dim[0])
        i++;
    if (i == MOST_SIDES)
        return lt_fail(LT_E_UNSUPPORTED, "bench: factors of more than %d sizes", MOST_SIDES);
    t->sides += i == t->sides;
    t->side[i] = entry->extent.dim[0];
    t->count[i]++;
    return LT_OK;
}

static lt_status pass_over(void *context, const char *name, int64_t *value)
{
    (void)context, (void)name, (void)value;
    return LT_OK;
}

static int largest(const tally *t)
{
    int at = 0;
    for (int i = 1; i < t->sides; i++)
        if (t->side[i] > t->side[at])
            at = i;
    return at;
}

lt_status bench_factor_sides(lt_optim *optim, char *out, size_t size)
{
    tally t = {0};
    lt_state_visitor visitor = {.entry = add_factor, .number = pass_over, .context = &t};
    size_t used = 0;
    *out = 0;
    LT_TRY(lt_optim_visit(optim, &visitor));
    for (int left = t.sides; left > 0 && used < size; left--) {
        const int at = largest(&t);
        used += (size_t)snprintf(out + used, size - used, "%s%lldx%lld", used ? "," : "",
                                 (long long)t.side[at], (long long)t.count[at]);
        t.side[at] = -1;
    }
    return LT_OK;
}
