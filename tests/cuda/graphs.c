/* The graphs that ResNet-50 asks of cuDNN. He et al., "Deep Residual Learning for Image Recognition",
 * CVPR 2016, table 1, with the stride in the 3x3 filters. */

#include "graphs.h"

#include <string.h>

const char h200_text[] =
    "{\"deviceName\":\"NVIDIA H200\",\"deviceVer\":900,\"driverVer\":13000,"
    "\"cudaDeviceId\":0,\"pciDeviceId\":0,\"multiProcessorCount\":132,\"warpSize\":32,"
    "\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,\"l2CacheSize\":62914560,"
    "\"totalGlobalMem\":150754820096,\"maxSharedMemoryPerBlock\":49152,"
    "\"maxSharedMemoryPerBlockOptin\":232448,\"reservedSharedMemoryPerBlock\":1024,"
    "\"regsPerBlock\":65536,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"
    "\"maxThreadsPerSM\":2048,\"maxThreadsPerBlock\":1024,"
    "\"maxBlockSize\":[1024,1024,64],\"maxGridSize\":[2147483647,65535,65535],"
    "\"supportCoopLaunch\":1,\"isTccDriver\":0,\"memoryBusWidth\":6144,"
    "\"smCountOrigin\":0,\"oversizedSharedMemoryPerBlock\":0}";

const conv_shape conv_shapes[CONV_SHAPES] = {
    {3, 64, 224, 7, 2},   {64, 64, 56, 1, 1},    {64, 64, 56, 3, 1},    {64, 256, 56, 1, 1},
    {256, 64, 56, 1, 1},  {256, 128, 56, 1, 1},  {128, 128, 56, 3, 2},  {256, 512, 56, 1, 2},
    {128, 512, 28, 1, 1}, {512, 128, 28, 1, 1},  {128, 128, 28, 3, 1},  {512, 256, 28, 1, 1},
    {256, 256, 28, 3, 2}, {512, 1024, 28, 1, 2}, {256, 1024, 14, 1, 1}, {1024, 256, 14, 1, 1},
    {256, 256, 14, 3, 1}, {1024, 512, 14, 1, 1}, {512, 512, 14, 3, 2},  {1024, 2048, 14, 1, 2},
    {512, 2048, 7, 1, 1}, {2048, 512, 7, 1, 1},  {512, 512, 7, 3, 1},
};

/* State of a builder; x, w, y are tensor ids. */
typedef struct build {
    lt_dnn_graph *g;
    lt_dtype dtype;
    int64_t xd[4], wd[4], yd[4];
    lt_conv2d_config config;
    int x, w, y;
} build;

static build begin(lt_dnn_graph *g, const conv_shape *s, int batch, lt_dtype dtype)
{
    const int pad = s->size / 2, out = (s->side + 2 * pad - s->size) / s->stride + 1;
    build b = {.g = g,
               .dtype = dtype,
               .xd = {batch, s->channels, s->side, s->side},
               .wd = {s->filters, s->channels, s->size, s->size},
               .yd = {batch, s->filters, out, out},
               .config = {s->stride, s->stride, pad, pad, 1, 1, 1}};
    return b;
}

/* Batch norm's gradient a * g + b * y + c as a virtual tensor, and the operation that reads it. */
static void grad_x_of_norm(build *b)
{
    lt_dnn_graph *g = b->g;
    const int grad = lt_dnn_tensor(g, b->dtype, b->yd, LT_DNN_MEMORY);
    const int y = lt_dnn_tensor(g, b->dtype, b->yd, LT_DNN_MEMORY);
    int v[3], t[4];
    for (int i = 0; i < 3; i++)
        v[i] = lt_dnn_vector(g, LT_F32, b->yd[1]);
    for (int i = 0; i < 4; i++)
        t[i] = lt_dnn_tensor(g, b->dtype, b->yd, LT_DNN_VIRTUAL);
    lt_dnn_pointwise(g, CUDNN_POINTWISE_MUL, grad, v[0], t[0]);
    lt_dnn_pointwise(g, CUDNN_POINTWISE_MUL, y, v[1], t[1]);
    lt_dnn_pointwise(g, CUDNN_POINTWISE_ADD, t[0], t[1], t[2]);
    lt_dnn_pointwise(g, CUDNN_POINTWISE_ADD, t[2], v[2], t[3]);
    b->w = lt_dnn_tensor(g, b->dtype, b->wd, LT_DNN_MEMORY);
    b->x = lt_dnn_tensor(g, b->dtype, b->xd, LT_DNN_MEMORY);
    lt_dnn_conv(g, LT_DNN_GRAD_X, &b->config, b->x, b->w, t[3]);
}

/* The residual sum at the end of a block, fused into the next convolution. */
static void add_in_front(build *b)
{
    static const cudnnPointwiseMode_t mode[] = {CUDNN_POINTWISE_MUL, CUDNN_POINTWISE_ADD,
                                                CUDNN_POINTWISE_ADD, CUDNN_POINTWISE_RELU_FWD};
    lt_dnn_graph *g = b->g;
    int at = lt_dnn_tensor(g, b->dtype, b->xd, LT_DNN_MEMORY);
    const int by[] = {lt_dnn_vector(g, b->dtype, b->xd[1]), lt_dnn_vector(g, b->dtype, b->xd[1]),
                      lt_dnn_tensor(g, b->dtype, b->xd, LT_DNN_MEMORY), -1};
    for (int i = 0; i < 4; i++) {
        const lt_dnn_place place = i == 3 ? LT_DNN_MEMORY : LT_DNN_VIRTUAL;
        const int next = lt_dnn_tensor(g, b->dtype, b->xd, place);
        lt_dnn_pointwise(g, mode[i], at, by[i], next);
        at = next;
    }
    b->w = lt_dnn_tensor(g, b->dtype, b->wd, LT_DNN_MEMORY);
    b->y = lt_dnn_tensor(g, b->dtype, b->yd, LT_DNN_MEMORY);
    lt_dnn_conv(g, LT_DNN_FORWARD, &b->config, at, b->w, b->y);
    const int sum = lt_dnn_vector(g, LT_F32, b->yd[1]);
    lt_dnn_statistics(g, b->y, sum, lt_dnn_vector(g, LT_F32, b->yd[1]));
}

/* Graphs that the backend runs are built by the backend. */
static lt_status build_own(lt_dnn_graph *g, const build *b, lt_conv_form form)
{
    lt_conv_problem p = {.form = form, .dtype = b->dtype, .config = b->config};
    memcpy(p.x, b->xd, sizeof p.x);
    memcpy(p.w, b->wd, sizeof p.w);
    memcpy(p.y, b->yd, sizeof p.y);
    return lt_conv_build_graph(g, &p);
}

/* The first convolution as src/tensor/backend/cuda/kernels/space_to_depth.h turns it. */
static lt_status build_blocks(lt_dnn_graph *g, build *b, lt_conv_form form)
{
    const int64_t batch = b->xd[0];
    b->config = (lt_conv2d_config){1, 1, 0, 0, 1, 1, 1};
    memcpy(b->xd, (int64_t[]){batch, 16, 115, 115}, sizeof b->xd);
    memcpy(b->wd, (int64_t[]){64, 16, 4, 4}, sizeof b->wd);
    memcpy(b->yd, (int64_t[]){batch, 64, 112, 112}, sizeof b->yd);
    return build_own(g, b, form);
}

lt_status build_graph(lt_dnn_graph *g, conv_graph kind, const conv_shape *shape, int batch,
                      lt_dtype dtype)
{
    build b = begin(g, shape, batch, dtype);
    switch (kind) {
    case PLAIN_FORWARD:
        return build_own(g, &b, LT_CONV_FORWARD);
    case PLAIN_GRAD_X:
        return build_own(g, &b, LT_CONV_GRAD_X);
    case PLAIN_GRAD_W:
        return build_own(g, &b, LT_CONV_GRAD_W);
    case WITH_STATISTICS:
        return build_own(g, &b, LT_CONV_STATS);
    case GRAD_X_NORM:
        return build_own(g, &b, LT_CONV_SUMS);
    case BLOCKS_FORWARD:
        return build_blocks(g, &b, LT_CONV_FORWARD);
    case BLOCKS_WITH_STATISTICS:
        return build_blocks(g, &b, LT_CONV_STATS);
    case BLOCKS_GRAD_W:
        return build_blocks(g, &b, LT_CONV_GRAD_W);
    case APPLY_WITH_STATISTICS:
        return build_own(g, &b, LT_CONV_NORM_STATS);
    case APPLY_GRAD_W:
        return build_own(g, &b, LT_CONV_NORM_GRAD_W);
    case ADD_WITH_STATISTICS:
        add_in_front(&b);
        break;
    case NORM_GRAD_X:
        grad_x_of_norm(&b);
        break;
    }
    return lt_dnn_finalize_graph(g);
}
