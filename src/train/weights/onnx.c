/* ONNX files: opset 13, with field numbers of onnx.proto (github.com/onnx/onnx, onnx/onnx.proto). */

#include "onnx.h"

#include "base/alloc.h"

#include "lather/ext/fail.h"
#include "lather/protobuf.h"

enum { IR_VERSION = 7, OPSET = 13 }; /* as of ONNX 1.8, 2020 */
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

struct lt_onnx {
    lt_protobuf_writer out; /* inside GraphProto */
};

/* --- Nodes --- */

void lt_onnx_begin_node(lt_onnx *g, const char *op, const char *const *input, int inputs,
                        const char *output)
{
    lt_protobuf_begin(&g->out, GRAPH_NODE);
    for (int i = 0; i < inputs; i++)
        lt_protobuf_text(&g->out, NODE_INPUT, input[i]);
    lt_protobuf_text(&g->out, NODE_OUTPUT, output);
    lt_protobuf_text(&g->out, NODE_NAME, output);
    lt_protobuf_text(&g->out, NODE_OP, op);
}

void lt_onnx_end_node(lt_onnx *g)
{
    lt_protobuf_end(&g->out);
}

void lt_onnx_node(lt_onnx *g, const char *op, const char *input, const char *output)
{
    lt_onnx_begin_node(g, op, &input, 1, output);
    lt_onnx_end_node(g);
}

static void begin_attribute(lt_onnx *g, const char *key)
{
    lt_protobuf_begin(&g->out, NODE_ATTRIBUTE);
    lt_protobuf_text(&g->out, ATTRIBUTE_NAME, key);
}

static void end_attribute(lt_onnx *g, uint64_t type)
{
    lt_protobuf_integer(&g->out, ATTRIBUTE_TYPE, type);
    lt_protobuf_end(&g->out);
}

void lt_onnx_int(lt_onnx *g, const char *key, int value)
{
    begin_attribute(g, key);
    lt_protobuf_integer(&g->out, ATTRIBUTE_I, (uint64_t)value);
    end_attribute(g, TYPE_INT);
}

void lt_onnx_float(lt_onnx *g, const char *key, float value)
{
    begin_attribute(g, key);
    lt_protobuf_float(&g->out, ATTRIBUTE_F, value);
    end_attribute(g, TYPE_FLOAT);
}

void lt_onnx_ints(lt_onnx *g, const char *key, int value, int count)
{
    begin_attribute(g, key);
    for (int i = 0; i < count; i++)
        lt_protobuf_integer(&g->out, ATTRIBUTE_INTS, (uint64_t)value);
    end_attribute(g, TYPE_INTS);
}

/* --- Initializers, inputs, outputs --- */

static lt_status put_tensor(lt_protobuf_writer *p, const lt_param *param)
{
    lt_shape shape = lt_tensor_shape(param->value);
    size_t bytes = lt_tensor_bytes(param->value);
    char *data;
    LT_TRY(LT_ALLOC(&data, bytes));
    lt_status st = lt_tensor_read(param->value, data, bytes);
    lt_protobuf_begin(p, GRAPH_INITIALIZER);
    for (int i = 0; i < shape.ndim; i++)
        lt_protobuf_integer(p, TENSOR_DIMS, (uint64_t)shape.dim[i]);
    lt_protobuf_integer(p, TENSOR_TYPE, DATA_FLOAT);
    lt_protobuf_text(p, TENSOR_NAME, param->name);
    if (!st)
        lt_protobuf_data(p, TENSOR_RAW, data, bytes);
    lt_protobuf_end(p);
    lt_free(data);
    return st;
}

static lt_status put_tensors(lt_protobuf_writer *p, const lt_params *params)
{
    for (size_t i = 0; i < params->count; i++)
        if (params->item[i]->role != LT_PARAM_COUNT)
            LT_TRY(put_tensor(p, params->item[i]));
    return LT_OK;
}

/* Puts an input or output; its first dimension is free. */
static void put_input_or_output(lt_protobuf_writer *p, int field, const char *key, const int *dim,
                                int dims)
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

static lt_status put_graph(lt_onnx *g, const lt_onnx_model *m)
{
    const int image[] = {m->spec.channels, m->spec.size, m->spec.size};
    lt_protobuf_begin(&g->out, MODEL_GRAPH);
    LT_TRY(m->family->onnx(g, m->config, &m->spec));
    lt_protobuf_text(&g->out, GRAPH_NAME, m->family->name);
    LT_TRY(put_tensors(&g->out, m->params));
    put_input_or_output(&g->out, GRAPH_INPUT, "images", image, 3);
    put_input_or_output(&g->out, GRAPH_OUTPUT, "logits", &m->spec.classes, 1);
    lt_protobuf_end(&g->out);
    return LT_OK;
}

static lt_status put_model(lt_onnx *g, const lt_onnx_model *m)
{
    lt_protobuf_writer *p = &g->out;
    lt_protobuf_integer(p, MODEL_IR, IR_VERSION);
    lt_protobuf_text(p, MODEL_PRODUCER, "lather");
    lt_protobuf_text(p, MODEL_PRODUCER_VERSION, lt_version());
    LT_TRY(put_graph(g, m));
    lt_protobuf_begin(p, MODEL_OPSET);
    lt_protobuf_integer(p, OPSET_VERSION, OPSET);
    lt_protobuf_end(p);
    for (size_t i = 0; i < m->metadata_count; i++) {
        lt_protobuf_begin(p, MODEL_METADATA);
        lt_protobuf_text(p, ENTRY_KEY, m->metadata[i].key);
        lt_protobuf_text(p, ENTRY_VALUE, m->metadata[i].value);
        lt_protobuf_end(p);
    }
    return LT_OK;
}

lt_status lt_onnx_save(const lt_onnx_model *model, const char *path)
{
    lt_onnx graph = {0};
    lt_status st = put_model(&graph, model);
    if (!st)
        st = lt_protobuf_save(&graph.out, path);
    lt_protobuf_clear(&graph.out);
    return st;
}
