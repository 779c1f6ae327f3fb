"""The notebooks as a course: run them without a screen, and make a page and slides of them."""

from course.lessons.network import baseline
from course.lessons.profile import Profile, profile
from course.lessons.results import reference

__all__ = ["Profile", "baseline", "profile", "reference"]
