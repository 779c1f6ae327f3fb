"""What the lessons import: what a lesson may cost, the reference tables."""

from course.lessons.profile import Profile, profile
from course.lessons.results import reference
