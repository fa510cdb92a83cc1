/* Muon's matrices: the parameters that it orthogonalizes, or their parts. */
#ifndef LT_OPTIM_MUON_MATRIX_H
#define LT_OPTIM_MUON_MATRIX_H

#include "optim/registry/splits.h"

#include "lather/muon.h"

/* A parameter, or a part of a joined one: the matrix of its first dimension and all others. */
typedef struct lt_muon_matrix {
    lt_slot *slot;
    lt_split split;
    int part;
    int64_t rows, cols;
    double tall;   /* outputs over inputs, for LT_MUON_ORIGINAL */
    int dim;       /* smaller dimension */
    int64_t small; /* extent of dim */
    int64_t at;    /* offset in X and Y within a batch */
} lt_muon_matrix;

/* Lists the matrices, those of a parameter one after another; AdamW updates the other parameters. adamw: out, one
 * flag per slot. Owns: the caller frees *matrix by lt_free(). Errors: LT_E_ARG (adamw_params or split does not fit),
 * LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_muon_list_matrices(const lt_muon_config *config, const lt_optim *optim,
                                              bool *adamw, lt_muon_matrix **matrix, size_t *count);

/* Returns the dimension of a parameter's matrices that has the outputs, and a matrix's number of outputs. */
int lt_muon_outputs_dim(const lt_param *param);
int64_t lt_muon_outputs(const lt_muon_matrix *x);
/* Returns the matrix's shape in the parameter's dimensions, and its elements of a tensor shaped like the parameter. */
lt_shape lt_muon_matrix_shape(const lt_muon_matrix *x);
lt_view lt_muon_matrix_of(const lt_muon_matrix *x, const lt_tensor *tensor);

#endif
