/* How headers declare small pure functions. A compiler for devices is told before where else they
 * run. */
#ifndef LT_BASE_INLINE_H
#define LT_BASE_INLINE_H

#ifndef LT_PURE
#define LT_PURE static inline
#endif

#endif
