"""Tables of results, the pages and the chart that show them, and checkpoints, each of which is what
its row says.
"""

import re
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest

from course import reference
from course.__main__ import main
from course.benchmarks import (
    common,
    deployed,
    peers,
    pruning_quality,
    pruning_unstructured,
    quantization,
    speed,
)
from course.benchmarks.common import KnownRows, described, need, origin
from course.reference import COLUMNS, headline, measuring, page, readme, standing
from course.reference import table as tables
from course.reference.chart import chart
from helpers import data, models
from helpers.data import REPOSITORY


@pytest.fixture
def csv(tmp_path):
    return tmp_path / "results.csv"


def test_rows_come_back_as_they_were_written(csv):
    row = {
        "name": "a",
        "status": "measured",
        "accuracy": 1 / 3,
        "params": 2_236_682,
        "weight_bits": "8",
    }
    reference.put([row], csv)
    table = reference.load(csv)
    assert list(table.columns) == list(COLUMNS)
    assert (table.accuracy[0], table.params[0], table.weight_bits[0]) == (1 / 3, 2_236_682, "8")
    assert pd.isna(table.coded_bytes[0]) and pd.isna(table.checkpoint[0])
    first = csv.read_bytes()
    reference.put([], csv)
    assert csv.read_bytes() == first
    table = reference.put(
        [{"name": "b"}, {"name": "a", "accuracy": 0.6}], csv
    )  # which keeps what it does not say
    assert list(table.name) == ["a", "b"] and (table.accuracy[0], table.params[0]) == (
        0.6,
        2_236_682,
    )


def test_a_column_that_does_not_exist_and_a_foreign_table_are_refused(csv):
    with pytest.raises(ValueError, match="no column 'speed'"):
        reference.put([{"name": "a", "speed": 1}], csv)
    csv.write_text("name,accuracy\na,1\n")
    with pytest.raises(ValueError, match=r"results.csv has other columns"):
        reference.load(csv)


def test_those_who_write_at_once_lose_nothing(csv):
    with ThreadPoolExecutor(
        4
    ) as writers:  # each call locks the file anew, as another process would
        list(writers.map(lambda number: reference.put([{"name": f"row{number}"}], csv), range(12)))
    assert set(reference.load(csv).name) == {f"row{number}" for number in range(12)}


def test_two_benchmarks_side_by_side_keep_each_others_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "FOLDER", tmp_path)
    one, other = KnownRows("rows", share=0.5), KnownRows("rows", share=0.25)
    for table, accuracy in ((one, 1 / 3), (other, 0.5), (one, 0.1)):
        table.add({"accuracy": accuracy})
    assert [row["accuracy"] for row in KnownRows("rows").rows] == [1 / 3, 0.5, 0.1] and len(
        one.mine()
    ) == 2


def test_a_new_row_leaves_those_of_others_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "FOLDER", tmp_path)
    text = "network,parameters,seconds,outcome\na,61100840,14.0,ok\nb,,0.3,failed\n"
    (tmp_path / "rows.csv").write_text(text)
    KnownRows("rows").add({"network": "c"})
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    kept = [",".join(line.split(",")[:4]) for line in lines[:3]]
    assert kept == text.splitlines() and lines[3].startswith("c,,,,")


def test_published_rows_are_never_measured_on_the_sample_and_a_network_without_a_file_is_named(
    monkeypatch,
):
    monkeypatch.setattr("sys.argv", ["benchmark"])
    monkeypatch.setattr(data, "load_cifar10", lambda source: {}[source])
    needed = []
    for module in (pruning_quality, quantization):
        monkeypatch.setattr(module, "need", lambda parser, *packages: needed.append(packages))
    for module in (deployed, peers, pruning_quality, pruning_unstructured, quantization):
        with pytest.raises(KeyError, match="'local'"):
            module.main()
    assert needed == [("torch_pruning",), ("torchao", "nncf", "openvino")]
    with pytest.raises(
        SystemExit, match="no file of huge: make one, python -m course sweep reference huge"
    ):
        speed.file_of("huge")


def test_a_comparison_without_the_other_tools_ends_before_it_begins(capsys):
    need(described("Times."), "torch")
    with pytest.raises(SystemExit):
        need(described("Times."), "torch", "no_such_tool")
    assert "no_such_tool not installed: pip install -e '.[rivals]'" in capsys.readouterr().err


def test_published_numbers_have_a_source_and_its_words():
    table = reference.published()
    assert table.source.str.startswith("https://").all()
    for row in table.itertuples():
        assert f"{row.accuracy:.2%}" in row.stated
        assert 0.85 < row.accuracy < 0.97
    assert len(table[["letter", "label", "source"]].drop_duplicates()) == len(set(table.letter))


DENSE = {
    "name": "big",
    "stage": "dense",
    "status": "measured",
    "accuracy": 0.9412,
    "low": 0.93,
    "high": 0.95,
}
DENSE |= {
    "images": 10_000,
    "seed": 0,
    "params": 2_236_682,
    "macs": 87_976_448,
    "file_bytes": 8_000_000,
}
DENSE |= {"weight_bits": "32"}
SMALL = DENSE | {"name": "small", "stage": "int8", "file_bytes": 1_000_000, "coded_bytes": 800_000}
SMALL |= {"weight_bits": "8", "checkpoint": "small.safetensors"}
TIMES = pd.DataFrame(
    [
        ("big", "ONNX Runtime float32", 1, 3.0),
        ("small", "ONNX Runtime int8", 1, 0.5),
        ("small", "this course", 1, 9.0),
    ],
    columns=["name", "engine", "batch", "median_ms"],
).assign(iqr_ms=0.1, rounds=3, threads=2, device="a CPU", load=2.0)
OTHER = {
    "letter": "a",
    "label": "somebody/something",
    "source": "https://example.org",
    "pretrained": "not stated",
}
OTHER |= {
    "accuracy": 0.95,
    "file_bytes": 700_000,
    "entropy_coded": "yes",
    "stated": "95.00% in 0.7 MB",
}
FILES = pd.DataFrame(
    {"onnx_bytes": [9_200_000, 1_100_000], "accuracy": [0.95, 0.9400]}, index=["big", "small"]
)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A README, tables, a page and a chart of one's own."""
    results, ablations, times = (
        tmp_path / f"{name}.csv" for name in ("results", "ablations", "speed")
    )
    plan = (
        ("dense", "9 MB", "big", "accuracy"),
        ("int8", "8 times smaller, 92 %", "small", "accuracy"),
    )
    names = {
        "README": tmp_path / "README.md",
        "PAGE": tmp_path / "page.md",
        "FIGURE": tmp_path / "chart.svg",
    }
    names |= {"RESULTS": results, "load": lambda path=results: reference.load(path)}
    changes = [
        (readme, names),
        (headline, {"SHOWN": {"dense": "big", "little": "small"}}),
        (page, {"PLAN": plan}),
    ]
    for module, its_names in changes:
        tables = {"speeds": lambda: pd.read_csv(times), "deployed": lambda: FILES}
        for name, value in (its_names | tables).items():
            monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(page.ablations, "ABLATIONS", ablations)
    (tmp_path / "README.md").write_text(f"before\n{readme.BEGIN}\n{readme.END}\nafter\n")
    reference.put([DENSE, SMALL], results)
    TIMES.to_csv(times, index=False)
    return tmp_path


def test_the_pages_that_were_written_are_told_apart(monkeypatch, capsys):
    monkeypatch.setattr(readme, "write", lambda: [readme.README, readme.PAGE])
    assert main(["results"]) == 0
    assert capsys.readouterr().out == "written: README.md, data/results/README.md\n"


def test_the_committed_pages_and_chart_show_the_committed_tables_and_the_command_says_so(
    monkeypatch, capsys
):
    assert readme.stale() == [] and main(["results", "--check"]) == 0
    monkeypatch.setattr(readme, "stale", lambda: ["README.md is old"])
    assert main(["results", "--check"]) == 1 and "README.md is old" in capsys.readouterr().out


def test_the_first_screen_shows_four_rows_without_a_blank_and_the_plan_and_links_lead_somewhere():
    rows = headline.readable(headline.headline())
    assert list(rows.network) == ["dense", "half", "a tenth", "smallest"]
    assert not rows.isin(["", "-"]).any(axis=None)
    came_out = page.plan(reference.load())["achieved"]
    assert len(came_out) == 4 and came_out.str.contains("%").all()
    assert list(
        headline.readable(headline.headline().assign(weight_bits="4")).weights.unique()
    ) == ["4 bits each"]
    links = re.findall(r"\]\(([^)]+)\)", (REPOSITORY / "README.md").read_text())
    assert [link for link in links if "://" not in link and not (REPOSITORY / link).exists()] == []


def test_the_first_sentence_of_the_readme_is_what_the_table_says():
    rows = headline.headline().set_index("name")
    smaller = rows.file_bytes["dense"] / rows.file_bytes["a tenth"]
    lost = 100 * (rows.accuracy["dense"] - rows.accuracy["a tenth"])
    assert (round(smaller, -1), round(2 * lost)) == (30, 1)
    said = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert "thirty times smaller for half a point of accuracy" in said


def test_no_network_of_ours_is_better_than_one_of_the_first_page_in_all_it_shows():
    """But for the dense network, where the course starts."""
    measures = ["accuracy", "file_bytes", "coded_bytes"]
    table = reference.load().dropna(subset=measures)
    costs = table[measures].assign(accuracy=-table.accuracy)
    costs["ms"] = [
        headline.milliseconds(row.name, row.weight_bits, 1) for row in table.itertuples()
    ]
    costs.index = table.name
    for name in list(headline.SHOWN.values())[1:]:
        others = costs.drop(name)
        as_good = (others <= costs.loc[name]).all(axis=1)
        assert list(others.index[as_good]) == [], name


def test_the_onnx_files_of_the_tables_are_those_that_we_write_today(tmp_path):
    rows = tables.deployed()
    shown = set(headline.SHOWN.values())
    assert shown <= set(rows.index) and (rows.images == 10_000).all()
    network = models.load(models.CHECKPOINTS / "tenth-mixed.safetensors")
    path = deployed.exported(network, tmp_path / "tenth-mixed.onnx")
    assert path.stat().st_size == rows.onnx_bytes["tenth-mixed"]


def test_names_in_the_chart_are_few_and_do_not_lie_on_each_other_or_on_a_point():
    figure = chart()
    figure.draw_without_rendering()
    names, transform = figure.axes[0].texts, figure.axes[0].transData.transform
    boxes = [name.get_window_extent() for name in names]
    assert len(names) == 5  # four of ours, and one for all others
    points = [transform(point) for line in figure.axes[0].lines for point in line.get_xydata()]
    assert not any(box.contains(*point) for box in boxes for point in points)
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_pages_show_every_row_and_keep_what_is_around(place):
    readme.write()
    text = (place / "README.md").read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n")
    assert (
        "| little | 8 bits each | 2.24 M | 94.12% ± 1.0% | 1.00 MB | 8 | 1.10 MB | 0.50 ms |"
        in text
    )
    differences = [abs(0.95 - DENSE["accuracy"]), abs(0.94 - SMALL["accuracy"])]
    assert f"differs by at most {100 * max(differences):.2f} points" in text
    whole = (place / "page.md").read_text()
    assert "| 1,100,000: 94.00% |" in whole
    assert "| int8 | 8 times smaller, 92 % | 2.24 M, 1.00 MB, 8.0 times smaller, 94.12% |" in whole
    assert (
        "| **small** | rounding |  | 94.12% (93.00% to 95.00%) | 2,236,682 | 87,976,448 |"
        " 1,000,000 |" in whole
    )
    assert "a CPU, 2 threads, 3 rounds, load of the machine 2" in whole
    assert readme.stale() == []
    readme.write()
    assert (place / "README.md").read_text() == text


def test_an_edited_readme_and_a_missing_chart_are_stale_and_all_is_when_the_table_changes(place):
    readme.write()
    text, chart = (place / "README.md").read_text(), (place / "chart.svg").read_text()
    (place / "README.md").write_text(text.replace("94.12%", "97.00%"))
    (place / "chart.svg").unlink()
    assert [line.split()[0] for line in readme.stale()] == ["README.md", "chart.svg"]
    dark = (place / "chart-dark.svg").read_text()
    assert "#0d1117" in dark and "#ffffff" not in dark and len(dark) == len(chart)
    (place / "README.md").write_text(text)
    (place / "chart.svg").write_text(chart)
    reference.put([{"name": "small", "accuracy": 0.95}], place / "results.csv")
    assert len(readme.stale()) == 4 and all(
        "python -m course results" in line for line in readme.stale()
    )


def test_ablations_are_shown_over_their_seeds(place):
    trained = SMALL | {"stage": "fine-tuned", "command": "-"}
    trials = [
        trained | {"name": f"teacher-{seed}", "seed": seed, "accuracy": 0.9 + seed / 100}
        for seed in range(3)
    ]
    reference.put(
        [DENSE, *trials, trained | {"name": "bits-8", "accuracy": 0.8}], place / "ablations.csv"
    )
    readme.write()
    text = (place / "page.md").read_text()
    assert "| lowest to highest | seeds |\n| --- | --- | ---: | ---: | ---: |\n" in text
    assert "| teacher | fine-tuned | 91.00% | 90.00% to 92.00% | 3 |" in text
    assert "| bits-8 | fine-tuned | 80.00% |" in text


def test_others_are_ahead_only_with_sizes_that_are_counted_alike(place):
    table = reference.load(place / "results.csv")
    larger = {"accuracy": 0.96, "file_bytes": 5_000_000, "stated": "96.00% in 5 MB"}
    said = standing.standing(
        table, pd.DataFrame([OTHER, OTHER | larger]).assign(chosen_on="test images")
    )
    both, stated = (
        "*dense* and *little*",
        "96.00% in 5 MB; 95.00% in 0.7 MB, epoch chosen on test images",
    )
    assert (
        f"other networks are ahead of {both} ([somebody/something](https://example.org) states"
        f" {stated})" in said
    )
    for unlike in (
        {"entropy_coded": "no"},
        {"pretrained": "ImageNet"},
        {"accuracy": 0.94},
        {"file_bytes": 9_000_000},
    ):
        said = standing.standing(table, pd.DataFrame([OTHER | {"chosen_on": ""} | unlike]))
        either = "more accurate than *dense* or *little*."
        assert said.endswith(f"no other network that we know of is both smaller and {either}")


def test_without_its_marks_no_file_is_touched_and_a_table_without_the_first_row_is_refused(place):
    for text in ("no marks", f"{readme.END}\n{readme.BEGIN}", f"{readme.BEGIN}\n{readme.BEGIN}"):
        (place / "README.md").write_text(text)
        with pytest.raises(ValueError, match="once each"):
            readme.write()
        assert not (place / "chart.svg").exists() and not (place / "page.md").exists()
    (place / "results.csv").unlink()
    for rows, make in (
        ([], readme.write),
        ([], readme.stale),
        ([SMALL], readme.write),
        ([SMALL], readme.stale),
    ):
        reference.put(rows, place / "results.csv")
        with pytest.raises(
            ValueError, match="no row 'big': make it with `python -m course sweep reference big`"
        ):
            make()


SHIPPED = sorted(models.CHECKPOINTS.glob("*.safetensors"))
# One image of a thousand may fall on the other side where another processor adds in another order.
IMAGES_OFF = 2
# The reference networks, and the small one of the lessons.
TABLE = pd.concat(
    [reference.load(), reference.load(reference.RESULTS.with_name("tiny.csv"))]
).set_index("checkpoint")


def test_comparisons_were_made_on_what_is_shipped():
    other = {}
    for table in reference.RESULTS.parent.glob("*.csv"):
        rows = pd.read_csv(table, dtype={"sha256": str})
        if "sha256" in rows:
            name, digest = rows.iloc[-1][["checkpoint", "sha256"]]
            if origin(models.CHECKPOINTS / f"{name}.safetensors")["sha256"] != digest:
                (other[table.name],) = (
                    command for names, command in page.FILES.items() if table.name in names
                )
    assert other == {}, "measured on another network than the one that is shipped; run these again"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_parameters_operations_bytes_and_what_the_file_states(path):
    row = TABLE.loc[path.name]
    found = {name: value for name, value in measuring.derived(path).items() if value is not None}
    assert found == {name: row[name] for name in found}
    assert (row.weights, row["name"]) == (measuring.weights_of(path), path.stem)
    stated = models.read_header(path)[1]
    assert round(row.images * abs(stated["metrics"]["test_accuracy"] - row.accuracy)) <= IMAGES_OFF
    assert stated["metrics"]["test_images"] == row.images
    # Files from before `python -m course` name the commands as they were called then.
    commands = (stated["provenance"]["command"], row.command)
    assert len({text.replace("-m helpers", "-m course") for text in commands}) == 1


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_accuracy_on_the_sample(path):
    found = measuring.sample_accuracy(measuring.in_integers(models.load(path)))
    assert round(1000 * abs(found - TABLE.sample_accuracy[path.name])) <= IMAGES_OFF


def test_a_row_names_a_file_or_job_that_is_there_and_the_files_are_small_enough_to_ship():
    ablations = reference.read("ablations")
    assert set(reference.load(ablations.results).name) <= set(ablations.jobs)
    assert set(TABLE.index.dropna()) == {path.name for path in SHIPPED}
    sizes = [path.stat().st_size / 1e6 for path in SHIPPED]
    assert max(sizes) < 10 and sum(sizes) < 25
