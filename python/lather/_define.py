"""Makes a Python function of each operation in the tables of the headers.

Fields of a config struct are keyword arguments; an enumeration is a word, as reduction="sum"; a set of dimensions is a number or a
tuple. A function with a tensor as its first argument is a method too.
"""
import ctypes
import keyword
import numbers
import operator
import re

from ._library import api, ctype, length, lib, struct, word_value, words
from ._tape import tape_for
from ._device import dtypes
from ._tensor import Tensor, tensor as _tensor, zeros

_REQUIRED = ("eps", "momentum")  # fields of which the zero of C is no sensible default
_TENSOR, _TENSORS = "lt_tensor *", "lt_tensor *const *"


def _is_operation(declared):
    parameters = declared["parameters"]
    return declared["result"] == _TENSOR and parameters[:1] == [["lt_tape *", "tape", []]] \
        and re.search(r"^Grads  ", declared["doc"], re.M)


def _fields(kind):
    """(type, name, lengths) of all fields of a struct, those of structs in it in their place; None if one is no plain value."""
    found = []
    for field_kind, name, lengths in api["structs"].get(kind, [["?", "", []]]):
        if field_kind in api["structs"]:
            inner = _fields(field_kind)
            if inner is None:
                return None
            found += inner
        elif field_kind == _TENSOR or field_kind in api["enums"] or field_kind in ("int", "int64_t", "unsigned", "bool", "double", "float"):
            found.append((field_kind, name, lengths))
        else:
            return None
    return found


_MAY_BE_NULL = re.compile(r"(\w+(?:(?:, | and )\w+)*)(?: \[[^\]]*\]| like \w+| broadcastable to it)?,?(?: or| both| each of both may be) NULL")


def _optional(doc):
    """Names of the tensors that may be NULL by the text on shapes, or by that of the operation to which it refers."""
    shapes = re.search(r"^Shapes(.*?)^Dtypes", doc, re.S | re.M)
    text = re.sub(r"\s+", " ", shapes.group(1) if shapes else "").strip()
    other = re.match(r"as (lt_\w+)\(\)", text)
    if other:
        return _optional(api["functions"][other.group(1)]["doc"])
    return {name for group in _MAY_BE_NULL.findall(text) for name in re.split(r", | and ", group)}


# --- From Python values to C ---

def _dims(value, ndim):
    """A set of bits, one for each dimension."""
    listed = tuple(value) if isinstance(value, (tuple, list, range)) else (value,)
    return sum(1 << _dim(d, ndim) for d in set(listed))


def _dim(d, ndim):
    """A dimension, counted from the end if negative."""
    at = operator.index(d)
    if not -ndim <= at < ndim:
        raise IndexError(f"lather: dimension {at} of a tensor of {ndim} dimensions")
    return at % ndim


def _value(kind, lengths, name, value, first):
    """The C value of one argument. first: the first tensor, for dimensions counted from the end."""
    if kind in api["enums"]:
        return dtypes[value] if kind == "lt_dtype" and value in dtypes else word_value(kind, value, name)
    if kind == "lt_shape":
        sizes = [operator.index(v) for v in value]
        if len(sizes) > 5:
            raise ValueError(f"lather: {name} has {len(sizes)} dimensions, at most 5 are possible")
        return struct("lt_shape")(len(sizes), (ctypes.c_int64 * 5)(*sizes))
    if kind == "unsigned":
        return _dims(value, first.ndim)
    if name == "dim":
        return _dim(value, first.ndim)
    if lengths:
        most = length(lengths[0])
        if len(value) > most:
            raise ValueError(f"lather: {name} has {len(value)} values, at most {most} are possible")
        return (ctype(kind) * most)(*value)
    return float(value) if kind in ("double", "float") else bool(value) if kind == "bool" else operator.index(value)


class _Argument:
    """A parameter of the C function, and the Python arguments that it is made of."""

    def __init__(self, kind, name, lengths, doc):
        self.kind, self.name, self.lengths = kind, name, lengths
        self.is_output = kind == "lt_tensor **"
        self.is_struct = kind.rstrip(" *") in api["structs"] and kind not in ("lt_shape",)
        self.names, self.keywords = [], []  # (name, default or None if required)
        if self.is_struct:
            self.fields = _fields(kind.rstrip(" *"))
            if self.fields is None:
                raise TypeError
            for field_kind, field, field_lengths in self.fields:
                default = "None" if field_kind == _TENSOR else None if field in _REQUIRED or field_lengths else self._default(field_kind)
                (self.names if field_kind == _TENSOR else self.keywords).append((field, default))
        elif self.is_output or (kind == "int" and name == "count"):
            pass
        elif kind in (_TENSOR, _TENSORS):
            self.names.append((name, "None" if name in _optional(doc) else None))
        elif kind in api["enums"] or kind in ("int", "int64_t", "unsigned", "bool", "double", "float", "lt_shape", "int *"):
            self.names.append((name, self._default(kind) if kind in api["enums"] or kind == "bool" else None))
        else:
            raise TypeError

    @staticmethod
    def _default(kind):
        if kind in ("lt_dtype", "lt_memory_format"):
            return None
        if kind in api["enums"]:
            return repr(next(iter(words(kind))))
        return {"bool": "False", "double": "0.0", "float": "0.0", "unsigned": "()"}.get(kind, "0")

    def tensors(self, given):
        """The tensors of this argument."""
        if self.kind in (_TENSOR, _TENSORS):
            value = given[self.name]
            return list(value) if self.kind == _TENSORS or self.lengths else [value]
        return [given[n] for k, n, _ in self.fields if k == _TENSOR] if self.is_struct else []

    def convert(self, given, read, first, extra):
        """The value for C."""
        if self.is_output:
            extra.append(ctypes.c_void_p())
            return ctypes.byref(extra[-1])
        if self.is_struct:
            values = {n: read(given[n]) if k == _TENSOR else _value(k, lens, n, given[n], first) for k, n, lens in self.fields}
            made = _fill(self.kind.rstrip(" *"), values)
            return ctypes.byref(made) if self.kind.endswith("*") else made
        if self.kind == _TENSORS or (self.kind == _TENSOR and self.lengths):
            addresses = [read(t) for t in given[self.name]]
            if self.lengths and len(addresses) != length(self.lengths[0]):
                raise ValueError(f"lather: {self.name} has {len(addresses)} tensors, want {self.lengths[0]}")
            return ctypes.cast((ctypes.c_void_p * len(addresses))(*addresses), ctypes.c_void_p)
        if self.kind == _TENSOR:
            return read(given[self.name])
        if self.kind == "int *":
            order = [_dim(v, first.ndim) for v in given[self.name]]
            if len(order) != first.ndim:
                raise ValueError(f"lather: {self.name} has {len(order)} numbers, the tensor {first.ndim} dimensions")
            return ctypes.cast((ctypes.c_int * len(order))(*order), ctypes.c_void_p)
        if self.name == "count" and "count" not in given:
            return len(given[_list_name(given)])
        return _value(self.kind, self.lengths, self.name, given[self.name], first)


def _list_name(given):
    """The argument that is a list of tensors, whose length C wants."""
    return next(name for name, value in given.items() if isinstance(value, (list, tuple)))


def _fill(kind, values):
    made = struct(kind)()
    for field_kind, name, _ in api["structs"][kind]:
        setattr(made, name, _fill(field_kind, values) if field_kind in api["structs"] else values[name])
    return made


def _lift(value, like):
    """A number or array as a tensor on the device, and of the dtype, of another."""
    if value is None or isinstance(value, Tensor):
        return value
    if isinstance(value, numbers.Real):
        if like.dtype[0] in "iu" and value != int(value):
            raise TypeError(f"lather: {value} is no {like.dtype}; convert the tensor by .to('f32')")

        return zeros(dtype=like.dtype, device=like.device).fill_(value)
    return _tensor(value, device=like.device)


def _shares_memory(address, tensors):
    """The tensor within whose memory a result lies, if any."""
    at = lib.lt_tensor_view(address).data or 0
    for t in tensors:
        start = lib.lt_tensor_view(t._address).data
        if start and start <= at < start + lib.lt_tensor_bytes(t._address):
            return t
    return None


def _run(function, arguments, given, differentiable):
    """Calls an operation; returns its Tensor, or a tuple with further outputs."""
    flat = [t for a in arguments for t in a.tensors(given) if t is not None]
    if not flat:
        raise TypeError("lather: the operation got no tensor")
    first = next((t for t in flat if isinstance(t, Tensor)), None)
    first = _tensor(flat[0]) if first is None else first
    for a in arguments:  # numbers and arrays become tensors
        for name in [a.name] if a.kind in (_TENSOR, _TENSORS) else [n for k, n, _ in a.fields if k == _TENSOR] if a.is_struct else []:
            value = given[name]
            listed = a.kind == _TENSORS or a.lengths
            given[name] = [_lift(v, first) for v in value] if listed else _lift(value, first)
    flat = [t for a in arguments for t in a.tensors(given) if t is not None]
    tape, extra = tape_for(flat, differentiable), []
    values = [a.convert(given, lambda t: None if t is None else tape.read(t), flat[0], extra) for a in arguments]
    address = function(tape.address, *values)
    if not address:
        tape.check()
    if not tape.record:  # the inputs may go: nothing may wait for them
        lib.lt_tensor_materialize(address)
        tape.inputs = [_shares_memory(address, flat)]
    outputs = [Tensor(a, tape.device, tape=tape, requires_grad=tape.record) for a in (address, *(e.value for e in extra))]
    for further in outputs[1:]:
        further.requires_grad = False
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _define(name, declared):
    """The Python function of an operation, or None if an argument has no form in Python."""
    try:
        arguments = [_Argument(*p, declared["doc"]) for p in declared["parameters"][1:]]
    except TypeError:
        return None
    names = [n for a in arguments for n in a.names]
    for i in reversed(range(len(names))):  # what stands before a required argument is required
        if names[i][1] is None:
            names[:i] = [(n, None) for n, _ in names[:i]]
    keywords = [n for a in arguments for n in a.keywords]
    form = ", ".join([n if d is None else f"{n}={d}" for n, d in names]
                     + (["*"] if keywords else [])
                     + [n if d is None else f"{n}={d}" for n, d in keywords])
    differentiable = not re.search(r"^Grads +none", declared["doc"], re.M)
    scope = {"_run": _run, "_function": getattr(lib, name), "_arguments": arguments}
    exec(f"def {name[3:]}({form}):\n    return _run(_function, _arguments, locals(), {differentiable})\n", scope)  # pylint: disable=exec-used
    function = scope[name[3:]]
    function.__doc__ = declared["doc"].replace("lt_", "")
    function.__module__ = __name__
    return function


def all_operations():
    """{name: function} of all operations whose arguments have a form in Python; makes methods of them."""
    made = {}
    for name, declared in api["functions"].items():
        function = _define(name, declared) if _is_operation(declared) and not keyword.iskeyword(name[3:]) else None
        if function:
            made[name[3:]] = function
            kind, _, lengths = declared["parameters"][1]
            if kind == _TENSOR and not lengths and not hasattr(Tensor, name[3:]):
                setattr(Tensor, name[3:], function)
    return made
