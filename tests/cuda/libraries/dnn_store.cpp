/* Handles and descriptors of the stand-in for cuDNN: create, set attributes, finalize, read, destroy. An invalid or
 * destroyed descriptor aborts the program. */

#include "../standin/version.h"
#include "dnn.h"
#include "open_things.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

struct cudnnContext {
    cudaStream_t stream;
};

namespace dnn
{
namespace
{

struct descriptor {
    std::shared_ptr<body> content;
};

open_things things;
thread_local std::string last_words;

} /* namespace */

/* Returns the content of a caller's descriptor. */
std::shared_ptr<body> content_of(cudnnBackendDescriptor_t d, const char *what)
{
    things.need(d, what);
    return static_cast<descriptor *>(d)->content;
}

cudaStream_t stream_of(cudnnHandle_t handle, const char *what)
{
    things.need(handle, what);
    return handle->stream;
}

cudnnStatus_t refuse(cudnnStatus_t status, const char *format, ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    last_words = text;
    return status;
}

std::vector<int64_t> numbers(const body &b, int name)
{
    const auto at = b.values.find(name);
    if (at == b.values.end())
        return {};
    std::vector<int64_t> all(at->second.count);
    memcpy(all.data(), at->second.bytes.data(), all.size() * sizeof(int64_t));
    return all;
}

ref refers(const body &b, int name)
{
    const auto at = b.values.find(name);
    return at == b.values.end() || at->second.refs.empty() ? nullptr : at->second.refs[0];
}

void put(body &b, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
         const void *elements)
{
    const char *first = static_cast<const char *>(elements);
    b.values[name] = {type, count, {first, first + count * element_bytes(type)}, {}};
}

void put(body &b, cudnnBackendAttributeName_t name, std::vector<ref> refs)
{
    const int64_t count = refs.size();
    b.values[name] = {CUDNN_TYPE_BACKEND_DESCRIPTOR, count, {}, std::move(refs)};
}

void put_text(body &b, cudnnBackendAttributeName_t name, const std::string &text)
{
    put(b, name, CUDNN_TYPE_CHAR, text.size(), text.data());
}

namespace
{

bool type_fits(const rule &r, cudnnBackendAttributeType_t type)
{
    return type == r.type || (r.flags & OR_DOUBLE && type == CUDNN_TYPE_DOUBLE);
}

cudnnStatus_t set_refs(body &b, const rule &r, int64_t count, const void *elements)
{
    auto list = static_cast<const cudnnBackendDescriptor_t *>(elements);
    std::vector<ref> refs;
    for (int64_t i = 0; i < count; i++) {
        if (!list[i])
            return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
                          "attribute %d: descriptor %d is NULL", (int)r.name, (int)i);
        ref one = content_of(list[i], "cudnnBackendSetAttribute");
        if (r.refers != -1 ? one->type != r.refers : !is_operation(one->type))
            return refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
                          "attribute %d: a descriptor of type %d", (int)r.name, (int)one->type);
        if (!one->finalized)
            return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                          "attribute %d: a descriptor that is not finalized", (int)r.name);
        refs.push_back(one);
    }
    put(b, r.name, refs);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set(body &b, int name, cudnnBackendAttributeType_t type, int64_t count,
                  const void *elements)
{
    const rule *r = find_rule(b.type, name);
    if (b.finalized)
        return refuse(CUDNN_STATUS_BAD_PARAM, "attribute %d: the descriptor is finalized", name);
    if (!r || r->flags & LIBRARY)
        return refuse(CUDNN_STATUS_BAD_PARAM, "attribute %d: not of a descriptor of type %d", name,
                      (int)b.type);
    if (!type_fits(*r, type))
        return refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "attribute %d: type %d, wanted %d",
                      name, (int)type, (int)r->type);
    if (count < r->least || count > r->most)
        return refuse(CUDNN_STATUS_BAD_PARAM, "attribute %d: %d elements", name, (int)count);
    if (!elements && count)
        return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "attribute %d: no elements", name);
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        return set_refs(b, *r, count, elements);
    put(b, r->name, type, count, elements);
    return CUDNN_STATUS_SUCCESS;
}

/* Descriptors that the caller made take the library's content. */
cudnnStatus_t give(const value &v, const rule &r, int64_t most, void *elements)
{
    auto list = static_cast<cudnnBackendDescriptor_t *>(elements);
    for (int64_t i = 0; i < std::min(most, v.count); i++) {
        if (!list[i])
            return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
                          "attribute %d: descriptor %d is NULL", (int)r.name, (int)i);
        std::shared_ptr<body> into = content_of(list[i], "cudnnBackendGetAttribute");
        if (into->type != r.refers)
            return refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
                          "attribute %d: into a descriptor of type %d", (int)r.name,
                          (int)into->type);
        static_cast<descriptor *>(list[i])->content = std::make_shared<body>(*v.refs[i]);
    }
    return CUDNN_STATUS_SUCCESS;
}

/* Returns the number of elements if elements is NULL. */
cudnnStatus_t read(const body &b, int name, cudnnBackendAttributeType_t type, int64_t most,
                   int64_t *count, void *elements)
{
    const rule *r = find_rule(b.type, name);
    const auto at = b.values.find(name);
    if (!b.finalized)
        return refuse(CUDNN_STATUS_NOT_INITIALIZED, "attribute %d: not finalized", name);
    if (!r || at == b.values.end())
        return refuse(CUDNN_STATUS_BAD_PARAM, "attribute %d: not of a descriptor of type %d", name,
                      (int)b.type);
    if (type != at->second.type)
        return refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "attribute %d: type %d, wanted %d",
                      name, (int)type, (int)at->second.type);
    const value &v = at->second;
    const int64_t given = most > 0 && elements ? std::min(most, v.count) : v.count;
    if (count)
        *count = given;
    else if (given != 1)
        return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "attribute %d: no count", name);
    if (most <= 0 || !elements)
        return CUDNN_STATUS_SUCCESS;
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        return give(v, *r, most, elements);
    if (given)
        memcpy(elements, v.bytes.data(), given * element_bytes(type));
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_pack(const body &b)
{
    std::vector<int64_t> uid = numbers(b, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const size_t pointers = b.values.at(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).count;
    if (uid.size() != pointers)
        return refuse(CUDNN_STATUS_BAD_PARAM, "%zu ids for %zu pointers", uid.size(), pointers);
    std::sort(uid.begin(), uid.end());
    if (std::adjacent_find(uid.begin(), uid.end()) != uid.end())
        return refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "an id twice");
    return CUDNN_STATUS_SUCCESS;
}

/* Finalizes a descriptor by its type, once all required attributes are set. */
cudnnStatus_t finish(body &b)
{
    switch (b.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        return check_tensor(b);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
        return check_convolution(b);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        return make_program(b);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        return make_heuristics(b);
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
        return make_engine(b);
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
        return make_config(b);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        return make_plan(b);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
        return check_pack(b);
    case CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR:
        return make_device(b);
    default:
        return is_operation(b.type) ? check_operation(b) : CUDNN_STATUS_SUCCESS;
    }
}

} /* namespace */

cudnnStatus_t finalize(body &b)
{
    if (b.finalized)
        return refuse(CUDNN_STATUS_BAD_PARAM, "finalized twice");
    if (const rule *r = missing(b))
        return refuse(CUDNN_STATUS_BAD_PARAM, "a descriptor of type %d without attribute %d",
                      (int)b.type, (int)r->name);
    const cudnnStatus_t st = finish(b);
    b.finalized = st == CUDNN_STATUS_SUCCESS;
    return st;
}

} /* namespace dnn */

using namespace dnn;

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *out)
{
    if (standin_fails(__func__) || !known_type(type))
        return refuse(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "a descriptor of type %d",
                      (int)type);
    auto made = new descriptor{std::make_shared<body>()};
    made->content->type = type;
    *out = things.add(made);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d)
{
    things.remove(d, __func__);
    delete static_cast<descriptor *>(d);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void *elements)
{
    if (!d)
        return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
    return set(*content_of(d, __func__), name, type, count, elements);
}

/* LATHER_STANDIN_UNDESCRIBED: the query for a device's description fails. */
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most,
                                       int64_t *count, void *elements)
{
    if (!d)
        return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
    if (name == CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION && getenv("LATHER_STANDIN_UNDESCRIBED"))
        return refuse(CUDNN_STATUS_INTERNAL_ERROR, "a device that is not described");
    return read(*content_of(d, __func__), name, type, most, count, elements);
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d)
{
    if (!d)
        return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
    if (standin_fails(__func__))
        return refuse(CUDNN_STATUS_INTERNAL_ERROR, "as was asked for");
    return finalize(*content_of(d, __func__));
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    if (!standin_allowed(__func__) || standin_fails(__func__))
        return refuse(CUDNN_STATUS_NOT_INITIALIZED, "no handle");
    usleep((useconds_t)standin_lies(STANDIN_SLOW_LOAD) * 1000);
    *handle = things.add(new cudnnContext{});
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    things.remove(handle, __func__);
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    stream_of(handle, __func__);
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream)
{
    *stream = stream_of(handle, __func__);
    return CUDNN_STATUS_SUCCESS;
}

size_t cudnnGetVersion(void)
{
    return CUDNN_VERSION;
}

cudnnStatus_t cudnnGetProperty(libraryPropertyType type, int *value)
{
    *value = type == MAJOR_VERSION   ? CUDNN_MAJOR
             : type == MINOR_VERSION ? CUDNN_MINOR
                                     : CUDNN_PATCHLEVEL;
    *value = standin_property("cuDNN", type, *value);
    return CUDNN_STATUS_SUCCESS;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    if (status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
        return "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED";
    switch (CUDNN_STATUS_CATEGORY(status)) {
    case 0:
        return status ? "CUDNN_STATUS_UNKNOWN" : "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM:
        return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED:
        return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_INTERNAL_ERROR:
        return "CUDNN_STATUS_INTERNAL_ERROR";
    case CUDNN_STATUS_EXECUTION_FAILED:
        return "CUDNN_STATUS_EXECUTION_FAILED";
    default:
        return status == CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH
                   ? "CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH"
                   : "CUDNN_STATUS_NOT_INITIALIZED";
    }
}

/* Reading the message clears it, as cuDNN does. */
void cudnnGetLastErrorString(char *message, size_t bytes)
{
    snprintf(message, bytes, "%s", last_words.c_str());
    last_words.clear();
}
