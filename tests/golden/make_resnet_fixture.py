#!/usr/bin/env python3
"""Makes resnet_fixture.safetensors: what PyTorch and torchvision compute for a tiny ResNet.

Needs PyTorch and torchvision, and only to make the file again:
    python3 tests/golden/make_resnet_fixture.py tests/golden/resnet_fixture.safetensors

The model is torchvision's ResNet of bottlenecks, one a stage, 3 channels wide. Everything is run
in float64 and again in float32 from the same float32 values. The file holds
    images [N,C,H,W] u8 (the model reads (u8 - 128) / 64), labels [N] i32,
    init.NAME                       initial parameters and statistics, f32
    logits, loss, grad.NAME         of the first step, f64
    OPTIM.NAME, OPTIM.eval_logits   after 5 steps of sgd, adamw, adagrad, f64
    apart.KEY                       L2 norm of (float32 run - float64 run) of each of these
"""
import json
import struct
import sys

import numpy as np
import torch
import torchvision
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
    """torchvision's ResNet with another width: its own blocks, names and forward pass."""

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
        if "bn" in name or "downsample.1" in name:  # not 1 and 0: those hide mistakes
            with torch.no_grad():
                p.add_(0.2 * torch.randn_like(p))
    return {k: v.clone() for k, v in model.state_dict().items()}


def run(state, images, labels, dtype):
    x = (images.to(dtype) - 128) / 64
    out = {}
    for optim, make in OPTIMS.items():
        model = Tiny()
        model.load_state_dict(state)
        model.to(dtype)
        opt = make(model.parameters())
        for step in range(STEPS):
            opt.zero_grad()
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, labels, label_smoothing=SMOOTHING)
            loss.backward()
            if step == 0:
                out["logits"], out["loss"] = logits.detach(), loss.detach()
                out.update({"grad." + k: p.grad.clone() for k, p in model.named_parameters()})
            opt.step()
        out.update({f"{optim}.{k}": v.clone() for k, v in model.state_dict().items()})
        model.eval()
        out[optim + ".eval_logits"] = model(x).detach()
    return out


def write_safetensors(path, tensors, metadata):
    names = {"uint8": "U8", "int32": "I32", "int64": "I64", "float32": "F32", "float64": "F64"}
    header, blobs, at = {"__metadata__": metadata}, [], 0
    for key in sorted(tensors):
        a = np.asarray(tensors[key], order="C")
        header[key] = {"dtype": names[str(a.dtype)], "shape": list(a.shape),
                       "data_offsets": [at, at + a.nbytes]}
        blobs.append(a.tobytes())
        at += a.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def main(path):
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    g = torch.Generator().manual_seed(7)
    images = torch.randint(0, 256, (BATCH, 3, SIDE, SIDE), generator=g, dtype=torch.uint8)
    labels = torch.tensor([0, 3, 1, 4])
    state = initial_state()
    exact = run(state, images, labels, torch.float64)
    single = run(state, images, labels, torch.float32)
    tensors = {"images": images.numpy(), "labels": labels.numpy().astype(np.int32)}
    tensors.update({"init." + k: v.numpy() for k, v in state.items()})
    for key, value in exact.items():
        tensors[key] = value.numpy()
        if value.is_floating_point():
            tensors["apart." + key] = torch.linalg.vector_norm(single[key].double() - value).numpy()
    write_safetensors(path, tensors, {"maker": "tests/golden/make_resnet_fixture.py",
                                      "torch": torch.__version__,
                                      "torchvision": torchvision.__version__})


if __name__ == "__main__":
    main(sys.argv[1])
