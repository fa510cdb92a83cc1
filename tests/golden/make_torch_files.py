#!/usr/bin/env python3
"""Writes the files of torch.save() that tests/tensor/torch_file.c and the fuzz target read, by Python's pickle and
zipfile alone: classes of PyTorch are stubs with its names. Usage: make_torch_files.py FOLDER"""
import argparse
import collections
import io
import os
import pickle
import struct
import sys
import types
import zipfile

for module in ("torch", "torch._utils", "torch.nn"):
    sys.modules[module] = types.ModuleType(module)


def stub(module, name):
    made = type(name, (), {"__module__": module})
    setattr(sys.modules[module], name, made)
    return made


FORMAT = {"Float": "f", "Double": "d", "Half": "e", "BFloat16": "H", "Long": "q", "Int": "i", "Short": "h", "Char": "b",
          "Byte": "B", "Bool": "?"}
STORAGE = {kind: stub("torch", kind + "Storage") for kind in FORMAT}
REBUILD, PARAMETER = stub("torch._utils", "_rebuild_tensor_v2"), stub("torch._utils", "_rebuild_parameter")
LINEAR = stub("torch.nn", "Linear")


class Storage:
    def __init__(self, key, kind, values, view=None, count=None):
        self.key, self.kind, self.view, self.count = key, kind, view, len(values) if count is None else count
        self.data = struct.pack("<%d%s" % (len(values), FORMAT[kind]), *values)


class Call:
    """Pickled as a call of a function with arguments."""
    def __init__(self, function, *args):
        self.call = (function, args)

    def __reduce__(self):
        return self.call


def tensor(storage, sizes, strides, offset=0):
    return Call(REBUILD, storage, offset, tuple(sizes), tuple(strides), False, collections.OrderedDict())


class Pickler(pickle.Pickler):
    def __init__(self, file, protocol, legacy):
        super().__init__(file, protocol)
        self.legacy, self.seen = legacy, {}

    def persistent_id(self, value):
        if not isinstance(value, Storage):
            return None
        self.seen[value.key] = value
        name = ("storage", STORAGE[value.kind], value.key, "cpu", value.count)
        return name + (value.view,) if self.legacy else name


def pickled(value, protocol=2, legacy=False):
    out = io.BytesIO()
    pickler = Pickler(out, protocol, legacy)
    pickler.dump(value)
    return out.getvalue(), pickler.seen


def archive(members, compression=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as z:
        for name, data in members:
            z.writestr(zipfile.ZipInfo(name), data, compression)
    return out.getvalue()


def zipped(value, protocol=2, order=b"little", cut=0, compression=zipfile.ZIP_STORED):
    data, seen = pickled(value, protocol)
    members = [("w/data.pkl", data), ("w/byteorder", order)]
    members += [("w/data/" + key, s.data[cut:]) for key, s in seen.items()] + [("w/version", b"3\n")]
    return archive(members, compression)


def raw(data):
    """An archive around a pickle that was written by hand."""
    return archive([("w/data.pkl", data)])


def legacy(value, renamed=None, kind=list):
    data, seen = pickled(value, legacy=True)
    head = b"".join(pickle.dumps(v, 2) for v in (0x1950a86a20f9469cfc6c, 1001, {"little_endian": True}))
    keys = sorted(seen)
    listed = kind((renamed or {}).get(k, k) for k in keys)
    return head + data + pickle.dumps(listed, 2) + b"".join(struct.pack("<q", seen[k].count) + seen[k].data for k in keys)


def state_dict(items):
    """An OrderedDict with the attribute that PyTorch adds."""
    made = collections.OrderedDict(items)
    made._metadata = collections.OrderedDict({"": {"version": 1}})
    return made


def weights(first=1):
    shared = Storage("0", "Float", [first + i for i in range(6)])
    more = {kind: Storage(str(i + 1), kind, [1, 0, 1]) for i, kind in enumerate(FORMAT)}
    more["BFloat16"] = Storage("4", "BFloat16", [0x3f80, 0, 0x3f80])
    items = [("a", tensor(shared, [2, 3], [3, 1])), ("t", tensor(shared, [3, 2], [1, 3])),
             ("row", Call(PARAMETER, tensor(shared, [2], [1], 3), True, collections.OrderedDict())),
             ("column", tensor(shared, [2], [3], 1)), ("scalar", tensor(shared, [], [], 5)),
             ("empty", tensor(shared, [0, 3], [3, 1]))]
    return state_dict(items + [(kind, tensor(s, [3], [1])) for kind, s in more.items()])


def small(**more):
    return {"a": tensor(Storage("0", "Float", [1, 2, 3]), [3], [1]), **more}


def one(sizes, strides, offset=0, count=3):
    return zipped({"a": tensor(Storage("0", "Float", [0] * count), sizes, strides, offset)})


def laughs():
    """Lists of lists, ten of each: their flattened size is 10^20."""
    value = [1]
    for _ in range(20):
        value = [value] * 10
    return value


def files():
    options = argparse.Namespace(lr=0.1, epochs=3)
    checkpoint = {"epoch": 3, "args": options, "best": 0.5, "model": weights(1), "other": {1, 2}, "none": [None, -1]}
    averaged = {"model": weights(1), "model_ema": state_dict([("n_averaged", tensor(Storage("40", "Long", [3]), [], []))]
                                                             + list(weights(1).items()))}
    yield from (("zip", zipped(weights())), ("protocol-4", zipped(weights(), 4)), ("protocol-5", zipped(weights(), 5)),
                ("pickles", legacy(weights())), ("checkpoint", zipped(checkpoint)), ("averaged", zipped(averaged)))
    viewed = Storage("0", "Float", list(range(9)), ("v", 3, 6))
    yield "pickles-view", legacy({"a": tensor(viewed, [3], [1])})
    yield "nanogpt", zipped({"model": small(), "model_args": {"n_head": 6}, "best": tensor(Storage("1", "Float", [2]), [], [])})
    code = {"system": os.system, "exec": exec, "getattr": getattr, "open": open, "import": __import__}
    for name, function in code.items():
        yield "runs-" + name, zipped(small(x=Call(function, "touch lather-was-here")))
    yield "runs-legacy", legacy(small(x=Call(os.system, "touch lather-was-here")))
    yield "runs-in-4", zipped(small(x=Call(os.system, "touch lather-was-here")), 4)
    yield "runs-plain", pickle.dumps(Call(os.system, "touch lather-was-here"), 2)
    yield "runs-module", zipped(Call(LINEAR, 2, 2))
    yield "runs-instance", raw(b"\x80\x02(X\x02\x00\x00\x00idios\nsystem\n.")
    yield "runs-object", raw(b"\x80\x02cos\nsystem\n(X\x02\x00\x00\x00ido.")
    yield "runs-build", raw(b"\x80\x02ccollections\nOrderedDict\n)R}X\x0c\x00\x00\x00__setstate__cos\nsystem\nsbX\x01\x00\x00\x00xb.")
    yield "runs-extension", raw(b"\x80\x02\x82\x01.")
    yield "compressed", zipped(small(x=[0] * 10000), compression=zipfile.ZIP_DEFLATED)
    yield "laughs", zipped(small(x=laughs()))
    yield "memo", raw(b"\x80\x02}r\xff\xff\xff\xff.")
    yield "mark", raw(b"\x80\x02(((((.")
    yield "empty-stack", raw(b"\x80\x02R.")
    yield "long", raw(b"\x80\x02\x8b\xff\xff\xff\xff.")
    yield "deep", raw(b"\x80\x02" + b"]" * 2000 + b"a" * 1999 + b".")
    yield "itself", raw(b"\x80\x02}q\x00X\x05\x00\x00\x00modelh\x00s.")
    yield "one-name", raw_twice()
    yield "one-member", archive([("w/data.pkl", b"\x80\x02}."), ("w/data.pkl", b"\x80\x02}.")])
    yield "big-endian", zipped(small(), order=b"big")
    yield "short-storage", zipped(small(), cut=4)
    yield "no-tensors", zipped({"a": 1})
    yield "single", zipped(tensor(Storage("0", "Float", [1]), [1], [1]))
    yield "torchscript", archive([("w/data.pkl", b"\x80\x02}."), ("w/constants.pkl", b"\x80\x02).")])
    yield "not-torch", archive([("word/document.xml", b"<x/>")])
    yield "tar", b"storages" + b"\0" * 249 + b"ustar\0" + b"\0" * 249
    yield "outside", one([3], [1], 1)
    yield "negative", one([3], [1], -1)
    yield "stride", one([2, 2], [2 ** 62, 2 ** 62])
    yield "overflow", one([2 ** 40, 2 ** 40], [1, 1])
    yield "expanded", one([1000, 1000], [0, 0])
    yield "dimensions", one([1] * 9, [1] * 9)
    yield "truncated", zipped(small())[:-30]
    yield "truncated-pickles", legacy(small())[:-4]
    yield "storage-count", zipped({"a": tensor(Storage("0", "Float", [1, 2, 3], count=-2), [3], [1])})
    yield "storage-missing", raw(pickled(small())[0])
    yield "storage-unlisted", legacy(small(), {"0": "1"})
    yield "storages-no-list", legacy(small(), {"0": "1"}, dict.fromkeys)
    yield "pickle", pickle.dumps({"a": 1}, 2)
    yield "name", zipped({**small(), 1: tensor(Storage("0", "Float", [1, 2, 3]), [3], [1])})
    yield "member-outside", member_outside()


def raw_twice():
    data = pickled({"a": small()["a"], "b": tensor(Storage("0", "Float", [1, 2, 3]), [3], [1])})[0]
    return archive([("w/data.pkl", data.replace(b"X\x01\x00\x00\x00b", b"X\x01\x00\x00\x00a")),
                    ("w/data/0", b"\0" * 12)])


def member_outside():
    data = bytearray(zipped(small()))
    at = data.index(b"PK\x01\x02") + 20  # sizes of the first member in the central directory
    data[at:at + 8] = struct.pack("<2I", 5000, 5000)
    return bytes(data)


def main():
    os.makedirs(sys.argv[1], exist_ok=True)
    for name, data in files():
        with open(os.path.join(sys.argv[1], name + ".pth"), "wb") as file:
            file.write(data)


if __name__ == "__main__":
    main()
