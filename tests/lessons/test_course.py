"""Every lesson runs from top to bottom in the quick profile, in a fresh kernel."""

import nbformat
import pytest

from helpers.lessons import runner

# A share of them for continuous integration: one without a network, one with.
CI = ("02_graphs_and_passes", "03_folding")
RUNS = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.slow, *([pytest.mark.ci] if path.stem in CI else [])])
    for path in runner.lessons()
]


@pytest.mark.parametrize("path", RUNS)
def test_runs_without_errors_and_without_noise(path, tmp_path):
    outcome = runner.run_lesson(path, tmp_path / path.name, "quick")
    assert outcome.failure is None, outcome.line()
    for cell in nbformat.read(tmp_path / path.name, as_version=4).cells:
        noise = [o.text for o in cell.get("outputs", []) if o.get("name") == "stderr"]
        assert not noise, f"{cell.id}: {noise}"
