#!/usr/bin/env python3
"""Makes vit_fixture.safetensors: results of PyTorch and torchvision for a tiny vision transformer.

Needs PyTorch and torchvision; only used to regenerate the file:
    python3 tests/golden/make_vit_fixture.py tests/golden/vit_fixture.safetensors

The model is torchvision's VisionTransformer with two blocks of width 8 and two heads, for 12 x 12 pixels in 3 x 3
patches. tests/golden/fixture.py describes the file; in addition
    resized.SIDE                    encoder.pos_embedding of init for SIDE x SIDE patches by
                                    interpolate_embeddings(), f64
"""
import sys

import torch
import torchvision
from fixture import save_runs
from torchvision.models.vision_transformer import VisionTransformer, interpolate_embeddings

WIDTH, CLASSES, BATCH, SIDE, PATCH, STEPS = 8, 5, 4, 12, 4, 5
SMOOTHING = 0.1
OPTIMS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.05),
}


def make():
    return VisionTransformer(image_size=SIDE, patch_size=PATCH, num_layers=2, num_heads=2, hidden_dim=WIDTH, mlp_dim=20,
                             num_classes=CLASSES)


def initial_state():
    torch.manual_seed(3)
    model = make()
    with torch.no_grad():
        for p in model.parameters():  # not 0 and 1, which would hide errors
            p.add_(0.2 * torch.randn_like(p))
    return {k: v.clone() for k, v in model.state_dict().items()}


def main(path):
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    g = torch.Generator().manual_seed(7)
    images = torch.randint(0, 256, (BATCH, 3, SIDE, SIDE), generator=g, dtype=torch.uint8)
    labels = torch.tensor([0, 3, 1, 4])
    state = initial_state()
    resized = {}
    for side in (1, 2, 5, 7):
        exact = {k: v.double() for k, v in state.items()}
        resized[f"resized.{side}"] = interpolate_embeddings(side * PATCH, PATCH, exact)["encoder.pos_embedding"].numpy()
    save_runs(path, make, state, OPTIMS, images, labels, STEPS, SMOOTHING,
              {"maker": "tests/golden/make_vit_fixture.py", "torch": torch.__version__, "torchvision": torchvision.__version__}, resized)


if __name__ == "__main__":
    main(sys.argv[1])
