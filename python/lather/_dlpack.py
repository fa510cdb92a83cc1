"""DLPack: the memory of an array as another library describes it, and ours for others. Version 0 and 1 of the protocol.

A capsule that is read here is kept, not consumed: its producer frees the array when the capsule goes.
Source: the DLPack specification, dlpack.h.
"""
import ctypes

CPU = 1
_READ_ONLY = 1
# (code, bits) of DLDataType by dtype
CODES = {"f32": (2, 32), "f64": (2, 64), "f16": (2, 16), "bf16": (4, 16), "i32": (0, 32), "i64": (0, 64), "u8": (1, 8)}
_NAMES = {code: name for name, code in CODES.items()}
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("vector", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", _Tensor)]


_api = ctypes.PyDLL(None)
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_IsValid.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_raw_pointer = ctypes.PyDLL(None).PyCapsule_GetPointer  # of a capsule that is being freed: by address
_raw_pointer.restype, _raw_pointer.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]

_PLAIN, _NEW = b"dltensor", b"dltensor_versioned"
_lent = {}  # address of a managed tensor: all that must live until its deleter runs


# Consumers may call these two while the interpreter ends, when globals are gone: all that they use is in their arguments, and they
# live for ever.
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _delete(address, pop=_lent.pop):
    pop(address, None)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _drop_capsule(capsule, names=(_PLAIN, _NEW), is_valid=_api.PyCapsule_IsValid, pointer=_raw_pointer, pop=_lent.pop):
    """Frees the tensor of an unconsumed capsule: a consumer renames it."""
    for name in names:
        if is_valid(capsule, name):
            pop(pointer(capsule, name), None)


for _callback in (_delete, _drop_capsule):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_callback))


class Memory:
    """Memory of an array: address, dtype, shape, strides in elements, read_only; `owner` keeps it alive."""

    def __init__(self, address, dtype, shape, strides, read_only, owner):
        self.address, self.dtype, self.shape, self.strides = address, dtype, tuple(shape), tuple(strides)
        self.read_only, self.owner = read_only, owner


def row_major(shape):
    """The strides, in elements, of a contiguous array."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= size
    return tuple(strides)


def lend(memory, versioned):
    """A capsule over memory whose owner it keeps alive."""
    managed = (_Versioned if versioned else _Managed)()
    shape = (ctypes.c_int64 * max(1, len(memory.shape)))(*memory.shape)
    strides = (ctypes.c_int64 * max(1, len(memory.shape)))(*memory.strides)
    code, bits = CODES[memory.dtype]
    managed.tensor = _Tensor(memory.address, CPU, 0, len(memory.shape), code, bits, 1, shape, strides, 0)
    managed.deleter = ctypes.cast(_delete, ctypes.c_void_p)
    if versioned:
        managed.major = 1
    address = ctypes.addressof(managed)
    _lent[address] = (managed, shape, strides, memory)
    return _api.PyCapsule_New(address, _NEW if versioned else _PLAIN, ctypes.cast(_drop_capsule, ctypes.c_void_p))


def _wrong_dtype(dtype):
    return TypeError(f"lather: the array has dtype {dtype}; convert it to one of {', '.join(CODES)}")


def _capsule(array):
    try:
        try:
            return array.__dlpack__(max_version=(1, 0))
        except TypeError:
            return array.__dlpack__()
    except BufferError as error:
        if "dtype" in str(error):  # numpy before 2 exports no bool
            raise _wrong_dtype(array.dtype) from error
        raise


def borrow(array):
    """The Memory of an object with __dlpack__. Errors: ValueError, BufferError, TypeError, as its producer or as named here."""
    kind, index = array.__dlpack_device__()
    if int(kind) != CPU:
        raise ValueError(f"lather: the array is on another device (DLPack type {int(kind)}, number {index}); copy it to the host first, "
                         "as by .cpu()")
    capsule = _capsule(array)
    versioned = bool(_api.PyCapsule_IsValid(id(capsule), _NEW))
    found = (_Versioned if versioned else _Managed).from_address(_api.PyCapsule_GetPointer(capsule, _NEW if versioned else _PLAIN))
    if versioned and found.major != 1:
        raise ValueError(f"lather: the array speaks DLPack {found.major}.{found.minor}, this package 1.0")
    read_only = versioned and bool(found.flags & _READ_ONLY)
    t = found.tensor
    if (t.code, t.bits) not in _NAMES or t.vector != 1:
        raise _wrong_dtype(f"{_KINDS.get(t.code, t.code)}{t.bits}")
    shape = t.shape[:t.ndim]
    strides = t.strides[:t.ndim] if t.strides else row_major(shape)
    return Memory((t.data or 0) + t.offset, _NAMES[t.code, t.bits], shape, strides, read_only, (capsule, array))
