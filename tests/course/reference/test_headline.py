import pandas as pd
import pytest

from course import reference
from course.reference.headline import headline, readable


def row(name, stage, validation, size, **more):
    known = {"name": name, "stage": stage, "status": "measured", "validation_accuracy": validation, "file_bytes": size}
    return known | {"accuracy": 0.9, "low": 0.89, "high": 0.91, "macs": 80e6, "batch1_ms": 5.0} | more


@pytest.fixture
def table():
    return pd.DataFrame(
        [
            row("baseline", "dense", 0.940, 8e6),
            row("small", "fine-tuned", 0.935, 4e6),
            row("smaller, but two points worse", "fine-tuned", 0.920, 2e6, accuracy=0.99),
            row("int8", "int8", 0.939, 2e6),
            row("later", "qat", 0.940, 1e6) | {"status": "not run"},
        ]
    )


def test_validation_chooses_and_test_accuracy_does_not(table):
    assert list(headline(table)["name"]) == ["baseline", "small", "int8"]


def test_of_several_dense_networks_the_best_is_the_one_to_compare_with(table):
    small, large = row("small and poor", "dense", 0.80, 1e6), row("large and poor", "dense", 0.80, 9e6)
    several = pd.concat([pd.DataFrame([large]), table, pd.DataFrame([small])], ignore_index=True)
    assert list(headline(several)["name"]) == ["baseline", "small", "int8"]


def test_nothing_measured_gives_no_rows():
    assert headline(reference.load(reference.RESULTS.with_name("none.csv"))).empty


def test_readable_numbers(table):
    shown = readable(headline(table))
    assert list(shown["times smaller"]) == ["1.0", "2.0", "4.0"]
    assert list(shown["MB"]) == ["8.00", "4.00", "2.00"]
    assert shown.iloc[0]["accuracy (95 % interval)"] == "90.00 % (89.0 to 91.0)"


def test_what_was_not_timed_is_left_empty(table):
    table.loc[0, ["batch1_ms", "macs"]] = float("nan")
    shown = readable(headline(table))
    assert shown.iloc[0]["ms, 1 image"] == shown.iloc[0]["million multiply-adds"] == ""


def test_the_committed_results_can_be_shown():
    rows = headline(reference.load())
    assert rows.empty or len(readable(rows)) == len(rows)
