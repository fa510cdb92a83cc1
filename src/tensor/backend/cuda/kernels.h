/* The parts of the backend that are kernels: each sets its entries of the table. */
#ifndef LT_CUDA_KERNELS_H
#define LT_CUDA_KERNELS_H

#include "lather/ext/backend.h"

void lt_cuda_install_elementwise(lt_backend *be);
void lt_cuda_install_cast(lt_backend *be);
void lt_cuda_install_pixels(lt_backend *be);
void lt_cuda_install_scalars(lt_backend *be);
void lt_cuda_install_sum(lt_backend *be);
void lt_cuda_install_norm_stats(lt_backend *be);
void lt_cuda_install_norm_apply(lt_backend *be);
void lt_cuda_install_norm_grad(lt_backend *be);
void lt_cuda_install_pool(lt_backend *be);
void lt_cuda_install_loss(lt_backend *be);
void lt_cuda_install_optim(lt_backend *be);
void lt_cuda_install_grad_norm(lt_backend *be);
void lt_cuda_install_vec(lt_backend *be);

#endif
