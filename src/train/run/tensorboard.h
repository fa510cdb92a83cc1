/* TensorBoard's event files. */
#ifndef LT_TRAIN_TENSORBOARD_H
#define LT_TRAIN_TENSORBOARD_H

#include "lather/ext/fail.h"

#include <stddef.h>
#include <stdint.h>

typedef struct lt_tensorboard lt_tensorboard;

/* Creates FOLDER/events.out.tfevents.TIME.HOST.PID. step: last step before this session; TensorBoard drops later
 * ones of an earlier session. Errors: LT_E_IO, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_tensorboard_open(lt_tensorboard **out, const char *folder, int64_t step);
/* Writes one scalar. Errors: LT_E_IO. */
LT_MUST_CHECK lt_status lt_tensorboard_scalar(lt_tensorboard *board, const char *tag, int64_t step,
                                              double value);
/* Writes a histogram of ascending finite values, at least one. Errors: LT_E_IO, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_tensorboard_histogram(lt_tensorboard *board, const char *tag,
                                                 int64_t step, const double *sorted, size_t count);
LT_MUST_CHECK lt_status lt_tensorboard_flush(lt_tensorboard *board);
void lt_tensorboard_close(lt_tensorboard **board);

#endif
