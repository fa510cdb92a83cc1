#!/usr/bin/env python3
"""tools/shampoo_parity with made-up checkouts and tables, and made-up results of the comparison.

    tests/tools/test_shampoo_parity.py TOOL
"""
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
TOOL = os.path.abspath(sys.argv[1])
CONFIGS = """
class Base(Abstract): ...

@dataclass
class StepConfig(BaseConfig):
    rate: float = 0.1
    count: int = 3

@dataclass
class BaseConfig: ...

@dataclass
class PlainConfig(BaseConfig): ...

@dataclass
class State:
    hidden: int = 0

class DecayType(enum.Enum):
    L2 = "L2"
    NONE = "none"
"""
OPTIMIZER = """
class Optimizer(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1, config=None): ...
"""
TABLE = """# Guide

## Names in the reference

| class | settings | this library | compared |
| --- | --- | --- | --- |
| `StepConfig` | `rate`, `count` | a \\| b | yes |
| `PlainConfig` | | the same | yes |
| `DecayType` | `L2`, `NONE` | the same | yes |
| `Optimizer` | `lr`, `config` | the same | a reason |

## Another table

| `OtherConfig` | `x` | y | yes |
"""


def check(folder, table, configs, want, *named):
    """Runs the tool on a checkout; want: the exit status; named: texts that its messages contain."""
    for name, text in (("pkg/types.py", configs), ("pkg/optimizer.py", OPTIMIZER), ("guide.md", table),
                       ("pkg/tests/types_test.py", "class TestConfig:\n    x: int = 0\n")):
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    p = subprocess.run([sys.executable, TOOL, os.path.join(folder, "pkg"), "--table", os.path.join(folder, "guide.md")],
                       capture_output=True, text=True, check=False)
    assert p.returncode == want, f"exit {p.returncode}, want {want}: {p.stdout}{p.stderr}"
    assert p.stderr.count("problem:") == len(named), p.stderr
    for text in named:
        assert text in p.stderr, f"{text!r} is not in {p.stderr}"


def tables():
    with tempfile.TemporaryDirectory() as folder:
        check(folder, TABLE, CONFIGS, 0)
        check(folder, TABLE, CONFIGS.replace("    count", "    new: int = 3\n    count"), 1, "StepConfig.new: a setting of the checkout")
        check(folder, TABLE, CONFIGS.replace("    count: int = 3\n", ""), 1, "guide.md:7: StepConfig.count is no setting")
        check(folder, TABLE, CONFIGS.replace("NONE", "ALL"), 1, "DecayType.ALL: a setting", "guide.md:9: DecayType.NONE is no")
        check(folder, TABLE, CONFIGS + "\nclass FreshConfig(BaseConfig): ...\n", 1, "FreshConfig: a setting of the checkout")
        check(folder, TABLE.replace("`lr`, ", "`lr`, `lr`, "), CONFIGS, 1, "guide.md:10: Optimizer.lr has a row in line 10")
        check(folder, TABLE.replace("## Names in the reference", "## Names"), CONFIGS, 1, "no heading", *["a row"] * 7)
        check(folder, TABLE, "", 1, *["is no setting of the checkout"] * 5)
    p = subprocess.run([sys.executable, TOOL, ".", "--python", "python3"], capture_output=True, text=True, check=False)
    assert p.returncode == 2 and "--replay" in p.stderr, p.stderr


def comparison():
    loader = importlib.machinery.SourceFileLoader("shampoo_parity", TOOL)
    tool = importlib.util.module_from_spec(importlib.util.spec_from_loader("shampoo_parity", loader))
    loader.exec_module(tool)

    def result(**keys):
        return dict({"difference": 1e-12, "control": 0.5, "bound": 1e-9, "known": "", "without": {"C.x": ["1", True], "C.y": ["1", True]},
                     "with": {"C.x": ["2", False], "C.y": ["1", True]}}, **keys)

    x, y = {("C", "x"): (1, "x", "yes"), ("C", "z"): (2, "", "absent here")}, {("C", "y"): (3, "y", "yes")}
    for rows, results, named in ((x, {"a": result()}, []), (x, {"a": result(difference=1e-3)}, ["a: differs by 1.0e-03"]),
                                 (x, {"a": result(difference=float("nan"))}, ["a: differs by nan"]),
                                 (x, {"a": result(control=1e-9)}, ["C.x: its row has 'yes', but no pair"]),
                                 ({**x, **y}, {"a": result()}, ["C.y: its row"]),
                                 (x, {"a": {"absent": "split"}}, ["C.x: its row"]),
                                 (x, {"a": result(), "b": result(known="decay")}, ["b: agrees, but"]),
                                 (x, {"a": result(), "b": result(known="decay", difference=1e-3)}, [])):
        lines, problems = tool.summary(rows, results)
        assert len(problems) == len(named) and all(p.startswith(n) for p, n in zip(problems, named)), (problems, named)
    assert "| `C.x` | 1 | 1.0e-12 | 5.0e-01 |" in lines and "- absent here: `C.z`" in lines, lines


tables()
comparison()
print("ok")
