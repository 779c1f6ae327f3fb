"""Trees of data as bytes that cannot execute: JSON for the structure, safetensors for the tensors.

What comes out of the box was written by somebody who may wish the grader ill, so `decode` trusts
nothing: sizes are capped before anything is parsed, and whatever is wrong ends in a `WireError`.
Needs only torch and safetensors, because it also runs inside the box and in the student's bundle.
"""

import json
import linecache
import re
import traceback
from collections.abc import Callable
from typing import Any

import numpy
import safetensors.torch
import torch

MOST_BYTES = 64 * 2**20
MOST_TEXT_BYTES = (
    4 * 2**20
)  # of the structure, which takes twenty times as much memory once it is parsed
MOST_PARTS = 20_000
MISNAMED = " (keep the exercise's names of arguments)"
_MARK = "tensor number"


class WireError(ValueError):
    """Bytes that are not an encoded tree, or an answer that cannot be used; the words say why."""


def encode(tree: Any) -> bytes:
    """Turn a tree of dictionaries, lists, tensors, numbers, strings, booleans, None into bytes."""
    tensors: dict[str, torch.Tensor] = {}
    text = json.dumps(_take_tensors_out(tree, tensors))
    tensors["tree"] = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
    return safetensors.torch.save(tensors)


def decode(data: bytes) -> Any:
    """Turn the bytes of `encode` back into a tree, or raise `WireError`."""
    _require_at_most(MOST_BYTES, len(data))
    _require_at_most(
        MOST_TEXT_BYTES, int.from_bytes(data[:8], "little")
    )  # the header, which names the tensors
    try:
        tensors = safetensors.torch.load(data)
        _require_at_most(MOST_TEXT_BYTES, tensors["tree"].nbytes)
        return _put_tensors_in(json.loads(tensors["tree"].numpy().tobytes()), tensors)
    except WireError:
        raise
    except (
        Exception
    ) as problem:  # parsers fail in many ways on hostile bytes, and each of them means the same
        raise WireError(f"not an encoded answer ({type(problem).__name__})") from None


def call(function: Callable, inputs: dict[str, Any]) -> Any:
    """Call an answer; refuse one that changes what it was given, for somebody else may still use
    it.
    """
    before = encode(inputs)
    answer = function(**inputs)
    if encode(inputs) != before:
        raise WireError("it changes the inputs that it was given; work on copies")
    return answer


def undone(problem: BaseException) -> bool:
    """Whether it comes from a stub; torch raises this error as well, but with words."""
    return type(problem) is NotImplementedError and not problem.args


def is_of_form(difference: str) -> bool:
    """Whether an answer differs in its kind or in its type of numbers.

    Too many or too few of something, such as groups, are a matter of what was computed.
    """
    form = r"(^|: )the answer should (be (?!None|of length)|hold)|; it is in torch\."
    return re.search(form, difference) is not None


def described(problem: BaseException, student: dict[str, Any]) -> str:
    """An error in one line, with the last line of the student's own code on the way to it."""
    own = [
        (f.f_code, n) for f, n in traceback.walk_tb(problem.__traceback__) if f.f_globals is student
    ]
    line, place = "", ""
    if own:
        code, number = own[-1]
        line = linecache.getline(code.co_filename, number).strip()
        # A function that is called by the one that was asked may be another exercise's.
        place = f" of {code.co_name}" * (code is not own[0][0] and "<" not in code.co_name)
    kind = [type(problem).__name__] * (not isinstance(problem, WireError))
    words = ": ".join(filter(None, [*kind, str(problem)]))
    if "unexpected keyword argument" in words:
        words += MISNAMED
    return words[:300] + (f", in the line `{shortened(line)}`{place}" if line else "")


def shortened(line: str) -> str:
    """A line of code in a length that fits into a sentence."""
    return line if len(line) <= 100 else f"{line[:96]} ..."


def _require_at_most(allowed: int, length: int) -> None:
    if length > allowed:
        raise WireError(f"{length} bytes are more than the {allowed} allowed")


def _take_tensors_out(tree: Any, tensors: dict[str, torch.Tensor]) -> Any:
    tree = tree.item() if isinstance(tree, numpy.generic) else tree  # a number is a number
    if isinstance(tree, torch.Tensor):
        name = str(len(tensors))
        # A copy, because safetensors refuses tensors that share memory.
        tensors[name] = tree.detach().cpu().contiguous().clone()
        return {_MARK: name}
    if isinstance(tree, dict):
        if not all(isinstance(key, str) and key != _MARK for key in tree):
            raise WireError(f"the keys of an answer must be texts, but are {list(tree)[:5]!r}")
        return {key: _take_tensors_out(value, tensors) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_take_tensors_out(value, tensors) for value in tree]
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    raise WireError(
        "an answer may hold tensors of torch, numbers, texts, lists and dictionaries, but not"
        f" {type(tree)}"
    )


def _put_tensors_in(tree: Any, tensors: dict[str, torch.Tensor]) -> Any:
    parts = 0

    def walk(node: Any) -> Any:
        nonlocal parts
        parts += 1
        if parts > MOST_PARTS:
            raise WireError(f"an answer may have {MOST_PARTS} parts at most")
        if isinstance(node, dict):
            if set(node) == {_MARK}:
                return tensors.pop(
                    node[_MARK]
                )  # once each, for a tensor that stands in many places would be copied
            return {key: walk(value) for key, value in node.items()}
        return [walk(value) for value in node] if isinstance(node, list) else node

    return walk(tree)
