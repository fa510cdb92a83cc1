/** A model divided over the ranks of a mesh, as its layers see it. */
#ifndef LATHER_TENSOR_PARALLEL_H
#define LATHER_TENSOR_PARALLEL_H

#include "lather/ext/exchange.h"

/** The ranks that hold one copy of a model; groups are borrowed from a mesh, for the model's life.
 *  In one dimension features and heads are divided over row; on a grid rows of activations over depth and
 *  column, features over row. */
typedef struct lt_tensor_parallel {
    lt_exchange *row;            /**< in one dimension all ranks of the copy */
    lt_exchange *column, *depth; /**< NULL in one dimension */
    lt_exchange *model;          /**< all ranks of the copy */
    bool
        sequence; /**< one dimension: rows are divided between products, where they meet no weights */
    bool overlap; /**< products begin before an exchange is done; else the same bits, later */
} lt_tensor_parallel;

#endif
