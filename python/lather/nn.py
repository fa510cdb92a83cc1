"""Modules: parameters by name, layers that own them, weights in safetensors.

    class Net(lather.nn.Module):
        def __init__(self):
            self.body = lather.nn.Sequential(lather.nn.Linear(784, 64), lather.relu, lather.nn.Linear(64, 10))
        def forward(self, x):
            return self.body(x)

A tensor with requires_grad that is assigned to an attribute is a parameter, a module is a submodule, other tensors given to buffer()
are saved too. Layers begin with PyTorch's distributions of values, drawn from lather.manual_seed()'s seed and the layer's number.
"""
import ctypes
import math

from . import ops
from ._library import lib, struct
from ._tape import _thread
from ._tensor import Tensor, tensor, zeros

__all__ = ["BatchNorm2d", "Conv2d", "Dropout", "Embedding", "LayerNorm", "Linear", "Module", "Sequential"]


def _uniform(shape, fan_in):
    """A parameter with uniform values within 1/sqrt(fan_in)."""
    made = zeros(*shape, requires_grad=True)
    _thread.drawn += 1
    param = struct("lt_param")(name=b"layer%d" % _thread.drawn, value=made._address)
    lib.lt_init_uniform(ctypes.byref(param), 1 / math.sqrt(fan_in), _thread.seed)
    return made


def _pair(value):
    return tuple(value) if isinstance(value, (tuple, list)) else (value, value)


class Module:
    """A part of a model. A subclass defines forward(); calling the module runs it."""

    training, _buffers, _parameters = True, (), ()  # names of attributes; a frozen parameter remains one

    def __setattr__(self, name, value):
        if isinstance(value, Tensor) and value.requires_grad and name not in self._parameters:
            super().__setattr__("_parameters", (*self._parameters, name))
        super().__setattr__(name, value)

    def __delattr__(self, name):
        super().__delattr__(name)
        self._parameters, self._buffers = (tuple(n for n in names if n != name) for names in (self._parameters, self._buffers))

    def __call__(self, *inputs, **named):
        return self.forward(*inputs, **named)

    def forward(self, *inputs):
        raise NotImplementedError(f"{type(self).__name__} has no forward()")

    def buffer(self, name, value):
        """Makes a tensor that is saved with the parameters, and not updated by optimizers, the attribute of that name."""
        setattr(self, name, value)
        self._buffers = (*self._buffers, name)

    def children(self):
        """(name, module) of each submodule, in the order of assignment; of a list of modules, those of its elements."""
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value
            elif isinstance(value, (list, tuple)):
                yield from ((f"{name}.{i}", m) for i, m in enumerate(value) if isinstance(m, Module))

    def modules(self):
        """This module and all below it."""
        yield self
        for _, child in self.children():
            yield from child.modules()

    def _named(self, wanted, prefix):
        for name, value in vars(self).items():
            if isinstance(value, Tensor) and wanted(self, name, value):
                yield prefix + name, value
        for name, child in self.children():
            yield from child._named(wanted, f"{prefix}{name}.")

    def named_parameters(self):
        """(name, tensor) of all parameters; names such as body.0.weight."""
        return self._named(lambda module, name, value: value.requires_grad, "")

    def parameters(self):
        """All parameters, each once, for an optimizer."""
        return list({id(value): value for _, value in self.named_parameters()}.values())

    def state_dict(self):
        """{name: tensor} of parameters, frozen ones too, and buffers; the tensors are the module's own."""
        return dict(self._named(lambda module, name, value: value.requires_grad or name in (*module._parameters, *module._buffers), ""))

    def load_state_dict(self, values):
        """Copies values, tensors or arrays, into parameters and buffers of the same names. Errors: KeyError, ValueError, with nothing changed."""
        own = self.state_dict()
        missing, unknown = sorted(own.keys() - values.keys()), sorted(values.keys() - own.keys())
        if missing or unknown:
            raise KeyError(f"lather: {type(self).__name__}: missing {', '.join(missing) or 'none'}; unknown {', '.join(unknown) or 'none'}")
        given = {name: value if isinstance(value, Tensor) else tensor(value) for name, value in values.items()}
        for name, value in given.items():
            if value.shape != own[name].shape:
                raise ValueError(f"lather: {name} has shape {own[name].shape}, the given one {value.shape}")
        for name, value in given.items():
            own[name].copy_(value)

    def _params(self):
        kind = struct("lt_param")
        held = [kind(name=name.encode(), value=value._address) for name, value in self.state_dict().items()]
        array = (ctypes.c_void_p * max(1, len(held)))(*(ctypes.addressof(p) for p in held))
        return struct("lt_params")(ctypes.cast(array, ctypes.c_void_p), len(held)), (held, array)

    def save(self, path):
        """Writes parameters and buffers as safetensors, for --weights of programs with the same names and for other libraries."""
        params, _held = self._params()
        lib.lt_weights_save(str(path).encode(), ctypes.byref(params))

    def load(self, path):
        """Reads safetensors of the same names and shapes. Errors: Error, ArgumentError, with nothing changed."""
        params, _held = self._params()
        lib.lt_weights_load(str(path).encode(), ctypes.byref(params), None)

    def train(self, on=True):
        """Dropout drops and batch norms use the batch's statistics, or not. Returns self."""
        for module in self.modules():
            module.training = on
        return self

    def eval(self):
        """As train(False)."""
        return self.train(False)

    def zero_grad(self):
        """Resets all gradients."""
        for p in self.parameters():
            p.grad = None


class Sequential(Module):
    """Applies modules and functions one after another."""

    def __init__(self, *steps):
        self.steps = list(steps)

    def children(self):
        return ((str(i), m) for i, m in enumerate(self.steps) if isinstance(m, Module))

    def forward(self, x):
        for step in self.steps:
            x = step(x)
        return x


class Linear(Module):
    """x [..,inputs] -> [..,outputs]: x times the transpose of weight [outputs,inputs], plus bias."""

    def __init__(self, inputs, outputs, bias=True):
        self.weight = _uniform((outputs, inputs), inputs)
        self.bias = _uniform((outputs,), inputs) if bias else None

    def forward(self, x):
        return ops.linear(x, self.weight, self.bias)


class Conv2d(Module):
    """x [N,inputs,H,W] -> [N,outputs,P,Q]; kernel, stride, padding and dilation are numbers, or pairs of height and width."""

    def __init__(self, inputs, outputs, kernel, stride=1, padding=0, dilation=1, groups=1, bias=True):
        (r, s), (u, v), (p, q), (d, e) = map(_pair, (kernel, stride, padding, dilation))
        if inputs % groups or outputs % groups:
            raise ValueError(f"lather: Conv2d: {inputs} inputs and {outputs} outputs are not divisible by {groups} groups")
        fan_in = inputs // groups * r * s
        self.weight = _uniform((outputs, inputs // groups, r, s), fan_in)
        self.bias = _uniform((outputs,), fan_in) if bias else None
        self._config = {"stride_h": u, "stride_w": v, "pad_h": p, "pad_w": q, "dilation_h": d, "dilation_w": e, "groups": groups}

    def forward(self, x):
        return ops.conv2d(x, self.weight, self.bias, **self._config)


class BatchNorm2d(Module):
    """Normalises each channel of x [N,C,H,W]; names of its tensors as in PyTorch."""

    def __init__(self, channels, eps=1e-5, momentum=0.1):
        self.weight = zeros(channels).fill_(1).requires_grad_()
        self.bias = zeros(channels, requires_grad=True)
        self.buffer("running_mean", zeros(channels))
        self.buffer("running_var", zeros(channels).fill_(1))
        self._config = {"eps": eps, "momentum": momentum}

    def forward(self, x):
        return ops.batchnorm2d(x, self.weight, self.bias, self.running_mean, self.running_var, frozen=not self.training, **self._config)


class LayerNorm(Module):
    """Normalises the last dimension, of this size."""

    def __init__(self, size, eps=1e-5):
        self.weight = zeros(size).fill_(1).requires_grad_()
        self.bias = zeros(size, requires_grad=True)
        self._eps = eps

    def forward(self, x):
        return ops.layernorm(x, self.weight, self.bias, eps=self._eps)


class Embedding(Module):
    """Rows of a table [count,size], by i32 ids; begins with normal values, as in PyTorch."""

    def __init__(self, count, size):
        self.weight = zeros(count, size, requires_grad=True)
        _thread.drawn += 1
        param = struct("lt_param")(name=b"layer%d" % _thread.drawn, value=self.weight._address)
        lib.lt_init_normal(ctypes.byref(param), 1.0, _thread.seed)

    def forward(self, ids):
        return ops.embedding(ids, self.weight)


class Dropout(Module):
    """Zeroes elements with probability p in training."""

    def __init__(self, p=0.5):
        if not 0 <= p < 1:
            raise ValueError(f"lather: Dropout: p is {p}, not within [0,1)")
        self.p = p

    def forward(self, x):
        return ops.dropout(x, self.p) if self.training else x
