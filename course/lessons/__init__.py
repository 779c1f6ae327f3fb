"""What the lessons import: the trained network, what a lesson may cost, the reference tables."""

from course.lessons.network import baseline
from course.lessons.profile import Profile, profile
from course.lessons.results import reference

__all__ = ["Profile", "baseline", "profile", "reference"]
