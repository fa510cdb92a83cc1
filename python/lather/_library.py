"""Finds the C library and gives its functions, with the types of the headers and with errors as exceptions.

`lib.lt_relu` is the function of that name. A function that returns lt_status raises Error instead; texts are str.
"""
import ctypes
import json
import os

from . import _headers

_HERE = os.path.dirname(os.path.abspath(__file__))


class Error(RuntimeError):
    """A failure that the library reports. `status` is its code, such as "LT_E_NOMEM"."""

    def __init__(self, message, status=""):
        super().__init__(message)
        self.status = status


class ArgumentError(Error, ValueError):
    """An argument, shape or dtype that the library rejects: LT_E_ARG or LT_E_SHAPE."""


def _read_api():
    """The tables of the headers: of the wheel, else of the source tree around this folder."""
    packed = os.path.join(_HERE, "api.json")
    if os.path.exists(packed):
        with open(packed, encoding="utf-8") as file:
            return json.load(file)
    return _headers.read(os.path.join(_HERE, "..", "..", "include", "lather"))


def _find():
    """Path of the library: LATHER_LIBRARY, else the one in this package, else the system's."""
    named = os.environ.get("LATHER_LIBRARY")
    inside = os.path.join(_HERE, soname)
    if named or os.path.exists(inside):
        return named or inside
    return soname


def _load(path, version):
    try:
        library = ctypes.CDLL(path)
        library.lt_version.restype = ctypes.c_char_p
        _ = library.lt_optim_adam, library.lt_layer_linear  # another library of that version has none
        found = library.lt_version().decode()
    except (OSError, AttributeError) as error:  # another libc, another processor, another file
        hint = "; install the library or the wheel, or set LATHER_LIBRARY to the path of liblather.so" if path == soname else ""
        raise ImportError(f"lather: {path} cannot be loaded: {error}{hint}") from error
    if found != version:
        raise ImportError(f"lather: this package is of version {version}, but the library {path} is of version {found}; install both "
                          "of one version (LATHER_LIBRARY may name another library)")
    return library


api = _read_api()
version = api["version"]
soname = "liblather.so." + version.split(".")[0]
path = _find()
_library = _load(path, version)

_PLAIN = {
    "void": None, "bool": ctypes.c_bool, "int": ctypes.c_int, "unsigned": ctypes.c_uint, "float": ctypes.c_float,
    "double": ctypes.c_double, "size_t": ctypes.c_size_t, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64,
    "int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "uint8_t": ctypes.c_uint8, "char": ctypes.c_char,
}
_structs = {}


def share_symbols():
    """Lets plugins find the library's functions. Not done at import: symbols of its dependencies become global too."""
    ctypes.CDLL(path, mode=os.RTLD_GLOBAL | os.RTLD_NOLOAD)


def length(text):
    """The number in brackets of an array: a number, or a constant of the headers."""
    return int(text) if text.isdigit() else api["constants"][text]


def ctype(kind, lengths=()):
    """The ctypes type of a type of the headers. Pointers are addresses: c_void_p, or c_char_p for texts."""
    if kind in _PLAIN:
        base = _PLAIN[kind]
    elif kind == "char *":
        base = ctypes.c_char_p
    elif kind.endswith("*"):
        base = ctypes.c_void_p
    elif kind in api["enums"] or kind == "lt_status":
        base = ctypes.c_int
    else:
        base = struct(kind)
    for text in reversed(lengths):
        base = base * length(text)
    return base


def struct(name):
    """The ctypes.Structure of a struct of the headers."""
    if name not in _structs:
        if name not in api["structs"]:
            raise TypeError(f"lather: {name} is not a struct of plain fields in the headers")
        fields = [(field, ctype(kind, lengths)) for kind, field, lengths in api["structs"][name]]
        _structs[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return _structs[name]


def fail(status):
    """Raises the exception of a status, with the message of this thread's last failure."""
    name = lib.lt_status_name(status)
    kind = ArgumentError if name in ("LT_E_ARG", "LT_E_SHAPE") else Error
    raise kind(lib.lt_error_message() or lib.lt_status_help(status), name)


def _check(status, _function, _arguments):
    if status:
        fail(status)


def _text(value, _function, _arguments):
    return value if value is None else value.decode(errors="replace")


class _Functions:
    """Functions of the library, made at their first use."""

    def __getattr__(self, name):
        declared = api["functions"].get(name)
        if not declared:
            raise AttributeError(f"lather: the headers have no function {name}")
        function = getattr(_library, name)
        function.argtypes = [ctype(kind + (" *" if lengths else "")) for kind, _, lengths in declared["parameters"]]
        function.restype = ctype(declared["result"])
        if declared["result"] == "lt_status":
            function.errcheck = _check
        elif declared["result"] == "char *":
            function.errcheck = _text
        setattr(self, name, function)
        return function


lib = _Functions()


def make(constructor, *arguments):
    """Calls a function whose first parameter is `T **out`; returns the address that it wrote."""
    out = ctypes.c_void_p()
    constructor(ctypes.byref(out), *arguments)
    return out.value


def free(name, address):
    """Calls a function such as lt_tensor_free(T **) for an address."""
    getattr(lib, name)(ctypes.byref(ctypes.c_void_p(address)))


def words(kind):
    """The values of an enumeration by their names without the prefix, in lower case: {"mean": 0, "sum": 1, "none": 2}."""
    values = api["enums"][kind]
    prefix = os.path.commonprefix(list(values)).rpartition("_")[0] + "_" if len(values) > 1 else "LT_"
    return {name[len(prefix):].lower(): value for name, value in values.items()}


def word_value(kind, value, what):
    """The number of an enumeration's word. Errors: ValueError, with the words that there are."""
    known = words(kind)
    if value in known:
        return known[value]
    raise ValueError(f"{what}: {value!r} is not one of {', '.join(known)}")
