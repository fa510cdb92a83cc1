/* Statistics of the running step. */
#ifndef LT_OPTIM_SHAMPOO_STATS_H
#define LT_OPTIM_SHAMPOO_STATS_H

#include "optim/shampoo/shampoo.h"

void lt_shampoo_start_stats(lt_shampoo *s);
/* Adds the time since begin to *seconds and to the profile; returns the current time. */
int64_t lt_shampoo_add_time(int64_t begin, double *seconds, const char *name);

#endif
