"""Tensors: arrays of the library, shared with numpy, torch and others without copies."""
import array as _array
import ctypes
import numbers
import weakref

from . import _dlpack
from ._library import free, lib, make, struct, word_value
from ._device import device as _device, dtype_names, dtypes

_FORMATS = {"f": "f32", "d": "f64", "e": "f16", "i": "i32", "q": "i64", "l": "i64", "B": "u8"}  # format codes of module struct
_TYPESTR = {"f32": "<f4", "f64": "<f8", "f16": "<f2", "i32": "<i4", "i64": "<i8", "u8": "|u1"}


class Tensor:
    """An array of the library. Make one by lather.tensor(), lather.zeros() or an operation.

    dtype is "f32", "f64", "f16", "bf16", "i32", "i64" or "u8". numpy.asarray(t), torch.from_dlpack(t) and t.numpy() share its memory.
    """

    __array_ufunc__ = None  # numpy leaves `array + tensor` to __radd__
    __slots__ = ("_address", "_tape", "_exporter", "_shared", "_leaf", "_gradient", "device", "shape", "dtype", "requires_grad",
                 "__weakref__")

    def __init__(self, address, device, tape=None, requires_grad=False, exporter=None):
        self._address, self._tape, self.device, self._exporter = address, tape, device, exporter
        shape = lib.lt_tensor_shape(address)
        self.shape = tuple(shape.dim[:shape.ndim])
        self.dtype = dtype_names[lib.lt_tensor_dtype(address)]
        self.requires_grad, self._leaf, self._gradient, self._shared = requires_grad, None, None, False
        if tape is None:
            weakref.finalize(self, free, "lt_tensor_free", address).atexit = False
        else:
            tape.results.add(self)

    # --- Shape and values ---

    @property
    def ndim(self):
        return len(self.shape)

    def numel(self):
        """Number of elements."""
        return lib.lt_tensor_count(self._address)

    def __len__(self):
        if not self.shape:
            raise TypeError("lather: a scalar has no length")
        return self.shape[0]

    def item(self):
        """The value of a tensor of one element, as a float."""
        value = ctypes.c_double()
        lib.lt_tensor_item(self._address, ctypes.byref(value))
        return value.value

    __float__ = item

    def __bool__(self):
        if self.numel() != 1:
            raise ValueError(f"lather: a tensor of shape {self.shape} is neither true nor false")
        return self.item() != 0

    def tolist(self):
        """The values as nested lists."""
        wide = self if self.dtype in ("f32", "f64", "i32", "i64", "u8") else self.to("f32")
        code = {"f32": "f", "f64": "d", "i32": "i", "i64": "q", "u8": "B"}[wide.dtype]
        flat = _array.array(code, bytes(lib.lt_tensor_bytes(wide._address)))
        lib.lt_tensor_read(wide._address, flat.buffer_info()[0], flat.itemsize * len(flat))
        flat = flat.tolist()
        for size in reversed(self.shape[1:]):
            flat = [flat[i:i + size] for i in range(0, len(flat), size)]
        return flat if self.shape else flat[0]

    def __repr__(self):
        values = self.tolist() if self.numel() <= 64 else "..."
        return f"lather.tensor({values}, dtype={self.dtype!r}, shape={self.shape}{', requires_grad=True' if self.requires_grad else ''})"

    # --- Memory ---

    def _changed(self):
        """Others may have written into memory that they share: reset cached copies of it."""
        if self._shared:
            lib.lt_tensor_bump_version(self._address)

    def _memory(self):
        """This tensor's memory, for others."""
        lib.lt_tensor_materialize(self._address)
        view = lib.lt_tensor_view(self._address)
        if not view.data:
            raise RuntimeError("lather: the tensor's memory was freed in backward(), before Python asked for its values")
        self._shared = True
        return _dlpack.Memory(view.data, self.dtype, self.shape, tuple(view.stride)[:self.ndim], False, self)

    @property
    def __array_interface__(self):
        if self.dtype not in _TYPESTR:
            raise TypeError(f"lather: numpy has no {self.dtype}; convert by .to('f32')")
        memory = self._memory()
        size = lib.lt_dtype_size(dtypes[self.dtype])
        return {"version": 3, "shape": self.shape, "typestr": _TYPESTR[self.dtype], "data": (memory.address, False),
                "strides": tuple(step * size for step in memory.strides)}

    def numpy(self):
        """A numpy array over this tensor's memory."""
        import numpy
        return numpy.asarray(self)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("lather: exports memory of the host without a copy; copy it afterwards")
        return _dlpack.lend(self._memory(), max_version is not None and max_version[0] >= 1)

    def __dlpack_device__(self):
        return (_dlpack.CPU, 0)

    def copy_(self, source):
        """Copies all values of a tensor, or of what lather.tensor() takes, into this one; converts the dtype. Returns self."""
        source = source if isinstance(source, Tensor) else tensor(source, device=self.device)
        lib.lt_tensor_copy(self._address, source._address)
        return self

    def fill_(self, value):
        """Sets every element. Returns self."""
        lib.lt_tensor_fill(self._address, value)
        return self

    def __deepcopy__(self, memo):
        return self.detach().requires_grad_(self.requires_grad)

    def __reduce_ex__(self, protocol):
        raise TypeError("lather: a tensor is not pickled, and not copied without its memory; use .detach(), .numpy() or .tolist()")

    # --- Gradients ---

    def _parameter(self):
        """The lt_param of a leaf, with memory for its gradient."""
        if self._leaf is None:
            self._leaf = struct("lt_param")(name=b"leaf", value=self._address)
        if self._gradient is None:
            self._gradient = Tensor(make(lib.lt_tensor_new_like, self._address, dtypes[self.dtype]), self.device)
            self._leaf.grad = self._gradient._address
            self._leaf.has_grad = False
        return ctypes.addressof(self._leaf)

    @property
    def grad(self):
        """The gradient that backward() added up, or None. Set it to None to begin again."""
        return self._gradient if self._leaf is not None and self._leaf.has_grad else None

    @grad.setter
    def grad(self, value):
        if value is not None:
            self._parameter()
            self._gradient.copy_(value)
            self._leaf.has_grad = True
        elif self._leaf is not None:
            self._gradient, self._leaf.has_grad = None, False  # who holds the old one keeps its values

    def backward(self):
        """Adds the gradient of this scalar to .grad of every tensor with requires_grad on which it depends."""
        if self._tape is None or not self.requires_grad:
            raise RuntimeError("lather: backward() of a tensor that no recorded operation returned; nothing before it requires a gradient")
        self._tape.backward(self)

    def detach(self):
        """A copy that does not require a gradient."""
        copy = Tensor(make(lib.lt_tensor_new_like, self._address, dtypes[self.dtype]), self.device)
        return copy.copy_(self)

    def requires_grad_(self, on=True):
        """Asks for a gradient from now on. Returns self."""
        if self._tape is not None:
            raise ValueError("lather: requires_grad is set on tensors that no operation returned; use .detach() first")
        if on and self.dtype != self.device.master_dtype:
            raise TypeError(f"lather: a gradient needs dtype {self.device.master_dtype} on {self.device!r}, got {self.dtype}; passes compute "
                            "in 16 bits under lather.settings(dtype='bf16')")
        self.requires_grad = on
        return self

    def to(self, dtype):
        """This tensor in another dtype."""
        from . import ops
        return self if dtype == self.dtype else ops.cast(self, dtype)


def _flatten(values, flat):
    """Appends nested lists to flat; returns their shape."""
    if not isinstance(values, (list, tuple)):
        if not isinstance(values, numbers.Real):
            raise TypeError(f"lather: {type(values).__name__} is no array, number or list of numbers")
        flat.append(values)
        return ()
    shapes = {_flatten(v, flat) for v in values}
    if len(shapes) > 1:
        raise ValueError(f"lather: rows of a nested list differ in shape: {', '.join(map(str, sorted(shapes)))}")
    return (len(values), *shapes.pop()) if shapes else (0,)


def _from_list(values):
    flat = []
    shape = _flatten(values, flat)
    whole = all(isinstance(v, numbers.Integral) for v in flat)
    flat = _array.array("q" if whole else "f", flat)
    return _dlpack.Memory(flat.buffer_info()[0], "i64" if whole else "f32", shape, _dlpack.row_major(shape), False, flat)


def _from_buffer(values):
    view = memoryview(values)
    if view.format not in _FORMATS:
        raise TypeError(f"lather: the array has format {view.format!r}; convert it to one of {', '.join(dtypes)}")
    address = None if view.readonly else ctypes.addressof((ctypes.c_char * view.nbytes).from_buffer(view)) if view.c_contiguous else 0
    return _dlpack.Memory(address, _FORMATS[view.format], view.shape, [s // view.itemsize for s in view.strides or ()], view.readonly, view)


def _memory_of(values):
    if getattr(values, "requires_grad", False):
        raise ValueError("lather: the array requires a gradient in the other library; use .detach()")
    if isinstance(values, numbers.Real):
        return _from_list(values)
    if hasattr(values, "__dlpack__"):
        return _dlpack.borrow(values)
    try:
        memoryview(values)
    except TypeError:
        return _from_list(values)
    return _from_buffer(values)


def _format_of(memory):
    """The memory format of strides. Errors: ValueError for any but row-major and channels-last."""
    shape = memory.shape
    channels_last = len(shape) == 4 and (shape[1] * shape[2] * shape[3], 1, shape[1] * shape[3], shape[1])
    for name, strides in (("contiguous", _dlpack.row_major(shape)), ("channels_last", channels_last)):
        if strides and all(size == 1 or have == want for size, have, want in zip(shape, memory.strides, strides)) or not shape:
            return name
    raise ValueError(f"lather: an array of shape {shape} with strides {memory.strides} (elements) is neither row-major nor channels-last; "
                     "make it so by numpy.ascontiguousarray() or .contiguous()")


def tensor(values, dtype=None, device=None, requires_grad=False, copy=None):
    """A tensor of an array (numpy, torch, anything with DLPack or the buffer protocol), a number or nested lists.

    An array's memory is shared: writes to one are seen in the other. It is copied only if asked for, by copy=True or another dtype;
    copy=False makes another dtype an error. dtype None is the array's; f32 or i64 for lists. Errors: TypeError (dtype), ValueError
    (order, read-only, requires_grad, another device), each with what to do.
    """
    device = _device(device)
    if isinstance(values, Tensor) and (copy or values._tape is not None or values.device is not device):
        shared = values.detach() if values.device is device else None
        if shared is None:
            raise ValueError(f"lather: the tensor is on {values.device!r}, not on {device!r}")
    else:
        memory = _memory_of(values)
        listed = isinstance(values, (list, tuple, numbers.Real))
        if len(memory.shape) > 5:
            raise ValueError(f"lather: the array has {len(memory.shape)} dimensions, at most 5 are possible")
        if memory.read_only and not copy:
            raise ValueError("lather: the array is read-only, and tensors share memory; use copy=True")
        source = memory
        if memory.address is None:  # a read-only buffer
            data = bytes(memory.owner)
            source = _dlpack.Memory(ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value, memory.dtype, memory.shape,
                                    _dlpack.row_major(memory.shape), True, data)
        word = _format_of(source)
        shape = struct("lt_shape")(len(source.shape), source.shape)
        address = make(lib.lt_tensor_new_borrowed, device.address, dtypes[source.dtype], shape,
                       word_value("lt_memory_format", word, "format"), source.address)
        shared = Tensor(address, device, exporter=source.owner)
        if copy or listed:
            shared = shared.detach()
    if dtype is not None and dtype != shared.dtype:
        if dtype not in dtypes:
            raise TypeError(f"lather: there is no dtype {dtype!r}; there are {', '.join(dtypes)}")
        if copy is False:
            raise TypeError(f"lather: the array has dtype {shared.dtype}, not {dtype}, and copy=False; convert it first")
        converted = Tensor(make(lib.lt_tensor_new_like, shared._address, dtypes[dtype]), device)
        shared = converted.copy_(shared)
    return shared.requires_grad_() if requires_grad else shared


def from_dlpack(array):
    """A tensor over the memory of an object with __dlpack__, such as a torch tensor."""
    if not hasattr(array, "__dlpack__"):
        raise TypeError(f"lather: {type(array).__name__} has no __dlpack__; use lather.tensor()")
    return tensor(array)


def zeros(*shape, dtype=None, device=None, requires_grad=False):
    """A tensor of zeros, of the device's dtype for parameters unless another is given."""
    device = _device(device)
    shape = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (list, tuple)) else shape
    made = Tensor(make(lib.lt_tensor_new, device.address, dtypes[dtype or device.master_dtype], struct("lt_shape")(len(shape), shape)), device)
    return made.requires_grad_() if requires_grad else made
