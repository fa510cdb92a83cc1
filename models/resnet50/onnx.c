/* The ONNX nodes of a residual network.
 *
 * Batch norms remain separate nodes: the file then has the weights unchanged, under their own names, and can be
 * converted back; runtimes fold them into the convolutions themselves. */

#include "arch.h"

#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 96 };
typedef char name[NAME_BYTES];

static void put_window(lt_onnx *g, int kernel, int stride, int pad)
{
    enum { DIMS = 2 };
    lt_onnx_ints(g, "kernel_shape", kernel, DIMS);
    lt_onnx_ints(g, "strides", stride, DIMS);
    lt_onnx_ints(g, "pads", pad, 2 * DIMS);
}

static void put_convolution(lt_onnx *g, const plan_conv *c, const char *path, const char *x, name y)
{
    name weight;
    snprintf(y, NAME_BYTES, "%s%s", path, c->conv);
    snprintf(weight, sizeof weight, "%s%s.weight", path, c->conv);
    const char *const input[] = {x, weight};
    lt_onnx_begin_node(g, "Conv", input, 2, y);
    put_window(g, c->kernel, c->stride, c->pad);
    if (c->groups > 1)
        lt_onnx_int(g, "group", c->groups);
    lt_onnx_end_node(g);
}

static void put_norm(lt_onnx *g, const plan_conv *c, const char *path, const char *x, name y)
{
    static const char *const leaf[] = {"weight", "bias", "running_mean", "running_var"};
    enum { LEAVES = sizeof leaf / sizeof *leaf };
    static const float epsilon = 1e-5F; /* as in lt_layer_batchnorm2d() */
    name part[LEAVES];
    const char *input[LEAVES + 1] = {x};
    snprintf(y, NAME_BYTES, "%s%s", path, c->bn);
    for (int i = 0; i < LEAVES; i++) {
        snprintf(part[i], NAME_BYTES, "%s%s.%s", path, c->bn, leaf[i]);
        input[i + 1] = part[i];
    }
    lt_onnx_begin_node(g, "BatchNormalization", input, LEAVES + 1, y);
    lt_onnx_float(g, "epsilon", epsilon);
    lt_onnx_end_node(g);
}

/* Puts a convolution and its batch norm; x becomes their output. */
static void put_conv_and_norm(lt_onnx *g, const plan_conv *c, const char *path, name x)
{
    name y;
    put_convolution(g, c, path, x, y);
    put_norm(g, c, path, y, x);
}

static void put_relu(lt_onnx *g, const char *path, const char *leaf, name x)
{
    name y;
    snprintf(y, sizeof y, "%s%s", path, leaf);
    lt_onnx_node(g, "Relu", x, y);
    memcpy(x, y, sizeof y);
}

static void put_block(lt_onnx *g, const plan_block *b, const char *path, name x)
{
    static const char relu[][6] = {"relu1", "relu2", "relu3"};
    name y, residual;
    memcpy(y, x, sizeof y);
    memcpy(residual, x, sizeof residual);
    for (int i = 0; i < b->count; i++) {
        put_conv_and_norm(g, &b->conv[i], path, y);
        if (i < b->count - 1)
            put_relu(g, path, relu[i], y);
    }
    if (b->pooled) {
        const char *const pooled[] = {residual};
        name means;
        snprintf(means, sizeof means, "%.63sdownsample.0", path);
        lt_onnx_begin_node(g, "AveragePool", pooled, 1, means);
        put_window(g, 2, 2, 0);
        lt_onnx_int(g, "ceil_mode", 1);
        lt_onnx_end_node(g);
        memcpy(residual, means, sizeof means);
    }
    if (b->shortcut)
        put_conv_and_norm(g, &b->conv[b->count], path, residual);
    const char *const input[] = {y, residual};
    snprintf(x, NAME_BYTES, "%.63sadd", path);
    lt_onnx_begin_node(g, "Add", input, 2, x);
    lt_onnx_end_node(g);
    put_relu(g, path, relu[b->count - 1], x);
}

static void put_stem(lt_onnx *g, const lt_resnet_config *c, name x)
{
    const int kernel = 3, stride = 2, pad = 1; /* the pooling's */
    static const char *const relu[] = {"relu", "conv1.2", "conv1.5"};
    const plan_block stem = plan_stem(c);
    for (int i = 0; i < stem.count; i++) {
        put_conv_and_norm(g, &stem.conv[i], "", x);
        put_relu(g, "", relu[(i + 1) % stem.count], x);
    }
    if (c->small_stem)
        return;
    const char *const input[] = {x};
    lt_onnx_begin_node(g, "MaxPool", input, 1, "maxpool");
    put_window(g, kernel, stride, pad);
    lt_onnx_end_node(g);
    snprintf(x, NAME_BYTES, "maxpool");
}

static void put_head(lt_onnx *g, const char *x)
{
    const char *const input[] = {"flatten", "fc.weight", "fc.bias"};
    lt_onnx_node(g, "GlobalAveragePool", x, "avgpool");
    lt_onnx_node(g, "Flatten", "avgpool", "flatten"); /* after dimension 1, the default */
    lt_onnx_begin_node(g, "Gemm", input, 3, "logits");
    lt_onnx_int(g, "transB", 1);
    lt_onnx_end_node(g);
}

void put_resnet_nodes(lt_onnx *g, const lt_resnet_config *c)
{
    name x = "images";
    char path[32];
    put_stem(g, c, x);
    for (int stage = 0; stage < LT_RESNET_STAGES; stage++)
        for (int i = 0; i < c->depths[stage]; i++) {
            plan_block b = plan_residual(c, stage, i);
            snprintf(path, sizeof path, "layer%d.%d.", stage + 1, i);
            put_block(g, &b, path, x);
        }
    put_head(g, x);
}
