/* Classifies a picture with a ResNet whose weights lie in a safetensors file under torchvision's
 * names. The file is the architecture: blocks, kernels and channels are read from its tensors.
 * Batch norms are folded into the convolutions before them (Jacob et al., "Quantization and
 * Training of Neural Networks", CVPR 2018, section 3.2).
 *
 *     cc classify.c $(pkg-config --cflags --libs lather) -lm -o classify
 *     ./classify model.safetensors cat.jpg */

#include "lather/ext/dataset.h"
#include "lather/ops.h"
#include "lather/safetensors.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TENSORS = 1024, NAME = 128, SIZE = 224, TOP = 5 };

typedef struct network {
    lt_device *device;
    lt_tape *tape;
    lt_safetensors *file;
    lt_tensor *own[MAX_TENSORS]; /* what the pass reads must outlive it */
    int owned;
} network;

/* A tensor of the file by the parts of its name, or NULL. */
static const lt_safetensors_entry *find(const network *net, const char *block, const char *layer,
                                        const char *leaf)
{
    char name[NAME];
    snprintf(name, sizeof name, "%s%s.%s", block, layer, leaf);
    const lt_safetensors_entry *e = lt_safetensors_find(net->file, name);
    return e && e->dtype == LT_F32 ? e : NULL;
}

/* Numbers on the device. NULL if that fails; then the tape has failed too. */
static lt_tensor *constant(network *net, lt_shape shape, const float *data)
{
    lt_tensor *t = NULL;
    if (!data || net->owned == MAX_TENSORS)
        return lt_tape_fail(net->tape, lt_fail(LT_E_FORMAT, "classify: tensors are missing"));
    lt_status st = lt_tensor_new(&t, net->device, LT_F32, shape);
    if (st)
        return lt_tape_fail(net->tape, st);
    net->own[net->owned++] = t;
    st = lt_tensor_write(t, data, lt_tensor_bytes(t));
    return st ? lt_tape_fail(net->tape, st) : t;
}

/* w' = w * gamma / sqrt(var + eps), b' = beta - mean * gamma / sqrt(var + eps). */
static void fold(float *weight, float *bias, const float *const bn[4], int64_t out, int64_t each)
{
    for (int64_t k = 0; k < out; k++) {
        float factor = bn[0][k] / sqrtf(bn[3][k] + 1e-5F);
        for (int64_t i = 0; i < each; i++)
            weight[k * each + i] *= factor;
        bias[k] = bn[1][k] - bn[2][k] * factor;
    }
}

/* A convolution and the batch norm behind it, as one convolution. */
static lt_tensor *conv_bn(network *net, lt_tensor *x, const char *block, const char *conv,
                          const char *norm, int stride)
{
    static const char *const leaf[] = {"weight", "bias", "running_mean", "running_var"};
    const lt_safetensors_entry *w = find(net, block, conv, "weight");
    const float *bn[4] = {NULL};
    for (int i = 0; i < 4; i++) {
        const lt_safetensors_entry *e = find(net, block, norm, leaf[i]);
        if (!w || w->shape.ndim != 4 || !e || lt_shape_count(e->shape) != w->shape.dim[0])
            return lt_tape_fail(net->tape, lt_fail(LT_E_FORMAT, "classify: %s%s or %s is missing",
                                                   block, conv, norm));
        bn[i] = e->data;
    }
    int64_t out = w->shape.dim[0];
    float *weight = malloc(w->bytes), *bias = malloc((size_t)out * sizeof *bias);
    lt_tensor *y = NULL;
    if (weight && bias) {
        memcpy(weight, w->data, w->bytes);
        fold(weight, bias, (const float *const *)bn, out, lt_shape_count(w->shape) / out);
        int pad = (int)w->shape.dim[2] / 2;
        y = lt_conv2d(
            net->tape, x, constant(net, w->shape, weight), constant(net, LT_SHAPE(out), bias),
            (lt_conv2d_config){.stride_h = stride, .stride_w = stride, .pad_h = pad, .pad_w = pad});
    }
    free(weight);
    free(bias);
    return y;
}

/* One residual block; a third convolution makes it a bottleneck, with the stride on the second. */
static lt_tensor *block(network *net, lt_tensor *x, const char *at, int stride)
{
    bool bottleneck = find(net, at, "conv3", "weight");
    lt_tensor *skip = x;
    if (find(net, at, "downsample.0", "weight"))
        skip = conv_bn(net, x, at, "downsample.0", "downsample.1", stride);
    lt_tensor *y = lt_relu(net->tape, conv_bn(net, x, at, "conv1", "bn1", bottleneck ? 1 : stride));
    y = conv_bn(net, y, at, "conv2", "bn2", bottleneck ? stride : 1);
    if (bottleneck)
        y = conv_bn(net, lt_relu(net->tape, y), at, "conv3", "bn3", 1);
    return lt_relu(net->tape, lt_add(net->tape, y, skip));
}

static lt_tensor *resnet(network *net, lt_tensor *pixels)
{
    const lt_safetensors_entry *stem = find(net, "", "conv1", "weight"),
                               *w = find(net, "", "fc", "weight"), *b = find(net, "", "fc", "bias");
    if (!stem || !w || !b)
        return lt_tape_fail(net->tape, lt_fail(LT_E_FORMAT, "classify: not a ResNet's weights"));
    bool large = stem->shape.dim[2] == 7; /* the small stem has a 3x3 and no pooling */

    lt_tensor *x = lt_normalize(net->tape, pixels, &LT_NORMALIZE_IMAGENET);
    x = lt_relu(net->tape, conv_bn(net, x, "", "conv1", "bn1", large ? 2 : 1));
    if (large)
        x = lt_maxpool2d(net->tape, x, (lt_pool2d_config){3, 3, 2, 2, 1, 1});
    for (int stage = 1; stage <= 4; stage++)
        for (int i = 0;; i++) {
            char at[32];
            snprintf(at, sizeof at, "layer%d.%d.", stage, i);
            if (!find(net, at, "conv1", "weight"))
                break;
            x = block(net, x, at, stage > 1 && i == 0 ? 2 : 1);
        }
    x = lt_flatten(net->tape, lt_avgpool2d(net->tape, x, (lt_pool2d_config){0}));
    return lt_linear(net->tape, x, constant(net, w->shape, w->data),
                     constant(net, b->shape, b->data));
}

/* A data set of one picture, so that the loader decodes, resizes and crops it. */
typedef struct picture {
    lt_dataset base;
    const char *path;
} picture;

static lt_status read_picture(const lt_dataset *self, int64_t index, lt_record *record)
{
    const char *path = ((const picture *)self)->path;
    FILE *file = fopen(path, "rb");
    if (!file)
        return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    fseek(file, index, SEEK_END); /* index is 0: there is one picture */
    long bytes = ftell(file);
    rewind(file);
    lt_status st = bytes > 0 ? lt_record_reserve(record, (size_t)bytes)
                             : lt_fail(LT_E_FORMAT, "%s: empty, or not a file", path);
    if (!st && fread(record->bytes, 1, (size_t)bytes, file) != (size_t)bytes)
        st = lt_fail(LT_E_IO, "%s: cannot be read", path);
    fclose(file);
    record->size = st ? 0 : (size_t)bytes;
    record->encoding = LT_ENCODING_FILE;
    record->label = 0;
    return st;
}

static const lt_dataset_ops picture_ops = {
    .name = "picture", .bytes = sizeof(picture), .read = read_picture};

static lt_status load(network *net, const char *path, lt_dataset **dataset, lt_loader **loader)
{
    const lt_loader_config config = {.transform = {.size = SIZE}, .batch = 1, .threads = 1};
    LT_TRY(lt_dataset_new(dataset, &picture_ops));
    ((picture *)*dataset)->path = path;
    (*dataset)->count = (*dataset)->classes = 1;
    return lt_loader_new(loader, *dataset, net->device, &config);
}

/* Prints the classes with the largest probabilities. */
static lt_status print_top(const lt_tensor *logits)
{
    int64_t classes = lt_tensor_count(logits);
    float *z = malloc(lt_tensor_bytes(logits));
    if (!z)
        return lt_fail(LT_E_NOMEM, "classify: out of memory");
    lt_status st = lt_tensor_read(logits, z, lt_tensor_bytes(logits));
    float largest = -INFINITY, sum = 0;
    for (int64_t k = 0; !st && k < classes; k++)
        largest = fmaxf(largest, z[k]);
    for (int64_t k = 0; !st && k < classes; k++)
        sum += expf(z[k] - largest);
    for (int i = 0; !st && i < TOP && i < classes; i++) {
        int64_t best = 0;
        for (int64_t k = 1; k < classes; k++)
            best = z[k] > z[best] ? k : best;
        printf("%4d  %5.2f %%\n", (int)best, 100 * (double)(expf(z[best] - largest) / sum));
        z[best] = -INFINITY;
    }
    free(z);
    return st;
}

static lt_status classify(network *net, lt_loader *loader)
{
    lt_batch batch;
    LT_TRY(lt_loader_next(loader, &batch));
    lt_tape_reset(net->tape, LT_PASS_EVAL);
    lt_tensor *logits = resnet(net, batch.images);
    LT_TRY(lt_tape_status(net->tape)); /* the first failure of the whole pass */
    return print_top(logits);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: classify WEIGHTS.safetensors PICTURE\n");
        return 2;
    }
    static network net;
    lt_dataset *dataset = NULL;
    lt_loader *loader = NULL;
    lt_status st = lt_device_open(&net.device, "cpu", NULL);
    st = st ? st : lt_tape_new(&net.tape, net.device);
    st = st ? st : lt_safetensors_open(&net.file, argv[1]);
    st = st ? st : load(&net, argv[2], &dataset, &loader);
    st = st ? st : classify(&net, loader);
    if (st)
        fprintf(stderr, "classify: %s: %s\n", lt_status_name(st), lt_error_message());

    lt_loader_free(&loader);
    lt_dataset_free(&dataset);
    lt_tape_free(&net.tape);
    for (int i = 0; i < net.owned; i++)
        lt_tensor_free(&net.own[i]);
    lt_safetensors_close(&net.file);
    lt_device_close(&net.device);
    return st ? 1 : 0;
}
