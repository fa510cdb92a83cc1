"""Shared by the scripts that make fixtures: trains a PyTorch model in float64 and float32, and writes both to a file.

A file has
    inputs                          images [N,C,H,W] u8 (the model reads (u8 - 128) / 64), or ids [N,T] i32
    labels                          [N], or [N,T], i32
    init.NAME                       initial parameters and statistics, f32
    logits, loss, grad.NAME         values of the first step, f64
    OPTIM.NAME, OPTIM.eval_logits   values after the steps of each optimizer, f64
    apart.KEY                       L2 norm of (float32 run - float64 run) for each of these
"""
import json
import struct

import numpy as np
import torch
from torch import nn


def train(make_model, state, optims, inputs, labels, steps, smoothing, dtype):
    x = (inputs.to(dtype) - 128) / 64 if inputs.dtype == torch.uint8 else inputs
    out = {}
    for optim, make in optims.items():
        model = make_model()
        model.load_state_dict(state)
        model.to(dtype)
        opt = make(model.parameters())
        for step in range(steps):
            opt.zero_grad()
            logits = model(x)
            loss = nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten().long(), label_smoothing=smoothing)
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


def save_runs(path, make_model, state, optims, inputs, labels, steps, smoothing, metadata, more=None):
    """more: additional tensors for the file."""
    exact, single = (train(make_model, state, optims, inputs, labels, steps, smoothing, dtype)
                     for dtype in (torch.float64, torch.float32))
    tensors = {"inputs": inputs.numpy(), "labels": labels.numpy().astype(np.int32)}
    tensors.update({"init." + k: v.numpy() for k, v in state.items()})
    for key, value in exact.items():
        tensors[key] = value.numpy()
        if value.is_floating_point():
            tensors["apart." + key] = torch.linalg.vector_norm(single[key].double() - value).numpy()
    tensors.update(more or {})
    write_safetensors(path, tensors, metadata)
