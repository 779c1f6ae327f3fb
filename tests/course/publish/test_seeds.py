"""What the course was ordered to contain: each item is met in code, in a cell that carries the tag `seed:ID`."""

import nbformat
import pytest

from course.publish.runner import NOTEBOOKS

ORDERED = {
    "A": 7,  # the pass folder: interface, errors, canonicalize, identities, constants, conv-bn, conv-add
    "B": 10,  # pass infrastructure: rewriting, metadata, pass class, manager, matcher, partitioner
    "C": 6,  # convolution, BatchNorm, the worked example, fused kernels, engines, ten families of patterns
    "D": 5,  # passes in a deployment engine: kinds, registry, what they are for, predictor, fuser
    "E": 11,  # structured pruning and quantization by hand, the promised table, its defects, talking points
}
IDS = {f"{letter}{number}" for letter, count in ORDERED.items() for number in range(1, count + 1)}


@pytest.fixture(scope="module")
def tagged():
    """The IDs that cells carry: of all cells, and of those that are code and ran without an error."""
    everywhere, ran = set(), set()
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            found = {tag.removeprefix("seed:") for tag in cell.metadata.get("tags", []) if tag.startswith("seed:")}
            everywhere |= found
            if cell.cell_type == "code" and cell.execution_count:
                assert all(output.output_type != "error" for output in cell.outputs), f"{path.stem}, {cell.id}"
                ran |= found
    return everywhere, ran


def test_every_item_has_a_cell_that_ran(tagged):
    _, ran = tagged
    assert IDS - ran == set(), f"no cell that ran is tagged for {sorted(IDS - ran)}"


def test_no_tag_names_an_item_that_is_unknown(tagged):
    everywhere, _ = tagged
    assert everywhere <= IDS, f"no such items: {sorted(everywhere - IDS)}"
