/* A stand-in for cuDNN 9's backend API on the host: descriptors are bags of checked attributes, a
 * finalized graph is a program that plain loops run. Names, types and statuses are those of the cuDNN 9
 * backend API reference; what the library lets pass and then crashes on is refused here. */
#ifndef LT_TESTS_STANDIN_DNN_H
#define LT_TESTS_STANDIN_DNN_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <cudnn.h>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace dnn
{

struct body;
using ref = std::shared_ptr<const body>;

/* An attribute's value: plain elements, or descriptors. */
struct value {
    cudnnBackendAttributeType_t type;
    int64_t count;
    std::vector<char> bytes;
    std::vector<ref> refs;
};

struct program;

/* How an engine does its sums. */
enum arithmetic {
    PLAIN,
    TF32,    /* factors of f32 are rounded to 10 bits of fraction */
    CHANGES, /* in an order that differs from run to run */
    COARSE   /* sums and factors are rounded to bf16 */
};

struct engine {
    int64_t number;
    std::vector<int> numeric, behavior; /* notes */
    arithmetic how;
    int64_t workspace; /* bytes */
    bool hopper;       /* has the knob that only such kernels have */
    bool fails;        /* no plan can be made of it */
};

/* Content of a descriptor, shared with the descriptors that refer to it. */
struct body {
    cudnnBackendDescriptorType_t type;
    bool finalized = false;
    std::map<int, value> values;
    std::shared_ptr<const program>
        graph;                         /* for operation graphs, engines, configurations and plans */
    std::shared_ptr<const engine> how; /* for engines, configurations and plans */
};

struct tensor {
    int64_t uid;
    cudnnDataType_t type;
    int64_t dim[4], stride[4], alignment;
    bool is_virtual, by_value;
};

/* Operations in an order in which they can run. */
struct operation {
    ref what;
    std::map<int, int> role; /* attribute -> number of the tensor */
    std::vector<int> in, out;
};
struct program {
    std::vector<tensor> tensors;
    std::vector<operation> operations;
    std::string signature; /* "fwd stats" */
    size_t anchor;         /* the convolution's number, or how many operations there are */
};

/* --- What an attribute must be (dnn_rules.cpp) --- */

enum rule_flags {
    NEEDED = 1,
    LIBRARY = 2, /* only the library sets it */
    READ = 4,    /* a tensor that an operation reads */
    WRITTEN = 8, /* and one that it writes */
    OR_DOUBLE = 16
};
struct rule {
    cudnnBackendDescriptorType_t descriptor;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t least, most; /* elements */
    int flags;
    int refers; /* the type of an attribute that is a descriptor; -1: any operation's */
};
const rule *find_rule(cudnnBackendDescriptorType_t descriptor, int name);
bool known_type(cudnnBackendDescriptorType_t descriptor);
/* The first that is needed and missing, else NULL. */
const rule *missing(const body &b);
bool is_operation(cudnnBackendDescriptorType_t descriptor);
size_t element_bytes(cudnnBackendAttributeType_t type);
size_t data_bytes(cudnnDataType_t type);

/* --- Attributes --- */

template <class T> T get(const body &b, int name, T otherwise)
{
    const auto at = b.values.find(name);
    if (at == b.values.end() || at->second.bytes.size() < sizeof(T))
        return otherwise;
    T x;
    memcpy(&x, at->second.bytes.data(), sizeof x);
    return x;
}
std::vector<int64_t> numbers(const body &b, int name);
ref refers(const body &b, int name);
void put(body &b, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
         const void *elements);
void put(body &b, cudnnBackendAttributeName_t name, std::vector<ref> refs);
void put_text(body &b, cudnnBackendAttributeName_t name, const std::string &text);

/* --- Statuses --- */

/* Keeps the text for cudnnGetLastErrorString(). */
cudnnStatus_t refuse(cudnnStatus_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns the content of a caller's descriptor; ends the program if the pointer is not a live descriptor. */
std::shared_ptr<body> content_of(cudnnBackendDescriptor_t d, const char *what);
cudaStream_t stream_of(cudnnHandle_t handle, const char *what);

/* --- Finalization --- */

cudnnStatus_t finalize(body &b);
cudnnStatus_t make_program(body &graph); /* dnn_program.cpp */
/* dnn_shapes.cpp */
cudnnStatus_t check_tensor(const body &b);
cudnnStatus_t check_convolution(const body &b);
cudnnStatus_t check_operation(const body &b);
tensor tensor_of(const body &b);
/* dnn_engines.cpp */
cudnnStatus_t make_heuristics(body &b);
cudnnStatus_t make_engine(body &b);
cudnnStatus_t make_config(body &b);
/* dnn_plans.cpp */
cudnnStatus_t make_device(body &b);
cudnnStatus_t make_plan(body &b);

/* Returns all engines that support a graph. fallback: the engines of the fallback heuristic. */
std::vector<engine> engines_of(const program &p, bool fallback);
/* The one with that number, or NULL. */
std::shared_ptr<const engine> find_engine(const program &p, int64_t number);

/* Converts a graph to text and back (dnn_text.cpp); NULL if the text is not a graph. */
std::string to_text(const body &b);
std::shared_ptr<body> from_text(const std::string &text);

/* Counters of the queries so far. */
struct counts {
    long heuristics, made, loaded, runs; /* plans; from text */
    long engine;                         /* engine of the last execution */
};
extern counts counted;

/* --- Running --- */

/* A tensor's elements in f32, channels innermost. */
struct array {
    int64_t dim[4]; /* N, C, H, W */
    std::vector<float> x;
    float *row(int64_t n, int64_t h, int64_t w)
    {
        return x.data() + ((n * dim[2] + h) * dim[3] + w) * dim[1];
    }
    const float *row(int64_t n, int64_t h, int64_t w) const
    {
        return x.data() + ((n * dim[2] + h) * dim[3] + w) * dim[1];
    }
};
float rounded(float x, cudnnDataType_t type);
/* Computes the operation's outputs from its inputs; arrays are indexed by tensor id (dnn_ops.cpp). */
void run(const operation &o, std::vector<array> &arrays, arithmetic how, bool backwards);
/* Its convolution (dnn_conv.cpp). */
void convolve(const operation &o, std::vector<array> &arrays, bool backwards);
bool is_convolution(cudnnBackendDescriptorType_t type);
/* The attributes of a convolution operation's tensors and numbers. */
struct conv_names {
    cudnnBackendDescriptorType_t op;
    cudnnBackendAttributeName_t alpha, beta, conv, x, w, y;
    const char *word;
};
const conv_names &names_of(cudnnBackendDescriptorType_t type);

} /* namespace dnn */

/* The counts; seen from outside a plugin. */
extern "C" __attribute__((visibility("default"))) void standin_dnn_counts(dnn::counts *out);

#endif
