#!/usr/bin/env python3
"""Runs a test of the Python package by an interpreter that has the modules: run.py TEST.py MODULE...

Tries LATHER_PYTHON, this interpreter and /usr/bin/python3. Exit status 77 if none has the modules. LATHER_LIBRARY is the library;
LATHER_PACKAGE a folder with another package than that of the source tree."""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def main(test, *modules):
    environment = dict(os.environ, PYTHONPATH=os.environ.get("LATHER_PACKAGE", os.path.dirname(HERE)), PYTHONDONTWRITEBYTECODE="1")
    for python in (os.environ.get("LATHER_PYTHON"), sys.executable, "/usr/bin/python3"):
        if python and os.path.exists(python) and subprocess.run([python, "-c", "".join(f"import {m};" for m in modules)], check=False,
                                                                 stderr=subprocess.DEVNULL).returncode == 0:
            return subprocess.run([python, test], env=environment, check=False).returncode
    print(f"no interpreter has {', '.join(modules)}; LATHER_PYTHON may name one")
    return 77


sys.exit(main(*sys.argv[1:]))
