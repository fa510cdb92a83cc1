/* train_mlp with a user's own optimizer, data set and communicator. */

#include "dist/comm/comm.h"

#include "lather/ext/dataset.h"
#include "lather/ext/optim_family.h"
#include "lather/ext/vec.h"

#include <stdlib.h>
#include <string.h>

int mlp_main(int argc, char **argv);
#define main mlp_main
#include "mlp.c"
#undef main

/* --- Optimizer: the learning rate times a moving average of the gradient --- */

typedef struct average_config {
    double memory;
} average_config;

typedef struct average {
    lt_optim base;
    double memory;
} average;

static const lt_optim_family average_family;

static lt_status update(lt_optim *self, lt_slot *slot, const lt_scalars *s)
{
    LT_TRY(lt_vec_lerp(slot->state[0], slot->grad, 1 - ((average *)self)->memory, s));
    return lt_vec_add_lr(slot->param->value, -slot->lr_scale, slot->state[0], s);
}

static lt_status step(lt_optim *self, const lt_scalars *s)
{
    return lt_optim_for_each_slot(self, update, s);
}

static lt_status make_average(lt_optim **out, const lt_params *params, const void *config,
                              double lr)
{
    static const lt_optim_ops ops = {
        .name = "average", .bytes = sizeof(average), .slot_state = {"m"}, .step = step};
    (void)lr;
    LT_TRY(lt_optim_check(&average_family, config));
    LT_TRY(lt_optim_new(out, &ops, params, 0, LT_DECAY_ALL));
    ((average *)*out)->memory = ((const average_config *)config)->memory;
    return LT_OK;
}

static const lt_optim_field memory = {
    "memory",  LT_FIELD_REAL, .offset = offsetof(average_config, memory),
    .high = 1, .below = true, .help = "decay rate of the average"};
static const lt_optim_preset usual = {NULL, 0.5, &(average_config){.memory = 0.5}};
static const lt_optim_family average_family = {.name = "average",
                                               .group = "Average",
                                               .config_bytes = sizeof(average_config),
                                               .field = &memory,
                                               .fields = 1,
                                               .preset = &usual,
                                               .presets = 1,
                                               .make = make_average};

/* --- Data set: 8 x 8 images whose brightness encodes the class --- */

static lt_status read_sample(const lt_dataset *self, int64_t index, lt_record *record)
{
    enum { SIDE = 8 };
    LT_TRY(lt_record_reserve(record, SIDE * SIDE));
    record->label = (int32_t)(index % self->classes);
    memset(record->bytes, 60 * record->label, SIDE * SIDE);
    record->size = SIDE * SIDE;
    record->encoding = LT_ENCODING_PLANES;
    record->width = record->height = SIDE;
    record->channels = 1;
    return LT_OK;
}

static lt_status open_shades(lt_dataset **out, const char *spec, bool train)
{
    static const lt_dataset_ops ops = {
        .name = "shades", .bytes = sizeof(lt_dataset), .read = read_sample};
    const char *colon = strchr(spec, ':');
    (void)train;
    LT_TRY(lt_dataset_new(out, &ops));
    (*out)->count = colon ? atoi(colon + 1) : 64;
    (*out)->classes = 4;
    (*out)->channels = 1;
    return LT_OK;
}

int main(int argc, char **argv)
{
    static const lt_dataset_kind shades = {"shades:COUNT", open_shades};
    static lt_comm_ops alone;
    alone = lt_comm_self;
    alone.kind = "alone";
    if (lt_optim_register(&average_family) || lt_dataset_register(&shades)
        || lt_comm_register(&alone))
        return EXIT_FAILURE;
    return mlp_main(argc, argv);
}
