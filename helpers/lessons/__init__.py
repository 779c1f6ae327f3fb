"""The notebooks as a course: run them without a screen, and make a page and slides of them."""

from helpers.lessons.profile import Profile, profile

__all__ = ["Profile", "profile"]
