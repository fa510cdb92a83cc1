#!/usr/bin/env python3
"""Error of bf16 training on the CPU, here and in PyTorch's autocast, against PyTorch in f64, as a Markdown table.

    PYTHON tools/bf16_error.py BUILD [--seeds 3] [--steps 10]

PYTHON must have torch, safetensors, numpy and Pillow. A small ResNet (32 channels, one block a stage, 3x3 stem) takes
SGD's steps from the same weights on the same batches of 64 images of 32 pixels. Gradient: the first step's, of all
parameters, norm of the difference over norm (it is the change of the weights by one step at learning rate 1). Losses:
mean difference over the steps, which depends on the run more than on the arithmetic."""

import argparse
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile

import numpy as np
import torch
from PIL import Image
from safetensors.numpy import load_file
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

BATCH, CLASSES, WIDTH, SIDE, LR = 64, 10, 32, 32, 0.01
SETTINGS = [("Lather", {}, []), ("Lather, `--fused off`", {}, ["--fused", "off"]),
            ("Lather, `LATHER_CPU_KERNELS=builtin`", {"LATHER_CPU_KERNELS": "builtin"}, []),
            ("Lather, `LATHER_CPU_KERNELS=onednn`", {"LATHER_CPU_KERNELS": "onednn"}, [])]


class Block(nn.Module):
    def __init__(self, c, k, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c, k, 3, stride, 1, bias=False), nn.BatchNorm2d(k)
        self.conv2, self.bn2 = nn.Conv2d(k, k, 3, 1, 1, bias=False), nn.BatchNorm2d(k)
        self.downsample = None if c == k else nn.Sequential(nn.Conv2d(c, k, 1, stride, bias=False), nn.BatchNorm2d(k))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.downsample(x) if self.downsample else x))


class Net(nn.Module): # torchvision's names of parameters
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, WIDTH, 3, 1, 1, bias=False), nn.BatchNorm2d(WIDTH)
        for i in range(4):
            k = WIDTH << i
            setattr(self, f"layer{i + 1}", nn.Sequential(Block(k if i == 0 else k // 2, k, 1 if i == 0 else 2)))
        self.fc = nn.Linear(WIDTH * 8, CLASSES)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
        return self.fc(x.mean((2, 3)))


def draw(folder, seed, steps):
    """Writes images as a tar file in the order of training, and the first weights; returns pixels and labels."""
    rng = np.random.RandomState(seed)
    patterns, labels = rng.rand(CLASSES, 8, 8, 3), rng.randint(0, CLASSES, BATCH * steps)
    images = [np.kron(np.roll(patterns[y], rng.randint(0, 8, 2), (0, 1)), np.ones((SIDE // 8, SIDE // 8, 1))) for y in labels]
    pixels = np.uint8([127 * (x + rng.rand(SIDE, SIDE, 3)) for x in images])
    for part, count in (("train", len(labels)), ("val", CLASSES)):
        with tarfile.open(f"{folder}/{part}-0000.tar", "w") as tar:
            for i in range(count):
                png = io.BytesIO()
                Image.fromarray(pixels[i]).save(png, "PNG")
                for ending, data in (("png", png.getvalue()), ("cls", b"%d" % (labels[i] if part == "train" else i))):
                    info = tarfile.TarInfo(f"s{i:05}.{ending}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    torch.manual_seed(seed)
    start = Net().state_dict()
    save_file({k: v.contiguous() for k, v in start.items() if "num_batches" not in k}, f"{folder}/start.safetensors")
    return pixels, labels, start


def peer(start, pixels, labels, steps, dtype):
    net = Net()
    net.load_state_dict(start)
    net = net.to(torch.float64 if dtype == "f64" else torch.float32, memory_format=torch.channels_last).train()
    optim = torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    losses, gradient = [], None
    for i in range(steps):
        part = slice(i * BATCH, (i + 1) * BATCH)
        x = (torch.tensor(pixels[part]).permute(0, 3, 1, 2).float() / 255 - mean) / std
        x = x.to(net.fc.weight.dtype, memory_format=torch.channels_last)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            loss = F.cross_entropy(net(x), torch.tensor(labels[part]).long())
        optim.zero_grad()
        loss.backward()
        gradient = gradient or {k: p.grad.double().numpy() for k, p in net.named_parameters()}
        optim.step()
        losses.append(loss.item())
    return np.array(losses), gradient


def train(program, folder, steps, env, flags):
    shutil.rmtree(f"{folder}/run", ignore_errors=True)
    command = [program, "--data", folder, "--weights", f"{folder}/start.safetensors", "--arch", "resnet18", "--width", str(WIDTH),
               "--depths", "1,1,1,1", "--stem", "small", "-b", str(BATCH), "--no-shuffle", "--augment", "none", "--epochs", "1",
               "--max-steps", str(steps), "--sched", "constant", "--no-nesterov", "--weight-decay", "0", "--label-smoothing", "0",
               "--eval-every", "-1", "--amp", "bf16", "--output", f"{folder}/run", "--log-every", "1", "--progress", "off", *flags]
    subprocess.run(command, env=dict(os.environ, LATHER_LOG="warn", **env), check=True, stdout=subprocess.DEVNULL)
    with open(f"{folder}/run/metrics.jsonl") as f:
        rows = [json.loads(line) for line in f]
    return np.array([r["loss"] for r in rows if "loss" in r and "step" in r][:steps])


def here(program, folder, steps, env, flags):
    train(program, folder, 1, env, [*flags, "--lr", "1", "--momentum", "0"])
    old, new = load_file(f"{folder}/start.safetensors"), load_file(f"{folder}/run/model.safetensors")
    gradient = {k: old[k].astype(np.float64) - new[k] for k in old}
    return train(program, folder, steps, env, [*flags, "--lr", str(LR)]), gradient


def error(found, right):
    apart = sum(((found[1][k] - v) ** 2).sum() for k, v in right[1].items())
    return (apart / sum((v ** 2).sum() for v in right[1].values())) ** 0.5, np.abs(found[0] - right[0]).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    program, errors = f"{args.build}/models/resnet50/train_resnet50", {}
    for seed in range(1, args.seeds + 1):
        with tempfile.TemporaryDirectory() as folder:
            pixels, labels, start = draw(folder, seed, args.steps)
            right = peer(start, pixels, labels, args.steps, "f64")
            errors.setdefault("PyTorch, autocast", []).append(error(peer(start, pixels, labels, args.steps, "bf16"), right))
            for name, env, flags in SETTINGS:
                errors.setdefault(name, []).append(error(here(program, folder, args.steps, env, flags), right))
    print("| bf16 | error of the gradient, % | mean error of the losses |\n| --- | --- | --- |")
    for name, rows in errors.items():
        print(f"| {name} | {', '.join(f'{100 * g:.1f}' for g, _ in rows)} | {', '.join(f'{l:.1e}' for _, l in rows)} |")


if __name__ == "__main__":
    main()
