/* Memory accounting by operation, in a small table that is searched by pointer, as the names are literals. */

#include "tensor/memory_use.h"

#include "base/memory_traffic.h"

#include <stdlib.h>
#include <string.h>

static _Thread_local lt_memory_owner current;

lt_memory_owner lt_memory_set_owner(lt_memory_owner owner)
{
    const lt_memory_owner before = current;
    current = owner;
    return before;
}

static int find_or_add_owner(lt_memory_uses *uses, lt_memory_owner owner)
{
    if (!owner.name)
        return 0;
    for (int i = 1; i <= uses->count; i++)
        if (uses->owner[i].name == owner.name && uses->owner[i].when == owner.when)
            return i;
    if (uses->count + 1 == LT_MEMORY_OWNERS)
        return 0;
    uses->owner[++uses->count] = owner;
    return uses->count;
}

int lt_memory_uses_add(lt_memory_uses *uses, size_t bytes)
{
    const int index = find_or_add_owner(uses, current);
    uses->now[index] += bytes;
    return index;
}

void lt_memory_uses_record_peak(lt_memory_uses *uses)
{
    memcpy(uses->peak, uses->now, (size_t)(uses->count + 1) * sizeof *uses->peak);
}

int64_t lt_memory_traffic(void)
{
    return atomic_load_explicit(&lt_memory_traffic_bytes, memory_order_relaxed);
}

static int compare_bytes_descending(const void *a, const void *b)
{
    const size_t x = ((const lt_memory_use *)a)->bytes, y = ((const lt_memory_use *)b)->bytes;
    return (x < y) - (x > y);
}

int lt_memory_uses_list(const lt_memory_uses *uses, lt_memory_use *out, int count)
{
    lt_memory_use all[LT_MEMORY_OWNERS] = {0};
    int found = 0;
    for (int i = 0; i <= uses->count; i++)
        if (uses->peak[i])
            all[found++] = (lt_memory_use){uses->owner[i].name, uses->owner[i].when, uses->peak[i]};
    qsort(all, (size_t)found, sizeof *all, compare_bytes_descending);
    for (int i = 0; i < found && i < count; i++)
        out[i] = all[i];
    return found;
}
