#!/usr/bin/env python3
"""Makes ResNeXt, wide ResNet and ResNet-D of torchvision and timm with random weights, an image folder, and their logits.

    PYTHON_WITH_TIMM make_resnets.py FOLDER

FOLDER/NAME.pth has the weights of one block per stage, FOLDER/data/val the images, FOLDER/logits.json the logits by NAME.
"""
import json
import os
import sys

import timm.models.resnet as timm
import torch
from PIL import Image
from torchvision.models import resnet as torchvision

SIDE, CLASSES, BLOCKS = 70, 5, [1, 1, 1, 1]  # 70: shortcuts of ResNet-D then average an odd side
D = {"stem_width": 32, "stem_type": "deep", "avg_down": True, "num_classes": CLASSES}
MODELS = {
    "resnext50_32x4d": lambda: torchvision.ResNet(torchvision.Bottleneck, BLOCKS, CLASSES, groups=32, width_per_group=4),
    "wide_resnet50_2": lambda: torchvision.ResNet(torchvision.Bottleneck, BLOCKS, CLASSES, width_per_group=128),
    "resnet18d": lambda: timm.ResNet(timm.BasicBlock, BLOCKS, **D),
    "resnet50d": lambda: timm.ResNet(timm.Bottleneck, BLOCKS, **D),
    "resnext50d_32x4d": lambda: timm.ResNet(timm.Bottleneck, BLOCKS, cardinality=32, base_width=4, **D),
}


def randomize(model):
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if "running_var" in name:
            value.uniform_(0.5, 1.5)
        elif value.dtype == torch.float32 and value.ndim == 1:  # not 1 and 0, which would hide errors
            value.add_(0.2 * torch.randn_like(value))


@torch.no_grad()
def main(folder):
    torch.manual_seed(3)
    images = torch.randint(0, 256, (3, SIDE, SIDE, 3), dtype=torch.uint8)
    for i, image in enumerate(images):
        os.makedirs(os.path.join(folder, "data", "val", f"class{i}"))
        Image.fromarray(image.numpy()).save(os.path.join(folder, "data", "val", f"class{i}", "0.bmp"))
    x = (images.permute(0, 3, 1, 2).double() / 255 - 0.5) / 0.25
    logits = {}
    for name, make in MODELS.items():
        model = make().eval()
        randomize(model)
        torch.save(model.state_dict(), os.path.join(folder, name + ".pth"))
        logits[name] = model.double()(x).tolist()
    with open(os.path.join(folder, "logits.json"), "w") as file:
        json.dump(logits, file)


main(sys.argv[1])
