import pytest

from course.grading.classroom import Classroom
from course.grading.export import pseudonym
from course.grading.stats import StatsError, draw


def test_pseudonyms_are_stable_and_differ_between_classes(tmp_path):
    one, other = Classroom.open(tmp_path / "a"), Classroom.open(tmp_path / "b")
    assert pseudonym(one, "ada") == pseudonym(one, "ada") != pseudonym(other, "ada")
    assert "ada" not in pseudonym(one, "ada") and pseudonym(one, "ada") != pseudonym(one, "ben")


def test_statistics_of_nothing_are_refused(tmp_path, a1):
    with pytest.raises(StatsError, match="grade run"):
        draw(Classroom.open(tmp_path), a1)
