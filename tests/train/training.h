/* Training by lt_train() in tests: a model, its optimizer and data, on one rank or several. */
#ifndef LT_TESTS_TRAIN_TRAINING_H
#define LT_TESTS_TRAIN_TRAINING_H

#include "ranks.h"
#include "temp_folder.h"

#include "lather/init.h"
#include "lather/layers.h"
#include "lather/ops.h"
#include "lather/train.h"

/* A test's struct of a rank begins with one. */
typedef struct training {
    test_rank at;
    lt_comm *group; /* ranks that shard the optimizer's state; NULL: it is replicated */
    lt_dataset *data;
    lt_module *model;
    lt_params params;
    lt_optim *optim;
    int asked, stop_after; /* stop_after: limit in steps; 0: none */
    lt_train_config config;
    lt_train_end end;
} training;

/* Makes a dataset of vectors or images; classes: number of labels. */
static inline lt_status open_arrays(lt_dataset **out, const float *values, const int64_t *labels,
                                    int64_t count, lt_shape shape, int classes)
{
    const lt_arrays arrays = {
        .values = values, .labels = labels, .count = count, .shape = shape, .classes = classes};
    return lt_dataset_arrays(out, &arrays);
}

/* Makes the model a chain of layers, with initial values. */
static inline lt_status make_chain(training *t, lt_module **layer, int count)
{
    LT_TRY(lt_layer_sequential(&t->model));
    for (int i = 0; i < count; i++)
        LT_TRY(lt_sequential_add(t->model, &layer[i]));
    LT_TRY(lt_init_module(t->model, 5));
    return lt_module_params(t->model, &t->params);
}

static inline void close_training(training *t)
{
    lt_optim_free(&t->optim);
    lt_comm_close(&t->group);
    lt_params_clear(&t->params);
    lt_module_free(&t->model);
    lt_dataset_free(&t->data);
}

static inline bool stop_training(void *context)
{
    training *t = context;
    return t->stop_after && ++t->asked >= t->stop_after;
}

/* Returns the configuration that most runs share. output: name of the run folder, or NULL. */
static inline lt_train_config configure(training *t, const lt_task_ops *task, const char *output)
{
    static char path[4][TEMP_PATH];
    static int next;
    return (lt_train_config){.device = t->at.device,
                             .params = &t->params,
                             .optim = t->optim,
                             .task = {task, t},
                             .comm = t->at.comm,
                             .train = t->data,
                             .loader = {.shuffle = true, .seed = 3, .threads = 1},
                             .output = output ? temp_path(path[next++ % 4], folder, output) : NULL,
                             .progress = LT_PROGRESS_OFF,
                             .stop = stop_training,
                             .context = t};
}

static inline lt_status run_training(void *context)
{
    training *t = context;
    return lt_train(&t->config, &t->end);
}

#endif
