"""The last check before a file is handed out: ONNX Runtime computes what the network computes."""

import copy
from collections.abc import Iterator
from typing import Any

import onnxruntime
import torch
from torch import Tensor, nn

from helpers.quantization.affine import QuantizationError
from helpers.quantization.plan import INPUT

MOST_OFF = 0.05  # relative to the answers: at a tie a code may be rounded the other way


@torch.random.fork_rng(devices=[])
def verify_onnx(proto: bytes, model: nn.Module) -> None:
    """Raise where ONNX Runtime does not load a file, or finds other numbers than the quantized
    network in integers.
    """
    torch.manual_seed(0)  # or the verdict would depend on what was drawn before
    network = copy.copy(model)
    network.mode = "integer"
    hint = ""
    counts = [2]
    if model.float_layers:
        hint = f"; look at what stayed in float: {', '.join(model.float_layers)}"
        counts = [2, 1, 5]  # what stayed in float may decide by the number of images
    session = None
    for x, expected in _answers(network, counts, hint):
        try:
            session = session or _session(proto)
            found = torch.from_numpy(session.run(None, {INPUT: x.numpy()})[0])
        except Exception as error:  # ONNX Runtime's have many classes
            raise QuantizationError(
                f"file not written: ONNX Runtime does not run it: {error}{hint}"
            ) from error
        if not _close(found, expected, network, x):
            raise QuantizationError(
                f"ONNX Runtime finds other numbers than the network for {len(x)} images, so the"
                f" file was not written{hint}"
            )


def _answers(network: nn.Module, counts: list[int], hint: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Random images and the answers to them, for each number of images that the network takes.

    Raises:
        QuantizationError: it takes none of these numbers.
    """
    refusals = []
    for count in counts:
        x = random_images(network, count)
        for images in (x, x.abs()):  # what stayed in float may be a logarithm or a root
            try:
                answer = network(images)
            except Exception as error:
                refusals.append(error)
            else:
                yield images, answer
                break
    if len(refusals) == 2 * len(counts):
        raise QuantizationError(
            f"file not written: random images cannot be compared: {refusals[-1]}{hint}"
        ) from refusals[-1]


def _session(proto: bytes) -> Any:
    """A file as ONNX Runtime loads it."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(proto, options, providers=["CPUExecutionProvider"])


def random_images(model: nn.Module, count: int) -> Tensor:
    """Images in which every code of the input is as likely as any other."""
    shape = (count, *model.input_shape)
    source = model.input.out
    if source is None:
        return torch.randn(shape)
    first, last = source.codes
    return source.dequantize(torch.randint(first, last + 1, shape))


def _close(found, expected, network, x):
    """Whether the results differ by no more than codes that were rounded the other way explain.

    In a deep network small differences grow. Unless the difference is small anyway, a hundredth of
    the input is moved by one code, to measure how much they grow.
    """
    if found.shape != expected.shape:
        return False
    difference = (found - expected).masked_fill(found == expected, 0).norm()
    # Only finite numbers count, or infinity would allow anything.
    if difference <= MOST_OFF * expected.nan_to_num(0, 0, 0).norm():
        return True
    source = network.input.out
    step = 0.01 if source is None else source.scale
    moved = network(x + (torch.rand(x.shape) < 0.01) * step)
    return bool(difference <= 1.5 * (moved - expected).nan_to_num(0, 0, 0).norm())
