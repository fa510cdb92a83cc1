/* Devices as cuDNN sees them, and execution plans with their text. A plan's text is for one version and
 * one device, and holds the graph; a text that was cut or changed is refused. */

#include "dnn.h"
#include "standin.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>

namespace dnn
{
namespace
{

const char here[] = "{\"deviceName\":\"a stand-in\",\"deviceVer\":900,\"driverVer\":13000,"
                    "\"cudaDeviceId\":0,\"pciDeviceId\":0,\"multiProcessorCount\":132,"
                    "\"warpSize\":32,\"totalGlobalMem\":150754820096}";

/* FNV-1a. */
std::string digest(const std::string &text)
{
    uint64_t h = 14695981039346656037U;
    for (unsigned char c : text)
        h = (h ^ c) * 1099511628211U;
    char out[17];
    snprintf(out, sizeof out, "%016" PRIx64, h);
    return out;
}

std::string text_of(const body &b, cudnnBackendAttributeName_t name)
{
    const auto at = b.values.find(name);
    return at == b.values.end() ? ""
                                : std::string(at->second.bytes.begin(), at->second.bytes.end());
}

/* Graph and engine of the plan. */
std::string device_of(const body &plan)
{
    const ref device = refers(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
    return device ? text_of(*device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION) : here;
}

/* Returns the text from the key to the end. */
std::string after(const std::string &text, const std::string &key, char end)
{
    const size_t at = text.find("\"" + key + "\":");
    if (at == std::string::npos)
        return "";
    const size_t from = at + key.size() + 3, to = text.find(end, from);
    return to == std::string::npos ? "" : text.substr(from, to - from);
}

std::string plan_text(const body &graph, const body &plan)
{
    std::string s =
        "{\"cudnnVersion\":" + std::to_string(CUDNN_VERSION)
        + ",\"schemaVersion\":4,\"operationGraph\":\"" + to_text(graph) + "\",\"GPUProfile\":\""
        + digest(device_of(plan)) + "\",\"engine\":{\"engineId\":"
        + std::to_string(plan.how->number) + ",\"smVersion\":900,\"knobChoices\":{"
        + (plan.how->hopper ? "\"CUDNN_KNOB_TYPE_TILE_CGA_M\":2" : "") + "}},\"check\":";
    return s + "\"" + digest(s) + "\"}";
}

/* The plan's graph and engine from its text. */
cudnnStatus_t load(body &b, ref &graph)
{
    const std::string text = text_of(b, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
    const std::string check = "\"check\":";
    const size_t end = text.rfind(check);
    if (after(text, "cudnnVersion", ',') != std::to_string(CUDNN_VERSION))
        return refuse(CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH, "a plan of another version");
    if (end == std::string::npos
        || text.substr(end + check.size())
               != "\"" + digest(text.substr(0, end + check.size())) + "\"}")
        return refuse(CUDNN_STATUS_BAD_PARAM, "no plan, or a part of one");
    if (after(text, "GPUProfile", ',') != "\"" + digest(device_of(b)) + "\"")
        return refuse(CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH, "a plan for another device");
    const std::string quoted = after(text, "operationGraph", ',');
    std::shared_ptr<body> made = from_text(quoted.substr(1, quoted.size() - 2));
    if (!made || finalize(*made))
        return refuse(CUDNN_STATUS_BAD_PARAM, "a plan without a graph");
    graph = made;
    b.how = find_engine(*made->graph, atoll(after(text, "engineId", ',').c_str()));
    if (!b.how)
        return refuse(CUDNN_STATUS_NOT_SUPPORTED, "a plan of an engine that is not there");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t take_config(body &b, ref &graph)
{
    const ref config = refers(b, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    if (!config)
        return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a plan without a configuration");
    graph =
        refers(*refers(*config, CUDNN_ATTR_ENGINECFG_ENGINE), CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
    b.how = config->how;
    return CUDNN_STATUS_SUCCESS;
}

} /* namespace */

/* From a handle or a number: this machine's. */
cudnnStatus_t make_device(body &b)
{
    static const char *const needed[] = {"deviceVer", "multiProcessorCount", "warpSize"};
    if (!b.values.count(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION)) {
        if (b.values.empty())
            return refuse(CUDNN_STATUS_BAD_PARAM, "a device from nothing");
        put_text(b, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, here);
    }
    for (const char *key : needed)
        if (text_of(b, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION)
                .find(std::string("\"") + key + "\":")
            == std::string::npos)
            return refuse(CUDNN_STATUS_BAD_PARAM, "a device without %s", key);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t make_plan(body &b)
{
    ref graph;
    const bool loads = b.values.count(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION) != 0;
    if (!refers(b, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP)
        && !b.values.count(CUDNN_ATTR_EXECUTION_PLAN_HANDLE))
        return refuse(CUDNN_STATUS_BAD_PARAM, "a plan for no device");
    const cudnnStatus_t st = loads ? load(b, graph) : take_config(b, graph);
    if (st)
        return st;
    if (b.how->fails)
        return refuse(CUDNN_STATUS_NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT,
                      "more shared memory than there is");
    b.graph = graph->graph;
    (loads ? counted.loaded : counted.made)++;
    put(b, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &b.how->workspace);
    put_text(b, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, plan_text(*graph, b));
    return CUDNN_STATUS_SUCCESS;
}

} /* namespace dnn */
