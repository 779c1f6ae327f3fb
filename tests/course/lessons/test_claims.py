"""What a lesson claims holds for other random numbers, too, on the sample and on all images.

A cell with the tag `claim` asserts what the text around it says. Each lesson runs up to its last
claim, with every seed in it shifted; a claim that fails does not keep the later ones from being
tried.
"""

import shutil

import nbformat
import pytest
from nbformat.v4 import new_code_cell

from course.publish import runner
from helpers.data import DataError, load_cifar10

SEEDS = (1, 2, 3)  # the committed outputs come from 0
CI = ("01_batchnorm_math", "02_graphs_and_passes")  # take seconds
# Goes in front of a lesson. The helpers' own generators are shifted, too.
SHIFTED = """
import sys
import torch
from course import lessons
from helpers import data


def shifted(seed, plain=torch.manual_seed):
    return plain((int(seed) + {seed}) % 2**63)


class Shifted(torch.Generator):
    def manual_seed(self, seed):
        return super().manual_seed((int(seed) + {seed}) % 2**63)


torch.manual_seed, torch.Generator = shifted, Shifted
torch.manual_seed(0)  # for what a lesson draws before it sets a seed
sys.modules["course.lessons.profile"].load_cifar10 = lambda _: data.load_cifar10("{source}")
"""


def is_claim(cell):
    return "claim" in cell.metadata.get("tags", ())


CLAIMING = {}
for lesson in runner.lessons():
    found = nbformat.read(lesson, as_version=4).cells
    places = [place for place, cell in enumerate(found) if is_claim(cell)]
    if places:
        CLAIMING[lesson.stem] = found[: places[-1] + 1]


def with_other_seeds(name, seed, source):
    """A lesson up to its last claim, whose claims may fail without an end to the run."""
    notebook = nbformat.v4.new_notebook(cells=[cell.copy() for cell in CLAIMING[name]])
    for cell in notebook.cells:
        if is_claim(cell):
            cell.metadata = {"tags": [*cell.metadata.tags, "raises-exception"]}
    notebook.cells.insert(0, new_code_cell(SHIFTED.format(seed=seed, source=source), id="seeds"))
    return notebook


def failed_claims(cells):
    """The claims that do not hold, each with what its cell printed."""
    for cell in filter(is_claim, cells):
        text = "".join(output.get("text", "") for output in cell.outputs)
        for output in cell.outputs:
            if output.output_type == "error":
                yield f"{cell.id}: {output.ename}: {output.evalue}\n{text}"


def refuted(name, seed, source, folder):
    """Run a lesson; what of it does not hold."""
    ignored = shutil.ignore_patterns("assignments", "mine.py", "__pycache__")
    here = shutil.copytree(runner.NOTEBOOKS, folder / "notebooks", ignore=ignored)
    nbformat.write(with_other_seeds(name, seed, source), here / f"{name}.ipynb")
    outcome = runner.run_lesson(here / f"{name}.ipynb", folder / "executed.ipynb", "quick")
    cells = nbformat.read(folder / "executed.ipynb", as_version=4).cells
    found = list(failed_claims(cells))
    if outcome.failure and not found:
        found.append(outcome.failure)
    if not all(cell.execution_count for cell in filter(is_claim, cells)):
        found.append("a claim was not reached")
    return found


LESSONS = [
    pytest.param(name, id=name, marks=pytest.mark.ci if name in CI else ()) for name in CLAIMING
]


@pytest.mark.slow
@pytest.mark.parametrize("name", LESSONS)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_claims_of_a_lesson_hold_on_the_sample(name, seed, tmp_path):
    assert refuted(name, seed, "sample", tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", CLAIMING)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_claims_of_a_lesson_hold_on_all_images(name, seed, tmp_path):
    try:
        load_cifar10("local")
    except DataError:
        pytest.skip("all images are not on this machine")
    assert refuted(name, seed, "local", tmp_path) == []


@pytest.mark.slow
@pytest.mark.ci
def test_a_claim_that_fails_is_found_and_seeds_are_shifted(monkeypatch, tmp_path):
    claims = (
        "print('so far'); assert False, 'never true'",
        "import torch; assert torch.manual_seed(5).initial_seed() == 8",
        "assert torch.Generator().manual_seed(5).initial_seed() == 8",
    )
    cells = [new_code_cell(claim, metadata={"tags": ["claim"]}) for claim in claims]
    monkeypatch.setitem(CLAIMING, "01_batchnorm_math", cells)
    (found,) = refuted("01_batchnorm_math", 3, "sample", tmp_path)
    assert "AssertionError: never true" in found and "so far" in found


def test_every_lesson_makes_claims():
    assert {path.stem for path in runner.lessons()} == CLAIMING.keys()
