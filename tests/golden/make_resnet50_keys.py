#!/usr/bin/env python3
"""Makes resnet50_keys.txt: names, dtypes and shapes of torchvision's resnet50, in its order.

Needs torchvision, and only to make the file again:
    python3 tests/golden/make_resnet50_keys.py > tests/golden/resnet50_keys.txt
"""
import torch
import torchvision

DTYPES = {torch.float32: "f32", torch.int64: "i64"}

print(f"# state_dict() of torchvision {torchvision.__version__}'s resnet50: name dtype shape")
for name, value in torchvision.models.resnet50().state_dict().items():
    print(name, DTYPES[value.dtype], "[" + ",".join(map(str, value.shape)) + "]")
