"""The tools that read run folders, as commands of the wheel: lather-report, lather-doctor."""
import importlib
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _run(module):
    packed = os.path.join(_HERE, "_tools")  # of the wheel, else the source tree's
    sys.path.insert(0, packed if os.path.isdir(packed) else os.path.join(_HERE, "..", "..", "tools"))
    return importlib.import_module(module).main(sys.argv[1:])


def report():
    """lather-report: a page with the curves of runs."""
    return _run("report_lib.main")


def doctor():
    """lather-doctor: likely causes of a bad run."""
    return _run("report_lib.doctor")
