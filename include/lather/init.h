/** Initial values, drawn from a stream per (seed, parameter name), so that the order of layers
 *  does not matter. */
#ifndef LATHER_INIT_H
#define LATHER_INIT_H

#include "lather/module.h"

/** Fills with normal values of mean 0. */
LT_API LT_MUST_CHECK lt_status lt_init_normal(lt_param *param, double deviation, uint64_t seed);
/** Fills with uniform values in [-bound, bound). */
LT_API LT_MUST_CHECK lt_status lt_init_uniform(lt_param *param, double bound, uint64_t seed);
/** Fills with normal values of mean 0 and deviation sqrt(2 / fan_out), for layers before a relu.
 *  Source: He et al., "Delving Deep into Rectifiers", ICCV 2015, equations 10 and 14. */
LT_API LT_MUST_CHECK lt_status lt_init_kaiming_fan_out(lt_param *param, uint64_t seed);
/** Initialises the weights of a model: filters [K,C,R,S] by Kaiming's rule, matrices uniform
 *  within 1/sqrt(fan_in). Biases, norm parameters and weights of other shapes keep the values
 *  that their layers gave them. Errors: LT_E_NOMEM. Source: PyTorch's torchvision.models.resnet
 *  and torch.nn.Linear. */
LT_API LT_MUST_CHECK lt_status lt_init_module(lt_module *module, uint64_t seed);

#endif
