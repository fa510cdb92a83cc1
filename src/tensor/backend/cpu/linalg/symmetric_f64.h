/* Eigendecompositions of symmetric matrices in f64. */
#ifndef LT_BACKEND_CPU_SYMMETRIC_F64_H
#define LT_BACKEND_CPU_SYMMETRIC_F64_H

#include <stdbool.h>
#include <stdint.h>

/* Diagonalizes the tridiagonal matrix with diagonal d [n] and off-diagonal e [n], whose last element is unused: d
 * becomes the eigenvalues in no order, and z's rows are rotated likewise: the identity becomes eigenvectors in rows.
 * z: n rows of n elements. Returns false if it does not converge. */
bool lt_tridiagonal_ql(double *d, double *e, int64_t n, double *z);

/* Replaces symmetric a [n,n], with elements up to 1, by reflectors; writes eigenvalues in no order to d and their
 * vectors to the rows of z. work: 3 n elements. Returns false if it does not converge. */
bool lt_symmetric_eigh(double *a, int64_t n, double *d, double *z, double *work);

/* Writes rows begin .. begin + n - 1 to order + begin, by rising value: insertion sort, as they are nearly sorted lists.
 */
void lt_sort_rows(const double *value, int64_t begin, int64_t n, int64_t *order);

#endif
