"""The last line of defence: is what was made still the network that it was made from?

If not, it is not handed out.
"""

import contextlib
import copy

import torch
from torch import fx, nn

from helpers.equivalence import gap
from helpers.quantization.affine import QuantizationError
from helpers.quantization.plan import INPUT, Plan

TOLERANCE = 1e-3  # of the largest value: float32 sums in another order stay far below
MOST_OFF = 0.05  # of a file's answers: a code may round the other way at a tie


@torch.no_grad()
def verify_plan(plan: Plan, model: nn.Module, graph: fx.Interpreter, images: torch.Tensor) -> None:
    """Raise where a plan in float is not the network; `graph` notes values in `meta`, to name where
    they part.
    """
    if _same_answers(copy.deepcopy(plan), copy.deepcopy(model), images):
        return
    found: dict[str, torch.Tensor] = {}
    with contextlib.suppress(Exception):
        plan.run(images, found.__setitem__)
        graph.run(images.clone())
    expected = {node.name: node.meta.get("val") for node in graph.module.graph.nodes}
    different = [
        op.name
        for op in plan.ops
        if op.name not in found or not agree(found[op.name], expected[op.node])
    ]
    place = (
        f"they differ from {different[0]!r} on"
        if different
        else "folding, a second call or one image changes them"
    )
    raise QuantizationError(
        f"plan: on the calibration images its answers are not the network's: {place}. Has it hooks,"
        " is it random, does it keep state, write into parts of tensors or ask for the number of"
        " images?"
    )


def _same_answers(plan: Plan, model: nn.Module, images: torch.Tensor) -> bool:
    """Two calls, the second with one image, that leave no other state behind: one may matter in a
    later call.
    """
    buffers = [tensor for op in plan.ops if op.module is not None for tensor in op.module.buffers()]
    before = [tensor.clone() for tensor in buffers]
    for some in (images, images[:1]):
        try:
            expected = model(some.clone())
        except Exception as error:  # of the network's own choice
            if some is not images:
                break
            raise QuantizationError(
                f"plan: the network does not take {len(images)} images at once: {error}"
            ) from error
        with contextlib.suppress(Exception):  # a list of parts may be shorter
            if agree(plan.run(some), expected):
                continue
        return False
    return all(
        one.is_sparse or torch.equal(one, other) for one, other in zip(buffers, before, strict=True)
    )


def agree(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether two results are the same but for the order of sums."""
    return gap(expected, found)[1] <= TOLERANCE and not found.isnan().any()


@torch.random.fork_rng()
def verify_onnx(proto: bytes, model: nn.Module) -> None:
    """Raise where ONNX Runtime does not load a file, or finds other numbers than the quantized
    network in integers.
    """
    import onnxruntime

    torch.manual_seed(0)  # or the verdict would depend on what was drawn before
    options, network, session = onnxruntime.SessionOptions(), copy.copy(model), None
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    left = (
        f"; look at what stayed in float: {', '.join(model.float_layers)}"
        if model.float_layers
        else ""
    )
    for count in (
        (2, 1, 5) if left else (2,)
    ):  # what stayed in float may decide by the number of images
        shape, source = (count, *model.input_shape), model.input.out
        x = (
            torch.randn(shape)
            if source is None
            else source.dequantize(torch.randint(*source.codes, shape))
        )
        try:
            network.mode = "integer"
            expected = network(x)
        except Exception as error:
            failure = error  # the network may not take so many
            continue
        try:
            session = session or onnxruntime.InferenceSession(
                proto, options, providers=["CPUExecutionProvider"]
            )
            found = torch.from_numpy(session.run(None, {INPUT: x.numpy()})[0])
        except Exception as error:  # of many classes, all its own
            raise QuantizationError(
                f"file not written: ONNX Runtime does not run it: {error}{left}"
            ) from error
        # In a deep network a difference grows; so would one code more in a hundredth of the input.
        more = (torch.rand(shape) < 0.01) * (0.01 if source is None else source.scale)
        size, change = (
            y.nan_to_num(0, 0, 0).norm() for y in (expected, network(x + more) - expected)
        )
        allowed = max(
            MOST_OFF * size, 1.5 * change
        )  # of what is finite, or infinity would allow anything
        if (
            found.shape != expected.shape
            or not (found - expected).masked_fill(found == expected, 0).norm() <= allowed
        ):
            reason = f"ONNX Runtime finds other numbers than the network for {count} images"
            raise QuantizationError(f"{reason}, so the file was not written{left}")
    if session is None:
        raise QuantizationError(
            f"file not written: random images cannot be compared: {failure}{left}"
        ) from failure
