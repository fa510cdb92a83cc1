#!/usr/bin/env python3
"""Makes MODEL_keys.txt: names, dtypes and shapes of a torchvision model, in its order.

Needs torchvision; only used to regenerate the file:
    python3 tests/golden/make_keys.py resnet50 > tests/golden/resnet50_keys.txt
    python3 tests/golden/make_keys.py vit_b_16 > tests/golden/vit_b_16_keys.txt
"""
import sys

import torch
import torchvision

DTYPES = {torch.float32: "f32", torch.int64: "i64"}

print(f"# state_dict() of torchvision {torchvision.__version__}'s {sys.argv[1]}: name dtype shape")
for name, value in getattr(torchvision.models, sys.argv[1])().state_dict().items():
    print(name, DTYPES[value.dtype], "[" + ",".join(map(str, value.shape)) + "]")
