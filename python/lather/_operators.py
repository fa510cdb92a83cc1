"""Python's operators on tensors, by the operations: arithmetic, .T and indices."""
from ._tensor import Tensor


def define(g):
    """Arithmetic of tensors by Python's operators."""

    def power(x, exponent):
        return g["pow_tensor"](x, exponent) if isinstance(exponent, Tensor) else g["pow"](x, exponent)

    def transposed(x):
        return g["permute"](x, range(x.ndim - 1, -1, -1))

    rows = {"__add__": g["add"], "__mul__": g["mul"], "__sub__": g["sub"], "__truediv__": g["div"], "__matmul__": g["matmul"],
            "__pow__": power,
            "__radd__": lambda x, a: g["add"](x, a), "__rmul__": lambda x, a: g["mul"](x, a), "__rsub__": lambda x, a: g["sub"](a, x),
            "__rtruediv__": lambda x, a: g["div"](a, x), "__neg__": lambda x: g["scale"](x, -1.0), "T": property(transposed)}
    rows["__getitem__"] = lambda x, key: _item(g, x, key)
    for name, function in rows.items():
        setattr(Tensor, name, function)


def _item(g, x, key):
    """x[2], x[1:3, :, 0]: slices of step 1, by slice() and reshape()."""
    keys = key if isinstance(key, tuple) else (key,)
    if len(keys) > x.ndim:
        raise IndexError(f"lather: {len(keys)} indices for shape {x.shape}")
    shape = list(x.shape)
    for dim, k in enumerate(keys):
        start, stop, step = k.indices(x.shape[dim]) if isinstance(k, slice) else (k % x.shape[dim], k % x.shape[dim] + 1, 1)
        if step != 1 or stop <= start or not (isinstance(k, slice) or -x.shape[dim] <= k < x.shape[dim]):
            raise IndexError(f"lather: index {k} of dimension {dim} in shape {x.shape}; slices have step 1 and at least one element")
        shape[dim] = stop - start if isinstance(k, slice) else None
        if stop - start < x.shape[dim]:
            x = g["slice"](x, dim, start, stop - start)
    wanted = tuple(s for s in shape if s is not None)
    return x if wanted == x.shape else g["reshape"](x, wanted)
