/* Optimizers by name, for the benchmarks that step one. */
#ifndef BENCH_OPTIM_H
#define BENCH_OPTIM_H

#include "lather/ext/fail.h"
#include "lather/optim.h"
#include "lather/optim_config.h"
#include "lather/shampoo.h"

/* The names that lt_optim_open() takes, and the same as choices of an option, there with "all|" in front:
 * filled by bench_list_optims(). */
enum { BENCH_OPTIMS = 64 };
extern const char *bench_optims[BENCH_OPTIMS];
extern char bench_all_optims[];
#define BENCH_OPTIM_CHOICES (bench_all_optims + 4)
void bench_list_optims(void);

/* True if the name is one of Shampoo's; out: the config of its preset. */
bool bench_shampoo_config(lt_shampoo_config *out, const char *name);

/* The sides of a Shampoo's factors and how many there are of each, the largest first, as `bench roots
 * --sizes` and `peer.py --eigh` read it: "2048x7,1152x4"; of another optimizer "". */
lt_status bench_factor_sides(lt_optim *optim, char *out, size_t size);

#endif
