/* Streams, events, and the order in which queued work runs: as early as it can ("now"), as late as it
 * may ("late": only what the one who waits needs), by chance ("shuffled"), or early on the main stream
 * and late on the others ("main-first"), or the reverse ("main-last"). Whatever is right must give the
 * same numbers in all of them. */

#include "device.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace standin
{

std::recursive_mutex everything;
counters counted;
traffic moved;
bool in_graph;
size_t norms;

namespace
{

std::vector<CUstream_st *> streams;
bool has_main[MOST_DEVICES];
uint32_t chance;

uint32_t random(uint32_t below)
{
    if (!chance)
        chance = wished().seed * 2654435761U + 1;
    chance = chance * 1664525U + 1013904223U;
    return (chance >> 8) % below;
}

enum outcome { RAN, BLOCKED, POLLING };

outcome run_work(const work_fn &run, const char *what, bool graph)
{
    moved = {};
    in_graph = graph;
    const bool done = run();
    if (done)
        log_work(what);
    counted.works += done;
    counted.nodes += done && graph;
    if (done
        && (counted.works == wished().fault
            || (graph && counted.nodes == standin_lies(STANDIN_FAULT_AT_NODE))))
        standin_fault(what);
    return done ? RAN : POLLING;
}

bool is_ready(const running &g, size_t i)
{
    for (int before : g.nodes[i].after)
        if (!g.done[(size_t)before])
            return false;
    return !g.done[i];
}

/* One node of a launched graph: the last that can run, or any, or the first. */
outcome run_node(running &g)
{
    const size_t count = g.nodes.size(),
                 from = wished().order == wishes::SHUFFLED && count ? random((uint32_t)count) : 0;
    outcome found = BLOCKED;
    for (size_t k = 0; k < count; k++) {
        const size_t i = wished().order == wishes::LATE ? count - 1 - k : (k + from) % count;
        if (!is_ready(g, i))
            continue;
        found = run_work(g.nodes[i].run, g.nodes[i].what, true);
        if (found == POLLING)
            continue;
        g.done[i] = true;
        g.nodes[i].run = nullptr;
        g.left--;
        return RAN;
    }
    return found;
}

outcome run_first(CUstream_st *s)
{
    task &t = s->tasks.front();
    outcome found = RAN;
    if (sticky(s->device)) { /* nothing runs any more */
        if (t.kind == task::RECORD)
            t.place->passed = true;
        s->tasks.pop_front();
        return RAN;
    }
    switch (t.kind) {
    case task::WORK:
        found = run_work(t.run, t.what, false);
        break;
    case task::RECORD:
        t.place->when = std::chrono::steady_clock::now();
        t.place->passed = true;
        break;
    case task::WAIT:
        found = t.place->passed ? RAN : BLOCKED;
        break;
    case task::GRAPH:
        found = t.graph->left ? run_node(*t.graph) : RAN;
        if (found != RAN || t.graph->left)
            return found;
        break;
    }
    if (found == RAN)
        s->tasks.pop_front();
    return found;
}

CUstream_st *stream_of(const std::shared_ptr<mark> &place)
{
    for (CUstream_st *s : streams)
        for (const task &t : s->tasks)
            if (t.kind == task::RECORD && t.place == place)
                return s;
    return NULL;
}

/* Something of s, or what s waits for. */
outcome run_towards(CUstream_st *s)
{
    for (size_t depth = 0; s && !s->tasks.empty() && depth <= streams.size(); depth++) {
        const outcome found = run_first(s);
        if (found != BLOCKED)
            return found;
        s = stream_of(s->tasks.front().place);
    }
    return BLOCKED;
}

/* Returns true if the chosen order lets the stream run before anything waits for it. */
bool is_early(const CUstream_st *s)
{
    const wishes::when order = wished().order;
    return order == wishes::NOW || (order == wishes::MAIN_FIRST && s->main)
           || (order == wishes::MAIN_LAST && !s->main);
}

outcome run_early()
{
    outcome found = BLOCKED;
    for (CUstream_st *s : streams)
        if (is_early(s) && !s->tasks.empty()) {
            const outcome one = run_first(s);
            if (one == RAN)
                return RAN;
            found = one == POLLING ? POLLING : found;
        }
    return found;
}

outcome run_any()
{
    const size_t count = streams.size();
    const size_t from = count && wished().order == wishes::SHUFFLED ? random((uint32_t)count) : 0;
    outcome found = BLOCKED;
    for (size_t i = 0; i < count; i++) {
        CUstream_st *s = streams[(i + from) % count];
        const outcome one = s->tasks.empty() ? BLOCKED : run_first(s);
        if (one == RAN)
            return RAN;
        found = one == POLLING ? POLLING : found;
    }
    return found;
}

/* One task for the one who waits for s. */
outcome step(CUstream_st *s)
{
    outcome found = BLOCKED;
    open_memory();
    if (wished().order != wishes::SHUFFLED)
        found = run_towards(s);
    if (found != RAN) {
        const outcome other = run_any();
        found = other == BLOCKED ? found : other;
    }
    close_memory();
    return found;
}

void run_until(CUstream_st *s, const std::function<bool()> &reached)
{
    if (reached())
        return;
    open_memory();
    while (!reached()) {
        const outcome found = step(s);
        if (found == BLOCKED)
            standin_die("deadlock: a wait never ends, no queued work can run");
        if (found == POLLING) { /* it may wait for other threads */
            close_memory();
            everything.unlock();
            usleep(20);
            everything.lock();
            open_memory();
        }
    }
    close_memory();
}

} /* namespace */

void all_streams(const std::function<void(CUstream_st *)> &f)
{
    for (CUstream_st *s : streams)
        f(s);
}

void add(CUstream_st *stream, task t)
{
    if (std::find(streams.begin(), streams.end(), stream) == streams.end() || stream->gone)
        standin_die("%s: %p is no stream, or a destroyed one", t.what, (void *)stream);
    stream->tasks.push_back(std::move(t));
    if (wished().order == wishes::LATE || wished().order == wishes::SHUFFLED)
        return;
    open_memory();
    while (run_early() == RAN) {
    }
    close_memory();
}

void finish(CUstream_st *stream)
{
    run_until(stream, [=] { return stream->tasks.empty(); });
}

void finish(const std::shared_ptr<mark> &place)
{
    run_until(stream_of(place), [&] { return place->passed; });
}

void finish_device(int device)
{
    const std::vector<CUstream_st *> now = streams;
    for (CUstream_st *s : now)
        if (device < 0 || s->device == device)
            finish(s);
}

bool advance(CUstream_st *stream)
{
    if (!stream->tasks.empty())
        step(stream);
    return stream->tasks.empty();
}

bool advance(const std::shared_ptr<mark> &place)
{
    if (!place->passed)
        step(stream_of(place));
    return place->passed;
}

} /* namespace standin */

using namespace standin;

void standin_queue_until(cudaStream_t stream, work_fn work, const char *what)
{
    locked now(everything);
    if (!stream)
        standin_die("%s: the legacy stream, which this project does not use", what);
    if (stream->capture)
        record_node(stream, std::move(work), what);
    else
        add(stream, {task::WORK, std::move(work), what, NULL, NULL});
}

void standin_queue(cudaStream_t stream, std::function<void()> work, const char *what)
{
    standin_queue_until(
        stream,
        [work] {
            work();
            return true;
        },
        what);
}

void standin_die(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "standin: ");
    vfprintf(stderr, format, list);
    fprintf(stderr, "\n");
    va_end(list);
    abort();
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    locked now(everything);
    cudaError_t code = entered("cudaStreamCreateWithPriority");
    if (code)
        return result(code);
    if (flags != cudaStreamNonBlocking)
        standin_die("a stream that waits for the legacy stream, which this project does not use");
    const bool main = priority < 0 && !has_main[current_device()];
    has_main[current_device()] = has_main[current_device()] || main;
    *out = new CUstream_st{current_device(), main, false, {}, NULL, {}};
    streams.push_back(*out);
    return result(cudaSuccess);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    locked now(everything);
    cudaError_t code = entered("cudaStreamDestroy");
    auto found = std::find(streams.begin(), streams.end(), stream);
    if (found == streams.end() || stream->gone)
        standin_die("cudaStreamDestroy: %p is no stream, or gone already", (void *)stream);
    stream->gone = true;
    if (stream->tasks.empty()) { /* else its work continues, and no stream can wait for it */
        streams.erase(found);
        delete stream;
    }
    return result(code);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    locked now(everything);
    cudaError_t code = entered("cudaStreamSynchronize");
    if (!code && stream->capture) {
        stream->capture->invalid = true;
        return result(cudaErrorStreamCaptureUnsupported);
    }
    if (!code && !drops(&counted.host_waits, wished().hasty))
        finish(stream);
    return result(code ? code : sticky(stream->device));
}

cudaError_t cudaDeviceSynchronize(void)
{
    locked now(everything);
    cudaError_t code = entered("cudaDeviceSynchronize");
    if (!code)
        code = unsafe_in_capture("cudaDeviceSynchronize");
    if (!code)
        finish_device(current_device());
    return result(code ? code : sticky(current_device()));
}
