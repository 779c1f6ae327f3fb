import re

import pandas as pd
import pytest

from course import reference
from course.__main__ import main
from course.reference import ResultsError, headline, page, readme
from course.reference.chart import chart
from helpers.data import REPOSITORY

DENSE = {"name": "big", "stage": "dense", "status": "measured", "accuracy": 0.9412, "low": 0.93, "high": 0.95}
DENSE |= {"images": 10_000, "seed": 0, "params": 2_236_682, "macs": 87_976_448, "file_bytes": 8_000_000}
DENSE |= {"weight_bits": "32"}
SMALL = DENSE | {"name": "small", "stage": "int8", "file_bytes": 1_000_000, "coded_bytes": 800_000}
SMALL |= {"weight_bits": "8", "checkpoint": "small.safetensors"}
TIMES = pd.DataFrame(
    [("big", "ONNX Runtime float32", 1, 3.0), ("small", "ONNX Runtime int8", 1, 0.5), ("small", "this course", 1, 9.0)],
    columns=["name", "engine", "batch", "median_ms"],
).assign(iqr_ms=0.1, rounds=3, threads=2, device="a CPU", load=2.0)
OTHER = {"letter": "a", "label": "somebody/something", "source": "https://example.org", "pretrained": "not stated"}
OTHER |= {"accuracy": 0.95, "file_bytes": 700_000, "entropy_coded": "yes", "method": "cut"}
OTHER |= {"stated": "95.00% in 0.7 MB"}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A README, tables, a page and a chart of one's own."""
    results, ablations, times = (tmp_path / f"{name}.csv" for name in ("results", "ablations", "speed"))
    plan = ("dense", "9 MB", "big", "accuracy"), ("int8", "8 times smaller, 92 %", "small", "accuracy")
    names = {"README": tmp_path / "README.md", "PAGE": tmp_path / "page.md", "FIGURE": tmp_path / "chart.svg"}
    names |= {"RESULTS": results, "load": lambda: reference.load(results)}
    changes = [(readme, names), (headline, {"SHOWN": {"dense": "big", "little": "small"}}), (page, {"PLAN": plan})]
    for module, its_names in changes:
        for name, value in (its_names | {"speeds": lambda: pd.read_csv(times)}).items():
            monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(page.ablations, "ABLATIONS", ablations)
    (tmp_path / "README.md").write_text(f"before\n{readme.BEGIN}\n{readme.END}\nafter\n")
    reference.put([DENSE, SMALL], results)
    TIMES.to_csv(times, index=False)
    return tmp_path


def test_the_committed_pages_and_chart_show_the_committed_tables_and_the_command_says_so(monkeypatch, capsys):
    assert readme.stale() == [] and main(["results", "--check"]) == 0
    monkeypatch.setattr(readme, "stale", lambda: ["README.md is old"])
    assert main(["results", "--check"]) == 1 and "README.md is old" in capsys.readouterr().out


def test_the_first_screen_shows_four_rows_without_a_blank_and_the_plan():
    rows = headline.readable(headline.headline())
    assert list(rows.network) == ["dense", "half", "a fifth", "smallest"]
    assert not rows.isin(["", "-"]).any(axis=None)
    came_out = page.plan(reference.load())["came out"]
    assert len(came_out) == 4 and came_out.str.contains("%").all()


def test_the_links_of_the_readme_lead_somewhere():
    links = re.findall(r"\]\(([^)]+)\)", (REPOSITORY / "README.md").read_text())
    assert [link for link in links if "://" not in link and not (REPOSITORY / link).exists()] == []


def test_names_in_the_chart_are_few_and_do_not_lie_on_each_other():
    figure = chart()
    figure.draw_without_rendering()
    names = figure.axes[0].texts
    boxes = [name.get_window_extent() for name in names]
    assert len(names) <= 6
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_pages_show_every_row_and_keep_what_is_around(place):
    readme.write()
    text = (place / "README.md").read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n")
    assert "| little | int8 | 2.24 M | 94.12% ± 1.0% | 1.00 MB | 8.0 | 0.50 ms |" in text
    assert "| int8 | 8 times smaller, 92 % | 2.24 M, 1.00 MB, 8.0 times smaller, 94.12% |" in text
    whole = (place / "page.md").read_text()
    assert "| **small** | rounding |  | 94.12% (93.00% to 95.00%) | 2,236,682 | 87,976,448 | 1,000,000 |" in whole
    assert "a CPU, 2 threads, 3 rounds, load of the machine 2" in whole
    assert readme.stale() == []
    readme.write()
    assert (place / "README.md").read_text() == text


def test_an_edited_readme_and_a_missing_chart_are_stale_and_after_a_change_of_the_table_everything_is(place):
    readme.write()
    text, chart = (place / "README.md").read_text(), (place / "chart.svg").read_text()
    (place / "README.md").write_text(text.replace("94.12%", "97.00%"))
    (place / "chart.svg").unlink()
    assert [line.split()[0] for line in readme.stale()] == ["README.md", "chart.svg"]
    (place / "README.md").write_text(text)
    (place / "chart.svg").write_text(chart)
    reference.put([{"name": "small", "accuracy": 0.95}], place / "results.csv")
    assert len(readme.stale()) == 3 and all("python -m course results" in line for line in readme.stale())


def test_ablations_are_shown_over_their_seeds(place):
    trained = SMALL | {"stage": "fine-tuned", "command": "-"}
    trials = [trained | {"name": f"teacher-{seed}", "seed": seed, "accuracy": 0.9 + seed / 100} for seed in range(3)]
    reference.put([DENSE, *trials, trained | {"name": "bits-8", "accuracy": 0.8}], place / "ablations.csv")
    readme.write()
    text = (place / "page.md").read_text()
    assert "| teacher | fine-tuned | 91.00% | 90.00% to 92.00% | 3 |" in text
    assert "| bits-8 | fine-tuned | 80.00% |" in text


def test_others_are_ahead_only_with_sizes_that_are_counted_alike(place):
    table = reference.load(place / "results.csv")
    said = readme.standing(table, pd.DataFrame([OTHER | {"chosen_on": "test images"}]))
    assert "ahead of *dense* and *little* ([somebody/something](https://example.org) states 95.00% in 0.7 MB" in said
    assert "epoch chosen on test images" in said
    for unlike in ({"entropy_coded": "no"}, {"pretrained": "ImageNet"}, {"accuracy": 0.94}, {"file_bytes": 9_000_000}):
        said = readme.standing(table, pd.DataFrame([OTHER | {"chosen_on": ""} | unlike]))
        assert said.endswith("nobody that we know of is both smaller and more accurate than *dense* and *little*.")


def test_without_its_marks_no_file_is_touched(place):
    for text in ("no marks", f"{readme.END}\n{readme.BEGIN}", f"{readme.BEGIN}\n{readme.BEGIN}"):
        (place / "README.md").write_text(text)
        with pytest.raises(ResultsError, match="once each"):
            readme.write()
        assert not (place / "chart.svg").exists() and not (place / "page.md").exists()
