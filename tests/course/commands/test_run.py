import nbformat
import pytest
from nbformat.v4 import new_markdown_cell, new_notebook

from course.__main__ import main
from course.publish import runner


@pytest.fixture
def course(tmp_path, monkeypatch):
    """Two lessons that are 'run' by being copied; the second fails when `failing` holds its name."""
    failing = set()
    for stem in ("01_a", "02_b"):
        nbformat.write(new_notebook(cells=[new_markdown_cell(f"# Lesson {stem}")]), tmp_path / f"{stem}.ipynb")

    def copied(path, output, profile):
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(path.read_text())
        return runner.Outcome(path.stem, 1.0, "cell 3 (x): broken" if path.stem in failing else None)

    paths = [tmp_path / "01_a.ipynb", tmp_path / "02_b.ipynb"]
    monkeypatch.setattr(runner, "run_lesson", copied)
    monkeypatch.setattr(
        runner, "lessons", lambda names=(), folder=None: [p for p in paths if not names or p.stem in names]
    )
    monkeypatch.setattr(runner, "chosen", lambda names: runner.lessons(names))
    return tmp_path, failing


def test_a_run_of_everything_ends_with_the_report(course, capsys):
    folder, _ = course
    assert main(["run", "--output", str(folder / "out" / "notebooks")]) == 0
    assert "Lesson 02_b" in (folder / "out" / "report.html").read_text()
    assert capsys.readouterr().out.splitlines()[-1].startswith("report: ")


def test_a_failure_is_named_the_others_run_and_the_report_is_written(course, capsys):
    folder, failing = course
    failing.add("01_a")
    assert main(["run", "--output", str(folder / "out" / "notebooks")]) == 1
    out = capsys.readouterr().out
    assert "FAILED  cell 3 (x): broken" in out and "02_b" in out and "failed: 01_a" in out
    assert (folder / "out" / "report.html").exists()
