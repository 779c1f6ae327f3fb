"""A pass that is not among those of `optimize`: zeros around an image go into the convolution.

    conv(pad(x, p), padding=q)  ->  conv(x, padding=p + q)

It is written as a user of the library would write one: a table of patterns and rules.
"""

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers.graphs.editing import with_tensors
from helpers.graphs.errors import Declined
from helpers.graphs.layers import why_not_ordinary
from helpers.graphs.operations import CONVS, called_module
from helpers.graphs.patterns import OpPattern
from helpers.passes.base import RulePass
from tests.passes.graphs import calls, fold, network, reasons
from tests.passes.zoo import conv, hooked


def pad_more(match, conv, pad):
    editor, layer, amounts = match.editor, called_module(conv), pad.args[1]
    if why_not_ordinary(layer) is not None:
        raise Declined(why_not_ordinary(layer))
    if editor.storage.is_written(pad.args[0]) or editor.storage.is_module_written(layer):
        raise Declined("its input or its weight is written to")
    if pad.kwargs.get("mode", "constant") != "constant" or pad.kwargs.get("value") not in (None, 0):
        raise Declined("it pads by something else than zeros")
    if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        raise Declined(f"{conv} does not pad by a given number of zeros")
    sides = 2 * len(layer.kernel_size)  # low and high of the last axis come first
    if not all(isinstance(amount, int) for amount in amounts) or any(amounts[sides:]):
        raise Declined("it pads by amounts that are computed, or along other axes than the image's")
    padded = (*amounts, *[0] * sides)[:sides]
    if padded[::2] != padded[1::2] or min(padded) < 0:
        raise Declined(f"it pads differently on both sides, or crops: {amounts}")
    new = with_tensors(layer)
    new.padding = tuple(map(sum, zip(layer.padding, padded[-2::-2], strict=True)))
    new._reversed_padding_repeated_twice = [side for side in new.padding[::-1] for _ in range(2)]
    editor.swap_module(conv, new)
    conv.args = pad.args[:1]
    editor.erase(pad)
    return f"pads by {new.padding} itself"


class PadFolding(RulePass):
    """conv(pad(x)) becomes conv with more padding."""

    name = "pad_folding"
    rules: ClassVar = {OpPattern(CONVS, (OpPattern([F.pad], name="pad"),), name="conv"): pad_more}


def padded(*arguments, **named):
    return network(lambda m, x: m.conv(F.pad(x, *arguments, **named)), conv=conv(padding=1))


FOLDED = {
    "a module": lambda: nn.Sequential(nn.ZeroPad2d(2), conv(padding=1)),
    "a function": lambda: padded((1, 1, 2, 2)),
    "one axis": lambda: padded((3, 3)),
}
DECLINED = {
    "differently on both sides": lambda: padded((0, 1, 0, 1)),
    "or crops": lambda: padded((-1, -1)),
    "something else than zeros": lambda: padded((1, 1, 1, 1), value=1.0),
    "by something else": lambda: padded((1, 1, 1, 1), mode="reflect"),
    "computed": lambda: network(lambda m, x: m.conv(F.pad(x, (x.size(0), 2))), conv=conv()),
    "along other axes": lambda: network(
        lambda m, x: m.conv(F.pad(x, (0, 0, 0, 0, 1, 1))), conv=conv(5)
    ),
    "given number of zeros": lambda: network(
        lambda m, x: m.conv(F.pad(x, (1, 1))), conv=conv(padding="same")
    ),
    "it has hooks": lambda: network(
        lambda m, x: m.conv(F.pad(x, (1, 1))), conv=hooked(conv(), lambda _: None)
    ),
    "its input or its weight": lambda: network(
        lambda m, x: (m.conv(F.pad(y := x * 1.5, (1, 1))), y.add_(1))[0], conv=conv()
    ),
}


@pytest.mark.parametrize("what", FOLDED)
def test_zeros_around_an_image_go_into_the_convolution(what):
    graph_module, report = fold([PadFolding()], FOLDED[what](), torch.randn(2, 3, 6, 5))
    assert calls(graph_module) == [nn.Conv2d] and report.declined == []


@pytest.mark.parametrize("reason", DECLINED)
def test_a_near_miss_stays_with_its_reason(reason):
    graph_module, report = fold([PadFolding()], DECLINED[reason](), torch.randn(2, 3, 6, 5))
    assert F.pad in calls(graph_module)
    assert [reason in why for why in reasons(report)] == [True]
