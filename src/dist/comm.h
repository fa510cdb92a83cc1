/* The communicators of this build. */
#ifndef LT_DIST_COMM_H
#define LT_DIST_COMM_H

#include "lather/ext/comm.h"

extern const lt_comm_ops lt_comm_self;

#endif
