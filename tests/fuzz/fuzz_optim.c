/* A checkpoint's optim.safetensors with valid checksums: any bytes give an error, or state with which a run can
 * continue. */

#include "checkpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Writes the state.json of the original checkpoint. */
static void write_state(const char *path)
{
    static fuzz_run r;
    if (!r.optim) {
        fuzz_open(&r);
        for (int i = 0; i < FUZZ_STEPS; i++)
            LT_ASSERT(!fuzz_step(&r));
    }
    LT_ASSERT(!lt_checkpoint_write_state(path, &r.parts, &r.state));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char path[2 * FUZZ_PATH];
    fuzz_checkpoint(path);
    fuzz_write("checkpoints/step-5/optim.safetensors", bytes, size);
    write_state(path);
    (void)!fuzz_load(path);
    return 0;
}
