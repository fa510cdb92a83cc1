#!/usr/bin/env python3
"""Makes resnet_fixture.safetensors: results of PyTorch and torchvision for a tiny ResNet.

Needs PyTorch and torchvision; only used to regenerate the file:
    python3 tests/golden/make_resnet_fixture.py tests/golden/resnet_fixture.safetensors

The model is torchvision's ResNet with one bottleneck per stage and width 3; optimizers are sgd, adamw, adagrad.
tests/golden/fixture.py describes the file.
"""
import sys

import torch
import torchvision
from fixture import save_runs
from torch import nn
from torchvision.models.resnet import Bottleneck, ResNet

WIDTH, CLASSES, BATCH, SIDE, STEPS = 3, 5, 4, 40, 5
SMOOTHING = 0.1
OPTIMS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.05),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2, weight_decay=1e-3),
}


class Tiny(ResNet):
    """torchvision's ResNet with a different width; blocks, names and forward pass are torchvision's."""

    def __init__(self):
        nn.Module.__init__(self)
        self._norm_layer = nn.BatchNorm2d
        self.inplanes, self.dilation, self.groups, self.base_width = WIDTH, 1, 1, 64
        self.conv1 = nn.Conv2d(3, WIDTH, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTH)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = self._make_layer(Bottleneck, WIDTH, 1)
        self.layer2 = self._make_layer(Bottleneck, WIDTH * 2, 1, stride=2)
        self.layer3 = self._make_layer(Bottleneck, WIDTH * 4, 1, stride=2)
        self.layer4 = self._make_layer(Bottleneck, WIDTH * 8, 1, stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(WIDTH * 8 * Bottleneck.expansion, CLASSES)


def initial_state():
    torch.manual_seed(2)
    model = Tiny()
    for name, p in model.named_parameters():
        if "bn" in name or "downsample.1" in name:  # not 1 and 0, which would hide errors
            with torch.no_grad():
                p.add_(0.2 * torch.randn_like(p))
    return {k: v.clone() for k, v in model.state_dict().items()}


def main(path):
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    g = torch.Generator().manual_seed(7)
    images = torch.randint(0, 256, (BATCH, 3, SIDE, SIDE), generator=g, dtype=torch.uint8)
    labels = torch.tensor([0, 3, 1, 4])
    save_runs(path, Tiny, initial_state(), OPTIMS, images, labels, STEPS, SMOOTHING,
              {"maker": "tests/golden/make_resnet_fixture.py", "torch": torch.__version__, "torchvision": torchvision.__version__})


if __name__ == "__main__":
    main(sys.argv[1])
