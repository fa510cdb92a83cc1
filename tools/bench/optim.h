/* Optimizers by name, for the benchmarks that step one. */
#ifndef BENCH_OPTIM_H
#define BENCH_OPTIM_H

#include "lather/ext/fail.h"
#include "lather/optim.h"
#include "lather/optim_config.h"
#include "lather/shampoo.h"

/* Names that lt_optim_open() accepts, and the same as choices of an option after "all|"; both are
 * filled by bench_list_optims(). */
enum { BENCH_OPTIMS = 64 };
extern const char *bench_optims[BENCH_OPTIMS];
extern char bench_all_optims[];
#define BENCH_OPTIM_CHOICES (bench_all_optims + 4)
void bench_list_optims(void);

/* Returns true if the name is one of Shampoo's presets; out: its config. */
bool bench_shampoo_config(lt_shampoo_config *out, const char *name);

/* Writes the sides of a Shampoo's factors with their counts, the largest first, as `bench roots --sizes`
 * and `peer.py eigh` read them: "2048x7,1152x4"; "" for another optimizer. */
lt_status bench_factor_sides(lt_optim *optim, char *out, size_t size);

#endif
