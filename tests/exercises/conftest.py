import pytest


@pytest.fixture(autouse=True)
def nobody_learns(monkeypatch):
    """Answers that the tests try are not kept."""
    monkeypatch.setenv("COURSE_HEADLESS", "1")
