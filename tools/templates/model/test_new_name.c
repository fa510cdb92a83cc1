/* Compares the logits of new_name with its formula in double. */

#include "new_name.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <stdio.h>

enum { N = 2, C = 3, SIDE = 5, OUT = 3, WIDTH = 4, CLASSES = 3 };
static const double tolerance = 1e-12;

typedef struct problem {
    lt_device *device;
    lt_module *model;
    lt_params params;
    lt_tape *tape;
    lt_tensor *input;
    double x[N][C][SIDE][SIDE], logits[N][CLASSES];
    double conv_w[WIDTH][C][3][3], conv_b[WIDTH], fc_w[CLASSES][WIDTH], fc_b[CLASSES];
} problem;

/* Writes numbers to a parameter and keeps them for the formula. */
static lt_status set(const problem *p, const char *name, double *values, int count)
{
    lt_param *param = lt_params_find(&p->params, name);
    if (!param || lt_tensor_count(param->value) != count)
        return lt_fail(LT_E_ARG, "the model has no %s of %d elements", name, count);
    for (int i = 0; i < count; i++)
        values[i] = sin(1.0 + i * i + count);
    return lt_tensor_write(param->value, values, (size_t)count * sizeof *values);
}

/* Computes an element of the convolution before relu. */
static double convolve(const problem *p, int n, int k, int row, int column)
{
    double sum = p->conv_b[k];
    for (int c = 0; c < C; c++)
        for (int r = 0; r < 3; r++)
            for (int s = 0; s < 3; s++) {
                const int h = 2 * row + r - 1, w = 2 * column + s - 1;
                if (h >= 0 && h < SIDE && w >= 0 && w < SIDE)
                    sum += p->conv_w[k][c][r][s] * p->x[n][c][h][w];
            }
    return sum;
}

static double logit(const problem *p, int n, int class)
{
    double sum = p->fc_b[class];
    for (int k = 0; k < WIDTH; k++) {
        double mean = 0;
        for (int i = 0; i < OUT * OUT; i++)
            mean += fmax(0, convolve(p, n, k, i / OUT, i % OUT)) / (OUT * OUT);
        sum += p->fc_w[class][k] * mean;
    }
    return sum;
}

static lt_status compare(problem *p)
{
    lt_tape_reset(p->tape, (lt_pass){0});
    lt_tensor *y = lt_module_forward(p->model, p->tape, p->input);
    LT_TRY(lt_tape_status(p->tape));
    LT_TRY(lt_tensor_read(y, p->logits, sizeof p->logits));
    for (int n = 0; n < N; n++)
        for (int i = 0; i < CLASSES; i++)
            if (!(fabs(p->logits[n][i] - logit(p, n, i)) <= tolerance))
                return lt_fail(LT_E_ARG, "logit %d of image %d is %.17g, the formula has %.17g", i,
                               n, p->logits[n][i], logit(p, n, i));
    return LT_OK;
}

static lt_status check(problem *p)
{
    const lt_device_config exact = {.f64 = true};
    const lt_model_spec spec = {.channels = C, .size = SIDE, .classes = CLASSES};
    const int64_t width = WIDTH; /* the options' struct */
    double *x = (double *)p->x;
    for (int i = 0; i < N * C * SIDE * SIDE; i++)
        x[i] = cos(1.7 * i);
    LT_TRY(lt_device_open(&p->device, "ref", &exact));
    LT_TRY(new_name_family()->make(&p->model, p->device, &width, &spec));
    LT_TRY(lt_module_params(p->model, &p->params));
    LT_TRY(set(p, "conv.weight", (double *)p->conv_w, WIDTH * C * 3 * 3));
    LT_TRY(set(p, "conv.bias", p->conv_b, WIDTH));
    LT_TRY(set(p, "fc.weight", (double *)p->fc_w, CLASSES * WIDTH));
    LT_TRY(set(p, "fc.bias", p->fc_b, CLASSES));
    LT_TRY(lt_tape_new(&p->tape, p->device));
    LT_TRY(lt_tensor_new(&p->input, p->device, LT_F64, LT_SHAPE(N, C, SIDE, SIDE)));
    LT_TRY(lt_tensor_write(p->input, p->x, sizeof p->x));
    return compare(p);
}

int main(void)
{
    problem p = {0};
    const lt_status st = check(&p);
    if (st)
        fprintf(stderr, "new_name: %s\n", lt_error_message());
    else
        printf("new_name: %d logits equal the formula\n", N * CLASSES);
    lt_tensor_free(&p.input);
    lt_tape_free(&p.tape);
    lt_params_clear(&p.params);
    lt_module_free(&p.model);
    lt_device_close(&p.device);
    return st ? 1 : 0;
}
