/* The images that predict's command line lists. */
#ifndef LT_CLASSIFY_IMAGES_H
#define LT_CLASSIFY_IMAGES_H

#include "lather/options.h"

/* Images that the command line lists, in order. Starts as {0}. */
typedef struct image_list {
    char **path; /* owned */
    size_t count, capacity;
    char input[32]; /* where the bytes of standard input can be read; "": it is no image */
} image_list;

/* Arguments, "-" being an image on standard input, and the lines of --files-from.
 * Errors: LT_E_ARG (none; standard input asked for twice), LT_E_IO, LT_E_NOMEM. */
lt_status lt_image_list_read(image_list *p, const lt_options *options, const char *files_from);
void lt_image_list_clear(image_list *p);

#endif
