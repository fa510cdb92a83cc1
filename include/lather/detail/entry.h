/** How the functions of a backend's table, its entries, are declared. */
#ifndef LATHER_DETAIL_ENTRY_H
#define LATHER_DETAIL_ENTRY_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/view.h"

/** Declares lt_NAME_fn, the type of entry NAME, from its parameters; the comment above it says what
 *  the entry computes. (The library defines it anew to make a function for each entry that a
 *  backend lacks: src/tensor/backend/missing.c.) */
#ifndef LT_ENTRY
#define LT_ENTRY(name, ...) typedef lt_status lt_##name##_fn(__VA_ARGS__)
#endif

/* Each header of entries ends with the list of them, LT_..._ENTRIES(X), a row X(name, kind, cpu):
 *
 *   kind  BASIC: never NULL in ref and cpu; NULL in another backend is LT_E_UNSUPPORTED naming the entry
 *         FUSED: NULL where the backend has none; the operation is composed of basic ones instead
 *   cpu   OWN: the cpu backend has a kernel of its own; LIBRARY: oneDNN's or LAPACK's in a build with
 *         it, else ref's; REF: ref's; NONE: NULL
 *
 * LT_BACKEND_ENTRIES of ext/backend.h is all of them: the table's members, ref's and cpu's tables, and
 * what the tests must cover are made of it. */

#endif
