/* Compares ten steps of new_name with its formula in double. */

#include "lather/device.h"
#include "lather/ext/fail.h"
#include "lather/optim_config.h"
#include "lather/plugin.h"

#include <math.h>
#include <stdio.h>

enum { COUNT = 6, STEPS = 10 };
static const double lr = 0.1, momentum = 0.9, weight_decay = 1e-4, tolerance = 1e-12;

static double gradient(int step, int i)
{
    return sin(3.0 * step + i);
}

static lt_status step(lt_optim *optim, lt_param *param, int number)
{
    double g[COUNT];
    const lt_step numbers = {.lr = lr, .attempt = number};
    for (int i = 0; i < COUNT; i++)
        g[i] = gradient(number, i);
    LT_TRY(lt_tensor_write(param->grad, g, sizeof g));
    param->has_grad = true;
    return lt_optim_step(optim, &numbers);
}

static lt_status compare(lt_optim *optim, lt_param *param)
{
    double p[COUNT], m[COUNT] = {0}, got[COUNT];
    for (int i = 0; i < COUNT; i++)
        p[i] = 1;
    for (int number = 1; number <= STEPS; number++) {
        LT_TRY(step(optim, param, number));
        for (int i = 0; i < COUNT; i++) {
            m[i] = momentum * m[i] + (1 - momentum) * gradient(number, i);
            p[i] = p[i] - lr * weight_decay * p[i] - lr * m[i];
        }
    }
    LT_TRY(lt_tensor_read(param->value, got, sizeof got));
    for (int i = 0; i < COUNT; i++)
        if (!(fabs(got[i] - p[i]) <= tolerance))
            return lt_fail(LT_E_ARG, "element %d is %.17g after %d steps, the formula has %.17g", i,
                           got[i], STEPS, p[i]);
    return LT_OK;
}

lt_status lt_plugin(const lt_plugin_host *host); /* defined by LT_PLUGIN() */

int main(void)
{
    const lt_device_config exact = {.f64 = true};
    lt_device *device = NULL;
    lt_param param = {0};
    lt_params params = {0};
    lt_optim *optim = NULL;
    lt_status st = lt_plugin(&(lt_plugin_host){sizeof(lt_plugin_host), lt_version(), "test"});
    st = st ? st : lt_device_open(&device, "ref", &exact);
    st = st ? st : lt_param_init(&param, device, "", "w", LT_SHAPE(2, 3), 1);
    st = st ? st : lt_params_add(&params, &param);
    st = st ? st : lt_optim_open(&optim, "new_name", &params);
    st = st ? st : compare(optim, &param);
    if (st)
        fprintf(stderr, "new_name: %s\n", lt_error_message());
    else
        printf("new_name: %d steps equal the formula\n", STEPS);
    lt_optim_free(&optim);
    lt_params_clear(&params);
    lt_param_clear(&param);
    lt_device_close(&device);
    return st ? 1 : 0;
}
