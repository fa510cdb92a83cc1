/** Plugins: shared objects that add optimizers, data sets, communicators, reducers and hooks to a
 *  program by --plugin FILE.so. docs/guides/plugins.md has an example from an empty folder. */
#ifndef LATHER_PLUGIN_H
#define LATHER_PLUGIN_H

#include "lather/status.h"

#include <stdbool.h>
#include <stddef.h>

/** Version of these headers, which a plugin records when it is compiled. */
#define LT_VERSION "0.1.0"

/** Argument of a plugin's entry: the program that loads it. Lent for the call; its texts remain valid. */
typedef struct lt_plugin_host {
    size_t bytes; /**< sizeof(lt_plugin_host) in the program; later versions only append fields */
    const char *version; /**< version of the library: "0.1.0" */
    const char *program; /**< name of the program: "train_resnet50" */
} lt_plugin_host;

/* NOLINTBEGIN(bugprone-macro-parentheses): `host` declares */
/**
 * Defines a plugin, once in each shared object:
 *
 *     LT_PLUGIN(host)
 *     {
 *         LT_TRY(lt_optim_register(&family));
 *         return LT_OK;
 *     }
 *
 * The block is a function that registers everything and returns a status; `host` is its
 * const lt_plugin_host *. It runs once, on the main thread, before the program reads its options.
 * Registered rows must remain valid. Defines two exported symbols: the text lt_plugin_version, which
 * the program compares with its own version before any code of the plugin runs, and the function
 * lt_plugin.
 */
#define LT_PLUGIN(host)                                                               \
    LT_PLUGIN_EXPORT(LT_EXTERN_DATA) const char lt_plugin_version[sizeof LT_VERSION]; \
    LT_PLUGIN_EXPORT(LT_EXTERN) lt_status lt_plugin(const lt_plugin_host *);          \
    const char lt_plugin_version[sizeof LT_VERSION] = LT_VERSION;                     \
    lt_status lt_plugin(__attribute__((unused)) const lt_plugin_host *host)
/* NOLINTEND(bugprone-macro-parentheses) */
/** Declares, next to LT_PLUGIN(), that results of the plugin do not depend on the processor, on threads
 *  or on time, so that --reproducible accepts it: docs/guides/reproducible.md has the conditions. */
#define LT_PLUGIN_REPRODUCIBLE                                          \
    LT_PLUGIN_EXPORT(LT_EXTERN_DATA) const char lt_plugin_reproducible; \
    const char lt_plugin_reproducible = 1
#define LT_PLUGIN_EXPORT(linkage) linkage __attribute__((visibility("default")))

/** A plugin that was loaded. */
typedef struct lt_plugin_info {
    const char *path;    /**< file as it was given */
    const char *sha256;  /**< SHA-256 of the file, 64 hexadecimal digits */
    const char *version; /**< version of the headers that it was compiled with */
    bool reproducible;   /**< it has LT_PLUGIN_REPRODUCIBLE */
} lt_plugin_info;

enum { LT_MAX_PLUGINS = 64 };

/** Loads a plugin and runs its entry; it is never unloaded. Skips a file with the contents of a loaded
 *  one. Call on the main thread before other threads use the library, and before
 *  lt_options_compose(). Errors, with the path: LT_E_IO (missing, unreadable, a folder), LT_E_FORMAT
 *  (not a shared object for this machine), LT_E_ARG (not a plugin; another user's or writable by
 *  others), LT_E_UNSUPPORTED (another version, an undefined symbol), the status of the entry. */
LT_API LT_MUST_CHECK lt_status lt_plugin_load(const char *path, const char *program);
/** Loads the values of --plugin FILE and --plugin=FILE on a command line, in order; lt_trainer_main()
 *  and lt_classifier_main() do so. Errors: those of lt_plugin_load(). */
LT_API LT_MUST_CHECK lt_status lt_plugin_load_arguments(int argc, char *const *argv,
                                                        const char *program);
/** Returns loaded plugin number index, in the order of loading, or NULL past the end. */
LT_API const lt_plugin_info *lt_plugin_at(size_t index);

#endif
