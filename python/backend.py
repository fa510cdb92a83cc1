"""Builds the wheel (PEP 517): the package, the tables of the headers and the library, compiled with libc, libm and OpenMP alone.

    pip wheel ./python                                              compiles the library with meson
    pip wheel ./python --config-settings=build=FOLDER               compiles it in a folder that is kept for the next time
    pip wheel ./python --config-settings=library=BUILD/liblather.so       takes one that is built

LATHER_JOBS limits the number of compilers that run at once.
"""
import base64
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
# Nothing that a library of the system supplies: the wheel must work on other machines.
OPTIONS = ["--auto-features=disabled", "-Dtests=disabled", "-Dcuda=disabled", "-Dbuildtype=release"]


def _version():
    """The version in Python's form: 1.0.0rc1 of 1.0.0-rc1."""
    with open(os.path.join(ROOT, "meson.build"), encoding="utf-8") as file:
        return re.search(r"version: '([^']*)'", file.read()).group(1).replace("-", "")


def _tag():
    return "py3-none-" + re.sub(r"[.-]", "_", sysconfig.get_platform())


def _metadata():
    version = _version()
    with open(os.path.join(ROOT, "docs", "guides", "python.md"), encoding="utf-8") as file:
        guide = file.read()
    return (f"lather-{version}.dist-info", f"Metadata-Version: 2.1\nName: lather\nVersion: {version}\n"
            "Summary: Deep learning in C with Distributed Shampoo: arrays, gradients, optimizers for PyTorch\nLicense: MIT\n"
            "Requires-Python: >=3.9\nProvides-Extra: numpy\nRequires-Dist: numpy; extra == 'numpy'\n"
            f"Description-Content-Type: text/markdown\n\n{guide}")


def _compile(folder):
    """Compiles the library in a folder; returns its path."""
    if not shutil.which("meson") or not shutil.which("ninja"):
        raise RuntimeError("lather: the wheel needs meson and ninja to compile the library, or --config-settings=library=PATH of one")
    if not os.path.exists(os.path.join(folder, "build.ninja")):
        subprocess.run(["meson", "setup", folder, ROOT, *OPTIONS], check=True)
    name = "liblather.so." + re.match(r"[\d.]*\d", _version()).group()
    subprocess.run(["ninja", "-C", folder, *(["-j", os.environ["LATHER_JOBS"]] if "LATHER_JOBS" in os.environ else []), name], check=True)
    return os.path.join(folder, name)


def _tables():
    """api.json: the tables of the headers, by the package's own reader."""
    spec = importlib.util.spec_from_file_location("_headers", os.path.join(HERE, "lather", "_headers.py"))
    reader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reader)
    return json.dumps(reader.read(os.path.join(ROOT, "include", "lather")), separators=(",", ":")).encode()


def _digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _read(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Writes the wheel; returns its name."""
    del metadata_directory
    info, metadata = _metadata()
    modules = [name for name in sorted(os.listdir(os.path.join(HERE, "lather"))) if name.endswith(".py")]
    files = {f"lather/{name}": _read(HERE, "lather", name) for name in modules}
    files["lather/api.json"] = _tables()
    for name in ("charts.py", *(f"report_lib/{name}" for name in sorted(os.listdir(os.path.join(ROOT, "tools", "report_lib"))))):
        if name.endswith(".py"):
            files[f"lather/_tools/{name}"] = _read(ROOT, "tools", name)
    with tempfile.TemporaryDirectory() as folder:
        given = config_settings or {}
        files["lather/liblather.so." + _version().split(".")[0]] = _read(given.get("library") or _compile(given.get("build", folder)))
    files[f"{info}/METADATA"] = metadata.encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: lather\nRoot-Is-Purelib: false\nTag: {_tag()}\n".encode()
    files[f"{info}/entry_points.txt"] = b"[console_scripts]\nlather-report = lather._commands:report\nlather-doctor = lather._commands:doctor\n"
    files[f"{info}/LICENSE"] = _read(ROOT, "LICENSE")
    rows = [f"{name},{_digest(data)},{len(data)}" for name, data in files.items()] + [f"{info}/RECORD,,"]
    files[f"{info}/RECORD"] = ("\n".join(rows) + "\n").encode()
    wheel = f"lather-{_version()}-{_tag()}.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, wheel), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            item = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # the same bytes at any time
            item.compress_type, item.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
            archive.writestr(item, data)
    return wheel


def build_sdist(sdist_directory, config_settings=None):
    """The source is the project's archive (tools/release), of which this folder is a part."""
    raise NotImplementedError("lather: build the wheel in the source tree: pip wheel ./python")
