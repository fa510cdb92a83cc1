/* Deep learning in one file, to be read from top to bottom: tensors, reverse mode, a residual network for images, a GPT
 * for text, and SGD, AdamW and Shampoo to train them. It needs a C compiler, and gzip to read Fashion-MNIST. Its losses
 * equal those of Lather's programs with --device ref (tests/models/one_file.py), so that each line explains one there.
 *
 *     cc -O3 one_file.c -lm -o one_file && ./one_file resnet
 *
 *     ./one_file resnet --optim shampoo     images: Fashion-MNIST if it is installed, otherwise stripes
 *     ./one_file gpt --data my.txt          text: sums of two numbers unless a file is given
 *     ./one_file --help                     all options; a run takes some seconds to a minute on one core
 *
 * Change first: --width and --lr; then the function residual_block() or transformer_layer(); then add an optimizer next
 * to sgd(). Sections: 1 memory and random numbers, 2 tensors and the tape, 3 parameters, 4 operations, 5 networks,
 * 6 optimizers, 7 data, 8 training, 9 options. All numbers are float; sums that would lose digits are double. */

#define _POSIX_C_SOURCE 200809L /* popen(), access() */

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* --- 1. Errors, memory, random numbers ------------------------------------------------------------------------- */

_Noreturn static void fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "one_file: ");
    vfprintf(stderr, format, list);
    fprintf(stderr, "\n");
    va_end(list);
    exit(1);
}

/* Set by the command line; defaults are in section 8. */
static struct options {
    const char *model, *data, *weights, *optim;
    double lr, weight_decay;
    int width, layers, heads, length, epochs, steps, batch, images, shuffle, log, seed;
    int block, frequency;
} o;

static bool is_text(void)
{
    return !strcmp(o.model, "gpt");
}

typedef struct name {
    char text[64];
} name;

static name join(const char *path, const char *leaf)
{
    name n;
    snprintf(n.text, sizeof n.text, "%.40s%.20s", path, leaf);
    return n;
}

/* Returns zeroed memory that is kept to the end of the program. */
static void *keep(long count, size_t size)
{
    void *memory = calloc((size_t)(count > 0 ? count : 1), size);
    if (!memory)
        fail("no memory for %ld x %zu bytes", count, size);
    return memory;
}

/* Memory of one training step, all of which tape_reset() frees at once. */
enum { MOST_ARRAYS = 1 << 16 };
static void *array[MOST_ARRAYS];
static int arrays;

static void *zeros(long count, size_t size)
{
    if (arrays == MOST_ARRAYS)
        fail("more than %d arrays in one step", MOST_ARRAYS);
    return array[arrays++] = keep(count, size);
}

static float *floats(long count)
{
    return zeros(count, sizeof(float));
}

static double *doubles(long count)
{
    return zeros(count, sizeof(double));
}

/* xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled", 2016. */
static uint64_t random_state = 88172645463325252U;

static double uniform(void)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (double)((random_state * 2685821657736338717U) >> 11) * 0x1p-53;
}

/* Box & Muller, "A note on the generation of random normal deviates", 1958. */
static double normal(void)
{
    return sqrt(-2 * log(1 - uniform())) * cos(6.283185307179586 * uniform());
}

/* --- 2. Tensors and the tape -----------------------------------------------------------------------------------
 *
 * A tensor is an array of floats with a shape, and it knows how it was computed: by which function of which inputs.
 * Operations append their results to the tape as they run. That order is the one in which a loss depends on its
 * inputs, so reverse mode walks the tape from its end: each tensor y, whose gradient dL/dy is complete by then, adds
 * to the gradients of its inputs by the chain rule,
 *
 *     dL/dx += dL/dy * dy/dx
 *
 * which costs about twice the forward pass, however many parameters there are. Griewank & Walther, "Evaluating
 * derivatives", 2008, chapter 3. */

typedef struct tensor {
    name name; /* a parameter's, as in weight files; otherwise empty */
    int dims, dim[4];
    long count;
    float *data, *grad;   /* row-major; grad is NULL until backward() reaches the tensor */
    struct tensor *in[3]; /* inputs of the operation */
    void (*backward)(struct tensor *y); /* adds to the gradients of the inputs */
    int stride, heads, length;          /* settings of the operation */
    bool in_out;                        /* linear: the weight is [in,out] */
    const int *id;                      /* embedding: ids; loss: labels */
    float *saved;                       /* numbers that backward needs again */
    float *state[2];                    /* parameters: memory of optimizers */
    struct block *block;                /* parameters: memory of Shampoo */
    int blocks;
    double decay; /* parameters: weight decay */
} tensor;

enum { MOST_NODES = 4096, MOST_PARAMETERS = 512 };
static tensor *tape[MOST_NODES], *parameters[MOST_PARAMETERS];
static int nodes, parameter_count;
static bool training = true; /* batch norm has two modes */

static void set_shape(tensor *t, int dims, const int *dim)
{
    t->dims = dims;
    t->count = 1;
    for (int i = 0; i < dims; i++) {
        t->dim[i] = dim[i];
        t->count *= dim[i];
    }
}

/* Appends the result of an operation, filled with zeros. */
static tensor *output(int dims, const int *dim, void (*backward)(tensor *y), tensor *a, tensor *b)
{
    tensor *y = zeros(1, sizeof *y);
    if (nodes == MOST_NODES)
        fail("more than %d operations in one step", MOST_NODES);
    set_shape(y, dims, dim);
    y->data = floats(y->count);
    y->in[0] = a;
    y->in[1] = b;
    y->backward = backward;
    return tape[nodes++] = y;
}

/* Adds a contribution to a tensor's gradient. Contributions are computed apart and then added, so that a tensor that
 * several operations read, such as the input of a residual block, has the sum of their gradients. */
static void add_gradient(tensor *x, float *contribution)
{
    for (long i = 0; x->grad && i < x->count; i++)
        contribution[i] += x->grad[i];
    x->grad = contribution;
}

/* The same for sums in double. */
static void add_sums(tensor *x, const double *sum)
{
    float *rounded = floats(x->count);
    for (long i = 0; i < x->count; i++)
        rounded[i] = (float)sum[i];
    add_gradient(x, rounded);
}

static void backward(tensor *loss)
{
    loss->grad = floats(1);
    loss->grad[0] = 1;
    for (int i = nodes - 1; i >= 0; i--)
        if (tape[i]->grad && tape[i]->backward)
            tape[i]->backward(tape[i]);
}

/* Frees a step's tensors and gradients; parameters remain. */
static void tape_reset(void)
{
    while (arrays > 0)
        free(array[--arrays]);
    nodes = 0;
    for (int i = 0; i < parameter_count; i++)
        parameters[i]->grad = NULL;
}

/* --- 3. Parameters ---------------------------------------------------------------------------------------------
 *
 * A parameter is made where a network first asks for it by name, and found by that name afterwards, so that a network
 * is one function, its forward pass. Its first values are constant + deviation * normal numbers, or those of a file
 * of weights. Names are those of torchvision and of GPT-2, which Lather uses as well. */

/* Reads a whole file, in memory that the caller frees. */
static uint8_t *read_file(const char *path, long *bytes)
{
    FILE *in = fopen(path, "rb");
    if (!in || fseek(in, 0, SEEK_END) || (*bytes = ftell(in)) < 0)
        fail("%s: not found, or not a file", path);
    rewind(in);
    uint8_t *data = keep(*bytes + 1, 1);
    if (fread(data, 1, (size_t)*bytes, in) != (size_t)*bytes)
        fail("%s: cannot be read", path);
    fclose(in);
    return data;
}

/* Reads a tensor from a safetensors file: 8 bytes of header length, a JSON header of the form
 * {"NAME":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},...}, then the numbers. */
static void load_parameter(tensor *p, const char *path)
{
    long bytes, begin = 0, end = -1;
    uint64_t length = 0;
    char row[96];
    uint8_t *file = read_file(path, &bytes);
    for (int i = 7; i >= 0 && bytes > 8; i--)
        length = length << 8 | file[i];
    if (!length || length > (uint64_t)bytes - 8)
        fail("%s: a header of %llu bytes in a file of %ld", path, (unsigned long long)length,
             bytes);
    const char *header = (const char *)file + 8, *data = header + length;
    snprintf(row, sizeof row, "\"%s\":{\"dtype\":\"F32\"", p->name.text);
    const char *found = strstr(header, row),
               *offsets = found ? strstr(found, "\"data_offsets\":[") : NULL;
    if (!offsets || offsets >= data
        || sscanf(offsets, "\"data_offsets\":[%ld,%ld", &begin, &end) != 2)
        fail("%s: no tensor '%s' of F32", path, p->name.text);
    if (begin < 0 || end > bytes - 8 - (long)length
        || end - begin != p->count * (long)sizeof *p->data)
        fail("%s: tensor '%s' has %ld bytes, the network's has %ld", path, p->name.text,
             end - begin, p->count * (long)sizeof *p->data);
    memcpy(p->data, data + begin, (size_t)(end - begin));
    free(file);
}

/* Returns the parameter whose name is path and leaf. */
static tensor *parameter(const char *path, const char *leaf, double constant, double deviation,
                         int dims, const int *dim)
{
    const name name = join(path, leaf);
    for (int i = 0; i < parameter_count; i++)
        if (!strcmp(parameters[i]->name.text, name.text))
            return parameters[i];
    tensor *p = keep(1, sizeof *p);
    if (parameter_count == MOST_PARAMETERS)
        fail("more than %d parameters", MOST_PARAMETERS);
    p->name = name;
    p->decay = dims > 1 ? o.weight_decay : 0;
    set_shape(p, dims, dim);
    p->data = keep(p->count, sizeof *p->data);
    p->state[0] = keep(p->count, sizeof *p->data);
    p->state[1] = keep(p->count, sizeof *p->data);
    for (long i = 0; i < p->count; i++)
        p->data[i] = (float)(deviation > 0 ? constant + deviation * normal() : constant);
    if (o.weights)
        load_parameter(p, o.weights);
    return parameters[parameter_count++] = p;
}

/* --- 4. Operations ---------------------------------------------------------------------------------------------
 *
 * Each is a forward function, which returns y, and a backward function, which reads y->grad (called dy). */

/* Sum of two tensors of one shape: both inputs have the gradient dy. */
static void add_backward(tensor *y)
{
    const size_t bytes = (size_t)y->count * sizeof *y->grad;
    add_gradient(y->in[0], memcpy(floats(y->count), y->grad, bytes));
    add_gradient(y->in[1], memcpy(floats(y->count), y->grad, bytes));
}

static tensor *add(tensor *a, tensor *b)
{
    tensor *y = output(a->dims, a->dim, add_backward, a, b);
    for (long i = 0; i < y->count; i++)
        y->data[i] = a->data[i] + b->data[i];
    return y;
}

/* Rectified linear unit, y = max(x, 0). */
static void relu_backward(tensor *y)
{
    float *dx = floats(y->count);
    for (long i = 0; i < y->count; i++)
        dx[i] = y->data[i] > 0 ? y->grad[i] : 0;
    add_gradient(y->in[0], dx);
}

static tensor *relu(tensor *x)
{
    tensor *y = output(x->dims, x->dim, relu_backward, x, NULL);
    for (long i = 0; i < y->count; i++)
        y->data[i] = x->data[i] < 0 ? 0 : x->data[i];
    return y;
}

/* Gaussian error linear unit, y = x P(X <= x) for normal X, which is nearly x sigmoid(2u) with
 * 2u = sqrt(8/pi) x (1 + 0.044715 x^2). Its slope is s + x s (1 - s) (2u)', s = sigmoid(2u). Hendrycks & Gimpel,
 * "Gaussian error linear units", 2016. */
static float gelu_argument(float x)
{
    return 1.59576912160573071176f * x * (1 + 0.044715f * (x * x));
}

static void gelu_backward(tensor *y)
{
    float *dx = floats(y->count);
    for (long i = 0; i < y->count; i++) {
        const float x = y->in[0]->data[i], e = (float)exp(-fabsf(gelu_argument(x)));
        const float larger = 1 / (1 + e), smaller = e * larger; /* sigmoid(|2u|), sigmoid(-|2u|) */
        const float slope = 1.59576912160573071176f * (1 + 0.134145f * (x * x));
        dx[i] = y->grad[i] * ((x < 0 ? smaller : larger) + x * (smaller * larger) * slope);
    }
    add_gradient(y->in[0], dx);
}

static tensor *gelu(tensor *x)
{
    tensor *y = output(x->dims, x->dim, gelu_backward, x, NULL);
    for (long i = 0; i < y->count; i++)
        y->data[i] = x->data[i] / (1 + (float)exp(-gelu_argument(x->data[i])));
    return y;
}

/* Matrix product y[m,n] += sum over k of a(m,k) b[k,n]; a(m,k) is a[m*row + k*column], so that a may be a transpose.
 * The order of the loops reads b and y along their rows. */
static void multiply(const int size[3], const float *a, int row, int column, const float *b,
                     float *y)
{
    for (int m = 0; m < size[0]; m++)
        for (int k = 0; k < size[2]; k++) {
            const float factor = a[m * row + k * column], *from = b + k * size[1];
            float *to = y + m * size[1];
            for (int n = 0; n < size[1]; n++)
                to[n] += factor * from[n];
        }
}

static float *transpose(const float *x, int rows, int columns)
{
    float *y = floats((long)rows * columns);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            y[j * rows + i] = x[i * columns + j];
    return y;
}

/* Linear layer, y[n,k] = b[k] + sum over c of x[n,c] w[c,k], with w stored as [in,out] (GPT-2's) or as [out,in].
 *
 *     dx = dy w^T    dw = x^T dy    db = sum over n of dy */
static void linear_backward(tensor *y)
{
    tensor *x = y->in[0], *w = y->in[1], *b = y->in[2];
    const int n = y->dim[0], k = y->dim[1], c = x->dim[1];
    float *dx = floats(x->count), *dw = floats(w->count);
    double *db = doubles(k);
    multiply((int[]){n, c, k}, y->grad, k, 1, y->in_out ? transpose(w->data, c, k) : w->data, dx);
    multiply((int[]){c, k, n}, x->data, 1, c, y->grad, dw);
    for (long i = 0; i < y->count; i++)
        db[i % k] += y->grad[i];
    add_gradient(x, dx);
    add_gradient(w, y->in_out ? dw : transpose(dw, c, k));
    if (b)
        add_sums(b, db);
}

static tensor *linear(tensor *x, tensor *w, tensor *b, bool in_out)
{
    const int n = x->dim[0], c = x->dim[1], k = w->dim[in_out];
    tensor *y = output(2, (int[]){n, k}, linear_backward, x, w);
    y->in[2] = b;
    y->in_out = in_out;
    for (long i = 0; b && i < y->count; i++)
        y->data[i] = b->data[i % k];
    multiply((int[]){n, k, c}, x->data, c, 1, in_out ? w->data : transpose(w->data, k, c), y->data);
    return y;
}

/* Convolution, y[n,k,p,q] = sum over c,r,s of x[n, c, p*stride + r - pad, q*stride + s - pad] w[k,c,r,s], with zeros
 * outside of the image and pad = half a filter, so that stride 1 keeps the size. Each product of an x and a w belongs
 * to one y, and all three passes walk over the same triples:
 *
 *     y += x w    dx += dy w    dw += dy x */
typedef enum pass { FORWARD, BACKWARD_X, BACKWARD_W } pass;

/* One element of a filter and `count` elements of an output row, with the elements of x that it connects. */
static void convolve_row(pass pass, float *x, float *w, float *y, int count, int stride)
{
    const float factor = *w;
    float sum = 0;
    for (int i = 0; pass == FORWARD && i < count; i++)
        y[i] += x[i * stride] * factor;
    for (int i = 0; pass == BACKWARD_X && i < count; i++)
        x[i * stride] += y[i] * factor;
    for (int i = 0; pass == BACKWARD_W && i < count; i++)
        sum += y[i] * x[i * stride];
    if (pass == BACKWARD_W)
        *w += sum;
}

/* One filter [R,S] of one channel: a plane x [H,W] and a plane out [P,Q]. */
static void convolve_plane(const tensor *y, pass pass, float *x, float *w, float *out)
{
    const int height = y->in[0]->dim[2], width = y->in[0]->dim[3], side = y->in[1]->dim[2];
    const int rows = y->dim[2], columns = y->dim[3], stride = y->stride;
    for (int r = 0; r < side; r++)
        for (int s = 0; s < side; s++) {
            const int left = s - side / 2; /* column of x for column 0 of the output */
            const int first = left < 0 ? (-left + stride - 1) / stride : 0;
            const int end = (width - left + stride - 1) / stride;
            for (int p = 0; p < rows; p++) {
                const int h = p * stride + r - side / 2;
                if (h >= 0 && h < height)
                    convolve_row(pass, x + h * width + left + first * stride, w + r * side + s,
                                 out + p * columns + first, (end < columns ? end : columns) - first,
                                 stride);
            }
        }
}

static void convolve(const tensor *y, pass pass, float *x, float *w, float *out)
{
    const int *a = y->in[0]->dim, *b = y->in[1]->dim;
    for (int n = 0; n < y->dim[0]; n++)
        for (int k = 0; k < b[0]; k++)
            for (int c = 0; c < b[1]; c++)
                convolve_plane(y, pass, x + ((long)n * b[1] + c) * a[2] * a[3],
                               w + ((long)k * b[1] + c) * b[2] * b[3],
                               out + ((long)n * b[0] + k) * y->dim[2] * y->dim[3]);
}

static void conv2d_backward(tensor *y)
{
    tensor *x = y->in[0], *w = y->in[1];
    float *dx = floats(x->count), *dw = floats(w->count);
    if (x->backward) /* not of images */
        convolve(y, BACKWARD_X, dx, w->data, y->grad);
    convolve(y, BACKWARD_W, x->data, dw, y->grad);
    add_gradient(x, dx);
    add_gradient(w, dw);
}

static tensor *conv2d(tensor *x, tensor *w, int stride)
{
    const int p = (x->dim[2] - 1) / stride + 1, q = (x->dim[3] - 1) / stride + 1;
    tensor *y = output(4, (int[]){x->dim[0], w->dim[0], p, q}, conv2d_backward, x, w);
    y->stride = stride;
    convolve(y, FORWARD, x->data, w->data, y->data);
    return y;
}

/* Batch norm: each channel gets mean 0 and variance 1 over the batch, then a scale and a shift that are learned.
 *
 *     y = gamma xhat + beta    xhat = (x - mean) / sqrt(var + eps)
 *     dgamma = sum of dy xhat    dbeta = sum of dy    dx = gamma / sqrt(var + eps) (dy - dbeta/n - xhat dgamma/n)
 *
 * with sums over the n values of a channel. Evaluation uses running averages of mean and variance instead, which have
 * no gradient, so that optimizers skip them. Ioffe & Szegedy, "Batch normalization", ICML 2015. */
static const double norm_eps = 1e-5, norm_momentum = 0.1;
enum { MEAN, RSTD, SCALE, SHIFT, ROWS }; /* saved for a channel's backward pass */

static void batch_norm_backward(tensor *y)
{
    tensor *x = y->in[0];
    const int channels = x->dim[1], pixels = x->dim[2] * x->dim[3];
    const float count = (float)(x->dim[0] * pixels);
    float *dx = floats(x->count);
    double *dgamma = doubles(channels), *dbeta = doubles(channels);
    for (long i = 0; i < x->count; i++) {
        const long c = i / pixels % channels;
        const float *coef = y->saved + c * ROWS;
        dbeta[c] += y->grad[i];
        dgamma[c] += y->grad[i] * ((double)x->data[i] - coef[MEAN]) * coef[RSTD];
    }
    for (long i = 0; i < x->count; i++) {
        const long c = i / pixels % channels;
        const float *coef = y->saved + c * ROWS, xhat = (x->data[i] - coef[MEAN]) * coef[RSTD];
        const float away = (float)dbeta[c] / count + xhat * ((float)dgamma[c] / count);
        dx[i] = coef[SCALE] * (y->grad[i] - away);
    }
    add_gradient(x, dx);
    add_sums(y->in[1], dgamma);
    add_sums(y->in[2], dbeta);
}

/* Computes the mean of size[0] runs of size[1] numbers, one every `step` numbers, and the sum of squared distances to
 * it: sums of squares alone lose digits. */
static void moments(const float *x, const int size[2], long step, double *mean, double *square)
{
    double sum = 0;
    for (int n = 0; n < size[0]; n++)
        for (int i = 0; i < size[1]; i++)
            sum += x[n * step + i];
    *mean = sum / (size[0] * size[1]);
    *square = 0;
    for (int n = 0; n < size[0]; n++)
        for (int i = 0; i < size[1]; i++)
            *square += (x[n * step + i] - *mean) * (x[n * step + i] - *mean);
}

static tensor *batch_norm(tensor *x, const char *path, double initial_gamma)
{
    const int channels = x->dim[1], pixels = x->dim[2] * x->dim[3], count = x->dim[0] * pixels;
    tensor *gamma = parameter(path, ".weight", initial_gamma, 0, 1, &channels);
    tensor *y = output(4, x->dim, batch_norm_backward, x, gamma);
    tensor *beta = y->in[2] = parameter(path, ".bias", 0, 0, 1, &channels);
    float *running_mean = parameter(path, ".running_mean", 0, 0, 1, &channels)->data;
    float *running_var = parameter(path, ".running_var", 1, 0, 1, &channels)->data;
    y->saved = floats((long)channels * ROWS);
    for (int c = 0; c < channels; c++) {
        double mean = running_mean[c], var = running_var[c], square;
        if (training) {
            moments(x->data + (long)c * pixels, (int[]){x->dim[0], pixels}, (long)channels * pixels,
                    &mean, &square);
            mean = (float)mean;
            square = (float)square;
            var = square / (count > 1 ? count - 1 : 1); /* an estimate without bias */
            running_mean[c] = (float)((1 - norm_momentum) * running_mean[c] + norm_momentum * mean);
            running_var[c] = (float)((1 - norm_momentum) * running_var[c] + norm_momentum * var);
            var = square / count;
        }
        const double rstd = 1 / sqrt(var + norm_eps), scale = gamma->data[c] * rstd;
        const double coef[ROWS] = {mean, rstd, scale, beta->data[c] - mean * scale};
        for (int k = 0; k < ROWS; k++)
            y->saved[c * ROWS + k] = (float)coef[k];
    }
    for (long i = 0; i < x->count; i++) {
        const float *coef = y->saved + i / pixels % channels * ROWS;
        y->data[i] = x->data[i] * coef[SCALE] + coef[SHIFT];
    }
    return y;
}

/* Global average pooling, y[n,c] = mean of x[n,c,:,:]. */
static void average_pool_backward(tensor *y)
{
    const int pixels = y->in[0]->dim[2] * y->in[0]->dim[3];
    float *dx = floats(y->in[0]->count);
    for (long i = 0; i < y->in[0]->count; i++)
        dx[i] = (float)((double)y->grad[i / pixels] / pixels);
    add_gradient(y->in[0], dx);
}

static tensor *average_pool(tensor *x)
{
    const int pixels = x->dim[2] * x->dim[3];
    tensor *y = output(2, x->dim, average_pool_backward, x, NULL);
    for (long i = 0; i < y->count; i++) {
        double sum = 0;
        for (int k = 0; k < pixels; k++)
            sum += x->data[i * pixels + k];
        y->data[i] = (float)(sum / pixels);
    }
    return y;
}

/* Layer norm: as batch norm, but over the features of one row, so that rows and batches do not mix.
 *
 *     dx = (h - mean(h) - xhat mean(h xhat)) / sqrt(var + eps)    h = gamma dy, means over the row
 *
 * Ba, Kiros & Hinton, "Layer normalization", 2016. */
static void layer_norm_backward(tensor *y)
{
    tensor *x = y->in[0];
    const int rows = x->dim[0], c = x->dim[1];
    float *dx = floats(x->count);
    double *dgamma = doubles(c), *dbeta = doubles(c);
    for (int n = 0; n < rows; n++) {
        const float *dy = y->grad + n * c, *u = x->data + n * c, *gamma = y->in[1]->data;
        const double mean = y->saved[2 * n], rstd = y->saved[2 * n + 1];
        double sum = 0, product = 0;
        for (int i = 0; i < c; i++) {
            const double xhat = (u[i] - mean) * rstd, h = (double)dy[i] * gamma[i];
            sum += h;
            product += h * xhat;
            dgamma[i] += dy[i] * xhat;
            dbeta[i] += dy[i];
        }
        for (int i = 0; i < c; i++) {
            const double xhat = (u[i] - mean) * rstd, h = (double)dy[i] * gamma[i];
            dx[n * c + i] = (float)(rstd * (h - (sum + xhat * product) / c));
        }
    }
    add_gradient(x, dx);
    add_sums(y->in[1], dgamma);
    add_sums(y->in[2], dbeta);
}

static tensor *layer_norm(tensor *x, const char *path)
{
    const int rows = x->dim[0], c = x->dim[1];
    tensor *gamma = parameter(path, ".weight", 1, 0, 1, &c);
    tensor *y = output(2, x->dim, layer_norm_backward, x, gamma);
    tensor *beta = y->in[2] = parameter(path, ".bias", 0, 0, 1, &c);
    y->saved = floats(2 * rows); /* mean and 1/sqrt(var + eps) of each row */
    for (int n = 0; n < rows; n++) {
        const float *u = x->data + n * c;
        double mean, square;
        moments(u, (int[]){1, c}, 0, &mean, &square);
        const double rstd = 1 / sqrt(square / c + norm_eps);
        for (int i = 0; i < c; i++)
            y->data[n * c + i] = (float)((u[i] - mean) * rstd) * gamma->data[i] + beta->data[i];
        y->saved[2 * n] = (float)mean;
        y->saved[2 * n + 1] = (float)rstd;
    }
    return y;
}

/* Embedding of tokens and of their positions in sequences of `length`, y[n,:] = w[id[n],:] + p[n mod length,:]: a
 * linear layer of one-hot inputs. Without positions attention would not know the order of tokens. */
static void embedding_backward(tensor *y)
{
    const int c = y->dim[1];
    double *dw = doubles(y->in[0]->count), *dp = doubles(y->in[1]->count);
    for (long i = 0; i < y->count; i++) {
        dw[(long)y->id[i / c] * c + i % c] += y->grad[i];
        dp[i % (y->length * c)] += y->grad[i];
    }
    add_sums(y->in[0], dw);
    add_sums(y->in[1], dp);
}

static tensor *embedding(tensor *w, tensor *p, const int *id, int count, int length)
{
    const int c = w->dim[1];
    tensor *y = output(2, (int[]){count, c}, embedding_backward, w, p);
    y->id = id;
    y->length = length;
    for (long i = 0; i < y->count; i++)
        y->data[i] = w->data[(long)id[i / c] * c + i % c] + p->data[i % (length * c)];
    return y;
}

/* Causal self-attention. A row of x holds a token's query q, key k and value v, of `heads` heads each. Per head, token
 * i averages the values of tokens j <= i, with weights that are the softmax over j of its scores:
 *
 *     s_ij = q_i k_j / sqrt(d)    a_ij = exp(s_ij) / sum over j of exp(s_ij)    y_i = sum over j of a_ij v_j
 *     ds_ij = a_ij (dy_i v_j - dy_i y_i)    dq_i = sum of ds_ij k_j / sqrt(d)    dk_j = sum of ds_ij q_i / sqrt(d)
 *     dv_j = sum of a_ij dy_i
 *
 * Vaswani et al., "Attention is all you need", NeurIPS 2017. backward computes the weights again from the saved
 * logarithm of their sum, as Dao et al., "FlashAttention", NeurIPS 2022. */
static double dot(const float *a, const float *b, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

/* Rounded to float in both passes, so that both have the same weights. */
static double score(const tensor *y, const float *q, const float *k)
{
    const int d = y->dim[1] / y->heads;
    return (float)(1 / sqrt(d) * dot(q, k, d));
}

/* Token i, counted over all sequences, begins its sequence at token i - i % length. */
static void attention_backward(tensor *y)
{
    const tensor *x = y->in[0];
    const int c = y->dim[1], d = c / y->heads, row = 3 * c;
    double *sum = doubles(x->count);
    for (int i = 0; i < y->dim[0]; i++)
        for (int h = 0; h < y->heads; h++) {
            const float *dy = y->grad + i * c + h * d, *q = x->data + i * row + h * d;
            const double mean = dot(dy, y->data + i * c + h * d, d);
            for (int j = i - i % y->length; j <= i; j++) {
                const float *k = x->data + j * row + c + h * d, *v = k + c;
                const double a = exp(score(y, q, k) - y->saved[i * y->heads + h]);
                const double slope = 1 / sqrt(d) * a * (dot(dy, v, d) - mean);
                double *dq = sum + i * row + h * d, *dk = sum + j * row + c + h * d, *dv = dk + c;
                for (int e = 0; e < d; e++) {
                    dv[e] += a * dy[e];
                    dq[e] += slope * k[e];
                    dk[e] += slope * q[e];
                }
            }
        }
    add_sums(y->in[0], sum);
}

static tensor *attention(tensor *x, int heads, int length)
{
    const int c = x->dim[1] / 3, d = c / heads, row = 3 * c;
    tensor *y = output(2, (int[]){x->dim[0], c}, attention_backward, x, NULL);
    y->heads = heads;
    y->length = length;
    y->saved = floats((long)y->dim[0] * heads);
    double *a = doubles(length), *mean = doubles(d);
    for (int i = 0; i < y->dim[0]; i++)
        for (int h = 0; h < heads; h++) {
            const int begin = i - i % length, count = i - begin + 1;
            const float *k = x->data + begin * row + c + h * d, *v = k + c;
            double top = -INFINITY, sum = 0;
            for (int j = 0; j < count; j++) {
                a[j] = score(y, x->data + i * row + h * d, k + j * row);
                top = fmax(top, a[j]);
            }
            for (int j = 0; j < count; j++)
                sum += exp(a[j] - top); /* at most 1 each: no overflow */
            memset(mean, 0, (size_t)d * sizeof *mean);
            for (int j = 0; j < count; j++) {
                const double weight = exp(a[j] - top) / sum;
                for (int e = 0; e < d; e++)
                    mean[e] += weight * v[j * row + e];
            }
            for (int e = 0; e < d; e++)
                y->data[i * c + h * d + e] = (float)mean[e];
            y->saved[i * heads + h] = (float)(top + log(sum));
        }
    return y;
}

/* Cross-entropy of the softmax, L = mean over rows n of log(sum over k of exp(z_nk)) - z_n,label:
 *
 *     dz_nk = (softmax(z)_nk - [k = label]) / rows */
static void cross_entropy_backward(tensor *y)
{
    const tensor *z = y->in[0];
    const int rows = z->dim[0], classes = z->dim[1];
    float *dz = floats(z->count);
    for (long i = 0; i < z->count; i++) {
        const long n = i / classes;
        dz[i] = (float)((double)y->grad[0] / rows
                        * (exp((double)z->data[i] - y->saved[n]) - (y->id[n] == i % classes)));
    }
    add_gradient(y->in[0], dz);
}

static tensor *cross_entropy(tensor *z, const int *label)
{
    const int rows = z->dim[0], classes = z->dim[1];
    tensor *y = output(0, NULL, cross_entropy_backward, z, NULL);
    double loss = 0;
    y->id = label;
    y->saved = floats(rows);
    for (int n = 0; n < rows; n++) {
        const float *row = z->data + (long)n * classes;
        double top = row[0], sum = 0;
        for (int k = 1; k < classes; k++)
            top = fmax(top, row[k]);
        for (int k = 0; k < classes; k++)
            sum += exp(row[k] - top);
        loss -= row[label[n]] - (top + log(sum));
        y->saved[n] = (float)(top + log(sum));
    }
    y->data[0] = (float)(loss / rows);
    return y;
}

/* --- 5. Networks -----------------------------------------------------------------------------------------------
 *
 * A residual network. A block adds its result to its input, so that gradients pass unchanged through the sum and
 * many layers can be trained:
 *
 *     y = relu(x' + bn(conv(relu(bn(conv(x))))))    x' = x, or bn(conv 1x1(x)) where the shape changes
 *
 * He et al., "Deep residual learning for image recognition", CVPR 2016. Filters begin as normal numbers of deviation
 * sqrt(2 / fan_out), so that gradients keep their size: He et al., "Delving deep into rectifiers", ICCV 2015. */

typedef struct filters {
    const char *conv, *bn; /* names */
    int out, side, stride;
    double gamma; /* the norm's initial factor: 0 makes a block begin as the identity */
} filters;

static tensor *conv_and_norm(tensor *x, const char *path, filters f)
{
    const int shape[] = {f.out, x->dim[1], f.side, f.side};
    const double deviation = sqrt(2.0 / (f.out * f.side * f.side));
    tensor *w = parameter(path, f.conv, 0, deviation, 4, shape);
    return batch_norm(conv2d(x, w, f.stride), join(path, f.bn).text, f.gamma);
}

static tensor *residual_block(tensor *x, const char *path, int out, int stride)
{
    tensor *y = relu(conv_and_norm(x, path, (filters){"conv1.weight", "bn1", out, 3, stride, 1}));
    y = conv_and_norm(y, path, (filters){"conv2.weight", "bn2", out, 3, 1, 0});
    if (stride > 1)
        x = conv_and_norm(x, path,
                          (filters){"downsample.0.weight", "downsample.1", out, 1, stride, 1});
    return relu(add(y, x));
}

/* Returns logits [N,classes] of images [N,1,H,W]. Stages after the first halve the sides and double the channels. */
static tensor *resnet(tensor *x, int classes)
{
    x = relu(conv_and_norm(x, "", (filters){"conv1.weight", "bn1", o.width, 3, 1, 1}));
    x = residual_block(x, "layer1.0.", o.width, 1);
    x = residual_block(x, "layer2.0.", o.width * 2, 2);
    x = residual_block(x, "layer3.0.", o.width * 4, 2);
    x = average_pool(residual_block(x, "layer4.0.", o.width * 8, 2));
    const int in = x->dim[1];
    tensor *w = parameter("fc", ".weight", 0, 1 / sqrt(3.0 * in), 2, (int[]){classes, in});
    return linear(x, w, parameter("fc", ".bias", 0, 0, 1, &classes), false);
}

/* GPT-2: a stream of features per token, to which each layer adds twice,
 *
 *     x = x + attention(norm(x))    x = x + mlp(norm(x))
 *
 * and whose logits are products with the table of embeddings, so that similar inputs have similar predictions.
 * Radford et al., "Language models are unsupervised multitask learners", 2019; tied tables: Press & Wolf, "Using the
 * output embedding to improve language models", EACL 2017. */
enum { VOCABULARY = 257, END_OF_TEXT = 256 }; /* bytes, and the end of a text */
static const double gpt_deviation = 0.02;     /* initial values; smaller at the end of a branch */

static tensor *affine(tensor *x, name path, int out, double deviation)
{
    tensor *w = parameter(path.text, ".weight", 0, deviation, 2, (int[]){x->dim[1], out});
    return linear(x, w, parameter(path.text, ".bias", 0, 0, 1, &out), true);
}

static tensor *transformer_layer(tensor *x, const char *path, int length)
{
    const int c = o.width;
    const double at_end = gpt_deviation / sqrt(2.0 * o.layers);
    tensor *a = layer_norm(x, join(path, ".ln_1").text);
    a = attention(affine(a, join(path, ".attn.c_attn"), 3 * c, gpt_deviation), o.heads, length);
    x = add(x, affine(a, join(path, ".attn.c_proj"), c, at_end));
    tensor *h = layer_norm(x, join(path, ".ln_2").text);
    h = gelu(affine(h, join(path, ".mlp.c_fc"), 4 * c, gpt_deviation));
    return add(x, affine(h, join(path, ".mlp.c_proj"), c, at_end));
}

/* Returns logits [count,VOCABULARY] of the token after each token of sequences of that length. */
static tensor *gpt(const int *id, int count, int length)
{
    tensor *w = parameter("wte", ".weight", 0, gpt_deviation, 2, (int[]){VOCABULARY, o.width});
    tensor *p = parameter("wpe", ".weight", 0, gpt_deviation, 2, (int[]){o.length, o.width});
    tensor *x = embedding(w, p, id, count, length);
    for (int i = 0; i < o.layers; i++) {
        char path[16];
        snprintf(path, sizeof path, "h.%d", i);
        x = transformer_layer(x, path, length);
    }
    return linear(layer_norm(x, "ln_f"), w, NULL, false);
}

/* --- 6. Optimizers ---------------------------------------------------------------------------------------------
 *
 * Each is a function that changes one parameter by its gradient g in step t = 1, 2, ... Weight decay (w -> 0)
 * is for matrices and filters, not for biases and norms. */

/* Stochastic gradient descent with Nesterov's momentum, m = mu m + g and w -= lr (g + mu m). Sutskever et al., "On the
 * importance of initialization and momentum in deep learning", ICML 2013. */
static void sgd(tensor *p, int t)
{
    const double mu = 0.9;
    float *momentum = p->state[0];
    for (long i = 0; i < p->count; i++) {
        const double g = p->grad[i] + p->decay * p->data[i];
        const double m = t == 1 ? g : mu * momentum[i] + g;
        momentum[i] = (float)m;
        p->data[i] = (float)(p->data[i] - o.lr * (g + mu * m));
    }
}

/* AdamW: the mean gradient over the root of the mean square, element by element; both means are moving averages,
 * corrected for their start at 0. Kingma & Ba, "Adam", ICLR 2015; Loshchilov & Hutter, "Decoupled weight decay
 * regularization", ICLR 2019. */
static const double beta1 = 0.9, beta2 = 0.999, adam_eps = 1e-8;

static void adamw(tensor *p, int t)
{
    const double correct1 = 1 - pow(beta1, t), correct2 = 1 - pow(beta2, t);
    float *mean = p->state[0], *square = p->state[1];
    for (long i = 0; i < p->count; i++) {
        const double g = p->grad[i], w = p->data[i] * (1 - o.lr * p->decay);
        const double m = beta1 * mean[i] + (1 - beta1) * g;
        const double v = beta2 * square[i] + (1 - beta2) * g * g;
        mean[i] = (float)m;
        square[i] = (float)v;
        p->data[i] = (float)(w - o.lr * (m / correct1) / (sqrt(v / correct2) + adam_eps));
    }
}

/* Shampoo. A parameter's gradient is cut into blocks G of at most --block elements a side. Along each dimension d a
 * block is a matrix G_d, whose rows are its slices, with a factor
 *
 *     F_d = beta2 F_d + (1 - beta2) G_d G_d^T
 *
 * that holds how slices vary together. The update is G multiplied along each dimension by F_d^(-e), as Adam's is G over
 * the root of a mean square: steps then have one length in all directions of the loss, not in those of the coordinates
 * alone. Gupta, Koren & Singer, "Shampoo: Preconditioned stochastic tensor optimization", ICML 2018, with
 * e = 1/(2 order) for a block of that many dimensions, here 1/2 for matrices. In practice:
 *
 *   - inverse roots are computed every --frequency steps, as they cost the cube of a side;
 *   - vectors keep the diagonal of their factor, and tables of tokens or positions have a factor for features alone;
 *   - G is a moving average of gradients, which in this step counts as in the next (Nesterov's look ahead);
 *   - grafting: a block's update gets the length of Adam's, so that Adam's learning rates fit. Agarwal et al.,
 *     "Learning rate grafting", 2022. Before the first roots the update is Adam's.
 *
 * Shi et al., "A distributed data-parallel PyTorch implementation of the distributed Shampoo optimizer", 2023. */
enum { MOST_SIDES = 4 };

typedef struct block {
    int order, dim[MOST_SIDES], begin[MOST_SIDES]; /* shape, and position in the merged parameter */
    long count, stride[MOST_SIDES];                /* elements; strides of the merged parameter */
    float *factor[MOST_SIDES], *root[MOST_SIDES];  /* [n,n] along each dimension, or NULL */
} block;

/* Merges dimensions from the last on, while their product fits a block and more than two are left, so that a filter's
 * window is one dimension: [64,32,3,3] becomes [64,32,9]. Returns their number. */
static int merge(const tensor *p, int *merged)
{
    int order = 0, left = 0, reversed[MOST_SIDES] = {1};
    for (int d = 0; d < p->dims; d++)
        left += p->dim[d] > 1;
    for (int d = p->dims - 1; d >= 0; d--) {
        if (p->dim[d] == 1)
            continue;
        if (order && order + left > 2 && (long)reversed[order - 1] * p->dim[d] <= o.block)
            reversed[order - 1] *= p->dim[d];
        else
            reversed[order++] = p->dim[d];
        left--;
    }
    order = order ? order : 1;
    for (int d = 0; d < order; d++)
        merged[d] = reversed[order - 1 - d];
    return order;
}

static void make_blocks(tensor *p)
{
    const bool table = !strncmp(p->name.text, "wte.", 4) || !strncmp(p->name.text, "wpe.", 4);
    int merged[MOST_SIDES] = {p->dim[0], p->dim[1]}, size[MOST_SIDES], parts[MOST_SIDES];
    const int order = table ? 2 : merge(p, merged);
    p->blocks = 1;
    for (int d = 0; d < order; d++) {
        size[d] = table && !d ? merged[d] : o.block;
        parts[d] = (merged[d] + size[d] - 1) / size[d];
        p->blocks *= parts[d];
    }
    p->block = keep(p->blocks, sizeof *p->block);
    for (int i = 0; i < p->blocks; i++) {
        block *b = &p->block[i];
        long stride = b->count = 1;
        b->order = order;
        for (int d = order - 1, rest = i; d >= 0; rest /= parts[d--]) {
            b->begin[d] = rest % parts[d] * size[d];
            b->dim[d] = merged[d] - b->begin[d] < size[d] ? merged[d] - b->begin[d] : size[d];
            b->stride[d] = stride;
            b->count *= b->dim[d];
            stride *= merged[d];
            if (order > 1 && !(table && !d)) {
                b->factor[d] = keep((long)b->dim[d] * b->dim[d], sizeof(float));
                b->root[d] = keep((long)b->dim[d] * b->dim[d], sizeof(float));
            }
        }
    }
}

/* Returns the index in the parameter of a block's element i. */
static long index_of(const block *b, long i)
{
    long at = 0;
    for (int d = b->order - 1; d >= 0; i /= b->dim[d--])
        at += (b->begin[d] + i % b->dim[d]) * b->stride[d];
    return at;
}

/* Returns a block of an array that has the parameter's shape. */
static float *gather(const block *b, const float *from)
{
    float *y = floats(b->count);
    for (long i = 0; i < b->count; i++)
        y[i] = from[index_of(b, i)];
    return y;
}

/* Returns the product of the sizes after dimension d: the block is [outer,n,inner], n being the size of d. */
static long inner_size(const block *b, int d)
{
    long inner = 1;
    for (int k = d + 1; k < b->order; k++)
        inner *= b->dim[k];
    return inner;
}

static void update_factor(const block *b, int d, const float *g)
{
    const long n = b->dim[d], inner = inner_size(b, d);
    for (long i = 0; i < n; i++)
        for (long j = 0; j <= i; j++) {
            double sum = 0;
            for (long k = 0; k < b->count; k += n * inner)
                for (long m = k; m < k + inner; m++)
                    sum += (double)g[i * inner + m] * g[j * inner + m];
            sum = beta2 * b->factor[d][i * n + j] + (1 - beta2) * sum;
            b->factor[d][i * n + j] = b->factor[d][j * n + i] = (float)sum;
        }
}

/* Multiplies x along dimension d by the symmetric inverse root, in place. */
static void multiply_by_root(const block *b, int d, float *x)
{
    const long n = b->dim[d], inner = inner_size(b, d);
    double *y = doubles(b->count);
    for (long k = 0; k < b->count; k += n * inner)
        for (long ij = 0; ij < n * n; ij++)
            for (long m = k; m < k + inner; m++)
                y[ij / n * inner + m] += b->root[d][ij] * (double)x[ij % n * inner + m];
    for (long i = 0; i < b->count; i++)
        x[i] = (float)y[i];
}

/* Eigenvalues and eigenvectors by Jacobi's method: rotations of two coordinates p and q, each of which makes one a_pq
 * zero, until all are negligible. The diagonal of a then has the eigenvalues, the rows of v the vectors. Golub & Van
 * Loan, "Matrix computations", 4th edition, section 8.5. */
static void rotate_rows(double *p, double *q, long n, double c, double s)
{
    for (long i = 0; i < n; i++) {
        const double a = p[i], b = q[i];
        p[i] = c * a - s * b;
        q[i] = s * a + c * b;
    }
}

static void make_zero(double *a, double *v, long n, long p, long q)
{
    const double app = a[p * n + p], aqq = a[q * n + q], apq = a[p * n + q];
    const double theta = (aqq - app) / (2 * apq);
    const double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
    const double c = 1 / sqrt(t * t + 1), s = t * c;
    rotate_rows(a + p * n, a + q * n, n, c, s);
    rotate_rows(v + p * n, v + q * n, n, c, s);
    for (long i = 0; i < n; i++) {
        a[i * n + p] = a[p * n + i];
        a[i * n + q] = a[q * n + i];
    }
    a[p * n + p] = app - t * apq;
    a[q * n + q] = aqq + t * apq;
    a[p * n + q] = a[q * n + p] = 0;
}

static void eigendecompose(double *a, double *v, long n)
{
    double square = 0;
    bool changed = true;
    for (long i = 0; i < n * n; i++)
        square += a[i] * a[i];
    if (!isfinite(square))
        fail("a factor is not finite: try a smaller --lr than %g", o.lr);
    for (long i = 0; i < n; i++)
        v[i * n + i] = 1;
    const double negligible = 0x1p-60 * sqrt(square) / (double)n;
    while (changed) { /* about ten times */
        changed = false;
        for (long p = 0; p < n - 1; p++)
            for (long q = p + 1; q < n; q++) {
                const double size = fabs(a[p * n + q]);
                const double scale = sqrt(fabs(a[p * n + p])) * sqrt(fabs(a[q * n + q]));
                if (size <= negligible || size <= 0x1p-54 * scale)
                    continue;
                make_zero(a, v, n, p, q);
                changed = true;
            }
    }
}

/* Inverse root of a factor, R = Q L^(-e) Q^T for F = Q L Q^T, as the product of Q L^(-e/2) with its transpose, which is
 * symmetric whatever the roundings. Eigenvalues are raised by a fraction of the largest, as a factor of few gradients
 * has less than full rank. */
static const double epsilon = 1e-6;

static void compute_root(const block *b, int d, int t)
{
    const long n = b->dim[d];
    const double e = b->order == 2 ? 0.5 : 1 / (2.0 * b->order), correct = 1 / (1 - pow(beta2, t));
    double *a = doubles(n * n), *v = doubles(n * n), low = 0, high = 0;
    float *scaled = floats(n * n); /* Q L^(-e/2) */
    for (long i = 0; i < n * n; i++)
        a[i] = (float)(correct * b->factor[d][i]);
    eigendecompose(a, v, n);
    for (long k = 0; k < n; k++) {
        low = fmin(low, (float)a[k * n + k]);
        high = fmax(high, (float)a[k * n + k]);
    }
    for (long k = 0; k < n && high > 0; k++) {
        const double value = (float)a[k * n + k] - low + epsilon * high;
        const float half = (float)sqrt(pow(value, -e));
        for (long i = 0; i < n; i++)
            scaled[i * n + k] = (float)v[k * n + i] * half;
    }
    for (long i = 0; i < n; i++)
        for (long j = 0; j <= i; j++)
            b->root[d][i * n + j] = b->root[d][j * n + i] =
                (float)dot(scaled + i * n, scaled + j * n, (int)n);
}

/* A vector's update, u / sqrt(v + epsilon |v|), v being the mean square: a diagonal needs no eigendecomposition. */
static void divide_by_diagonal(float *u, float *v, long count, int t)
{
    for (long i = 0; i < count; i++)
        v[i] = (float)(1 / (1 - pow(beta2, t)) * v[i]);
    const double damping = epsilon * sqrt(dot(v, v, (int)count));
    for (long i = 0; i < count; i++)
        u[i] = (float)(u[i] / (sqrt((float)(damping + v[i])) + 1e-30)); /* 0 / 0 is 0 */
}

/* Replaces a block of u, the filtered gradient, by its update. adam: Adam's update of the parameter. */
static void update_block(const block *b, const tensor *p, int t, float *u, const float *adam)
{
    const float *g = gather(b, p->grad);
    float *x = gather(b, u), *grafted = gather(b, adam);
    for (int d = 0; d < b->order; d++) {
        if (b->factor[d])
            update_factor(b, d, g);
        if (b->factor[d] && t % o.frequency == 0)
            compute_root(b, d, t);
        if (b->factor[d] && t >= o.frequency)
            multiply_by_root(b, d, x);
    }
    if (b->order == 1)
        divide_by_diagonal(x, gather(b, p->state[1]), b->count, t);
    const double length = sqrt(dot(x, x, (int)b->count));
    const double ratio = sqrt(dot(grafted, grafted, (int)b->count)) / (length + 1e-16);
    for (long i = 0; i < b->count; i++)
        u[index_of(b, i)] = t < o.frequency ? grafted[i] : (float)(ratio * x[i]);
}

static void shampoo(tensor *p, int t)
{
    const double correct1 = 1 / (1 - beta1 * pow(beta1, t - 1)), correct2 = 1 / (1 - pow(beta2, t));
    float *mean = p->state[0], *square = p->state[1], *u = floats(p->count),
          *adam = floats(p->count);
    if (!p->block)
        make_blocks(p);
    for (long i = 0; i < p->count; i++) {
        const double g = p->grad[i];
        u[i] = (float)((1 - beta1) * g + (float)(beta1 * mean[i]));
        u[i] = (float)(correct1 * u[i]);
        mean[i] = (float)((1 - beta1) * g + beta1 * mean[i]);
        square[i] = (float)((1 - beta2) * g * g + beta2 * square[i]);
        adam[i] = (float)(u[i] / (sqrt(correct2 * square[i]) + adam_eps));
    }
    for (int i = 0; i < p->blocks; i++)
        update_block(&p->block[i], p, t, u, adam);
    for (long i = 0; i < p->count; i++) {
        const float update = (float)(p->decay * p->data[i] + u[i]);
        p->data[i] = (float)(-o.lr * update + p->data[i]);
    }
}

/* --- 7. Data --------------------------------------------------------------------------------------------------- */

typedef struct images {
    int count, height, width, classes;
    uint8_t *pixels, *label; /* [count,height,width], [count] */
} images;

enum { STRIPES = 1000, TEST_IMAGES = 200 };
static const char fashion_mnist[] = "/usr/share/datasets/fashion-mnist"; /* Debian's place */

/* Reads FOLDER/PART-NAME, or that name with .gz: magic 0 0 8 and the number of dimensions, sizes as big-endian 32-bit
 * numbers, then bytes. LeCun, Cortes & Burges, "The MNIST database". gzip copies a file that is not compressed. */
static uint8_t *read_idx(const char *folder, const char *part, const char *name, int dims,
                         int *size)
{
    char command[512];
    uint8_t head[16];
    long bytes = 1;
    if (strchr(folder, '\'') || strlen(folder) > 400)
        fail("%s: has a quote or more than 400 bytes", folder);
    snprintf(command, sizeof command, "gzip -dcf '%s/%s-%s'", folder, part, name);
    FILE *in = popen(command, "r");
    const size_t want = 4 + 4 * (size_t)dims;
    if (!in || fread(head, 1, want, in) != want || head[0] || head[1] || head[2] != 8
        || head[3] != dims)
        fail("%s/%s-%s: not an idx file of bytes with %d dimensions", folder, part, name, dims);
    for (int i = 0; i < dims; i++) {
        const uint8_t *b = head + 4 + 4 * i;
        size[i] = (b[0] & 127) << 24 | b[1] << 16 | b[2] << 8 | b[3];
        bytes *= size[i] && bytes <= INT32_MAX / size[i] ? size[i] : 0;
    }
    uint8_t *data = keep(bytes, 1);
    const size_t got = fread(data, 1, (size_t)bytes, in);
    if (!bytes || got != (size_t)bytes)
        fail("%s/%s-%s: %zu bytes of data, its sizes need %ld", folder, part, name, got, bytes);
    pclose(in);
    return data;
}

/* Reads a part, train or t10k; at most `most` images of it, or all if 0. */
static images read_images(const char *folder, const char *part, int most)
{
    int size[3], labels;
    images set = {.pixels = read_idx(folder, part, "images-idx3-ubyte", 3, size),
                  .label = read_idx(folder, part, "labels-idx1-ubyte", 1, &labels)};
    if (labels != size[0])
        fail("%s: %s has %d images, but %d labels", folder, part, size[0], labels);
    for (int i = 0; i < labels; i++)
        set.classes = set.label[i] >= set.classes ? set.label[i] + 1 : set.classes;
    set.count = most && most < labels ? most : labels;
    set.height = size[1];
    set.width = size[2];
    return set;
}

/* Makes noisy stripes of four directions, which are the classes. */
static images make_stripes(int count)
{
    enum { SIDE = 16, DIRECTIONS = 4, PIXELS = SIDE * SIDE };
    images set = {count, SIDE, SIDE, DIRECTIONS, keep((long)count * PIXELS, 1), keep(count, 1)};
    for (int n = 0; n < count; n++) {
        const double phase = 6.28 * uniform(), angle = 3.14159265 * (n % DIRECTIONS) / DIRECTIONS;
        set.label[n] = (uint8_t)(n % DIRECTIONS);
        for (int i = 0; i < PIXELS; i++) {
            const double along = i % SIDE * cos(angle) + (i - i % SIDE) * sin(angle) / SIDE;
            const double value = 128 + 60 * sin(1.5 * along + phase) + 50 * normal();
            set.pixels[n * PIXELS + i] = (uint8_t)fmin(fmax(value, 0), 255);
        }
    }
    return set;
}

/* Opens training and test images: of --data, else of the installed Fashion-MNIST, else stripes. */
static void open_images(images *train, images *test)
{
    const char *folder = o.data || access(fashion_mnist, R_OK) ? o.data : fashion_mnist;
    *train = folder ? read_images(folder, "train", o.images) : make_stripes(STRIPES);
    *test = folder ? read_images(folder, "t10k", TEST_IMAGES) : make_stripes(TEST_IMAGES);
    if (test->classes > train->classes)
        fail("%d classes of test images, %d of training images", test->classes, train->classes);
}

/* Returns a batch [N,1,H,W] with mean 0 and deviation 1 over Fashion-MNIST. */
static tensor *load_images(const images *set, const int *index, int count, int *label)
{
    const float mean = (float)(255 * 0.28603923), deviation = (float)(255 * 0.3530196);
    const long pixels = (long)set->height * set->width;
    tensor *x = output(4, (int[]){count, 1, set->height, set->width}, NULL, NULL, NULL);
    for (int n = 0; n < count; n++) {
        label[n] = set->label[index[n]];
        for (long i = 0; i < pixels; i++)
            x->data[n * pixels + i] = (set->pixels[index[n] * pixels + i] - mean) / deviation;
    }
    return x;
}

/* A text as ids: the end of the text before it, then its bytes. Sequence n has the ids from n * length on as inputs,
 * and those one further as labels. */
static int *token;
static long tokens;

static void read_text(const char *path)
{
    uint8_t *data = read_file(path, &tokens);
    token = keep(tokens + 1, sizeof *token);
    token[0] = END_OF_TEXT;
    for (long i = 0; i < tokens; i++)
        token[i + 1] = data[i];
    tokens++;
    free(data);
}

/* Makes sums of two numbers below 50, such as "7+31=38". */
static void make_sums(void)
{
    enum { LENGTH = 20000, LINE = 16 };
    token = keep(LENGTH + LINE, sizeof *token);
    token[tokens++] = END_OF_TEXT;
    while (tokens < LENGTH) {
        const int a = (int)(50 * uniform()), b = (int)(50 * uniform());
        char line[LINE];
        snprintf(line, sizeof line, "%d+%d=%d\n", a, b, a + b);
        for (const char *at = line; *at; at++)
            token[tokens++] = *at;
    }
}

/* --- 8. Training ----------------------------------------------------------------------------------------------- */

static images train_images, test_images;

/* Returns the logits of samples, and sets their labels: one of an image, one of each token of a sequence. */
static tensor *run_network(const int *index, int count, int **label)
{
    const int all = count * o.length;
    *label = zeros(is_text() ? all : count, sizeof **label);
    if (!is_text())
        return resnet(load_images(training ? &train_images : &test_images, index, count, *label),
                      train_images.classes);
    int *id = zeros(all, sizeof *id);
    for (int i = 0; i < all; i++) {
        const int *at = token + (long)index[i / o.length] * o.length + i % o.length;
        id[i] = at[0];
        (*label)[i] = at[1];
    }
    return gpt(id, all, o.length);
}

typedef struct sums { /* over the steps of an epoch */
    double loss, hits, labels;
} sums;

/* Runs a batch and adds its results to the sums; with an optimizer, also takes step t of training. */
static void run_batch(const int *index, int count, void (*optimizer)(tensor *p, int t), int t,
                      sums *sum)
{
    int *label;
    tensor *logits = run_network(index, count, &label), *loss = cross_entropy(logits, label);
    const int classes = logits->dim[1];
    if (!isfinite(loss->data[0]))
        fail("the loss is %g in step %d: try a smaller --lr than %g", loss->data[0], t, o.lr);
    sum->loss += (double)loss->data[0] * logits->dim[0];
    sum->labels += logits->dim[0];
    for (int n = 0; n < logits->dim[0]; n++) {
        int best = 0;
        for (int k = 1; k < classes; k++)
            best = logits->data[n * classes + k] > logits->data[n * classes + best] ? k : best;
        sum->hits += best == label[n];
    }
    if (optimizer) {
        backward(loss);
        for (int i = 0; i < parameter_count; i++)
            if (parameters[i]->grad)
                optimizer(parameters[i], t);
        if (o.log && t % o.log == 0)
            printf("step %d: loss %.9g\n", t, loss->data[0]);
    }
    tape_reset();
}

/* Writes 0, 1, ..., count - 1 in random order (Fisher & Yates, "Statistical tables", 1938), or in that order. */
static void set_order(int *index, int count, bool shuffle)
{
    for (int i = 0; i < count; i++) {
        const int j = shuffle ? (int)(uniform() * (i + 1)) : i;
        index[i] = index[j];
        index[j] = i;
    }
}

/* Returns the percentage of test images whose class the network finds. */
static double evaluate(void)
{
    int *index = zeros(test_images.count, sizeof *index); /* until run_batch() frees it */
    sums sum = {0};
    training = false;
    set_order(index, test_images.count, false);
    run_batch(index, test_images.count, NULL, 0, &sum);
    training = true;
    return 100 * sum.hits / sum.labels;
}

/* Trains in epochs of whole batches; samples that are left over may come in after the next shuffle. */
static void train(int samples, void (*optimizer)(tensor *p, int t))
{
    int *index = keep(samples, sizeof *index), t = 0;
    if (samples < o.batch)
        fail("%d samples are fewer than --batch %d", samples, o.batch);
    for (int epoch = 1; o.steps ? t < o.steps : epoch <= o.epochs; epoch++) {
        const clock_t begin = clock();
        sums sum = {0};
        set_order(index, samples, o.shuffle);
        for (int at = 0; at + o.batch <= samples && (!o.steps || t < o.steps); at += o.batch)
            run_batch(index + at, o.batch, optimizer, ++t, &sum);
        printf("epoch %d: loss %.4f, accuracy %.1f %%", epoch, sum.loss / sum.labels,
               100 * sum.hits / sum.labels);
        if (!is_text())
            printf(", of test images %.1f %%", evaluate());
        printf(", %.1f s\n", (double)(clock() - begin) / CLOCKS_PER_SEC);
        fflush(stdout);
    }
    free(index);
}

/* --- 9. Options ------------------------------------------------------------------------------------------------ */

static const struct option {
    const char *name, *start, *help;
    const char **text;
    int *whole;
    double *number;
} options[] = {
    {"data", NULL, "folder of idx files, or a text file", .text = &o.data},
    {"weights", NULL, "safetensors file of initial weights", .text = &o.weights},
    {"optim", NULL, "sgd, adamw or shampoo; resnet: sgd, gpt: adamw", .text = &o.optim},
    {"lr", "0", "learning rate; 0: sgd 0.05, adamw and shampoo 0.003", .number = &o.lr},
    {"block", "64", "shampoo: largest side of a block", .whole = &o.block},
    {"frequency", "10", "shampoo: steps between inverse roots", .whole = &o.frequency},
    {"width", "0", "channels of the first stage, features of a token; 0: 4, 64", .whole = &o.width},
    {"layers", "2", "layers of a gpt", .whole = &o.layers},
    {"heads", "4", "heads of a gpt's attention", .whole = &o.heads},
    {"length", "64", "tokens of a sequence", .whole = &o.length},
    {"epochs", "5", "passes over the data", .whole = &o.epochs},
    {"steps", "0", "training steps; 0: by epochs", .whole = &o.steps},
    {"batch", "16", "samples of a step", .whole = &o.batch},
    {"images", "1000", "training images; 0: all", .whole = &o.images},
    {"shuffle", "1", "0: keep the order of samples", .whole = &o.shuffle},
    {"log", "0", "steps between lines; 0: a line per epoch alone", .whole = &o.log},
    {"seed", "1", "seed of initial values and order", .whole = &o.seed},
};
enum { OPTIONS = sizeof options / sizeof *options };

static void set_option(const struct option *p, const char *value)
{
    char *end = NULL;
    const double number = value ? strtod(value, &end) : 0;
    if (p->text)
        *p->text = value;
    else if (*end || end == value || !(number >= 0 && number <= 1e9))
        fail("--%s: '%s' is not a number from 0 to 1e9", p->name, value);
    else if (p->number)
        *p->number = number;
    else
        *p->whole = (int)number;
}

static const struct option *find_option(const char *word)
{
    for (int i = 0; i < OPTIONS && !strncmp(word, "--", 2); i++)
        if (!strcmp(options[i].name, word + 2))
            return &options[i];
    fail("%s is unknown; --help lists all options", word);
}

static void read_command_line(int count, char **word)
{
    for (int i = 0; i < OPTIONS; i++)
        set_option(&options[i], options[i].start);
    for (int at = 2; at < count; at += 2) {
        const struct option *found = find_option(word[at]);
        if (at + 1 == count)
            fail("%s needs a value", word[at]);
        set_option(found, word[at + 1]);
    }
    o.width = o.width ? o.width : is_text() ? 64 : 4;
    if (!o.length || !o.block || !o.frequency || !o.heads || !o.batch || o.width > 4096)
        fail(
            "--length, --batch, --block, --frequency, --heads: 0 is too small; --width: at most 4096");
    if (is_text() && o.width % o.heads)
        fail("--width %d is not a multiple of --heads %d", o.width, o.heads);
}

static int print_help(void)
{
    printf("one_file resnet|gpt [--OPTION VALUE]...\n");
    for (int i = 0; i < OPTIONS; i++)
        printf("  --%-10s %s [%s]\n", options[i].name, options[i].help,
               options[i].start ? options[i].start : "");
    return 0;
}

static const struct method {
    const char *name;
    void (*step)(tensor *p, int t);
    double lr, weight_decay;
} methods[] = {
    {"sgd", sgd, 0.05, 1e-4}, {"adamw", adamw, 0.003, 0.01}, {"shampoo", shampoo, 0.003, 0.1}, {0}};

int main(int count, char **word)
{
    const struct method *m = methods;
    o.model = count > 1 ? word[1] : "--help";
    if (!strcmp(o.model, "--help"))
        return print_help();
    if (!is_text() && strcmp(o.model, "resnet") != 0)
        fail("'%s' is not resnet or gpt", o.model);
    read_command_line(count, word);
    while (m->name && strcmp(m->name, o.optim ? o.optim : is_text() ? "adamw" : "sgd") != 0)
        m++;
    if (!m->name)
        fail("--optim: '%s' is not sgd, adamw or shampoo", o.optim);
    o.lr = o.lr > 0 ? o.lr : m->lr;
    o.weight_decay = m->weight_decay;
    random_state += (uint64_t)o.seed * 1442695040888963407U;
    if (!is_text())
        open_images(&train_images, &test_images);
    else if (o.data)
        read_text(o.data);
    else
        make_sums();
    train(is_text() ? (int)((tokens - 1) / o.length) : train_images.count, m->step);
    return 0;
}
