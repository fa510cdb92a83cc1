/* How a parameter becomes blocks: which settings are for it, and what they make of its shape. */
#ifndef LT_OPTIM_SHAMPOO_CUT_H
#define LT_OPTIM_SHAMPOO_CUT_H

#include "optim/shampoo/block.h"

#include "lather/ext/optim.h"

typedef struct lt_cut {
    int dim, parts;          /* of a joined parameter: equal parts along dim; parts 1: it is none */
    lt_merged merged;        /* a part */
    bool whole[LT_MAX_DIMS]; /* of the merged shape: not cut, and without a factor */
    bool diagonal;           /* blocks keep the diagonal of their factors only */
    int64_t limit;           /* longest side of a block */
} lt_cut;

/* The cuts of all slots. Errors: LT_E_ARG (a part of that kind cannot be had, naming the parameter). */
LT_MUST_CHECK lt_status lt_cut_all(const lt_shampoo_config *config, const lt_optim *optim,
                                   lt_cut *cut);

/* A block: which part, and the box of it. */
typedef struct lt_cut_block {
    int part;
    lt_box box;
} lt_cut_block;
/* Blocks of all parts, those of a part together. */
int64_t lt_cut_count(const lt_cut *cut);
lt_cut_block lt_cut_at(const lt_cut *cut, int64_t index);
/* Where a box of a part begins in the parameter's merged indices: parts of one dimension follow each other. */
lt_shape lt_cut_offset(const lt_cut *cut, int part, const lt_box *box);
/* The part in the parameter's own memory. */
lt_view lt_cut_part(const lt_cut *cut, int part, const lt_view *parameter);
/* Merged dimensions that may have a factor. */
int lt_cut_order(const lt_cut *cut);

#endif
