/* The images on predict's command line. */
#ifndef LT_CLASSIFY_IMAGES_H
#define LT_CLASSIFY_IMAGES_H

#include "lather/options.h"

/* Paths of the images, in order. Initialize to {0}. */
typedef struct image_list {
    char **path; /* paths of the images; owned */
    size_t count, capacity;
    char input[32]; /* path for reading standard input's bytes; "" if it is not an image */
} image_list;

/* Reads the arguments, where "-" is an image on standard input, and the lines of --files-from. Errors: LT_E_ARG
 * (no image; standard input used twice), LT_E_IO, LT_E_NOMEM. */
lt_status lt_image_list_read(image_list *p, const lt_options *options, const char *files_from);
void lt_image_list_clear(image_list *p);

#endif
