/* Snapshot of everything that an optimizer may change: its state and the parameters. */
#ifndef LT_TESTS_OPTIM_SNAPSHOT_H
#define LT_TESTS_OPTIM_SNAPSHOT_H

#include "fixture.h"

#include "lather/ext/fail.h"

#include <string.h>

typedef struct snapshot {
    unsigned char bytes[1 << 14];
    size_t used;
    bool restore; /* write the bytes back instead of reading them */
} snapshot;

static inline void move(snapshot *s, void *memory, size_t bytes)
{
    assert_true(s->used + bytes <= sizeof s->bytes);
    if (s->restore)
        memcpy(memory, s->bytes + s->used, bytes);
    else
        memcpy(s->bytes + s->used, memory, bytes);
    s->used += bytes;
}

static inline lt_status move_tensor(snapshot *s, lt_tensor *tensor)
{
    unsigned char host[1024];
    size_t bytes = lt_tensor_bytes(tensor);
    assert_true(bytes <= sizeof host);
    LT_TRY(lt_tensor_read(tensor, host, bytes));
    move(s, host, bytes);
    return lt_tensor_write(tensor, host, bytes);
}

static inline lt_status on_entry(void *context, const lt_state_entry *entry)
{
    return move_tensor(context, entry->tensor);
}

static inline lt_status on_number(void *context, const char *name, int64_t *value)
{
    snapshot *s = context;
    if (!s->restore || strcmp(name, "attempt") != 0)
        move(s, value, sizeof *value);
    else
        s->used += sizeof *value;
    return LT_OK;
}

static inline void take(snapshot *s, fixture *f, bool restore)
{
    s->used = 0;
    s->restore = restore;
    lt_state_visitor visitor = {on_entry, on_number, s};
    assert_ok(lt_optim_visit(f->optim, &visitor));
    for (size_t i = 0; i < f->list.count; i++)
        assert_ok(move_tensor(s, f->list.item[i]->value));
}

#endif
