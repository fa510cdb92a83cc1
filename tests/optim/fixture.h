/* A device with a few parameters, for tests of optimizers. */
#ifndef LT_TESTS_OPTIM_FIXTURE_H
#define LT_TESTS_OPTIM_FIXTURE_H

#include "near.h"
#include "optim/shampoo/reference.h"

#include "lather/optim.h"

#include <stdlib.h>

enum { MAX_PARAMS = 5 };

typedef struct fixture {
    lt_device *device;
    lt_param param[MAX_PARAMS];
    lt_params list;
    lt_optim *optim;
    int64_t attempt;
} fixture;

static inline void fixture_open(fixture *f, bool f64)
{
    *f = (fixture){0};
    assert_ok(lt_device_open(&f->device, "ref", &(lt_device_config){.f64 = f64, .threads = 1}));
}

/* Adds a parameter; a 4-D one is a filter, stored channels-last. */
static inline lt_param *fixture_add(fixture *f, const char *name, lt_shape shape)
{
    lt_param *p = &f->param[f->list.count];
    assert_true(f->list.count < MAX_PARAMS);
    assert_ok(shape.ndim == 4 ? lt_param_init_filter(p, f->device, "", name, shape)
                              : lt_param_init(p, f->device, "", name, shape, 0));
    assert_ok(lt_params_add(&f->list, p));
    return p;
}

static inline void fixture_close(fixture *f)
{
    lt_optim_free(&f->optim);
    for (size_t i = 0; i < f->list.count; i++)
        lt_param_clear(f->list.item[i]);
    lt_params_clear(&f->list);
    lt_device_close(&f->device);
}

/* Writes doubles to a tensor of either master dtype. */
static inline void put(lt_tensor *tensor, const double *values)
{
    lt_tensor *wide = NULL;
    assert_ok(lt_tensor_new(&wide, lt_tensor_device(tensor), LT_F64, lt_tensor_shape(tensor)));
    assert_ok(lt_tensor_write(wide, values, lt_tensor_bytes(wide)));
    assert_ok(lt_tensor_copy(tensor, wide));
    lt_tensor_free(&wide);
}

static inline void get(const lt_tensor *tensor, double *values)
{
    lt_tensor *wide = NULL;
    assert_ok(lt_tensor_new(&wide, lt_tensor_device(tensor), LT_F64, lt_tensor_shape(tensor)));
    assert_ok(lt_tensor_copy(wide, tensor));
    assert_ok(lt_tensor_read(wide, values, lt_tensor_bytes(wide)));
    lt_tensor_free(&wide);
}

static inline void put_grad(lt_param *param, const double *values)
{
    put(param->grad, values);
    param->has_grad = true;
}

/* For visitors that only read tensors. */
static inline lt_status ignore_number(void *context, const char *name, int64_t *value)
{
    (void)context, (void)name, (void)value;
    return LT_OK;
}

static inline void fixture_step(fixture *f, double lr)
{
    const lt_step step = {.lr = lr, .attempt = ++f->attempt};
    assert_ok(lt_optim_step(f->optim, &step));
}

#endif
