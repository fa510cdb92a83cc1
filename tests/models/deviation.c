/* Reads a parameter from the device and computes its deviation and largest absolute value. */

#include "deviation.h"

#include "near.h"

#include <stdlib.h>

double deviation_of(const lt_params *params, const char *name, double *most)
{
    const lt_param *param = lt_params_find(params, name);
    assert_non_null(param);
    const size_t bytes = lt_tensor_bytes(param->value), count = bytes / sizeof(float);
    float *host = malloc(bytes);
    double square = 0;
    assert_ok(lt_tensor_read(param->value, host, bytes));
    *most = 0;
    for (size_t i = 0; i < count; i++) {
        square += (double)host[i] * (double)host[i];
        *most = fmax(*most, fabs((double)host[i]));
    }
    free(host);
    return sqrt(square / (double)count);
}
