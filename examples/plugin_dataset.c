/* A data set as a plugin: gray images of discs (class 0) and rings (class 1), drawn when they are read.
 *
 *     cc -shared -fPIC plugin_dataset.c $(pkg-config --cflags lather) -o shapes.so
 *     train_resnet50 --plugin ./shapes.so --data shapes:24 --arch resnet10 --width 16 --epochs 1 */

#include "lather/ext/dataset.h"
#include "lather/plugin.h"

#include <stdlib.h>
#include <string.h>

enum { CLASSES = 2, TRAIN = 512, EVAL = 128, SMALLEST = 8, LARGEST = 256 };

typedef struct shapes {
    lt_dataset base;
    int side;
    unsigned seed;
} shapes;

/* Called by several threads: depends on the index alone. */
static lt_status read_sample(const lt_dataset *self, int64_t index, lt_record *record)
{
    const shapes *s = (const shapes *)self;
    const int side = s->side, label = (int)(index % CLASSES);
    unsigned random = s->seed + (unsigned)index;
    const int cx = side / 4 + rand_r(&random) % (side / 2), cy = side / 2, r = side / 4;
    LT_TRY(lt_record_reserve(record, (size_t)side * (size_t)side));
    for (int i = 0; i < side * side; i++) {
        const int x = i % side - cx, y = i / side - cy, square = x * x + y * y;
        const int inside = square < r * r && (!label || 4 * square >= r * r);
        record->bytes[i] = (unsigned char)(rand_r(&random) % 100 + 100 * inside);
    }
    record->size = (size_t)side * (size_t)side;
    record->encoding = LT_ENCODING_PLANES;
    record->width = record->height = side;
    record->channels = 1;
    record->label = label;
    return LT_OK;
}

static lt_status open_shapes(lt_dataset **out, const char *spec, bool train)
{
    static const lt_dataset_ops ops = {"shapes", sizeof(shapes), .read = read_sample};
    const char *colon = strchr(spec, ':');
    char *end = NULL;
    const long side = colon ? strtol(colon + 1, &end, 10) : 0;
    if (!colon || *end || side < SMALLEST || side > LARGEST)
        return lt_fail(LT_E_ARG, "%s: want shapes:SIDE, %d to %d pixels", spec, SMALLEST, LARGEST);
    LT_TRY(lt_dataset_new(out, &ops));
    (*out)->count = train ? TRAIN : EVAL;
    (*out)->classes = CLASSES;
    (*out)->channels = 1;
    ((shapes *)*out)->side = (int)side;
    ((shapes *)*out)->seed = train ? 1 : 1000003;
    return LT_OK;
}

static const lt_dataset_kind kind = {"shapes:SIDE", open_shapes};

LT_PLUGIN(host)
{
    return lt_dataset_register(&kind);
}
