/** --optim and the flags of all registered optimizers, for a program's lt_options_compose(). */
#ifndef LATHER_DETAIL_OPTIM_FLAGS_H
#define LATHER_DETAIL_OPTIM_FLAGS_H

/* Not a stable interface: may change in any release. */

#include "lather/optim.h"
#include "lather/options.h"

/** Optimizer chosen by the flags. Zero it before lt_optim_flags_open(). */
typedef struct lt_optim_flags {
    /** optimizer of --optim; set by lt_optim_flags_resolve() */
    const struct lt_optim_family *family;
    double lr;                  /**< learning rate of --lr, or that of the preset */
    void *settings;             /**< owned: the optimizer's config struct */
    struct lt_optim_rows *rows; /**< owned: option rows, private to the library */
} lt_optim_flags;

/** Makes option rows for the optimizers that are registered now; the program's selector is "optim".
 *  Errors: LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_optim_flags_open(lt_optim_flags *flags);
/** Frees the rows; call after lt_options_free(). */
LT_API void lt_optim_flags_close(lt_optim_flags *flags);

/** Tables for lt_options_compose(), in this order; others may be between them. */
enum {
    LT_OPTIM_FLAGS_COMMON, /**< the group "Optimizer" of --help */
    LT_OPTIM_FLAGS_OWN,    /**< groups of single optimizers in --help, such as "Shampoo" */
    LT_OPTIM_FLAGS_TABLES
};
LT_API lt_option_table lt_optim_flags_table(const lt_optim_flags *flags, int table);

/** Resolves the settings after the command line was parsed: the preset's, overridden by the user's flags.
 *  Options that the user left alone get the preset's values.
 *  Errors: LT_E_ARG (a flag that the other settings leave unread, or with an invalid value; a preset of
 *  another optimizer). */
LT_API LT_MUST_CHECK lt_status lt_optim_flags_resolve(lt_optim_flags *flags, lt_options *options);

/** Makes the optimizer; errors are those of its constructor. */
LT_API LT_MUST_CHECK lt_status lt_optim_flags_make(lt_optim **out, const lt_optim_flags *flags,
                                                   const lt_params *params);

#endif
