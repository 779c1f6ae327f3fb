"""What the lessons import: what a lesson may cost, the reference tables, comparisons."""

from course.lessons.compared import correct, gain
from course.lessons.profile import Profile, profile
from course.lessons.results import reference
