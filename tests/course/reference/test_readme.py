import pandas as pd
import pytest

from course import reference
from course.reference import COLUMNS, ResultsError, readme

DENSE = {"name": "dense", "stage": "dense", "status": "measured", "accuracy": 0.9412, "low": 0.93, "high": 0.95}
DENSE |= {"images": 10_000, "seed": 0, "params": 2_236_682, "macs": 87_976_448, "file_bytes": 8_000_000}
SMALL = DENSE | {"name": "small", "stage": "int8", "file_bytes": 1_000_000, "coded_bytes": 800_000, "threads": 2}
SMALL |= {"batch1_ms": 4.25, "batch1_iqr_ms": 0.5, "checkpoint": "small.safetensors", "device": "a CPU"}
MISSING = {"name": "later", "stage": "qat", "status": "not run", "command": "python -m course sweep reference later"}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A README, a table and a figure of one's own."""
    monkeypatch.setattr(readme, "README", tmp_path / "README.md")
    monkeypatch.setattr(readme, "FIGURE", tmp_path / "tradeoffs")
    monkeypatch.setattr(readme, "RESULTS", tmp_path / "results.csv")
    monkeypatch.setattr(readme, "ABLATIONS", tmp_path / "ablations.csv")
    monkeypatch.setattr(readme, "load", lambda path=tmp_path / "results.csv": reference.load(path))
    (tmp_path / "README.md").write_text(f"before\n{readme.BEGIN}\n{readme.END}\nafter\n")
    reference.put([DENSE, SMALL, MISSING], tmp_path / "results.csv")
    return tmp_path


def test_the_committed_readme_and_figure_show_the_committed_tables():
    assert readme.stale() == []


def test_the_readme_shows_every_row_and_keeps_what_is_around(place):
    readme.write(readme.load())
    text = (place / "README.md").read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n")
    assert (
        "| dense | dense | 94.12% (93.00% to 95.00%) | 2,236,682 | 87,976,448 | 8,000,000 | 1.0 x | - | - | - |" in text
    )
    assert "| **small** | int8 |" in text and "| 1,000,000 | 8.0 x | 800,000 | 4.2 ± 0.2 ms | - |" in text
    assert "| later | qat | `python -m course sweep reference later` |" in text
    assert "a CPU, 2 threads" in text and "10,000 test images, seed 0" in text
    assert readme.stale() == []


def test_writing_twice_gives_the_same_text(place):
    readme.write(readme.load())
    first = (place / "README.md").read_text()
    readme.write(readme.load())
    assert (place / "README.md").read_text() == first


def test_a_changed_table_makes_readme_and_figure_stale(place):
    readme.write(readme.load())
    reference.put([{"name": "small", "accuracy": 0.95}], place / "results.csv")
    assert len(readme.stale()) == 3
    assert all("python -m course results" in line for line in readme.stale())


def test_an_edited_readme_is_stale(place):
    readme.write(readme.load())
    text = (place / "README.md").read_text()
    (place / "README.md").write_text(text.replace("94.12%", "97.00%"))
    assert ["README.md" in line for line in readme.stale()] == [True]


def test_the_readme_shows_ablations_over_their_seeds_and_is_stale_without(place):
    readme.write(readme.load())
    trained = SMALL | {"stage": "fine-tuned", "command": "-"}
    trials = [trained | {"name": f"teacher-{seed}", "seed": seed, "accuracy": 0.9 + seed / 100} for seed in range(3)]
    alone, missing = trained | {"name": "bits-8", "accuracy": 0.8}, MISSING | {"name": "bits-4"}
    reference.put([DENSE, *trials, alone, missing], place / "ablations.csv")
    assert ["README.md" in line for line in readme.stale()] == [True]
    readme.write(readme.load())
    text = (place / "README.md").read_text()
    assert "2 ablations" in text and "bits-4" not in text
    assert "| teacher | fine-tuned | 91.00% | 90.00% to 92.00% | 3 |" in text
    assert "| bits-8 | fine-tuned | 80.00% | - | 1 |" in text
    assert readme.stale() == []


def test_the_smallest_network_within_a_point_is_named_first(place):
    worse = SMALL | {"name": "worse", "file_bytes": 10, "validation_accuracy": 0.92}
    near, dense = ({"name": name, "validation_accuracy": v} for name, v in (("small", 0.935), ("dense", 0.94)))
    reference.put([worse, near, dense], place / "results.csv")
    sentence = readme.block(readme.load()).partition("**In short:** ")[2].splitlines()[0]
    assert sentence.startswith("small is the smallest file") and "**8.0 times smaller**" in sentence


def test_another_dense_network_is_no_smaller_file_and_nothing_to_compare_with(place):
    poor = {"validation_accuracy": 0.80, "accuracy": 0.8}
    others = [DENSE | poor | {"name": f"dense-{size}", "file_bytes": size} for size in (9_000_000, 500_000)]
    known = [others[0], DENSE | {"validation_accuracy": 0.94}, others[1]]
    assert "In short" not in readme.block(pd.DataFrame(known, columns=list(COLUMNS)))
    text = readme.block(pd.DataFrame([*known, SMALL | {"validation_accuracy": 0.935}], columns=list(COLUMNS)))
    assert "**In short:** small is the smallest file" in text and "bytes instead of 8,000,000" in text
    assert "| 1,000,000 | 8.0 x |" in text


def test_without_a_smaller_network_nothing_is_short():
    table = pd.DataFrame([DENSE | {"validation_accuracy": 0.94}], columns=list(COLUMNS))
    assert "In short" not in readme.block(table)


def test_networks_before_fine_tuning_are_folded_away(place):
    reference.put([SMALL | {"name": "half-pruned", "stage": "pruned", "accuracy": 0.5}], place / "results.csv")
    before, _, after = readme.block(readme.load()).partition("<details><summary>1 as cut, before fine-tuning</summary>")
    assert "| **half-pruned** |" in after and "half-pruned" not in before
    assert "| **small** |" in before and "**small**" not in after


def test_a_missing_figure_is_stale(place):
    readme.write(readme.load())
    (place / "tradeoffs.png").unlink()
    assert [line.split()[0] for line in readme.stale()] == ["tradeoffs.png"]


def test_the_words_for_the_figure_name_only_what_it_shows(place):
    reference.put([SMALL | {"name": "far", "accuracy": 0.5, "file_bytes": 100}], place / "results.csv")
    text = readme.alternative_text(readme.load())
    assert "small 94.1% in 1.00 MB" in text and "far" not in text


def test_marks_that_are_gone_are_named(place):
    with pytest.raises(ResultsError, match="must have the lines"):
        readme.with_block("no marks here", "text")


def test_without_its_marks_no_file_is_touched(place):
    readme.write(readme.load())
    (place / "README.md").write_text("no marks here")
    reference.put([{"name": "small", "accuracy": 0.95}], place / "results.csv")
    before = {path: path.read_bytes() for path in place.iterdir()}
    with pytest.raises(ResultsError, match="must have the lines"):
        readme.write(readme.load())
    assert {path: path.read_bytes() for path in place.iterdir()} == before


def test_nothing_measured_yet_can_be_shown_too():
    table = pd.DataFrame([MISSING], columns=list(COLUMNS))
    assert "nothing is measured yet" in readme.block(table)
