#!/usr/bin/env python3
"""Turns kernel launches into calls, so that the host's compiler can read a file of CUDA C++.

    emulate.py IN.cu OUT.cpp        emulate.py IN.cuh OUT.cuh        emulate.py --self-test

`name<types><<<grid, block, bytes, stream>>>(arguments)` becomes
`lt_emulate(grid, block, bytes, stream, "name", [](const auto &...a) { name<types>(a...); }, arguments)`,
and a parameter that no thread copies (`__grid_constant__`) a reference. After `__shared__ T x[N];`
follows `lt_emulate_shared(&x, sizeof x);`, which makes x NaN for every block: on a device it has no
value either. Everything else stays.
"""
import re
import sys

LAUNCH = re.compile(r"([A-Za-z_]\w*)((?:<[^<>;(){}]*>)?)\s*<<<")
SHARED = re.compile(r"(__shared__\s[^;=]*?\b([A-Za-z_]\w*)((?:\[[^\];]*\])*);)")
PARAMETER = re.compile(r"const __grid_constant__ (\w+) (\w+)")


def closing(text, start):
    """The place of the parenthesis that closes the one at start."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i
    raise SystemExit("a launch is not closed")


def launches(text):
    out, at = [], 0
    while True:
        found = LAUNCH.search(text, at)
        if not found:
            return "".join(out) + text[at:]
        name, types = found.groups()
        end = text.index(">>>", found.end())
        opening = text.index("(", end)
        last = closing(text, opening)
        arguments = launches(text[opening + 1:last])
        out += [text[at:found.start()], f"lt_emulate({text[found.end():end]}, \"{name}\", ",
                f"[](const auto &...a) {{ {name}{types}(a...); }}", ", " if arguments else "",
                arguments, ")"]
        at = last + 1


def translate(text):
    text = SHARED.sub(r"\1 lt_emulate_shared(&\2, sizeof \2);", text)
    return launches(PARAMETER.sub(r"const \1 &\2", text))


def self_test():
    call = "[](const auto &...a) { %s(a...); }"
    rows = [("plain", "f<<<1, 2, 0, s>>>(a);", f'lt_emulate(1, 2, 0, s, "f", {call % "f"}, a);'),
            ("types", "f<T, 8><<<g(n, 4), 2, 0, m(c)>>>(a, (T *)b);",
             f'lt_emulate(g(n, 4), 2, 0, m(c), "f", {call % "f<T, 8>"}, a, (T *)b);'),
            ("two", "f<<<1, 1, 0, s>>>(); g<<<2, 1, 0, s>>>(f(x));",
             f'lt_emulate(1, 1, 0, s, "f", {call % "f"}); '
             f'lt_emulate(2, 1, 0, s, "g", {call % "g"}, f(x));'),
            ("a large parameter", "void f(const __grid_constant__ list x, int y)",
             "void f(const list &x, int y)"),
            ("shared", "__shared__ double x[A][B / 2];\n__shared__ lt_step s;",
             "__shared__ double x[A][B / 2]; lt_emulate_shared(&x, sizeof x);\n"
             "__shared__ lt_step s; lt_emulate_shared(&s, sizeof s);"),
            ("none", "x << 3 >> 1; a<b> c;", "x << 3 >> 1; a<b> c;")]
    failed = [title for title, text, want in rows if translate(text) != want]
    print(f"{len(rows) - len(failed)} passed, {len(failed)} failed {failed or ''}")
    return len(failed)


if sys.argv[1:] == ["--self-test"]:
    sys.exit(1 if self_test() else 0)
with open(sys.argv[1], encoding="utf-8") as source:
    translated = translate(source.read())
with open(sys.argv[2], "w", encoding="utf-8") as target:
    target.write(f'#line 1 "{sys.argv[1]}"\n' + translated)
