/** Entries by which an optimizer takes part in --optim-stats: rules and numbers of parameters, blocks and factors. See
 *  docs/guides/optim-stats.md. */
#ifndef LATHER_EXT_OPTIM_STATS_H
#define LATHER_EXT_OPTIM_STATS_H

#include "lather/optim.h"

#include <math.h>

struct lt_slot;

/** Rule that an update really followed. The numbers are those in optim_stats.bin. */
typedef enum lt_optim_rule {
    LT_RULE_NONE,        /**< the gradient as it is: no preconditioner, or no roots yet */
    LT_RULE_ELEMENTWISE, /**< each element by its own history: SGD, AdaGrad, Adam, LARS, LAMB */
    LT_RULE_ROOT,        /**< inverse roots of factors */
    LT_RULE_EIGENBASIS,  /**< second moment in the eigenbasis of factors: SOAP */
    LT_RULE_DIAGONAL,    /**< second moment in place of factors */
    LT_RULE_GRAFTED,     /**< the grafted method alone: no roots yet, or no factors */
    LT_RULE_ADAMW,       /**< AdamW in place of the optimizer's own rule */
    LT_RULE_ORTHOGONAL,  /**< orthogonal factor of the gradient or its momentum */
    LT_RULE_SIGN,        /**< signs of the gradient */
    LT_RULE_FROZEN,      /**< not trained; set by the library, as are those below */
    LT_RULE_NO_GRADIENT, /**< no gradient in this step */
    LT_RULE_SKIPPED,     /**< a gradient of the step was not finite: nothing changed */
    LT_RULES
} lt_optim_rule;

/** Returns the rule's name, such as "no_gradient". */
LT_API const char *lt_optim_rule_name(lt_optim_rule rule);

enum { LT_MAX_STATS = 4 }; /**< most numbers per parameter that only one optimizer has */

/** A block: a part of a parameter that is preconditioned as one. The blocks of a parameter cover it
 *  without overlap. */
typedef struct lt_optim_block {
    lt_shape offset, extent; /**< its elements, in the parameter's dimensions */
    lt_shape shape; /**< its dimensions, after merging: factor d is [shape.dim[d], shape.dim[d]] */
    bool has_factor[LT_MAX_DIMS]; /**< the dimension has a matrix that can be measured */
    int owner;                    /**< rank that updates it, as lt_slot.owner */
    lt_optim_rule rule; /**< rule of the last update; valid at the owner, as graft_ratio */
    double graft_ratio; /**< factor of the update by grafting; NaN: none */
} lt_optim_block;

/** A factor to measure. The caller frees the tensors in temporary. */
typedef struct lt_optim_factor {
    bool
        numbers_only; /**< in: leave out matrix, basis and epsilon, as no spectrum is measured now */
    const lt_tensor *matrix; /**< symmetric [n,n], contiguous; NULL: none yet */
    const lt_tensor *basis;  /**< its last eigenvectors [n,n], in columns; NULL: none */
    lt_tensor *temporary[2]; /**< owned tensors that matrix and basis may be; else NULL */
    double epsilon;          /**< as it is added to eigenvalues; NaN: none */
    bool is_relative;        /**< epsilon is a fraction of the largest eigenvalue */
    int64_t age;             /**< steps since the factor that the root in use is of; -1: no root */
    double residual;         /**< residual of the last root by its solver; NaN: not measured */
    int64_t failures;        /**< consecutive refreshes without a new root */
} lt_optim_factor;

/** Computes the rule of a slot and the numbers named by lt_optim_ops.stat_name; NaN: does not apply. Called at
 *  the owner, after a step that updated the slot. *rule is that of the slot's first block or, without blocks,
 *  LT_RULE_ELEMENTWISE. It may read the device, but must not change state. */
typedef lt_status lt_stats_fn(lt_optim *self, const struct lt_slot *slot, lt_optim_rule *rule,
                              double out[LT_MAX_STATS]);
/** Describes block number `block` of a slot, from 0; returns false past the last. Called on every rank, also for
 *  slots of other owners, from before the first step on. */
typedef bool lt_stat_block_fn(const lt_optim *self, const struct lt_slot *slot, size_t block,
                              lt_optim_block *out);
/** Gives a block's factor of dimension dim to measure: all members of *out but numbers_only are zero before. Called at the owner,
 *  after a step. */
typedef lt_status lt_stat_factor_fn(lt_optim *self, const struct lt_slot *slot, size_t block,
                                    int dim, lt_optim_factor *out);

/** How an optimizer updates a parameter. */
typedef struct lt_param_rule {
    const char *param;
    lt_shape shape;
    const char *rule; /**< the rule's name or, of an optimizer with one rule, the optimizer's */
    int64_t blocks;   /**< number of blocks or matrices of the parameter; 0: it has none */
    lt_shape block;   /**< dimensions of the first */
    double lr_scale;  /**< learning rate relative to that of the step */
} lt_param_rule;
/** Sets the rule that a slot has once preconditioning has begun, and multiplies lr_scale by the rule's factor. */
typedef void lt_describe_fn(const lt_optim *self, const struct lt_slot *slot, lt_param_rule *out);
/** Describes trained parameter number index. Borrows: the optimizer has the strings. Errors: LT_END past the last. */
LT_API LT_MUST_CHECK lt_status lt_optim_param_rule(const lt_optim *optim, size_t index,
                                                   lt_param_rule *out);

#endif
