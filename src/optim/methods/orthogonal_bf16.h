/* Products of Newton-Schulz iterations in bf16 (orthogonal.c). */
#ifndef LT_OPTIM_ORTHOGONAL_BF16_H
#define LT_OPTIM_ORTHOGONAL_BF16_H

#include "orthogonal_job.h"

enum { LT_ROUNDED_X, LT_ROUNDED_Y, LT_ROUNDED_SQUARE, LT_ROUNDED };

/* Rounded matrices [n,rest] of the smaller dimension and all others, and squares [n,n], one after another. Zero it before
 * lt_orthogonal_bf16_open(). */
typedef struct lt_orthogonal_bf16 {
    lt_tensor *memory[LT_ROUNDED];
    lt_view (*matrix)[LT_ROUNDED];
} lt_orthogonal_bf16;

/* Allocates memory for batches of up to `matrices`. Errors: LT_E_NOMEM, LT_E_DEVICE. */
lt_status lt_orthogonal_bf16_open(lt_orthogonal_bf16 *o, lt_device *device, size_t matrices,
                                  int64_t elements, int64_t squares);
void lt_orthogonal_bf16_close(lt_orthogonal_bf16 *o);

/* Rounds x of each job; the following calls use these matrices X. */
lt_status lt_orthogonal_bf16_load(lt_orthogonal_bf16 *o, const lt_optim *optim,
                                  const lt_orthogonal_job *job, size_t count);
/* A = X X^T, B = A A, with A rounded to bf16 as a factor. a, b: the squares, one after another. */
lt_status lt_orthogonal_bf16_square(lt_orthogonal_bf16 *o, const lt_optim *optim,
                                    const lt_tensor *a, const lt_tensor *b, size_t count);
/* X = B X, with B and the result rounded to bf16. */
lt_status lt_orthogonal_bf16_multiply(lt_orthogonal_bf16 *o, const lt_optim *optim,
                                      const lt_tensor *b, size_t count);
/* Writes X to x of each job. */
lt_status lt_orthogonal_bf16_store(const lt_orthogonal_bf16 *o, const lt_optim *optim,
                                   const lt_orthogonal_job *job, size_t count);

#endif
