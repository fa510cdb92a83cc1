/* Writes a residual network as ONNX: opset 13, numbers of fields from onnx.proto (github.com/onnx/onnx, onnx/onnx.proto).
 *
 * Batch norms stay nodes of their own: the file then has the weights' very numbers under their own names, from which
 * the weights can be had again, and every runtime folds them into the convolutions by itself. */

#include "onnx.h"

#include "plan.h"

#include "lather/ext/fail.h"
#include "lather/protobuf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IR_VERSION = 7, OPSET = 13 }; /* of ONNX 1.8, 2020 */
/* ModelProto */
enum {
    MODEL_IR = 1,
    MODEL_PRODUCER = 2,
    MODEL_PRODUCER_VERSION = 3,
    MODEL_GRAPH = 7,
    MODEL_OPSET = 8,
    MODEL_METADATA = 14
};
enum { OPSET_VERSION = 2, ENTRY_KEY = 1, ENTRY_VALUE = 2 };
/* GraphProto */
enum { GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_INITIALIZER = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };
/* NodeProto */
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_NAME = 3, NODE_OP = 4, NODE_ATTRIBUTE = 5 };
/* AttributeProto, and its type */
enum {
    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_F = 2,
    ATTRIBUTE_I = 3,
    ATTRIBUTE_INTS = 8,
    ATTRIBUTE_TYPE = 20
};
enum { TYPE_FLOAT = 1, TYPE_INT = 2, TYPE_INTS = 7 };
/* TensorProto, and its data type */
enum { TENSOR_DIMS = 1, TENSOR_TYPE = 2, TENSOR_NAME = 8, TENSOR_RAW = 9, DATA_FLOAT = 1 };
/* ValueInfoProto, TypeProto, TypeProto.Tensor, TensorShapeProto, TensorShapeProto.Dimension */
enum {
    VALUE_NAME = 1,
    VALUE_TYPE = 2,
    TYPE_TENSOR = 1,
    ELEMENT_TYPE = 1,
    ELEMENT_SHAPE = 2,
    SHAPE_DIM = 1,
    DIM_VALUE = 1,
    DIM_PARAM = 2
};

enum { NAME_BYTES = 96 };
typedef char name[NAME_BYTES];

/* --- Nodes --- */

/* A node has the name of its output. */
static void begin_node(lt_protobuf_writer *p, const char *op, const char *const *input, int inputs,
                       const char *output)
{
    lt_protobuf_begin(p, GRAPH_NODE);
    for (int i = 0; i < inputs; i++)
        lt_protobuf_text(p, NODE_INPUT, input[i]);
    lt_protobuf_text(p, NODE_OUTPUT, output);
    lt_protobuf_text(p, NODE_NAME, output);
    lt_protobuf_text(p, NODE_OP, op);
}

static void simple_node(lt_protobuf_writer *p, const char *op, const char *input,
                        const char *output)
{
    begin_node(p, op, &input, 1, output);
    lt_protobuf_end(p);
}

static void put_integer(lt_protobuf_writer *p, const char *key, int value)
{
    lt_protobuf_begin(p, NODE_ATTRIBUTE);
    lt_protobuf_text(p, ATTRIBUTE_NAME, key);
    lt_protobuf_integer(p, ATTRIBUTE_I, (uint64_t)value);
    lt_protobuf_integer(p, ATTRIBUTE_TYPE, TYPE_INT);
    lt_protobuf_end(p);
}

/* The same number for each dimension; of pads: for each end of it. */
static void put_integers(lt_protobuf_writer *p, const char *key, int value, int count)
{
    lt_protobuf_begin(p, NODE_ATTRIBUTE);
    lt_protobuf_text(p, ATTRIBUTE_NAME, key);
    for (int i = 0; i < count; i++)
        lt_protobuf_integer(p, ATTRIBUTE_INTS, (uint64_t)value);
    lt_protobuf_integer(p, ATTRIBUTE_TYPE, TYPE_INTS);
    lt_protobuf_end(p);
}

static void put_window(lt_protobuf_writer *p, int kernel, int stride, int pad)
{
    enum { DIMS = 2 };
    put_integers(p, "kernel_shape", kernel, DIMS);
    put_integers(p, "strides", stride, DIMS);
    put_integers(p, "pads", pad, 2 * DIMS);
}

static void put_convolution(lt_protobuf_writer *p, const plan_conv *c, const char *path,
                            const char *x, name y)
{
    name weight;
    snprintf(y, NAME_BYTES, "%s%s", path, c->conv);
    snprintf(weight, sizeof weight, "%s%s.weight", path, c->conv);
    const char *const input[] = {x, weight};
    begin_node(p, "Conv", input, 2, y);
    put_window(p, c->kernel, c->stride, c->pad);
    lt_protobuf_end(p);
}

static void put_norm(lt_protobuf_writer *p, const plan_conv *c, const char *path, const char *x,
                     name y)
{
    static const char *const leaf[] = {"weight", "bias", "running_mean", "running_var"};
    enum { LEAVES = sizeof leaf / sizeof *leaf };
    static const float epsilon = 1e-5F; /* of lt_layer_batchnorm2d() */
    name part[LEAVES];
    const char *input[LEAVES + 1] = {x};
    snprintf(y, NAME_BYTES, "%s%s", path, c->bn);
    for (int i = 0; i < LEAVES; i++) {
        snprintf(part[i], NAME_BYTES, "%s%s.%s", path, c->bn, leaf[i]);
        input[i + 1] = part[i];
    }
    begin_node(p, "BatchNormalization", input, LEAVES + 1, y);
    lt_protobuf_begin(p, NODE_ATTRIBUTE);
    lt_protobuf_text(p, ATTRIBUTE_NAME, "epsilon");
    lt_protobuf_float(p, ATTRIBUTE_F, epsilon);
    lt_protobuf_integer(p, ATTRIBUTE_TYPE, TYPE_FLOAT);
    lt_protobuf_end(p);
    lt_protobuf_end(p);
}

/* Convolution and batch norm; x becomes their output. */
static void put_pair(lt_protobuf_writer *p, const plan_conv *c, const char *path, name x)
{
    name y;
    put_convolution(p, c, path, x, y);
    put_norm(p, c, path, y, x);
}

static void put_relu(lt_protobuf_writer *p, const char *path, const char *leaf, name x)
{
    name y;
    snprintf(y, sizeof y, "%s%s", path, leaf);
    simple_node(p, "Relu", x, y);
    memcpy(x, y, sizeof y);
}

static void put_block(lt_protobuf_writer *p, const plan_block *b, const char *path, name x)
{
    static const char *const relu[] = {"relu1", "relu2", "relu3"};
    name y, residual;
    memcpy(y, x, sizeof y);
    memcpy(residual, x, sizeof residual);
    for (int i = 0; i < b->count; i++) {
        put_pair(p, &b->conv[i], path, y);
        if (i < b->count - 1)
            put_relu(p, path, relu[i], y);
    }
    if (b->shortcut)
        put_pair(p, &b->conv[b->count], path, residual);
    const char *const input[] = {y, residual};
    snprintf(x, NAME_BYTES, "%.63sadd", path);
    begin_node(p, "Add", input, 2, x);
    lt_protobuf_end(p);
    put_relu(p, path, relu[b->count - 1], x);
}

static void put_stem(lt_protobuf_writer *p, const lt_resnet_config *c, name x)
{
    const int kernel = 3, stride = 2, pad = 1; /* of the pooling */
    plan_conv stem = plan_stem(c);
    put_pair(p, &stem, "", x);
    put_relu(p, "", "relu", x);
    if (c->small_stem)
        return;
    const char *const input[] = {x};
    begin_node(p, "MaxPool", input, 1, "maxpool");
    put_window(p, kernel, stride, pad);
    lt_protobuf_end(p);
    snprintf(x, NAME_BYTES, "maxpool");
}

static void put_head(lt_protobuf_writer *p, const char *x)
{
    const char *const input[] = {"flatten", "fc.weight", "fc.bias"};
    simple_node(p, "GlobalAveragePool", x, "avgpool");
    simple_node(p, "Flatten", "avgpool", "flatten"); /* behind dimension 1, the default */
    begin_node(p, "Gemm", input, 3, "logits");
    put_integer(p, "transB", 1);
    lt_protobuf_end(p);
}

static void put_nodes(lt_protobuf_writer *p, const lt_resnet_config *c)
{
    name x = "images", path;
    put_stem(p, c, x);
    for (int stage = 0; stage < LT_RESNET_STAGES; stage++)
        for (int i = 0; i < c->depths[stage]; i++) {
            plan_block b = plan_residual(c, stage, i);
            snprintf(path, sizeof path, "layer%d.%d.", stage + 1, i);
            put_block(p, &b, path, x);
        }
    put_head(p, x);
}

/* --- Numbers, inputs, outputs --- */

static lt_status put_tensor(lt_protobuf_writer *p, const lt_param *param)
{
    lt_shape shape = lt_tensor_shape(param->value);
    size_t bytes = lt_tensor_bytes(param->value);
    void *data = malloc(bytes);
    if (!data)
        return lt_fail(LT_E_NOMEM, "onnx: no memory for %s", param->name);
    lt_status st = lt_tensor_read(param->value, data, bytes);
    lt_protobuf_begin(p, GRAPH_INITIALIZER);
    for (int i = 0; i < shape.ndim; i++)
        lt_protobuf_integer(p, TENSOR_DIMS, (uint64_t)shape.dim[i]);
    lt_protobuf_integer(p, TENSOR_TYPE, DATA_FLOAT);
    lt_protobuf_text(p, TENSOR_NAME, param->name);
    if (!st)
        lt_protobuf_data(p, TENSOR_RAW, data, bytes);
    lt_protobuf_end(p);
    free(data);
    return st;
}

static lt_status put_tensors(lt_protobuf_writer *p, const lt_params *params)
{
    for (size_t i = 0; i < params->count; i++)
        if (params->item[i]->role != LT_ROLE_COUNT)
            LT_TRY(put_tensor(p, params->item[i]));
    return LT_OK;
}

/* The first dimension is any. */
static void put_value(lt_protobuf_writer *p, int field, const char *key, const int *dim, int dims)
{
    lt_protobuf_begin(p, field);
    lt_protobuf_text(p, VALUE_NAME, key);
    lt_protobuf_begin(p, VALUE_TYPE);
    lt_protobuf_begin(p, TYPE_TENSOR);
    lt_protobuf_integer(p, ELEMENT_TYPE, DATA_FLOAT);
    lt_protobuf_begin(p, ELEMENT_SHAPE);
    lt_protobuf_begin(p, SHAPE_DIM);
    lt_protobuf_text(p, DIM_PARAM, "N");
    lt_protobuf_end(p);
    for (int i = 0; i < dims; i++) {
        lt_protobuf_begin(p, SHAPE_DIM);
        lt_protobuf_integer(p, DIM_VALUE, (uint64_t)dim[i]);
        lt_protobuf_end(p);
    }
    lt_protobuf_end(p);
    lt_protobuf_end(p);
    lt_protobuf_end(p);
    lt_protobuf_end(p);
}

static lt_status put_graph(lt_protobuf_writer *p, const onnx_model *m)
{
    const lt_resnet_config *c = m->shape;
    const int image[] = {c->channels, m->size, m->size};
    lt_protobuf_begin(p, MODEL_GRAPH);
    put_nodes(p, c);
    lt_protobuf_text(p, GRAPH_NAME, "resnet");
    lt_status st = put_tensors(p, m->params);
    put_value(p, GRAPH_INPUT, "images", image, 3);
    put_value(p, GRAPH_OUTPUT, "logits", &c->classes, 1);
    lt_protobuf_end(p);
    return st;
}

static lt_status put_model(lt_protobuf_writer *p, const onnx_model *m)
{
    lt_protobuf_integer(p, MODEL_IR, IR_VERSION);
    lt_protobuf_text(p, MODEL_PRODUCER, "lather");
    lt_protobuf_text(p, MODEL_PRODUCER_VERSION, lt_version());
    LT_TRY(put_graph(p, m));
    lt_protobuf_begin(p, MODEL_OPSET);
    lt_protobuf_integer(p, OPSET_VERSION, OPSET);
    lt_protobuf_end(p);
    for (size_t i = 0; i < m->notes; i++) {
        lt_protobuf_begin(p, MODEL_METADATA);
        lt_protobuf_text(p, ENTRY_KEY, m->note[i].key);
        lt_protobuf_text(p, ENTRY_VALUE, m->note[i].value);
        lt_protobuf_end(p);
    }
    return LT_OK;
}

lt_status onnx_write(const onnx_model *model, const char *path)
{
    lt_protobuf_writer p = {0};
    lt_status st = put_model(&p, model);
    if (!st)
        st = lt_protobuf_save(&p, path);
    lt_protobuf_clear(&p);
    return st;
}
