/* Compares a tiny residual network with PyTorch and torchvision (tests/golden/make_resnet_fixture.py). */

#include "fixture.h"
#include "resnet.h"

enum { WIDTH = 3, CLASSES = 5 };

static lt_status make(lt_module **out, lt_device *device)
{
    lt_resnet_config c = {
        .depths = {1, 1, 1, 1}, .bottleneck = true, .width = WIDTH, .classes = CLASSES};
    return lt_resnet_new(out, device, &c);
}

/* The f32 bounds on cpu also hold for builds without oneDNN, whose convolutions sum sequentially. */
static const fixture_row rows[] = {
    {"f64 on ref, SGD with Nesterov momentum", "ref", true, "sgd", fixture_open_sgd, 0.05, 1e-9,
     false},
    {"f64 on ref, AdamW", "ref", true, "adamw", fixture_open_adamw, 1e-3, 1e-9, false},
    {"f64 on ref, AdaGrad", "ref", true, "adagrad", fixture_open_adagrad, 1e-2, 1e-9, false},
    {"f64 on cpu, SGD with Nesterov momentum", "cpu", true, "sgd", fixture_open_sgd, 0.05, 1e-9,
     false},
    {"f32 on cpu, SGD with Nesterov momentum", "cpu", false, "sgd", fixture_open_sgd, 0.05, 8,
     false},
    {"f32 on cpu, AdamW", "cpu", false, "adamw", fixture_open_adamw, 1e-3, 8, false},
    {"f32 on cpu, AdaGrad", "cpu", false, "adagrad", fixture_open_adagrad, 1e-2, 8, false},
    {"f32 on ref, AdaGrad", "ref", false, "adagrad", fixture_open_adagrad, 1e-2, 4, false},
    {"control: momentum without Nesterov", "ref", true, "sgd", fixture_open_plain_momentum, 0.05,
     1e-9, true},
    {"control: lr 0.01 % too large, f32", "cpu", false, "sgd", fixture_open_sgd, 0.050005, 8, true},
};

int main(void)
{
    static const fixture_family family = {"resnet_fixture.safetensors", make};
    return fixture_main(&family, rows, COUNT_OF(rows), NULL, 0);
}
