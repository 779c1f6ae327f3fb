"""The notebooks as a course: run them without a screen, and make a page and slides of them."""

from helpers.lessons.network import baseline
from helpers.lessons.profile import Profile, profile
from helpers.lessons.results import reference

__all__ = ["Profile", "baseline", "profile", "reference"]
