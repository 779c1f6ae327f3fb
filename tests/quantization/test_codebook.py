import pytest
import torch

from helpers.quantization import codebook
from helpers.quantization.affine import fit as fit_affine


def error(weight, approximation):
    return (weight - approximation).double().square().mean().item()


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_result_is_a_fixed_point_of_lloyds_two_steps(bits):
    weight = torch.randn(40, 25, generator=torch.Generator().manual_seed(bits))
    book = codebook.fit(weight, bits, iterations=1000)
    distances = (weight.double()[..., None] - book.centres.double()).abs()
    chosen = distances.gather(-1, book.indices.long()[..., None])[..., 0]
    assert (chosen <= distances.min(-1).values + 1e-7).all(), "a weight is not with its nearest centre"
    for index, centre in enumerate(book.centres):
        members = weight[book.indices == index]
        if len(members):
            assert torch.isclose(centre, members.double().mean().float(), atol=1e-6)


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_a_codebook_beats_an_even_grid_of_as_many_levels(bits):
    weight = torch.randn(5000, generator=torch.Generator().manual_seed(0))
    grid = fit_affine(weight, bits, symmetric=False)
    assert error(weight, codebook.fit(weight, bits).decode()) < 0.8 * error(
        weight, grid.dequantize(grid.quantize(weight))
    )


def test_few_distinct_values_are_kept_exactly():
    weight = torch.tensor([0.5, -1.0, 0.5, 3.0, 0.0])
    assert torch.allclose(codebook.fit(weight, bits=3).decode(), weight, atol=1e-7)
    assert torch.equal(codebook.fit(torch.full((3, 3), 0.7), bits=2).decode(), torch.full((3, 3), 0.7))


def test_more_rounds_never_make_it_worse():
    weight = torch.randn(999, generator=torch.Generator().manual_seed(3)).exp()
    errors = [error(weight, codebook.fit(weight, 3, iterations).decode()) for iterations in (0, 1, 3, 10, 100)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.9 * errors[0]


@pytest.mark.parametrize("weight", [torch.tensor([]), torch.tensor([1.0, float("nan")]), torch.tensor([float("inf")])])
def test_bad_weights_are_refused(weight):
    with pytest.raises(codebook.CodebookError, match="empty or holds NaN"):
        codebook.fit(weight, bits=4)
