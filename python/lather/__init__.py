"""Lather from Python: tensors, operations with gradients, optimizers and runs of the C library, by ctypes.

    import lather
    x = lather.tensor(array)                       # shares memory with numpy or torch
    w = lather.zeros(10, 784, requires_grad=True)
    loss = lather.softmax_xent(lather.linear(x, w), labels, smoothing=0.0)
    loss.backward()                                # w.grad

docs/guides/python.md is the guide. lather.torch has the optimizers for PyTorch, lather.runs reads the folders of training runs.
"""
from . import nn, ops, optim, runs
from ._library import ArgumentError, Error, path as library_path, version as __version__
from ._tape import manual_seed, no_grad, settings
from ._device import Device, build_info, device, set_device
from .ops import *  # noqa: F401,F403  pylint: disable=wildcard-import,unused-wildcard-import
from ._tensor import Tensor, from_dlpack, tensor, zeros

__all__ = ["ArgumentError", "Device", "Error", "Tensor", "__version__", "build_info", "device", "from_dlpack", "library_path", "manual_seed", "nn", "no_grad",
           "ops", "optim", "runs", "set_device", "settings", "tensor", "zeros", *ops.__all__]
