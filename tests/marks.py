"""Marks that several files of tests share."""

import pytest

# Too slow for each change at home; continuous integration runs it.
IN_CI = [pytest.mark.slow, pytest.mark.ci]
