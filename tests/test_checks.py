import pytest

from course.publish.runner import REPOSITORY
from helpers import checks

checks.EXERCISES = REPOSITORY / "notebooks" / "exercises"


def test_says_that_it_is_right(capsys):
    def output_size(size, kernel, stride, padding):
        return (size + 2 * padding - kernel) // stride + 1

    checks.check(output_size)
    assert capsys.readouterr().out == "output_size: right\n"


def test_an_empty_answer_is_no_error(capsys):
    def output_size(size, kernel, stride, padding):
        raise NotImplementedError

    checks.check(output_size)
    assert "not done yet" in capsys.readouterr().out


def test_a_wrong_answer_raises_with_input_difference_and_hint():
    def output_size(size, kernel, stride, padding):
        return 0

    with pytest.raises(checks.NotRightYet, match=r"size \d+, kernel \d.*differs by.*round down") as caught:
        checks.check(output_size)
    assert caught.value._render_traceback_() == [f"NotRightYet: {caught.value}"]


def test_an_answer_that_breaks_says_how():
    def output_size(size, kernel, stride, padding):
        return size / 0

    with pytest.raises(checks.NotRightYet, match="ZeroDivisionError"):
        checks.check(output_size)


def test_the_inputs_are_new_each_time():
    seen = []

    def output_size(size, kernel, stride, padding):
        seen.append((size, kernel, stride, padding))
        return (size + 2 * padding - kernel) // stride + 1

    checks.check(output_size)
    half = len(seen)
    checks.check(output_size)
    assert seen[:half] != seen[half:]


def test_an_unknown_exercise_lists_the_known():
    with pytest.raises(checks.NotRightYet, match=r"no exercise called 'outputsize'.*output_size"):
        checks.find("outputsize")


def test_names_are_given_once():
    names = [item.function for items in checks.by_lesson().values() for item in items]
    assert len(names) == len(set(names))
