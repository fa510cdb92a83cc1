/* Runs a convolution's graph: assigns memory to its tensors, autotunes an execution plan at the first call with a
 * shape, which is cached in memory and on disk, and runs this project's kernels before and after it. */
#ifndef LT_CUDA_CONV_PLAN_H
#define LT_CUDA_CONV_PLAN_H

#include "conv_graph.h"
#include "tensor/backend/cuda/operands.h"

#include "lather/detail/pixel_kernels.h"

typedef struct lt_conv_call lt_conv_call;
typedef lt_status lt_conv_step_fn(lt_cuda *c, const lt_conv_call *call);

struct lt_conv_call {
    lt_conv_problem problem;
    lt_operand operand[LT_CONV_SLOTS]; /* by tensor; without a view: in the workspace */
    size_t work[LT_CONV_SLOTS];        /* bytes there */
    lt_conv_step_fn *before, *after;   /* kernels before and after the graph, or NULL */
    lt_conv_step_fn *other;            /* computes the same results by other entries, or NULL */
    bool fused; /* `other` composes operations that the graph fuses: subject to --fused */
    const lt_conv_pixels *pixels;   /* the source of x, or NULL */
    const void *context;            /* argument of the functions above */
    const lt_conv2d_config *config; /* arguments of the entry */
    const lt_view *x, *w, *y;
    void *memory[LT_CONV_SLOTS]; /* out: of each tensor, while the functions above run */
    bool trying;                 /* out: candidates are being timed */
};

/* Returns whether cuDNN may have an engine that fuses other operations to it. */
bool lt_conv_may_fuse(const lt_conv_problem *p);

/* Returns a call on these tensors or their gradients, as the form requires. */
lt_conv_call lt_conv_make_call(lt_conv_form form, const lt_conv2d_config *config, const lt_view *x,
                               const lt_view *w, const lt_view *y);
/* Called within an entry, after lt_cuda_begin(). */
lt_status lt_conv_run(lt_cuda *c, lt_conv_call *call);

/* Changes a call of the first convolution into one on blocks of pixels (space_to_depth.h), with kernels before it and,
 * for the weight's gradient, after it; leaves other calls unchanged. The alternative is the original convolution,
 * unless the call has one. */
void lt_conv_use_space_to_depth(lt_conv_call *call);
/* The same for a call whose input is pixels: the forward pass writes their blocks to pixels->folded, the gradient
 * reads them. */
void lt_conv_use_pixels(lt_conv_call *call, lt_view *blocks, const lt_conv_pixels *pixels);

/* Row i of [rows,C] as a tensor of the graph, and as an operand that needs no copy. */
lt_view lt_conv_row_view(const lt_view *rows, int i);
lt_operand lt_conv_vector_operand(const lt_view *view, lt_dtype dtype, bool written);
/* Directs the sums of y and of y^2, tensors slot and slot + 1, to row[0] and row[1], or to the workspace if row is
 * NULL. */
void lt_conv_set_sums_memory(lt_conv_call *call, int slot, const lt_view *row);
/* Sets *sums to true if the sums are results, or, if sums is NULL, computes stats from them. */
lt_status lt_conv_finish_sums(lt_cuda *c, const lt_conv_call *call, int slot, const lt_view *stats,
                              bool *sums);

#endif
