/* Cache of execution plans by key: objects in memory for this process, and text in files for later ones. */
#ifndef LT_CUDA_PLAN_CACHE_H
#define LT_CUDA_PLAN_CACHE_H

#include "lather/ext/fail.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct lt_plan_cache lt_plan_cache;
typedef void lt_plan_free_fn(void *plan);

/* folder NULL: $XDG_CACHE_HOME/lather, else ~/.cache/lather; "": no files. The folder is created when the first text
 * is written. */
LT_MUST_CHECK lt_status lt_plan_cache_new(lt_plan_cache **out, const char *folder,
                                          lt_plan_free_fn *release);
/* Frees it and the plans in it. */
void lt_plan_cache_free(lt_plan_cache **cache);

/* Returns the plan of an equal key, or NULL; the cache owns it. */
void *lt_plan_cache_find(const lt_plan_cache *cache, const char *key);
/* Takes ownership of the plan, also on failure. It replaces an older one of an equal key, which lives until the cache
 * is freed. */
LT_MUST_CHECK lt_status lt_plan_cache_add(lt_plan_cache *cache, const char *key, void *plan);

/* Returns the text written for an equal key, from malloc(), or NULL if absent or incomplete. */
char *lt_plan_cache_read(const lt_plan_cache *cache, const char *key);
/* Writes a text atomically. Returns false, with a message, if it cannot: then the next process autotunes again. */
bool lt_plan_cache_write(const lt_plan_cache *cache, const char *key, const char *text);
/* Returns the folder, or "" if it has no files. */
const char *lt_plan_cache_folder(const lt_plan_cache *cache);

#endif
