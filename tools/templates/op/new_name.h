/* The operation new_name. */
#ifndef NEW_NAME_H
#define NEW_NAME_H

#include "lather/tape.h"

/* Computes y = x / (1 + |x|), element by element, for any shape; the tape owns y. NULL: lt_tape_status(). */
lt_tensor *op_new_name(lt_tape *tape, lt_tensor *x);

#endif
