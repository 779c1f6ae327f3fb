import pandas as pd
import pytest

from course.grading.classroom import Classroom
from course.grading.export import pseudonym
from course.grading.stats import StatsError, draw, item_statistics


def test_pseudonyms_are_stable_and_differ_between_classes(tmp_path):
    one, other = Classroom.open(tmp_path / "a"), Classroom.open(tmp_path / "b")
    assert pseudonym(one, "ada") == pseudonym(one, "ada") != pseudonym(other, "ada")
    assert "ada" not in pseudonym(one, "ada") and pseudonym(one, "ada") != pseudonym(one, "ben")


def test_difficulty_and_discrimination_of_items():
    rows = [(s, i, p, 2) for s, points in {"a": (2, 2, 2), "b": (2, 1, 0), "c": (0, 0, 2)}.items()
            for i, p in zip(("x", "y", "z"), points, strict=True)]  # fmt: skip
    marks = pd.DataFrame(rows, columns=["student", "item", "points", "of"])
    found = item_statistics(marks)
    assert found["earned"].tolist() == pytest.approx([4 / 6, 3 / 6, 4 / 6])
    x, rest = pd.Series([2, 2, 0]), pd.Series([4, 1, 2])
    assert found.loc["x", "discrimination"] == pytest.approx(x.corr(rest))


def test_an_item_that_everybody_solved_discriminates_nobody():
    marks = pd.DataFrame({"student": list("aabb"), "item": ["x", "y"] * 2, "points": [2, 1, 2, 0], "of": 2})
    assert pd.isna(item_statistics(marks).loc["x", "discrimination"])


def test_statistics_of_nothing_are_refused(tmp_path, a1):
    with pytest.raises(StatsError, match="grade run"):
        draw(Classroom.open(tmp_path), a1)
