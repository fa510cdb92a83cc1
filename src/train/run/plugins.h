/* Loaded plugins as config.yaml and state.json record them, and their comparison on a resume. */
#ifndef LT_TRAIN_RUN_PLUGINS_H
#define LT_TRAIN_RUN_PLUGINS_H

#include "base/encoding/json.h"

#include <stdio.h>

enum { LT_PLUGINS_TEXT = 512 }; /* bytes that hold a comparison of plugins */

/* Writes the member "plugins" of a JSON object: path, sha256, version of each. Writes nothing if none is loaded. */
void lt_plugins_write_json(lt_json_writer *w);
/* Writes a comment line with path, version and SHA-256 of each loaded plugin. */
void lt_plugins_write_comments(FILE *out);
/* Compares the loaded plugins with those of FOLDER/state.json: fills text with both lists, path and 12 digits of the
 * SHA-256 of each: "a.so 0123456789ab -> (none)"; "" if all are equal. */
void lt_plugins_compare_checkpoint(const char *folder, char *text, size_t size);
/* Appends to the message of a failure each plugin of a checkpoint that is not loaded. path: its folder or a file in it;
 * ignored if there is no state.json. Returns st. */
lt_status lt_plugins_advise(lt_status st, const char *path);

#endif
