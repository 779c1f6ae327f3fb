"""Every checkpoint that comes with the course is what its row says: derived again, and evaluated again."""

import pandas as pd
import pytest

from course import reference
from course.benchmarks.common import origin
from course.reference import measuring
from helpers import models

SHIPPED = sorted(models.CHECKPOINTS.glob("*.safetensors"))
# One image of a thousand may fall on the other side where another processor adds in another order.
IMAGES_OFF = 2
MEGABYTE = 1_000_000


def table_of_all():
    """The reference networks, and the small one of the lessons."""
    return pd.concat([reference.load(), reference.load(reference.RESULTS.with_name("tiny.csv"))])


def row_of(path):
    table = table_of_all().set_index("checkpoint")
    assert path.name in table.index, f"{path.name} has no row: run `python -m course sweep reference`"
    return table.loc[path.name]


def test_comparisons_were_made_on_what_is_shipped():
    other = []
    for table in reference.RESULTS.parent.glob("*.csv"):
        rows = pd.read_csv(table, dtype={"sha256": str})
        if "sha256" in rows:
            name, digest = rows.iloc[-1][["checkpoint", "sha256"]]
            other += [table.name] if origin(models.CHECKPOINTS / f"{name}.safetensors")["sha256"] != digest else []
    assert other == [], "measured on another network than the one that is shipped; run `make reference`"


def test_no_ablation_is_left_of_a_job_that_is_gone():
    sweep = reference.read("ablations")
    assert set(reference.load(sweep.results).name) <= set(sweep.jobs)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_parameters_operations_bytes_and_what_the_file_states(path):
    row = row_of(path)
    found = {name: value for name, value in measuring.derived(path).items() if value is not None}
    assert found == {name: row[name] for name in found}
    assert (row.weights, row["name"]) == (measuring.weights_of(path), path.stem)
    stated = models.read_header(path)[1]
    assert round(row.images * abs(stated["metrics"]["test_accuracy"] - row.accuracy)) <= IMAGES_OFF
    assert stated["metrics"]["test_images"] == row.images
    # Files from before `python -m course` name the commands as they were called then.
    made, told = (text.replace("-m helpers", "-m course") for text in (stated["provenance"]["command"], row.command))
    assert made == told


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_accuracy_on_the_sample(path):
    found = measuring.sample_accuracy(measuring.runnable(path))
    assert round(1000 * abs(found - row_of(path).sample_accuracy)) <= IMAGES_OFF


def test_a_row_names_a_file_that_is_there_and_together_they_are_small_enough_to_ship():
    assert set(table_of_all().checkpoint.dropna()) == {path.name for path in SHIPPED}
    sizes = [path.stat().st_size for path in SHIPPED]
    assert max(sizes) < 10 * MEGABYTE
    assert sum(sizes) < 25 * MEGABYTE
