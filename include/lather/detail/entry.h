/** Declaration of a backend's kernels. */
#ifndef LATHER_DETAIL_ENTRY_H
#define LATHER_DETAIL_ENTRY_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/view.h"

/** Declares lt_NAME_fn, the type of kernel NAME, from its parameters; the comment above each use has the
 *  formula. (src/tensor/backend/kernel_stubs.c redefines it to make a stub for each kernel that a backend lacks.) */
#ifndef LT_ENTRY
#define LT_ENTRY(name, ...) typedef lt_status lt_##name##_fn(__VA_ARGS__)
#endif

/* Each header of kernels ends with their list LT_..._ENTRIES(X), with rows X(name, kind, cpu):
 *
 *   kind  BASIC: never NULL in ref and cpu; NULL in another backend is LT_E_UNSUPPORTED, naming the kernel
 *         HOST: as BASIC, but only backends with host memory have it so far
 *         FUSED: optional; if NULL, the operation composes it of basic kernels
 *   cpu   OWN: built-in kernel of the cpu backend; REF: ref's; NONE: NULL
 *
 * LT_BACKEND_ENTRIES in detail/backend.h joins these lists. The kernel table, ref's and cpu's tables and
 * the coverage of the tests are generated from it. */

#endif
