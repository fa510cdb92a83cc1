/* LT_PURE declares small pure functions in headers. Device code predefines it, for example as __device__. */
#ifndef LT_BASE_INLINE_H
#define LT_BASE_INLINE_H

#ifndef LT_PURE
#define LT_PURE static inline
#endif

#endif
