"""One spelling for the names of GPU kernels: the PyTorch profiler and Nsight Compute demangle them differently.

PyTorch's traces have them as the C++ runtime writes them, ``void f<4, A<char*, 3> >(int, A<char*, 3>)``; Nsight
Compute writes ``void f<(int)4, A<char *, (int)3>>(int, T2)``. Both name the same kernel.
"""

from __future__ import annotations

import re

_ANONYMOUS = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|\{anonymous\})(?:::)?")
_LAMBDA = re.compile(r"\[lambda\((?P<a>[^()]*)\) \(instance (?P<b>\d+)\)\]|\{lambda\((?P<c>[^()]*)\)#(?P<d>\d+)\}")
_CALL_OPERATOR = re.compile(r"operator ?\(\)")
_CAST = re.compile(
    r"\((?:bool|char|short|int|long|long long|unsigned|unsigned (?:char|short|int|long|long long))\)(?=-?\d)"
)
_SUFFIXED_NUMBER = re.compile(r"\b(\d+)(?:ull|ul|u|ll|l)\b")
_TRUTH = {"true": "1", "false": "0"}
_PARAMETERS = re.compile(r"\([^()]*\)")
_NOISE = re.compile(r"\bvoid\b|\bconst\b|\s+")


def function_name(demangled: str) -> str:
    """Return the function's name in a demangled kernel name, as ncu's log writes it.

    ``void at::native::(anonymous namespace)::reduce_kernel<512, 1>(int)`` gives ``reduce_kernel``.
    """
    text = _ANONYMOUS.sub("", demangled).replace("->", "")
    kept, depth = [], 0
    for character in text:
        if character == "<":
            depth += 1
        elif character == ">":
            depth = max(0, depth - 1)
        elif depth == 0:
            if character == "(":
                break
            kept.append(character)
    words = "".join(kept).split()
    return words[-1].split("::")[-1] if words else demangled


def kernel_identity(demangled: str) -> str:
    """Return one spelling of a kernel's name for both demanglers: template arguments kept, parameters dropped.

    ``void f<(int)4, <unnamed>::G<(bool)1>>(int, T2)`` and ``void f<4, (anonymous namespace)::G<true> >(int, G<true>)``
    both give ``f<4,G<1>>``. Two kernels that differ in their parameters alone do not occur: parameters follow from the
    template arguments.
    """
    text = _ANONYMOUS.sub("", demangled)
    text = _LAMBDA.sub(lambda match: f"{{lambda#{match['b'] or match['d']}}}", text)
    text = _CALL_OPERATOR.sub("operator_call", text)
    text = _CAST.sub("", text)
    text = _SUFFIXED_NUMBER.sub(r"\1", text)
    text = re.sub(r"\b(true|false)\b", lambda match: _TRUTH[match[1]], text)
    while (shorter := _PARAMETERS.sub("", text)) != text:
        text = shorter
    return _NOISE.sub("", text)
