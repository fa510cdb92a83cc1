/* An operation graph as a program: tensors by id, operations in topological order, and a signature that identifies
 * the pattern. */

#include "dnn.h"

#include <algorithm>

namespace dnn
{
namespace
{

bool equal(const tensor &a, const tensor &b)
{
    return a.type == b.type && std::equal(a.dim, a.dim + 4, b.dim)
           && std::equal(a.stride, a.stride + 4, b.stride) && a.alignment == b.alignment
           && a.is_virtual == b.is_virtual && a.by_value == b.by_value;
}

/* The number of the tensor with that id, which must be the same everywhere; or -1. */
int number_of(program &p, const tensor &t)
{
    for (size_t i = 0; i < p.tensors.size(); i++)
        if (p.tensors[i].uid == t.uid)
            return equal(p.tensors[i], t) ? (int)i : -1;
    p.tensors.push_back(t);
    return (int)p.tensors.size() - 1;
}

cudnnStatus_t add_operation(program &p, const ref &what)
{
    operation o = {what, {}, {}, {}};
    for (const auto &v : what->values) {
        const rule *r = find_rule(what->type, v.first);
        if (!(r->flags & (READ | WRITTEN)))
            continue;
        const tensor t = tensor_of(*v.second.refs[0]);
        const int number = number_of(p, t);
        if (number < 0)
            return refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES,
                          "two tensors that differ have the id %d", (int)t.uid);
        o.role[v.first] = number;
        (r->flags & READ ? o.in : o.out).push_back(number);
    }
    p.operations.push_back(o);
    return CUDNN_STATUS_SUCCESS;
}

/* How many operations write each tensor: one, or none where it comes from memory. */
cudnnStatus_t check_writers(const program &p)
{
    std::vector<int> writers(p.tensors.size(), 0);
    for (const operation &o : p.operations)
        for (int t : o.out)
            writers[t]++;
    for (size_t i = 0; i < p.tensors.size(); i++) {
        const tensor &t = p.tensors[i];
        if (writers[i] > 1 || (t.by_value && writers[i]) || (t.is_virtual && !writers[i]))
            return refuse(CUDNN_STATUS_BAD_PARAM, "tensor %d is written by %d operations",
                          (int)t.uid, writers[i]);
    }
    return CUDNN_STATUS_SUCCESS;
}

bool can_run(const operation &o, const std::vector<bool> &there)
{
    return std::all_of(o.in.begin(), o.in.end(), [&](int t) { return there[t]; });
}

/* Returns the operations whose inputs are ready, in the order given. */
cudnnStatus_t sort(program &p)
{
    std::vector<operation> left = p.operations, sorted;
    std::vector<bool> there(p.tensors.size(), true);
    for (const operation &o : left)
        for (int t : o.out)
            there[t] = false;
    while (!left.empty()) {
        const auto next = std::find_if(left.begin(), left.end(),
                                       [&](const operation &o) { return can_run(o, there); });
        if (next == left.end())
            return refuse(CUDNN_STATUS_BAD_PARAM, "operations that wait for one another");
        for (int t : next->out)
            there[t] = true;
        sorted.push_back(*next);
        left.erase(next);
    }
    p.operations = sorted;
    return CUDNN_STATUS_SUCCESS;
}

std::string pointwise_word(const body &op)
{
    const body &mode = *refers(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    switch (get(mode, CUDNN_ATTR_POINTWISE_MODE, cudnnPointwiseMode_t{CUDNN_POINTWISE_TAN})) {
    case CUDNN_POINTWISE_ADD:
        return "add";
    case CUDNN_POINTWISE_MUL:
        return "mul";
    case CUDNN_POINTWISE_SUB:
        return "sub";
    case CUDNN_POINTWISE_IDENTITY:
        return "identity";
    case CUDNN_POINTWISE_RELU_FWD:
        return "relu";
    case CUDNN_POINTWISE_RELU_BWD:
        return "drelu";
    case CUDNN_POINTWISE_DIV:
        return "div";
    case CUDNN_POINTWISE_EXP:
        return "exp";
    case CUDNN_POINTWISE_LOG:
        return "log";
    case CUDNN_POINTWISE_GEN_INDEX:
        return "index";
    case CUDNN_POINTWISE_CMP_GE:
        return "ge";
    case CUDNN_POINTWISE_BINARY_SELECT:
        return "select";
    default:
        return "another";
    }
}

std::string word(const operation &o)
{
    if (is_convolution(o.what->type))
        return names_of(o.what->type).word;
    switch (o.what->type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return pointwise_word(*o.what);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return get(*refers(*o.what, CUDNN_ATTR_OPERATION_REDUCTION_DESC),
                   CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_REDUCE_TENSOR_ADD)
                       == CUDNN_REDUCE_TENSOR_MAX
                   ? "max"
                   : "sum";
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return "matmul";
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        return "reshape";
    case CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR:
        return "stats";
    case CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR:
        return "normgrad";
    default:
        return "finalize";
    }
}

/* Names of the operations in order; ! marks a convolution input that is also stored. */
void sign(program &p)
{
    p.anchor = p.operations.size();
    for (size_t i = p.operations.size(); i-- > 0;)
        if (is_convolution(p.operations[i].what->type))
            p.anchor = i;
    for (size_t i = 0; i < p.operations.size(); i++) {
        const operation &o = p.operations[i];
        const bool kept =
            i < p.anchor && p.anchor < p.operations.size() && !p.tensors[o.out[0]].is_virtual;
        p.signature += (i ? " " : "") + word(o) + (kept ? "!" : "");
    }
}

} /* namespace */

cudnnStatus_t make_program(body &graph)
{
    auto p = std::make_shared<program>();
    for (const ref &what : graph.values.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).refs) {
        const cudnnStatus_t st = add_operation(*p, what);
        if (st)
            return st;
    }
    cudnnStatus_t st = check_writers(*p);
    if (!st)
        st = sort(*p);
    if (st)
        return st;
    sign(*p);
    const int64_t count = engines_of(*p, false).size();
    put(graph, CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, CUDNN_TYPE_INT64, 1, &count);
    graph.graph = p;
    return CUDNN_STATUS_SUCCESS;
}

} /* namespace dnn */
