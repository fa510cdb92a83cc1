/* The parts of the backend: each sets its entries of the table. */
#ifndef LT_CUDA_KERNELS_H
#define LT_CUDA_KERNELS_H

#include "lather/detail/backend.h"

void lt_cuda_install_elementwise(lt_backend *be);
void lt_cuda_install_pointwise(lt_backend *be);
void lt_cuda_install_cast(lt_backend *be);
void lt_cuda_install_pixels(lt_backend *be);
void lt_cuda_install_sum(lt_backend *be);
void lt_cuda_install_norm_stats(lt_backend *be);
void lt_cuda_install_norm_apply(lt_backend *be);
void lt_cuda_install_norm_grad(lt_backend *be);
void lt_cuda_install_group_norm(lt_backend *be);
void lt_cuda_install_layernorm(lt_backend *be);
void lt_cuda_install_embedding(lt_backend *be);
void lt_cuda_install_rotary(lt_backend *be);
void lt_cuda_install_pool(lt_backend *be);
void lt_cuda_install_loss(lt_backend *be);
void lt_cuda_install_optim(lt_backend *be);
void lt_cuda_install_grad_norm(lt_backend *be);
void lt_cuda_install_vec(lt_backend *be);
void lt_cuda_install_convs(lt_backend *be);
void lt_cuda_install_fused_convs(lt_backend *be);
void lt_cuda_install_norm_convs(lt_backend *be);
void lt_cuda_install_products(lt_backend *be);
void lt_cuda_install_attention(lt_backend *be);
void lt_cuda_install_products_of_matrices(lt_backend *be);
void lt_cuda_install_functions_of_matrices(lt_backend *be);
void lt_cuda_install_rational(lt_backend *be);
void lt_cuda_install_small_matrices(lt_backend *be);
void lt_cuda_install_norms_of_matrices(lt_backend *be);
void lt_cuda_install_ritz(lt_backend *be);

/* The table itself, and that for entries that use others. */
extern lt_backend lt_cuda_entries;
const lt_backend *lt_cuda_table(void);

/* All that are kernels. */
static inline void lt_cuda_install_kernels(lt_backend *be)
{
    lt_cuda_install_elementwise(be);
    lt_cuda_install_pointwise(be);
    lt_cuda_install_cast(be);
    lt_cuda_install_pixels(be);
    lt_cuda_install_sum(be);
    lt_cuda_install_norm_stats(be);
    lt_cuda_install_norm_apply(be);
    lt_cuda_install_norm_grad(be);
    lt_cuda_install_group_norm(be);
    lt_cuda_install_layernorm(be);
    lt_cuda_install_embedding(be);
    lt_cuda_install_rotary(be);
    lt_cuda_install_pool(be);
    lt_cuda_install_loss(be);
    lt_cuda_install_optim(be);
    lt_cuda_install_grad_norm(be);
    lt_cuda_install_vec(be);
}

/* All that are functions of matrices. */
static inline void lt_cuda_install_matrices(lt_backend *be)
{
    lt_cuda_install_products_of_matrices(be);
    lt_cuda_install_functions_of_matrices(be);
    lt_cuda_install_rational(be);
    lt_cuda_install_small_matrices(be);
    lt_cuda_install_norms_of_matrices(be);
    lt_cuda_install_ritz(be);
}

#endif
