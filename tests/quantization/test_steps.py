import numpy as np
import pytest
import torch

from helpers.quantization.affine import Affine
from helpers.quantization.plan import Op
from helpers.quantization.steps import Edge, make_step
from tests.quantization import reference


def affine(scale, zero_point, bits=8):
    return Affine(torch.tensor(scale), torch.tensor(zero_point, dtype=torch.int32), bits, signed=False)


def settled(op, sources, out):
    step = make_step(op, out)
    step.settle([Edge(torch.tensor(s), torch.tensor(z, dtype=torch.int32)) for s, z in sources])
    return step


IMAGE = torch.arange(256, dtype=torch.uint8).reshape(1, 4, 8, 8)
POOL, WHOLE = {"kernel": (2, 2), "stride": (2, 2)}, {"kernel": (8, 8), "stride": (8, 8)}
MAX_POOL = {**POOL, "padding": (1, 1), "dilation": (1, 1)}
CASES = [  # op, sources, output; powers of two make many ties
    (Op("s", "add", ("a", "b"), shape=(4, 8, 8)), [(0.5, 3), (0.25, 200)], (0.5, 120)),
    (Op("s", "add", ("a", "b"), shape=(4, 8, 8), clamp=(0.0, 6.0)), [(0.1, 0), (0.01, 255)], (0.05, 0)),
    (Op("s", "average_pool", ("a",), attributes=POOL, shape=(4, 4, 4)), [(0.5, 7)], (0.25, 255)),
    (
        Op("s", "average_pool", ("a",), attributes=WHOLE, shape=(4,)),
        [(1.0, 9)],
        (2.0, 9),
    ),
    (Op("s", "clamp", ("a",), clamp=(-3.0, 20.0), shape=(4, 8, 8)), [(0.25, 128)], (0.5, 64)),
    (
        Op("s", "max_pool", ("a",), attributes=MAX_POOL, shape=(4, 5, 5)),
        [(1.0, 9)],
        None,
    ),
    (Op("s", "reshape", ("a",), shape=(256,)), [(1.0, 9)], None),
]


@pytest.mark.parametrize("op,sources,out", CASES)
def test_integer_is_the_reference_and_simulated_agrees(op, sources, out):
    step = settled(op, sources, affine(*out) if out else None)
    inputs = [IMAGE, IMAGE.flip(1)][: len(sources)]
    codes = step.integer(*inputs)
    own = {name: tensor.numpy() for name, tensor in step.named_buffers()}
    expected = reference.run_step(own, step.op, [x.numpy() for x in inputs], sources)
    assert codes.dtype == torch.uint8 and np.array_equal(codes.numpy(), expected)
    gap = (step.simulated(*inputs).int() - codes.int()).abs()
    assert gap.max() <= 1 and (gap > 0).float().mean() < 0.01
    assert torch.equal(step.kernel(*inputs), codes)


def test_ties_and_saturation_by_hand():
    add = settled(Op("s", "add", ("a", "b"), shape=(6,)), [(0.5, 0), (0.5, 0)], affine(1.0, 0))
    a = torch.tensor([[1, 3, 5, 255, 0, 2]], dtype=torch.uint8)
    b = torch.tensor([[0, 0, 0, 255, 0, 1]], dtype=torch.uint8)
    assert add.integer(a, b).tolist() == [[0, 2, 2, 255, 0, 2]]  # 0.5 -> 0, 1.5 -> 2, 2.5 -> 2, 1.5 -> 2
    negative = settled(Op("s", "add", ("a", "b"), shape=(6,)), [(0.5, 255), (0.5, 255)], affine(1.0, 10))
    assert negative.integer(a, b)[0, 4] == 0  # -255 + 10 saturates


def test_clamp_becomes_codes_one_per_channel():
    high = torch.tensor([1.0, 2.0, 300.0])
    step = make_step(Op("s", "clamp", ("a",), clamp=(0.0, high), shape=(3, 1, 1)), affine(0.5, 20))
    assert step.first == 20 and step.last.tolist() == [22, 24, 255]
    few = make_step(Op("s", "clamp", ("a",), shape=(1,)), affine(0.5, 3, bits=4))
    assert (few.first, few.last.tolist()) == (0, [15])


def test_float_step_decodes_and_encodes():
    op = Op("s", "float", ("a",), shape=(4, 8, 8), module=torch.nn.Softplus())
    step = settled(op, [(0.05, 128)], affine(0.03, 0))
    real = torch.nn.functional.softplus((IMAGE.float() - 128) * 0.05)
    assert torch.equal(step.integer(IMAGE), (real / 0.03).round().clamp(0, 255).to(torch.uint8))
