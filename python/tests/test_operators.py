"""PyTorch's own samples of its operators (op_db), run by the library: values and gradients on ref in f64 and on cpu in f32, values in bf16.

    run.py test_operators.py torch expecttest          LATHER_OPERATORS=TEXT: those whose names contain it, with each refusal

A sample is equal, refused (the library raises an error: other forms of an operator than it has), or wrong. None may be wrong. Operators
without a row here have no counterpart, or one of another meaning.
"""
import contextlib
import os
import sys
import unittest
import warnings
from collections import Counter

import torch
from torch.testing._internal.common_methods_invocations import op_db

import lather
import lather.torch

torch.set_num_threads(1)
warnings.filterwarnings("ignore")


class Other(Exception):
    """A form of an operator that the library does not have."""


def need(held, what="another form"):
    if not held:
        raise Other(what)


def whole(*numbers):
    need(all(isinstance(n, (int, float)) and not isinstance(n, bool) for n in numbers), "an argument that is no number")
    return numbers


def pair(value):
    return tuple(value) if isinstance(value, (tuple, list)) and len(value) == 2 else (value[0],) * 2 if isinstance(value, (tuple, list)) else (value,) * 2


def same_shape(x, y):
    need(isinstance(y, lather.Tensor) and x.shape == y.shape, "broadcasting")


def unary(name, *arguments, **defaults):
    """Row of an operator whose further arguments are numbers, in this order."""
    def row(x, *a, inplace=False, **k):
        values = {**defaults, **dict(zip(arguments, a)), **k}
        need(set(values) == set(arguments))
        return getattr(lather, name)(x, *whole(*(values[n] for n in arguments)))
    return row


def binary(name):
    def row(x, y, *, alpha=1, rounding_mode=None):
        need(alpha == 1 and rounding_mode is None and isinstance(y, lather.Tensor))
        return getattr(lather, name)(x, y)
    return row


def reduction(name, **fixed):
    def row(x, dim=None, keepdim=False, **k):
        need(not k, ", ".join(k))
        dims = () if dim is None else dim
        dims = (dims,) if isinstance(dims, int) else tuple(dims)
        return getattr(lather, name)(x, dims=tuple(d % max(1, x.ndim) for d in dims), keep=keepdim, **fixed)
    return row


def spread(name):
    def row(x, *a, dim=None, correction=1, keepdim=False, unbiased=None, **k):
        need(not a and not k and unbiased is None and correction is not None)
        return reduction(name, correction=correction)(x, dim, keepdim)
    return row


def loss(name, *arguments, **defaults):
    def row(x, y, *a, reduction="mean", **k):
        need(not a and isinstance(y, lather.Tensor))
        values = {**defaults, **{n: v for n, v in k.items() if v is not None}}
        need(set(values) <= set(arguments), ", ".join(values))
        need(reduction in ("mean", "sum", "none"), reduction)
        return getattr(lather, name)(x, y, *(values[n] for n in arguments), reduction=reduction)
    return row


def clamp(x, low=None, high=None, **k):
    low, high = k.get("min", low), k.get("max", high)
    need(not isinstance(low, lather.Tensor) and not isinstance(high, lather.Tensor))
    return lather.clamp(x, -float("inf") if low is None else low, float("inf") if high is None else high)


def power(x, y):
    return lather.pow_tensor(x, y) if isinstance(y, lather.Tensor) else lather.pow(x, *whole(y))


def gelu(x, approximate="none"):
    return lather.gelu(x, "tanh" if approximate == "tanh" else "erf")


def log_softmax(x, dim=None, dtype=None):
    need(dtype is None and dim is not None)
    return lather.log_softmax(x, dim % max(1, x.ndim))


def softmax(x, dim=None, dtype=None):
    need(dtype is None and dim is not None and dim % max(1, x.ndim) == x.ndim - 1, "another dimension than the last")
    return lather.softmax(x)


def labelled(name):
    def row(x, y, weight=None, reduction="mean", ignore_index=-100, label_smoothing=0.0):
        need(y.dtype in ("i64", "i32") and x.ndim == 2 and ignore_index < 0, "labels as probabilities, or of pixels")
        smooth = {"smoothing": label_smoothing} if name == "cross_entropy" else {}
        return getattr(lather, name)(x, y.to("i32"), weight, reduction=reduction, **smooth)
    return row


def bce(x, y, weight=None, reduction="mean", pos_weight=None):
    same_shape(x, y)
    need(weight is None or weight.shape == x.shape[-1:])
    if weight is None and pos_weight is None:
        return lather.bce_with_logits(x, y, reduction=reduction)
    return lather.bce_with_logits_weighted(x, y, weight, pos_weight, reduction=reduction)


def conv2d(x, w, b=None, stride=1, padding=0, dilation=1, groups=1):
    need(x.ndim == 4 and not isinstance(padding, str))
    (u, v), (p, q), (d, e) = map(pair, (stride, padding, dilation))
    return lather.conv2d(x, w, b, stride_h=u, stride_w=v, pad_h=p, pad_w=q, dilation_h=d, dilation_w=e, groups=groups)


def conv1d(x, w, b=None, stride=1, padding=0, dilation=1, groups=1):
    need(x.ndim == 3 and not isinstance(padding, str))
    u, p, d = (v[0] if isinstance(v, (tuple, list)) else v for v in (stride, padding, dilation))
    return lather.conv1d(x, w, b, stride=u, pad=p, dilation=d, groups=groups)


def conv_transpose2d(x, w, b=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    need(x.ndim == 4)
    (u, v), (p, q), (d, e), (g, h) = map(pair, (stride, padding, dilation, output_padding))
    return lather.conv_transpose2d(x, w, b, stride_h=u, stride_w=v, pad_h=p, pad_w=q, dilation_h=d, dilation_w=e, groups=groups, output_pad_h=g, output_pad_w=h)


def pool(name):
    def row(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False, count_include_pad=True, divisor_override=None):
        need(x.ndim == 4 and pair(dilation) == (1, 1) and not ceil_mode and not return_indices and count_include_pad and not divisor_override)
        (k, m), (p, q) = pair(kernel_size), pair(padding)
        u, v = pair(kernel_size if stride is None or stride == () else stride)
        return getattr(lather, name)(x, kernel_h=k, kernel_w=m, stride_h=u, stride_w=v, pad_h=p, pad_w=q)
    return row


def layer_norm(x, shape, weight=None, bias=None, eps=1e-5):
    need(len(shape) == 1, "several dimensions")
    return lather.layernorm(x, weight, bias, eps=eps)


def rms_norm(x, shape, weight=None, eps=None):
    need(len(shape) == 1 and eps is not None, "several dimensions, or eps by dtype")
    return lather.rmsnorm(x, weight, eps=eps)


def group_norm(x, groups, weight=None, bias=None, eps=1e-5):
    need((weight is None) == (bias is None))
    return lather.group_norm(x, weight, bias, groups=groups, eps=eps)


def batch_norm(x, mean, var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    need(x.ndim in (2, 3, 4) and mean is not None and var is not None)
    with lather.no_grad():
        mean, var = mean.detach(), var.detach()
    name = "batchnorm2d" if x.ndim == 4 else "batchnorm1d"
    return getattr(lather, name)(x, weight, bias, mean, var, eps=eps, momentum=momentum, frozen=not training)


def embedding(ids, w, **k):
    need(not k, ", ".join(k))
    return lather.embedding(ids.to("i32"), w)


def where(condition, x, y):
    return lather.where(condition, x, y)


def gather(x, dim, index, **k):
    need(not k)
    return lather.gather(x, dim % max(1, x.ndim), index.to("i32"))


def index_select(x, dim, index):
    return lather.index_select(x, dim % max(1, x.ndim), index.to("i32"))


def matmul(x, y):
    need(x.ndim >= 2 and y.ndim >= 2 and (x.ndim == y.ndim), "broadcasting")
    return lather.matmul(x, y)


def linear(x, w, b=None):
    need(w.ndim == 2)
    return lather.linear(x, w, b)


def permute(x, *order):
    order = order[0] if len(order) == 1 and isinstance(order[0], (tuple, list)) else order
    return lather.permute(x, tuple(d % max(1, x.ndim) for d in order))


def transpose(x, a, b):
    order = list(range(x.ndim))
    need(x.ndim > 0, "a scalar")
    order[a], order[b] = order[b], order[a]
    return lather.permute(x, tuple(order))


def reshape(x, *shape):
    shape = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    known = 1
    for n in shape:
        known *= n if n != -1 else 1
    return lather.reshape(x, tuple(x.numel() // known if n == -1 else n for n in shape))


def narrow(x, dim, start, count):
    need(isinstance(start, int))
    dim %= max(1, x.ndim)
    return lather.slice(x, dim, start % max(1, x.shape[dim]), count)


def expand(x, *shape):
    shape = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    need(-1 not in shape and len(shape) == x.ndim)
    return lather.expand(x, tuple(shape))


def concat(tensors, dim=0):
    need(all(t.ndim == tensors[0].ndim for t in tensors))
    return lather.concat(list(tensors), dim % max(1, tensors[0].ndim))


def attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    need(q.ndim == 4 and attn_mask is None and not dropout_p and (not is_causal or q.shape[2] == k.shape[2]))
    def merge(t):
        return lather.reshape(lather.permute(t, (0, 2, 1, 3)), (t.shape[0], t.shape[2], t.shape[1] * t.shape[3]))
    y = lather.attention(merge(q), merge(k), merge(v), heads=q.shape[1], kv_heads=k.shape[1], causal=is_causal, scale=scale or q.shape[3] ** -0.5)
    return lather.permute(lather.reshape(y, (q.shape[0], q.shape[2], q.shape[1], v.shape[3])), (0, 2, 1, 3))


def cumsum(x, dim, **k):
    need(not k)
    return lather.cumsum(x, dim % max(1, x.ndim))


ROWS = {
    "exp": unary("exp"), "log": unary("ln"), "sqrt": unary("sqrt"), "sigmoid": unary("sigmoid"), "tanh": unary("tanh"), "abs": unary("abs"),
    "sign": unary("sign"), "nn.functional.relu": unary("relu"), "nn.functional.silu": unary("silu"), "nn.functional.gelu": gelu,
    "nn.functional.leaky_relu": unary("leaky_relu", "negative_slope", negative_slope=0.01), "nn.functional.elu": unary("elu", "alpha", alpha=1.0),
    "nn.functional.softplus": unary("softplus", "beta", "threshold", beta=1, threshold=20),
    "nn.functional.hardtanh": unary("hardtanh", "min_val", "max_val", min_val=-1.0, max_val=1.0), "clamp": clamp, "pow": power,
    "softmax": softmax, "log_softmax": log_softmax, "add": binary("add"), "sub": binary("sub"), "mul": binary("mul"), "div": binary("div"),
    "maximum": binary("maximum"), "minimum": binary("minimum"), "matmul": matmul, "bmm": matmul, "mm": matmul, "nn.functional.linear": linear,
    "where": where, "gather": gather, "index_select": index_select, "sum": reduction("sum"), "mean": reduction("mean"), "amax": reduction("amax"),
    "amin": reduction("amin"), "prod": reduction("prod"), "logsumexp": reduction("logsumexp"), "var": spread("var"), "std": spread("std"),
    "cumsum": cumsum, "nn.functional.mse_loss": loss("mse_loss"), "nn.functional.l1_loss": loss("l1_loss"),
    "nn.functional.huber_loss": loss("huber_loss", "delta", delta=1.0), "nn.functional.smooth_l1_loss": loss("smooth_l1_loss", "beta", beta=1.0),
    "nn.functional.kl_div": loss("kl_div", "log_target", log_target=False), "nn.functional.nll_loss": labelled("nll_loss"),
    "nn.functional.cross_entropy": labelled("cross_entropy"), "nn.functional.binary_cross_entropy_with_logits": bce,
    "nn.functional.conv2d": conv2d, "nn.functional.conv1d": conv1d, "nn.functional.conv_transpose2d": conv_transpose2d,
    "nn.functional.max_pool2d": pool("maxpool2d"), "nn.functional.avg_pool2d": pool("avgpool2d"), "nn.functional.layer_norm": layer_norm,
    "nn.functional.rms_norm": rms_norm, "nn.functional.group_norm": group_norm, "nn.functional.batch_norm": batch_norm,
    "nn.functional.embedding": embedding, "nn.functional.pixel_shuffle": unary("pixel_shuffle", "upscale_factor"), "permute": permute,
    "transpose": transpose, "reshape": reshape, "narrow": narrow, "expand": expand, "cat": concat,
    "nn.functional.scaled_dot_product_attention": attention,
}
DEVICES = {"ref f64": (torch.float64, lather.device("ref", f64=True), 1e-9), "cpu f32": (torch.float32, lather.device("cpu"), 2e-4),
           "cpu bf16": (torch.bfloat16, lather.device("cpu"), 4e-2)}


class Sample:
    """The arguments of a sample for PyTorch in f64, and for the library."""

    def __init__(self, sample, dtype, device, grads):
        self.dtype, self.device, self.grads, self.leaves = dtype, device, grads, []
        self.theirs, self.ours = zip(*(self._both(a) for a in (sample.input, *sample.args)))
        self.named = {k: self._both(v) for k, v in sample.kwargs.items()}

    def _both(self, value):
        if isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value):
            return tuple(zip(*(self._both(v) for v in value)))
        if not isinstance(value, torch.Tensor):
            return value, value
        need(value.dtype in (torch.float64, torch.int64, torch.int32, torch.bool), str(value.dtype))
        need(value.numel() and value.ndim <= 5, "no elements, or more than 5 dimensions")
        learned, value = value.requires_grad and self.grads, value.detach().contiguous()
        if not value.is_floating_point():
            return value, lather.tensor(value.to(torch.uint8) if value.dtype == torch.bool else value, device=self.device)
        near = value.to(self.dtype)  # both have the rounded values
        theirs = near.detach().to(torch.float64, copy=True).requires_grad_(learned)
        ours = lather.tensor(near.detach(), device=self.device, copy=True, requires_grad=learned)
        self.leaves += [(theirs, ours)] if learned else []
        return theirs, ours


def distance(ours, theirs):
    """The largest difference relative to the largest value, 0 where both are NaN or the same infinity."""
    got = torch.from_dlpack(ours).to(torch.float64) if ours.dtype != "bf16" else torch.from_dlpack(ours.to("f32")).to(torch.float64)
    if got.shape != theirs.shape:
        return float("inf")
    same = (got == theirs) | (got.isnan() & theirs.isnan())
    if bool(same.all()):
        return 0.0
    apart = torch.where(same, torch.zeros_like(got), (got - theirs).abs())
    finite = theirs[theirs.isfinite()].abs()
    return (apart.max() / max(1.0, finite.max().item() if finite.numel() else 1.0)).item()


def run(op, row, sample, dtype, device, grads):
    """The largest distance of values and gradients."""
    s = Sample(sample, dtype, device, grads)
    with contextlib.nullcontext() if grads else lather.no_grad(), lather.settings(train=True):
        y = row(*s.ours, **{k: v[1] for k, v in s.named.items()})
    z = op(*s.theirs, **{k: v[0] for k, v in s.named.items()})
    worst = distance(y, z.detach())
    if grads and z.requires_grad and y.requires_grad:
        weights = torch.cos(torch.arange(z.numel(), dtype=torch.float64)).reshape(z.shape).to(dtype).contiguous()
        lather.sum(lather.mul(y, lather.tensor(weights, device=device, copy=True))).backward()
        wanted = torch.autograd.grad((z * weights.to(torch.float64)).sum(), [a for a, _ in s.leaves], allow_unused=True)
        for (_, ours), want in zip(s.leaves, wanted):
            if want is not None and ours.grad is not None and bool(want.isfinite().all()):
                worst = max(worst, distance(ours.grad, want))
    return worst


class Operators(unittest.TestCase):
    def test_no_sample_is_wrong(self):
        only, counts, refused, wrong, rows = os.environ.get("LATHER_OPERATORS"), Counter(), Counter(), [], set()
        for op in op_db:
            row = ROWS.get(op.name)
            if row is None or op.variant_test_name not in ("", "with_train"):
                counts["operators without counterpart"] += 1
                continue
            if only and only not in op.name:
                continue
            rows.add(op.name)
            for i, sample in enumerate(op.sample_inputs("cpu", torch.float64, requires_grad=True)):
                for title, (dtype, device, bound) in DEVICES.items():
                    try:
                        far = run(op, row, sample, dtype, device, title != "cpu bf16")
                    except (Other, TypeError, IndexError, lather.Error, ValueError) as reason:
                        counts["refused"] += 1
                        refused[op.name] += 1
                        if only:
                            print(op.name, i, title, "refused:", reason)
                        continue
                    counts["equal" if far <= bound else "wrong"] += 1
                    if not far <= bound:
                        wrong.append(f"{op.name}, sample {i} on {title}: {far:.2g}, at most {bound:g}")
        print(f"{len(rows)} operators: " + ", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
        print("refused: " + ", ".join(f"{name} {n}" for name, n in refused.most_common()))
        self.assertEqual(wrong, [])
        self.assertGreater(counts["equal"], 0 if only else 1500)

    def test_a_wrong_one_is_found(self):
        op = next(o for o in op_db if o.name == "exp")
        sample = next(s for s in op.sample_inputs("cpu", torch.float64, requires_grad=True))
        for title, (dtype, device, bound) in DEVICES.items():
            self.assertLessEqual(run(op, ROWS["exp"], sample, dtype, device, title != "cpu bf16"), bound)
            self.assertGreater(run(op, lambda x: lather.scale(lather.exp(x), 1.2), sample, dtype, device, title != "cpu bf16"), bound)


if __name__ == "__main__":
    sys.exit(unittest.main())
