/* Stream capture and graph launches. A graph holds the captured work with its arguments, and the predecessors of each
 * node. */

#include "device.h"

namespace standin
{

namespace
{

std::vector<std::shared_ptr<capture>> going_on;

/* Everything before those nodes, and they themselves. */
std::set<int> ancestry(const std::vector<node> &nodes, const std::set<int> &last)
{
    std::set<int> found;
    std::vector<int> left(last.begin(), last.end());
    while (!left.empty()) {
        const int i = left.back();
        left.pop_back();
        if (found.insert(i).second)
            left.insert(left.end(), nodes[(size_t)i].after.begin(), nodes[(size_t)i].after.end());
    }
    return found;
}

/* Returns true if the origin does not wait for work of another stream. */
bool is_unjoined(const capture &c)
{
    const std::set<int> before = ancestry(c.nodes, c.origin->last);
    bool found = false;
    all_streams([&](CUstream_st *s) {
        if (s->capture.get() == &c)
            for (int i : s->last)
                found = found || !before.count(i);
    });
    return found;
}

void leave(capture *c)
{
    all_streams([&](CUstream_st *s) {
        if (s->capture.get() == c) {
            s->last.clear();
            s->capture = NULL;
        }
    });
    c->ended = true;
    for (size_t i = 0; i < going_on.size(); i++)
        if (going_on[i].get() == c) {
            going_on.erase(going_on.begin() + (long)i);
            return;
        }
}

} /* namespace */

capture *capture_of_thread()
{
    for (auto &c : going_on)
        if (c->thread == std::this_thread::get_id())
            return c.get();
    return NULL;
}

void record_node(CUstream_st *stream, work_fn run, const char *what)
{
    capture *c = stream->capture.get();
    if (c->invalid)
        return;
    c->nodes.push_back({std::move(run), what, {stream->last.begin(), stream->last.end()}});
    stream->last = {(int)c->nodes.size() - 1};
}

} /* namespace standin */

using namespace standin;

bool standin_capturing(cudaStream_t stream)
{
    locked now(everything);
    return stream->capture != NULL;
}

bool standin_allowed(const char *)
{
    locked now(everything);
    capture *c = capture_of_thread();
    if (c)
        c->invalid = true;
    return !c;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode)
{
    locked now(everything);
    cudaError_t code = entered("cudaStreamBeginCapture");
    if (code)
        return result(code);
    if (mode != cudaStreamCaptureModeThreadLocal)
        standin_die("cudaStreamBeginCapture: a mode that this project does not use");
    if (stream->capture)
        return result(cudaErrorIllegalState);
    auto c = std::make_shared<capture>();
    c->origin = stream;
    c->thread = std::this_thread::get_id();
    stream->capture = c;
    stream->last.clear();
    going_on.push_back(c);
    return result(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    locked now(everything);
    cudaError_t code = entered("cudaStreamEndCapture");
    const std::shared_ptr<capture> c = stream->capture;
    *out = NULL;
    if (!c)
        return result(code ? code : cudaErrorIllegalState);
    if (c->origin != stream)
        code = cudaErrorStreamCaptureUnmatched;
    else if (c->thread != std::this_thread::get_id())
        code = cudaErrorStreamCaptureWrongThread;
    else if (c->invalid)
        code = cudaErrorStreamCaptureInvalidated;
    else if (is_unjoined(*c))
        code = cudaErrorStreamCaptureUnjoined;
    leave(c.get());
    if (!code) {
        counted.captures++;
        *out = new CUgraph_st{c->nodes};
    }
    c->nodes.clear(); /* events may keep it */
    return result(code);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long)
{
    locked now(everything);
    cudaError_t code = entered("cudaGraphInstantiate");
    if (!code)
        *out = new CUgraphExec_st{graph->nodes};
    return result(code);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    locked now(everything);
    cudaError_t code = entered("cudaGraphLaunch");
    if (code)
        return result(code);
    if (stream->capture)
        standin_die("cudaGraphLaunch: within a capture, which this project does not do");
    auto g = std::make_shared<running>();
    g->nodes = exec->nodes;
    g->done.resize(g->nodes.size());
    g->left = g->nodes.size();
    counted.launches++;
    add(stream, {task::GRAPH, nullptr, "a graph", NULL, g});
    return result(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    locked now(everything);
    cudaError_t code = entered("cudaGraphDestroy");
    delete graph;
    return result(code);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    locked now(everything);
    cudaError_t code = entered("cudaGraphExecDestroy");
    delete exec;
    return result(code);
}
