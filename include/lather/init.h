/** Initial values, drawn from (seed, parameter name): the same for any order of layers. */
#ifndef LATHER_INIT_H
#define LATHER_INIT_H

#include "lather/module.h"

/** Normal, mean 0. */
LT_API LT_MUST_CHECK lt_status lt_init_normal(lt_param *param, double deviation, uint64_t seed);
/** Uniform in [-bound, bound). */
LT_API LT_MUST_CHECK lt_status lt_init_uniform(lt_param *param, double bound, uint64_t seed);
/** Normal with deviation sqrt(2 / fan_out), for layers before a relu.
 *  Source: He et al., "Delving Deep into Rectifiers", ICCV 2015, equations 10 and 14. */
LT_API LT_MUST_CHECK lt_status lt_init_kaiming_fan_out(lt_param *param, uint64_t seed);
/** The weights of a model: filters, [K,C,R,S], by Kaiming, matrices uniform in 1/sqrt(fan_in); biases,
 *  gains, shifts and what has another shape stay as their layers made them. Errors: LT_E_NOMEM.
 *  Source: what PyTorch's torchvision.models.resnet and torch.nn.Linear do. */
LT_API LT_MUST_CHECK lt_status lt_init_module(lt_module *module, uint64_t seed);

#endif
