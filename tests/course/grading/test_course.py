import pytest

from course.grading import course


@pytest.mark.parametrize("name", course.names())
def test_an_assignment_has_its_points_and_items(name):
    assignment = course.load(name).assignment
    assert assignment.points == 100 and 6 <= len(assignment.items) <= 10 and assignment.manual_points > 0
    assert len({item.name for item in assignment.items}) == len(assignment.items)


def test_an_unknown_assignment_is_refused():
    with pytest.raises(course.CourseError, match="a1"):
        course.load("b9")
