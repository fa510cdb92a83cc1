/* Executes queued calls of the stand-in for NCCL, in steps that never block: another stream may have to progress
 * before the partner does.
 *
 * A collective is split into pieces. A rank posts its piece in one of its two slots; a slot is free once all ranks
 * have consumed the piece before the last. When all have posted, each computes its result. All ranks combine the same
 * terms in the same order. As on a device, only an abort ends a call whose partner never comes. */

#include "nccl_shared.h"
#include "standin.h"
#include "tensor/backend/dtype.h"

#include <algorithm>
#include <cstring>
#include <sched.h>

namespace standin_nccl
{

size_t bytes_of(int dtype)
{
    switch (dtype) {
    case ncclFloat64:
    case ncclInt64:
    case ncclUint64:
        return 8;
    case ncclFloat32:
    case ncclInt32:
    case ncclUint32:
        return 4;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    default:
        return 1;
    }
}

template <class T> static T add(T a, T b)
{
    return a + b;
}

/* Integers wrap around. */
template <> int32_t add(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a + (uint32_t)b);
}

template <> int64_t add(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

/* NaN propagates. */
template <class T> static T larger(T a, T b)
{
    return a > b || a != a ? a : b;
}

template <class T, class Wide, class Load, class Store>
static void reduce_as(T *out, const std::vector<const char *> &term, uint64_t count, int op,
                      Load load, Store store)
{
    const Wide parts = op == ncclAvg ? Wide(term.size()) : Wide(1);
    for (uint64_t i = 0; i < count; i++) {
        Wide sum = load(((const T *)term[0])[i]);
        for (size_t t = 1; t < term.size(); t++) {
            const Wide x = load(((const T *)term[t])[i]);
            sum = op == ncclMax ? larger(x, sum) : add(sum, x);
        }
        out[i] = store(sum / parts);
    }
}

template <class T>
static void reduce_plain(void *out, const std::vector<const char *> &term, uint64_t count, int op)
{
    const auto same = [](T x) { return x; };
    reduce_as<T, T>((T *)out, term, count, op, same, same);
}

void reduce(void *out, const std::vector<const char *> &term, uint64_t count, int dtype, int op)
{
    if (op != ncclSum && op != ncclAvg && op != ncclMax)
        standin_die("NCCL: the stand-in has no reduction %d", op);
    switch (dtype) {
    case ncclFloat32:
        return reduce_plain<float>(out, term, count, op);
    case ncclFloat64:
        return reduce_plain<double>(out, term, count, op);
    case ncclInt32:
        return reduce_plain<int32_t>(out, term, count, op);
    case ncclInt64:
        return reduce_plain<int64_t>(out, term, count, op);
    case ncclFloat16:
        return reduce_as<uint16_t, float>((uint16_t *)out, term, count, op, lt_f32_from_f16,
                                          lt_f16_from_f32);
    case ncclBfloat16:
        return reduce_as<uint16_t, float>((uint16_t *)out, term, count, op, lt_f32_from_bf16,
                                          lt_bf16_from_f32);
    default:
        standin_die("NCCL: the stand-in does not reduce type %d", dtype);
    }
}

work::work(std::shared_ptr<end> owner, std::vector<operation> list, bool recorded)
    : e(std::move(owner)), ops(std::move(list)), moved(ops.size())
{
    if (!recorded)
        return;
    end *held = e.get();
    held->captured++;
    captured = std::shared_ptr<void>(held, [](void *p) { ((end *)p)->captured--; });
}

/* Elements that the pieces of a call go through. */
static uint64_t length_of(const operation &o, int size)
{
    return o.what.kind == REDUCE_SCATTER ? o.what.count * (uint64_t)size : o.what.count;
}

static bool sends(const operation &o, int rank)
{
    return o.what.kind != BROADCAST || rank == o.what.root;
}

/* This rank's piece, if its slot is free. */
bool work::post(const operation &o, uint64_t from, uint64_t length)
{
    rank_area *mine = &e->shared->rank[e->rank];
    const size_t element = bytes_of(o.what.dtype);
    for (int r = 0; r < e->size; r++)
        if (e->pieces >= SLOTS && e->shared->rank[r].consumed + SLOTS <= e->pieces)
            return false;
    if (sends(o, e->rank))
        memcpy(e->slot(e->rank, e->pieces), (const char *)o.in + from * element, length * element);
    mine->what[e->pieces % SLOTS] = o.what;
    mine->posted = e->pieces + 1;
    return true;
}

/* Returns true if all ranks make the same call. */
bool work::fits(const operation &o)
{
    for (int r = 0; r < e->size; r++) {
        const call &c = e->shared->rank[r].what[e->pieces % SLOTS];
        if (c.kind == o.what.kind && c.dtype == o.what.dtype && c.op == o.what.op
            && c.root == o.what.root && c.count == o.what.count)
            continue;
        e->fail(ncclInternalError, "rank " + std::to_string(r) + " calls another collective than "
                                       + std::to_string(e->rank));
        return false;
    }
    return true;
}

/* The part of [from, from+length) that this rank gets. */
void work::take(const operation &o, uint64_t from, uint64_t length)
{
    const size_t element = bytes_of(o.what.dtype);
    std::vector<const char *> term;
    char *out = (char *)o.out;
    for (int r = 0; r < e->size; r++)
        term.push_back(e->slot(r, e->pieces));
    if (o.what.kind == GATHER) {
        for (int r = 0; r < e->size; r++)
            memcpy(out + ((uint64_t)r * o.what.count + from) * element, term[(size_t)r],
                   length * element);
    } else if (o.what.kind == BROADCAST) {
        memcpy(out + from * element, term[(size_t)o.what.root], length * element);
    } else if (o.what.kind == ALLREDUCE || (o.what.kind == REDUCE && e->rank == o.what.root)) {
        reduce(out + from * element, term, length, o.what.dtype, o.what.op);
    } else if (o.what.kind == REDUCE_SCATTER) {
        const uint64_t own = (uint64_t)e->rank * o.what.count;
        const uint64_t begin = std::max(from, own);
        const uint64_t stop = std::min(from + length, own + o.what.count);
        for (const char *&t : term)
            t += (begin > from ? begin - from : 0) * element;
        if (begin < stop)
            reduce(out + (begin - own) * element, term, stop - begin, o.what.dtype, o.what.op);
    }
}

bool work::collective(const operation &o)
{
    const uint64_t all = length_of(o, e->size), most = SLOT / bytes_of(o.what.dtype);
    while (offset < all) {
        const uint64_t length = std::min(most, all - offset);
        if (!posted && !post(o, offset, length))
            return false;
        posted = true;
        for (int r = 0; r < e->size; r++)
            if (e->shared->rank[r].posted <= e->pieces)
                return false;
        if (!fits(o))
            return false;
        take(o, offset, length);
        e->shared->rank[e->rank].consumed = ++e->pieces;
        posted = false;
        offset += length;
    }
    offset = 0;
    return true;
}

/* Moves a part of message i; returns true if any element moved. */
bool work::message(size_t i)
{
    const operation &o = ops[i];
    const bool out = o.what.kind == SEND;
    const int from = out ? e->rank : o.what.root, to = out ? o.what.root : e->rank;
    const size_t element = bytes_of(o.what.dtype), at_byte = moved[i] * element;
    std::atomic<uint64_t> &sent = e->shared->rank[from].sent[to];
    std::atomic<uint64_t> &taken = e->shared->rank[to].taken[from];
    const uint64_t length = std::min(PIPE / element, (size_t)(o.what.count - moved[i]));
    if (!length || (out ? sent >= taken + SLOTS : sent == taken))
        return false;
    if (out) {
        memcpy(e->pipe(from, to, sent), (const char *)o.in + at_byte, length * element);
        sent++;
    } else {
        memcpy((char *)o.out + at_byte, e->pipe(from, to, taken), length * element);
        taken++;
    }
    moved[i] += length;
    return true;
}

static bool is_same_channel(const operation &a, const operation &b)
{
    return a.what.kind == b.what.kind && a.what.root == b.what.root;
}

/* All messages of a group progress together; messages of one kind with the same peer in order. A message is done when
 * it has been received. */
bool work::messages()
{
    bool left = false, moves = true;
    while (moves) {
        moves = left = false;
        for (size_t i = 0; i < ops.size(); i++) {
            const operation &o = ops[i];
            bool blocked = false;
            for (size_t q = 0; q < i; q++)
                blocked |= is_same_channel(ops[q], o) && moved[q] < ops[q].what.count;
            if (!blocked && moved[i] < o.what.count)
                moves |= message(i);
            left |= moved[i] < o.what.count;
        }
    }
    for (const operation &o : ops)
        left |= o.what.kind == SEND
                && e->shared->rank[o.what.root].taken[e->rank]
                       < e->shared->rank[e->rank].sent[o.what.root];
    return !left;
}

bool work::step()
{
    if (!ops.empty() && (ops[0].what.kind == SEND || ops[0].what.kind == RECEIVE))
        return messages();
    for (; at < ops.size(); at++)
        if (!collective(ops[at]))
            return false;
    return true;
}

bool work::operator()()
{
    if (e->closed)
        standin_die("NCCL: work of a communicator that was destroyed");
    e->running++;
    const bool done = e->aborted || (e->failure == ncclSuccess && step());
    e->running--;
    if (!done) {
        e->look_for_dead(false);
        sched_yield();
    }
    return done;
}

} /* namespace standin_nccl */
