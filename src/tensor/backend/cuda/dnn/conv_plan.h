/* Running a convolution's graph: its tensors get memory, a plan is chosen by time at the first call
 * with a shape and kept, in memory and on disk, and own kernels run before and after it. */
#ifndef LT_CUDA_CONV_PLAN_H
#define LT_CUDA_CONV_PLAN_H

#include "conv_graph.h"
#include "tensor/backend/cuda/operands.h"

#include "lather/detail/pixel_kernels.h"

typedef struct lt_conv_call lt_conv_call;
typedef lt_status lt_conv_step_fn(lt_cuda *c, const lt_conv_call *call);

struct lt_conv_call {
    lt_conv_problem problem;
    lt_operand operand[LT_CONV_SLOTS]; /* by number of the tensor; without a view: work memory */
    size_t work[LT_CONV_SLOTS];        /* bytes of it */
    lt_conv_step_fn *before, *after;   /* own kernels around the graph, or NULL */
    lt_conv_step_fn *other;         /* another way to the same results, by other entries, or NULL */
    bool fused;                     /* `other` composes what this graph fuses: --fused decides */
    const lt_conv_pixels *pixels;   /* that x is made of, or NULL */
    const void *context;            /* theirs */
    const lt_conv2d_config *config; /* what the call was made of */
    const lt_view *x, *w, *y;
    void *memory[LT_CONV_SLOTS]; /* out: of each tensor, while the steps run */
    bool trying;                 /* out: ways are timed */
};

/* Whether there may be a kernel for it that does more than convolve. */
bool lt_conv_may_fuse(const lt_conv_problem *p);

/* A call on these tensors, or on the gradients of x, w, y, as the form says. */
lt_conv_call lt_conv_call_of(lt_conv_form form, const lt_conv2d_config *config, const lt_view *x,
                             const lt_view *w, const lt_view *y);
/* Whether it is of a dtype that there are graphs for. Errors: LT_E_UNSUPPORTED. */
lt_status lt_conv_check(const lt_cuda *c, const lt_conv_call *call);
/* In the frame of an entry: after lt_cuda_begin(). */
lt_status lt_conv_run(lt_cuda *c, lt_conv_call *call);

/* Row number i of [rows,C] as a tensor of the graph, and it as an operand that is used as it is. */
lt_view lt_conv_row(const lt_view *rows, int i);
lt_operand lt_conv_vector(const lt_view *view, lt_dtype dtype, bool written);
/* Where sums of y and of its squares go, which have the numbers slot and slot + 1: there, or to work memory. */
void lt_conv_place_sums(lt_conv_call *call, int slot, const lt_view *row);
/* What is made of them: they stay, and *sums says so, or become moments. */
lt_status lt_conv_take_sums(lt_cuda *c, const lt_conv_call *call, int slot, const lt_view *stats,
                            bool *sums);

#endif
