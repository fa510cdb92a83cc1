"""Reads the C headers: what functions, structs and enumerations of the library look like.

The result is one dictionary, which the wheel holds as api.json; in a source checkout it is read from include/ directly.
Types are texts: "int", "double", "lt_tensor *", "lt_conv2d_config" and so on; see _api.py for their ctypes.
"""
import os
import re

_COMMENT = re.compile(r"/\*.*?\*/", re.S)
_ENUM = re.compile(r"typedef enum (\w+) \{(.*?)\} \w+;", re.S)
_STRUCT = re.compile(r"(?:typedef )?struct (\w+) \{(.*?)^\}[ \w]*;", re.S | re.M)
_FUNCTION = re.compile(r"LT_API ([^;{}()=]*?)\b(lt_\w+)\(([^;{}]*?)\)(?: LT_PRINTF\([^)]*\)|\s*__attribute__[^;]*)?;", re.S)
_CALLBACK = re.compile(r"\(\s*\*\s*(\w+)\s*\)\s*\(")


def _squeeze(text):
    return re.sub(r"\s+", " ", text).strip()


def _enum(body, constants):
    """{"LT_GELU_ERF": 0, ...}"""
    values, at = {}, 0
    for item in _COMMENT.sub("", body).split(","):
        name, _, value = (part.strip() for part in item.partition("="))
        if re.fullmatch(r"\w+", name):
            at = int(value, 0) if re.fullmatch(r"-?\w+", value) and value[:1] in "-0123456789" else constants.get(value, at)
            values[name], at = at, at + 1
    return values


def _declaration(text):
    """("lt_tensor *", "gamma", [lengths of arrays]) of `lt_tensor *gamma[3]`; a callback's type is "void *"."""
    callback = _CALLBACK.search(text)
    if callback:
        return "void *", callback.group(1), []
    if "*const *" in text:  # a list of inputs
        kind, name = text.split("*const *")
        return f"{kind.strip()} *const *", name.strip(), []
    lengths = re.findall(r"\[(\w*)\]", text)
    match = re.fullmatch(r"(.*?[\s*])(\w+)\s*", re.sub(r"\[\w*\]", "", text), re.S)
    if not match:
        return None
    kind = _squeeze(re.sub(r"\b(const|struct|enum)\b", "", match.group(1))).replace("* *", "**")
    return re.sub(r"\s*(\*+)$", r" \1", kind), match.group(2), lengths


def _struct(body):
    """[[type, name, [lengths]], ...]; None for other forms, such as a union."""
    fields = []
    text = _COMMENT.sub("", body)
    if "{" in text or ":" in text:
        return None
    for part in text.split(";"):
        if not part.strip():
            continue
        first, *rest = [part] if _CALLBACK.search(part) else part.split(",")
        declared = _declaration(first.strip())
        if not declared:
            return None
        fields.append(list(declared))
        for other in rest:  # "int a, *b": asterisks belong to each name
            name = re.fullmatch(r"(\**)(\w+)((?:\[\w+\])*)", other.strip())
            if not name:
                return None
            kind = declared[0].rstrip(" *") + (" " + name.group(1) if name.group(1) else "")
            fields.append([kind, name.group(2), re.findall(r"\[(\w+)\]", name.group(3))])
    return fields


def _parameters(text):
    text = _squeeze(_COMMENT.sub("", text))
    if text in ("", "void"):
        return []
    found = [_declaration(part) for part in text.split(",")] if "(" not in text else [None]
    return None if None in found else [list(p) for p in found]


def _comment_before(text, at):
    """The doc comment that ends right before a place, without its asterisks."""
    head = text[:at].rstrip()
    if not head.endswith("*/"):
        return ""
    body = head[head.rfind("/**") + 3:-2]
    indent = 1 if body.startswith("\n") else 2  # text that begins in the first line continues one column further
    return "\n".join(re.sub(r"^ ?\*? {0,%d}" % indent, "", line).rstrip() for line in body.split("\n")).strip()


def parse(texts):
    """texts: {header: its text}. The dictionary of all that the headers declare."""
    version = re.search(r'#define LT_VERSION "([^"]*)"', texts.get("plugin.h", ""))
    api = {"version": version.group(1) if version else "", "enums": {}, "constants": {}, "structs": {}, "functions": {}, "callbacks": []}
    for text in texts.values():
        for names in re.findall(r"^enum \{(.*?)\};", text, re.S | re.M):
            api["constants"].update(_enum(names, api["constants"]))
        for name, body in _ENUM.findall(text):
            if "X(" not in body and "#" not in body:
                api["enums"][name] = _enum(body, api["constants"])
        api["callbacks"] += re.findall(r"^typedef [\w *]+?\b(lt_\w+_fn)\(", text, re.M)
    for text in texts.values():
        for name, body in _STRUCT.findall(text):
            fields = _struct(body)
            if fields:
                api["structs"][name] = fields
        for match in _FUNCTION.finditer(text):
            parameters = _parameters(match.group(3))
            if parameters is not None:
                result = _declaration(match.group(1).replace("LT_MUST_CHECK", "") + " result")[0]
                api["functions"][match.group(2)] = {"result": result, "parameters": parameters, "doc": _comment_before(text, match.start())}
    return api


def read(folder):
    """The dictionary of the headers in a folder, include/lather of a source tree."""
    texts = {}
    for where, _, names in sorted(os.walk(folder)):
        for name in sorted(names):
            if name.endswith(".h"):
                path = os.path.join(where, name)
                with open(path, encoding="utf-8") as file:
                    texts[os.path.relpath(path, folder)] = file.read()
    if "status.h" not in texts:
        raise FileNotFoundError(f"{folder}: no headers of lather there")
    return parse(texts)
