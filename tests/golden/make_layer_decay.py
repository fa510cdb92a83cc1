#!/usr/bin/env python3
"""Writes layer_decay.json: factors of the learning rate that timm's param_groups_layer_decay() gives to the parameters of a ViT of four
blocks and of ResNet-18, by torchvision's names.

    make_layer_decay.py layer_decay.json        # needs timm 1.0
"""
import json
import re
import sys

import timm
from timm.optim import param_groups_layer_decay

DECAY = 0.65
MODELS = {"train_vit": ("vit_tiny_patch16_224", {"depth": 4, "embed_dim": 8, "num_heads": 2}), "train_resnet50": ("resnet18", {})}
TORCHVISION = ((r"^cls_token$", "class_token"), (r"^pos_embed$", "encoder.pos_embedding"), (r"^patch_embed\.proj", "conv_proj"),
               (r"^blocks\.(\d+)", r"encoder.layers.encoder_layer_\1"), (r"norm(\d)\.", r"ln_\1."), (r"attn\.qkv\.", "self_attention.in_proj_"),
               (r"attn\.proj", "self_attention.out_proj"), (r"mlp\.fc1", "mlp.0"), (r"mlp\.fc2", "mlp.3"), (r"^norm\.", "encoder.ln."),
               (r"^head\.", "heads.head."))


def torchvision(name):
    for pattern, by in TORCHVISION:
        name = re.sub(pattern, by, name)
    return name


found = {"decay": DECAY}
for program, (name, settings) in MODELS.items():
    model = timm.create_model(name, **settings)
    names = {id(p): n for n, p in model.named_parameters()}
    groups = param_groups_layer_decay(model, layer_decay=DECAY)
    scales = {names[id(p)]: group["lr_scale"] for group in groups for p in group["params"]}
    found[program] = {torchvision(n) if program == "train_vit" else n: round(scales[n], 9) for n, _ in model.named_parameters()}
with open(sys.argv[1], "w") as f:
    f.write("{" + ",\n".join(f'"{key}": {json.dumps(value)}' for key, value in found.items()) + "}\n")
