/* Runs an ONNX model of a residual network, as train_resnet50 export writes it, with the library's operations alone:
 * reads weights and graph from the file, and prints the logits of an image. The file is not trusted: every length and
 * index of it is checked.
 *
 * The wire format: protobuf.dev/programming-guides/encoding; fields by number: onnx/onnx.proto of github.com/onnx/onnx.
 *
 *     cc onnx.c $(pkg-config --cflags --libs lather) -lm -o onnx
 *     ./onnx model.onnx cat.jpg */

#include "lather/data.h"
#include "lather/ext/fail.h"
#include "lather/ext/file.h"
#include "lather/ops.h"
#include "lather/protobuf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_VALUES = 8192, MOST_INPUTS = 5, DIMS = 4, SHOWN = 64 };
enum { MEAN, STD, IMAGE_SIZE, CROP_PCT, INTERPOLATION, NOTES }; /* entries of the metadata */

static bool equals_text(lt_protobuf a, const char *text)
{
    size_t size = (size_t)(a.end - a.at);
    return strlen(text) == size && !memcmp(a.at, text, size);
}

static bool equal_bytes(lt_protobuf a, lt_protobuf b)
{
    size_t size = (size_t)(a.end - a.at);
    return size == (size_t)(b.end - b.at) && (!size || !memcmp(a.at, b.at, size));
}

/* Copies a name for printing, truncated. */
static const char *copy_printable_text(lt_protobuf a, char text[SHOWN])
{
    size_t size = (size_t)(a.end - a.at);
    memset(text, 0, SHOWN);
    for (size_t i = 0; i < size && i < SHOWN - 1; i++)
        text[i] = a.at[i] < ' ' || a.at[i] > '~' ? '?' : (char)a.at[i];
    return text;
}

/* --- A model: tensors by name --- */

typedef struct value {
    lt_protobuf name;
    lt_tensor *tensor;
    bool own; /* a weight; false: a tensor of the tape */
} value;

typedef struct model {
    lt_device *device;
    lt_tape *tape;
    lt_protobuf graph;
    char note[NOTES][SHOWN];
    value *values;
    int count;
} model;

static lt_status broken_file(const char *what)
{
    return lt_fail(LT_E_FORMAT, "onnx: broken: %s", what);
}

static lt_tensor *find_tensor(const model *m, lt_protobuf name)
{
    for (int i = 0; i < m->count; i++)
        if (equal_bytes(m->values[i].name, name))
            return m->values[i].tensor;
    return NULL;
}

static lt_status add_tensor(model *m, lt_protobuf name, lt_tensor *tensor, bool own)
{
    if (m->count == MOST_VALUES || find_tensor(m, name))
        return broken_file(m->count == MOST_VALUES ? "too many tensors"
                                                   : "two tensors of one name");
    m->values[m->count++] = (value){name, tensor, own};
    return LT_OK;
}

/* TensorProto: dims 1, data_type 2 (1: f32), float_data 4, name 8, raw_data 9. */
static lt_status read_tensor(model *m, lt_protobuf message)
{
    lt_protobuf_field f;
    bool broken = false;
    lt_shape shape = {0};
    uint64_t type = 0, count = 1;
    lt_protobuf name = {0}, data = {0};
    lt_tensor *tensor = NULL;
    while (lt_protobuf_next(&message, &f, &broken)) {
        if (f.number == 1) {
            if (shape.ndim == DIMS || !f.value || f.value > INT32_MAX / count)
                return broken_file("dimensions of a tensor");
            shape.dim[shape.ndim++] = (int64_t)f.value;
            count *= f.value;
        }
        type = f.number == 2 ? f.value : type;
        name = f.number == 8 ? f.data : name;
        data = f.number == 9 || f.number == 4 ? f.data : data;
    }
    if (broken || type != 1 || (uint64_t)(data.end - data.at) != 4 * count)
        return broken_file("a tensor is not f32, or has not the bytes of its dimensions");
    LT_TRY(lt_tensor_new(&tensor, m->device, LT_F32, shape));
    lt_status st = lt_tensor_write(tensor, data.at, (size_t)(data.end - data.at));
    st = st ? st : add_tensor(m, name, tensor, true);
    if (st)
        lt_tensor_free(&tensor);
    return st;
}

/* StringStringEntryProto: key 1, value 2. */
static void read_metadata_entry(model *m, lt_protobuf message)
{
    static const char *const keys[NOTES] = {"mean", "std", "image_size", "crop_pct",
                                            "interpolation"};
    lt_protobuf_field f;
    bool broken = false;
    lt_protobuf key = {0}, text = {0};
    while (lt_protobuf_next(&message, &f, &broken)) {
        key = f.number == 1 ? f.data : key;
        text = f.number == 2 ? f.data : text;
    }
    for (int i = 0; i < NOTES; i++)
        if (equals_text(key, keys[i]))
            copy_printable_text(text, m->note[i]);
}

/* ModelProto: graph 7, metadata_props 14; GraphProto: initializer 5. */
static lt_status read_model(model *m, lt_protobuf file)
{
    lt_protobuf_field f;
    bool broken = false;
    while (lt_protobuf_next(&file, &f, &broken)) {
        if (f.number == 14)
            read_metadata_entry(m, f.data);
        m->graph = f.number == 7 ? f.data : m->graph;
    }
    lt_protobuf graph = m->graph;
    while (lt_protobuf_next(&graph, &f, &broken))
        if (f.number == 5)
            LT_TRY(read_tensor(m, f.data));
    return broken || !m->count ? broken_file("no ONNX model, or one without weights") : LT_OK;
}

/* --- Nodes --- */

typedef struct node {
    lt_protobuf op, output;
    lt_tensor *x[MOST_INPUTS];
    int inputs;
    int64_t kernel[2], strides[2], dilations[2], pads[4]; /* pads: top, left, bottom, right */
    int64_t group, axis, transposed, ceiling;
    double epsilon, alpha, beta, momentum;
} node;

typedef struct attribute {
    lt_protobuf name;
    float number;
    int64_t item[4]; /* a single number is a list of one */
    int items;
} attribute;

/* AttributeProto: name 1, f 2, i 3, ints 8, each separate or packed. */
static bool read_attribute(attribute *a, lt_protobuf message)
{
    lt_protobuf_field f;
    bool broken = false;
    lt_protobuf packed = {0};
    *a = (attribute){0};
    while (lt_protobuf_next(&message, &f, &broken)) {
        uint32_t word = (uint32_t)f.value;
        if (f.number == 1)
            a->name = f.data;
        else if (f.number == 2)
            memcpy(&a->number, &word, sizeof word);
        else if (f.number == 8 && f.data.at)
            packed = f.data;
        else if ((f.number == 3 || f.number == 8) && a->items < 4)
            a->item[a->items++] = (int64_t)f.value;
    }
    while (packed.at < packed.end && a->items < 4 && !broken)
        broken = !lt_protobuf_varint(&packed, (uint64_t *)&a->item[a->items++]);
    for (int i = 0; i < a->items; i++)
        broken = broken || a->item[i] < 0 || a->item[i] > 1024;
    return !broken;
}

static lt_status use_attribute(node *n, const attribute *a)
{
    const struct {
        const char *name;
        int64_t *list;
        double *number;
        int items;
    } known[] = {{"kernel_shape", n->kernel, NULL, 2}, {"strides", n->strides, NULL, 2},
                 {"dilations", n->dilations, NULL, 2}, {"pads", n->pads, NULL, 4},
                 {"group", &n->group, NULL, 1},        {"axis", &n->axis, NULL, 1},
                 {"transB", &n->transposed, NULL, 1},  {"ceil_mode", &n->ceiling, NULL, 1},
                 {"epsilon", NULL, &n->epsilon, 0},    {"alpha", NULL, &n->alpha, 0},
                 {"beta", NULL, &n->beta, 0},          {"momentum", NULL, &n->momentum, 0}};
    char text[SHOWN];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!equals_text(a->name, known[i].name) || a->items != known[i].items)
            continue;
        if (known[i].list)
            memcpy(known[i].list, a->item, (size_t)a->items * sizeof *a->item);
        else
            *known[i].number = (double)a->number;
        return LT_OK;
    }
    return lt_fail(LT_E_UNSUPPORTED, "onnx: attribute %s", copy_printable_text(a->name, text));
}

/* NodeProto: input 1, output 2, op_type 4, attribute 5. */
static lt_status read_node(const model *m, lt_protobuf message, node *n)
{
    lt_protobuf_field f;
    bool broken = false;
    attribute a;
    *n = (node){.group = 1, .axis = 1, .epsilon = 1e-5, .alpha = 1, .beta = 1};
    n->strides[0] = n->strides[1] = n->dilations[0] = n->dilations[1] = 1;
    while (lt_protobuf_next(&message, &f, &broken)) {
        if (f.number == 1) {
            lt_tensor *x = n->inputs < MOST_INPUTS ? find_tensor(m, f.data) : NULL;
            if (!x)
                return broken_file("a node reads an unknown tensor");
            n->x[n->inputs++] = x;
        } else if (f.number == 5) {
            if (!read_attribute(&a, f.data))
                return broken_file("an attribute");
            LT_TRY(use_attribute(n, &a));
        }
        n->output = f.number == 2 ? f.data : n->output;
        n->op = f.number == 4 ? f.data : n->op;
    }
    return broken || !n->inputs ? broken_file("a node") : LT_OK;
}

/* Returns true if the node's attributes are supported: symmetric padding, axis 1, floor, alpha and beta 1. */
static bool is_supported_form(const node *n)
{
    return n->pads[0] == n->pads[2] && n->pads[1] == n->pads[3] && n->axis == 1 && !n->ceiling
           && n->alpha >= 1 && n->alpha <= 1 && n->beta >= 1 && n->beta <= 1;
}

static lt_tensor *run_convolution_or_pooling(lt_tape *t, const node *n)
{
    lt_tensor *const *x = n->x;
    const int down = (int)n->strides[0], right = (int)n->strides[1], top = (int)n->pads[0],
              left = (int)n->pads[1];
    if (equals_text(n->op, "MaxPool"))
        return lt_maxpool2d(
            t, x[0],
            (lt_pool2d_config){(int)n->kernel[0], (int)n->kernel[1], down, right, top, left});
    return lt_conv2d(t, x[0], x[1], x[2],
                     (lt_conv2d_config){down, right, top, left, (int)n->dilations[0],
                                        (int)n->dilations[1], (int)n->group});
}

static lt_tensor *run_node(lt_tape *t, const node *n)
{
    lt_tensor *const *x = n->x;
    if (equals_text(n->op, "Conv") ? n->inputs >= 2 : equals_text(n->op, "MaxPool"))
        return run_convolution_or_pooling(t, n);
    if (equals_text(n->op, "BatchNormalization") && n->inputs == 5)
        return lt_batchnorm2d(t, x[0], (lt_batchnorm2d_args){x[1], x[2], x[3], x[4], NULL, NULL},
                              (lt_batchnorm2d_config){.eps = n->epsilon});
    if (equals_text(n->op, "Add") && n->inputs == 2)
        return lt_add(t, x[0], x[1]);
    if (equals_text(n->op, "Gemm") && n->inputs >= 2 && n->transposed)
        return lt_linear(t, x[0], x[1], x[2]);
    if (equals_text(n->op, "Relu"))
        return lt_relu(t, x[0]);
    if (equals_text(n->op, "GlobalAveragePool"))
        return lt_avgpool2d(t, x[0], (lt_pool2d_config){0});
    if (equals_text(n->op, "Flatten"))
        return lt_flatten(t, x[0]);
    char text[SHOWN];
    return lt_tape_fail(
        t, lt_fail(LT_E_UNSUPPORTED, "onnx: operation %s", copy_printable_text(n->op, text)));
}

/* GraphProto: node 1, in topological order; the last one's output is the model's. */
static lt_status run_graph(model *m, lt_tensor *images, lt_tensor **logits)
{
    static const char input[] = "images";
    lt_protobuf graph = m->graph;
    lt_protobuf_field f;
    node n;
    bool broken = false;
    LT_TRY(add_tensor(
        m, (lt_protobuf){(const uint8_t *)input, (const uint8_t *)input + sizeof input - 1}, images,
        false));
    while (lt_protobuf_next(&graph, &f, &broken)) {
        if (f.number != 1)
            continue;
        LT_TRY(read_node(m, f.data, &n));
        if (!is_supported_form(&n))
            return lt_fail(LT_E_UNSUPPORTED, "onnx: the form of a node");
        *logits = run_node(m->tape, &n);
        LT_TRY(lt_tape_status(m->tape));
        LT_TRY(add_tensor(m, n.output, *logits, false));
    }
    return *logits ? LT_OK : broken_file("no node");
}

/* --- An image --- */

/* Parses "0.485,0.456,0.406", in units of white. */
static bool parse_channel_statistics(const char *text, int channels, float least, float *out)
{
    char *end;
    for (int c = 0; c < channels; c++, text = end + 1) {
        out[c] = 255 * strtof(text, &end);
        if (end == text || *end != (c < channels - 1 ? ',' : 0)
            || !(out[c] >= least && out[c] <= 255))
            return false;
    }
    return true;
}

static lt_status print_logits(const lt_tensor *y)
{
    size_t size = lt_tensor_bytes(y);
    float *logit = lt_tensor_dtype(y) == LT_F32 ? malloc(size) : NULL;
    lt_status st = logit ? lt_tensor_read(y, logit, size) : LT_E_NOMEM;
    for (int64_t i = 0; !st && i < lt_tensor_count(y); i++)
        printf("%lld %.9g\n", (long long)i, (double)logit[i]);
    free(logit);
    return st;
}

static lt_status run_on_image_and_print_logits(model *m, const char *image, lt_dataset **files,
                                               lt_loader **loader)
{
    lt_tensor *weight = m->values[0].tensor, *logits = NULL;
    int channels = (int)lt_tensor_shape(weight).dim[1];
    lt_normalize_config pixels;
    lt_batch batch;
    lt_loader_config c = {
        .transform = {.size = atoi(m->note[IMAGE_SIZE]), .crop_ratio = atof(m->note[CROP_PCT])},
        .batch = 1,
        .threads = 1};
    c.transform.filter =
        strcmp(m->note[INTERPOLATION], "bicubic") ? LT_FILTER_BILINEAR : LT_FILTER_BICUBIC;
    if (lt_tensor_shape(weight).ndim != DIMS || (channels != 1 && channels != 3))
        return broken_file("the first weight is no convolution of 1 or 3 channels");
    if (!parse_channel_statistics(m->note[MEAN], channels, 0, pixels.mean)
        || !parse_channel_statistics(m->note[STD], channels, 0.01F, pixels.deviation))
        return broken_file("mean and std in the metadata");
    LT_TRY(lt_dataset_files(files, &image, 1, channels));
    LT_TRY(lt_loader_new(loader, *files, m->device, &c));
    LT_TRY(lt_loader_next(*loader, &batch));
    LT_TRY(lt_tape_new(&m->tape, m->device));
    lt_tape_reset(m->tape, LT_PASS_EVAL);
    LT_TRY(run_graph(m, lt_normalize(m->tape, batch.inputs, &pixels), &logits));
    return print_logits(logits);
}

/* Reads the whole file; models of more than 2 GiB are invalid. */
static lt_status read_file(const char *path, uint8_t **data, long *size)
{
    FILE *file;
    LT_TRY(lt_file_open(&file, path));
    *size = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
    *data = *size > 0 && *size <= INT32_MAX ? malloc((size_t)*size) : NULL;
    rewind(file);
    bool whole = *data && fread(*data, 1, (size_t)*size, file) == (size_t)*size;
    fclose(file);
    return whole ? LT_OK : lt_fail(LT_E_FORMAT, "%s: %ld bytes cannot be read", path, *size);
}

int main(int argc, char **argv)
{
    model m = {.values = calloc(MOST_VALUES, sizeof *m.values)};
    uint8_t *data = NULL;
    long size = 0;
    lt_dataset *files = NULL;
    lt_loader *loader = NULL;
    if (argc != 3) {
        fprintf(stderr, "usage: onnx MODEL.onnx IMAGE\n");
        return 2;
    }
    lt_status st = m.values ? read_file(argv[1], &data, &size) : LT_E_NOMEM;
    st = st ? st : lt_device_open(&m.device, "cpu", NULL);
    st = st ? st : read_model(&m, (lt_protobuf){data, data + size});
    st = st ? st : run_on_image_and_print_logits(&m, argv[2], &files, &loader);
    if (st)
        fprintf(stderr, "onnx: %s: %s\n", lt_status_help(st), lt_error_message());
    lt_loader_free(&loader);
    lt_dataset_free(&files);
    lt_tape_free(&m.tape);
    for (int i = 0; i < m.count; i++)
        if (m.values[i].own)
            lt_tensor_free(&m.values[i].tensor);
    lt_device_close(&m.device);
    free(m.values);
    free(data);
    return st ? 1 : 0;
}
