/* Plans by key: in memory for this process, and as text in a folder for later ones. Knows nothing of
 * what a plan is. */
#ifndef LT_CUDA_PLAN_CACHE_H
#define LT_CUDA_PLAN_CACHE_H

#include "lather/ext/fail.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct lt_plan_cache lt_plan_cache;
typedef void lt_plan_free_fn(void *plan);

/* folder NULL: $XDG_CACHE_HOME/lather, else ~/.cache/lather; "": memory alone. It is made when the
 * first text is written. */
LT_MUST_CHECK lt_status lt_plan_cache_new(lt_plan_cache **out, const char *folder,
                                          lt_plan_free_fn *release);
/* And all plans in it. */
void lt_plan_cache_free(lt_plan_cache **cache);

/* The plan of an equal key, or NULL. Lent. */
void *lt_plan_cache_find(const lt_plan_cache *cache, const char *key);
/* Owns the plan from now on, also on failure. It comes before an older one of an equal key, which stays
 * alive until the cache is freed. */
LT_MUST_CHECK lt_status lt_plan_cache_add(lt_plan_cache *cache, const char *key, void *plan);

/* What was written for an equal key, from malloc(), or NULL: nothing was, or not all of it. */
char *lt_plan_cache_read(const lt_plan_cache *cache, const char *key);
/* The file is complete or absent, whatever kills the process. False: it could not be written, which
 * costs the next process the time to plan, no more; the message says why. */
bool lt_plan_cache_write(const lt_plan_cache *cache, const char *key, const char *text);
/* "" if there is none. */
const char *lt_plan_cache_folder(const lt_plan_cache *cache);

#endif
