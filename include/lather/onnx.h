/** Nodes of an ONNX graph, for a model family's export: opset 13. */
#ifndef LATHER_ONNX_H
#define LATHER_ONNX_H

#include "lather/status.h"

/** A graph under construction. A failure (no memory) is kept and reported when the graph is saved. */
typedef struct lt_onnx lt_onnx;

/** Begins a node of an operator ("Conv"), named after its output. Attributes follow, then lt_onnx_end_node().
 *  Names are copied. */
LT_API void lt_onnx_begin_node(lt_onnx *graph, const char *op, const char *const *input, int inputs,
                               const char *output);
LT_API void lt_onnx_int(lt_onnx *graph, const char *key, int value);
LT_API void lt_onnx_float(lt_onnx *graph, const char *key, float value);
/** Adds a list of the same number count times: a stride for each dimension, for instance. */
LT_API void lt_onnx_ints(lt_onnx *graph, const char *key, int value, int count);
LT_API void lt_onnx_end_node(lt_onnx *graph);

/** Adds a node with one input and no attributes. */
LT_API void lt_onnx_node(lt_onnx *graph, const char *op, const char *input, const char *output);

#endif
