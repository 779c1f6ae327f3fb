"""What runs notebooks, and the pages that are made: decks, the report, a compressed network, the
passes.
"""

from argparse import Namespace

import nbformat
import pytest
import torch
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from torch import nn

from course.commands import hosted as hosted_command
from course.commands import pages
from course.publish import compressed, page, report, runner, slides, steps
from course.reference.table import load
from helpers import data, models, pipeline
from tests.passes.zoo import Net


def write(path, *sources):
    cells = [new_code_cell(source, id=f"cell-{number}") for number, source in enumerate(sources)]
    nbformat.write(new_notebook(cells=cells), path)
    return path


def test_a_failing_cell_is_named_and_what_ran_is_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(runner, "BUILD", tmp_path)
    source = write(
        tmp_path / "01_bad.ipynb", "print(6 * 7)", "raise KeyError('lost')", "print('never')"
    )
    output = tmp_path / "notebooks" / "01_bad.ipynb"
    outcome = runner.run_lesson(source, output, "quick", OMP_NUM_THREADS="2")
    assert outcome.failure == "cell 2 (cell-1): KeyError: 'lost'"
    assert "01_bad" in outcome.line() and "FAILED" in outcome.line()
    executed = nbformat.read(output, as_version=4)
    assert executed.cells[0].outputs[0].text == "42\n"
    run = executed.metadata.run
    assert (run.profile, run.threads, run["beside others"]) == ("quick", "2", True)
    assert nbformat.read(source, as_version=4).cells[0].outputs == []
    assert runner.executed(source) == source  # no page shows the error in place of the figures
    assert "01_bad.ipynb failed when it was run here: shown with" in capsys.readouterr().out


def test_a_kernel_that_is_not_installed_fails_one_lesson(tmp_path, monkeypatch):
    monkeypatch.setattr(runner.NotebookClient, "execute", lambda *_, **__: {}["python3"])
    outcome = runner.run_lesson(write(tmp_path / "01_a.ipynb"), tmp_path / "out.ipynb", "quick")
    assert outcome.failure == "before the first cell: KeyError: 'python3'"


@pytest.mark.slow
def test_the_kernel_knows_the_profile_runs_beside_the_notebook_and_may_die(tmp_path):
    source = write(
        tmp_path / "01_ok.ipynb",
        "import os; print(os.environ['PROFILE'], os.getcwd())",
        "os._exit(1)",
    )
    outcome = runner.run_lesson(source, tmp_path / "out.ipynb", "full")
    assert outcome.failure.startswith("cell 2 (cell-1): ")
    assert (
        nbformat.read(tmp_path / "out.ipynb", as_version=4).cells[0].outputs[0].text
        == f"full {tmp_path}\n"
    )


def test_the_slowest_cell_of_a_run_is_named():
    notebook = new_notebook(cells=[new_code_cell("1", id=name) for name in ("a", "b", "never-ran")])
    for cell, end in zip(notebook.cells, ("00:03.5", "00:42"), strict=False):
        times = {"iopub.status.busy": "2026-01-01T00:00:00Z"}
        cell.metadata["execution"] = times | {"shell.execute_reply": f"2026-01-01T00:{end}Z"}
    assert runner.slowest_cell(notebook) == "b 42 s"
    assert runner.slowest_cell(new_notebook()) == "none 0 s"
    assert runner.Outcome("01_a", 50.0, slowest="b 42 s").line().endswith("(slowest cell: b 42 s)")


def test_publishing_drops_widgets_and_times_and_keeps_the_rest(tmp_path):
    cell = new_code_cell(
        "1", id="one", metadata={"execution": {"iopub.status.busy": "2026-01-01T00:00:00Z"}}
    )
    widget = {"application/vnd.jupyter.widget-view+json": {"model_id": "x"}, "text/plain": "bar"}
    cell.outputs = [
        new_output("display_data", data=widget),
        new_output("stream", name="stdout", text="kept"),
    ]
    notebook = new_notebook(
        cells=[new_markdown_cell("# T", id="t"), cell], metadata={"widgets": {}}
    )
    nbformat.write(notebook, tmp_path / "in.ipynb")
    assert runner.publish(tmp_path / "in.ipynb", tmp_path / "in.ipynb")
    published = nbformat.read(tmp_path / "in.ipynb", as_version=4)
    assert [output.get("text") for output in published.cells[1].outputs] == ["kept"]
    assert published.cells[1].metadata == {} and published.cells[1].id == "one"
    assert set(published.metadata) == {"kernelspec", "language_info", "made_from", "code"}


def test_the_talk_runs_when_asked_for_and_with_everything_and_is_no_lesson(tmp_path):
    for name in ("01_a", "talk"):
        write(tmp_path / f"{name}.ipynb")
    for names, stems in (([], ["01_a", "talk"]), (["talk"], ["talk"]), (["01"], ["01_a"])):
        assert [path.stem for path in runner.lessons(names, tmp_path, talk=True)] == stems
    assert [path.stem for path in runner.lessons(folder=tmp_path)] == ["01_a"]


def test_a_run_is_shown_and_published_only_if_it_was_one_of_the_present_cells(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(runner, "BUILD", tmp_path)
    (tmp_path / "notebooks").mkdir()
    shipped, ran = (
        write(tmp_path / "01_a.ipynb", "1"),
        write(tmp_path / "notebooks" / "01_a.ipynb", "1"),
    )
    assert runner.executed(shipped) == ran and capsys.readouterr().out == ""
    full = "# as stored, of all images (PROFILE=full)"
    for path in (write(tmp_path / "02_b.ipynb", full), write(ran.with_name("02_b.ipynb"), full)):
        notebook = nbformat.read(path, as_version=4)
        notebook.metadata[runner.RUN] = {"profile": "quick"}
        nbformat.write(notebook, path)
    assert not runner.publish(ran.with_name("02_b.ipynb"), tmp_path / "02_b.ipynb")
    assert "(PROFILE=full in the environment), and is left as it is" in capsys.readouterr().out
    edited = write(shipped, "2").read_text()
    assert runner.executed(shipped) == shipped
    assert capsys.readouterr().out.startswith(
        "01_a.ipynb was edited since it was run here: shown with the outputs"
    )
    assert not runner.publish(ran, shipped) and shipped.read_text() == edited
    assert (
        capsys.readouterr().out
        == "01_a.ipynb was edited while it ran, and is left as it is: run it again\n"
    )


@pytest.mark.parametrize(
    ("how", "counts"),
    [
        ({"profile": "full"}, True),
        ({"profile": "quick"}, False),
        ({"profile": "full", "beside others": True}, False),
    ],
)
def test_a_run_in_a_hurry_does_not_take_the_place_of_what_is_shipped(
    how, counts, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(runner, "BUILD", tmp_path)
    (tmp_path / "notebooks").mkdir()
    shipped = write(tmp_path / "01_a.ipynb", "1")
    ran = write(tmp_path / "notebooks" / "01_a.ipynb", "1")
    notebook = nbformat.read(ran, as_version=4)
    notebook.metadata[runner.RUN] = how
    nbformat.write(notebook, ran)
    assert runner.executed(shipped) == ran  # of this code, nothing else was run
    notebook = nbformat.read(shipped, as_version=4)
    notebook.metadata["code"] = runner.code_digest(notebook)
    nbformat.write(notebook, shipped)
    assert runner.executed(shipped) == (ran if counts else shipped)
    assert ("PROFILE=full, one at a time" in capsys.readouterr().out) == (not counts)


def test_a_run_counts_only_with_the_tables_that_it_read(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(runner, "BUILD", tmp_path)
    monkeypatch.setattr(runner, "DATA", tmp_path)
    for folder in ("notebooks", "results"):
        (tmp_path / folder).mkdir()
    paths = (tmp_path / "03_c.ipynb", tmp_path / "notebooks" / "03_c.ipynb")
    shipped, ran = (write(path, 'reference("table")') for path in paths)
    (tmp_path / "results" / "table.csv").write_text("1")
    notebook = nbformat.read(ran, as_version=4)
    notebook.metadata["made_from"] = runner.made_from(notebook)  # as run_lesson does at its start
    nbformat.write(notebook, ran)
    assert runner.executed(shipped) == ran
    (tmp_path / "results" / "table.csv").write_text("2")
    assert runner.executed(shipped) == shipped
    assert "03_c.ipynb was run here with other tables" in capsys.readouterr().out
    assert not runner.publish(ran, shipped)
    assert "changed while it ran, and is left as it is" in capsys.readouterr().out


def test_code_is_told_from_other_code_without_comments_and_the_cell_for_servers():
    def digest(*sources, for_servers="1"):
        cells = [new_code_cell(for_servers, id="hosted"), new_markdown_cell("x")]
        return runner.code_digest(new_notebook(cells=cells + [*map(new_code_cell, sources)]))

    first = digest("x = 1  # one", "y = 2")
    assert digest("# before\nx = 1", "y = 2  # two", for_servers="2") == first
    assert digest("x = 3  # one", "y = 2") != first != digest("y = 2", "x = 1")
    assert digest("  x = 1", "y = 2") != first


def test_a_notebook_with_the_chart_is_made_from_what_others_published_too():
    made = runner.made_from(new_notebook(cells=[new_code_cell("plots.show(chart())")]))
    assert list(made) == ["results/published.csv", "results/results.csv"]
    lacking = new_notebook(cells=[new_code_cell('reference("none"); models.pretrained("mine")')])
    assert runner.made_from(lacking) == {}


def cell(make, source, kind, **metadata):
    return make(source, metadata={"slideshow": {"slide_type": kind}} | metadata)


def drawn(*cells):
    return ["".join(parts) for parts in slides.slides_of(new_notebook(cells=list(cells)))]


def test_badges_which_come_from_other_hosts_are_on_no_slide():
    badge = hosted_command.BADGE.format(repository="a/b", path="c")
    title = cell(new_markdown_cell, f"# T\n\n{badge}\n\nBelow.", "slide")
    assert "Below" in drawn(title)[0] and "<img" not in drawn(title)[0]


def test_a_frame_begins_to_compute_when_its_slide_comes():
    talk = nbformat.read(runner.NOTEBOOKS / "talk.ipynb", as_version=4)
    text = "".join(part for slide in slides.slides_of(talk) for part in slide)
    assert '<iframe data-src="demo.html"' in text and "<iframe src=" not in text


def test_slide_types_decide_what_is_shown():
    code = cell(new_code_cell, "secret()", "-")
    code.outputs = [new_output("stream", name="stdout", text="shown")]
    title = cell(new_markdown_cell, "# T", "slide", speaker_notes="say < this")
    unseen = cell(new_markdown_cell, "left out", "skip"), new_markdown_cell("left out too")
    ends = cell(new_markdown_cell, "later", "fragment"), cell(new_markdown_cell, "next", "subslide")
    first, second = drawn(title, *unseen, code, *ends)
    assert "shown" in first and "secret" not in first and "left out" not in first
    assert '<aside class="notes">say &lt; this</aside>' in first
    assert '<div class="fragment"><p>later</p>' in first
    assert "next" in second


def printing(text, kind="skip"):
    code = cell(new_code_cell, "draw()", kind)
    code.outputs = [new_output("stream", name="stdout", text=text)]
    return code


def test_a_slide_that_begins_without_a_heading_gets_the_one_that_it_stands_under():
    texts = [
        ("# T", "slide"),
        ("text\n\n## Why $a$", "skip"),
        ("### Exercise 1", "skip"),
        ("said", "slide"),
    ]
    *before, after = (cell(new_markdown_cell, *text) for text in texts)
    _, figure, said = drawn(*before, printing("drawn", "slide"), after)
    for slide in (figure, said):
        assert slide.startswith("<h3>Why <math") and "Exercise" not in slide
    assert "<p>said</p>" in said


@pytest.mark.parametrize(
    ("text", "heading", "slides"),
    [
        ("A few words.", "", 1),
        ("A few words.", "## Another", 2),
        ("word " * 100, "", 2),
        ("A few words and a table.\n\n| a |\n|---|\n| 1 |", "", 2),
    ],
)
def test_a_figure_joins_a_few_words_under_its_own_heading(text, heading, slides):
    words = cell(new_markdown_cell, f"## One\n\n{text}", "slide", speaker_notes="say " * 100)
    shown = drawn(words, new_markdown_cell(heading), printing("drawn", "slide"))
    assert len(shown) == slides and "drawn" in shown[-1]
    assert shown[0].count("<h") == 1


@pytest.mark.parametrize(
    "alone", ["## Exercise 1 · Add", "### Questions", "**After this lesson you can** add."]
)
def test_a_slide_leaves_out_what_is_for_whoever_reads_alone(alone):
    text = f"About the cell above.\n\n## Next\n\nFor all.\n\n{alone}\n\n* More\n\n### And more"
    code = printing("add: the solution of the course\n", "-")
    hint = "Run this cell in JupyterLab to get sliders for a. The figure shows the same.\n"
    assert drawn(cell(new_markdown_cell, text, "slide"), code, printing(hint + "2\n", "-")) == [
        '<h2>Next</h2>\n<p>For all.</p>\n<pre class="printed">2\n</pre>'
    ]


def test_what_a_last_sentence_announces_is_on_the_slide_or_the_sentence_is_not():
    text = cell(new_markdown_cell, "## Next\n\nTwo are enough. Here they are:", "slide")
    [shown] = drawn(text, printing("a, b"))
    assert "Here they are" in shown and "a, b" in shown
    [marked] = drawn(text, printing("a, b", "-"))
    assert marked.count("a, b") == 1
    for nothing in (new_code_cell("a, b = 1, 2"), printing("a, b " * 200), new_markdown_cell("a")):
        assert drawn(text, nothing) == ["<h2>Next</h2>\n<p>Two are enough.</p>\n"]


def test_a_live_widget_alone_makes_no_slide_and_a_place_to_rest_is_not_for_a_room():
    widget = {runner.WIDGET: {"model_id": "x"}, "text/plain": "sliders"}
    code = cell(new_code_cell, "play()", "slide")
    code.outputs = [new_output("display_data", data=widget)]
    rest = "**A good place to stop and rest.** You are halfway.\n\n## Next"
    assert drawn(code, cell(new_markdown_cell, rest, "slide")) == ["<h2>Next</h2>\n"]


def test_slides_makes_a_deck_of_the_talk_and_an_index_and_a_notebook_without_slides_is_refused(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(runner, "lessons", lambda talk: [runner.NOTEBOOKS / runner.TALK])
    monkeypatch.setattr(runner, "BUILD", tmp_path)
    monkeypatch.setattr(pages, "write_demo", lambda target: [target])
    assert pages.run(Namespace(command="slides", output=tmp_path / "decks")) == 0
    assert str(tmp_path / "decks" / "index.html") in capsys.readouterr().out
    assert "Reveal.initialize" in (tmp_path / "decks" / "talk.html").read_text()
    talk = nbformat.read(runner.NOTEBOOKS / runner.TALK, as_version=4)
    title, count = page.title_of(talk), len(slides.slides_of(talk))
    index = (tmp_path / "decks" / "index.html").read_text()
    assert f'<a href="talk.html">{title}</a>, {count} slides' in index
    nbformat.write(new_notebook(cells=[new_markdown_cell("# T")]), tmp_path / "n.ipynb")
    with pytest.raises(RuntimeError, match=r"n\.ipynb marks no cell"):
        slides.write_deck(tmp_path / "n.ipynb", tmp_path / "deck.html")


def test_the_report_has_figures_results_and_provenance_and_no_exercise(tmp_path):
    code = new_code_cell("draw()")
    shown = {
        "text/html": '<img src="data:image/png;base64,iVBORw0KGgo=" alt="a dot">',
        "text/plain": "a <dot>",
    }
    own = new_output(
        "display_data", data={"image/png": "bXkgb3du"}
    )  # a learner's, which is in no list
    code.outputs = [own, new_output("display_data", data=shown, metadata={"figure": "01-dot"})]
    known = {"run": {"torch": "2.0", "seed": None}}, {"made_from": {"results/results.csv": "0a"}}
    for name, body, metadata in zip(("01_a", "02_b"), ([code], []), known, strict=True):
        cells = [new_markdown_cell(f"# Lesson {name}\n\n### Exercise 1"), *body]
        nbformat.write(new_notebook(cells=cells, metadata=metadata), tmp_path / f"{name}.ipynb")
    (tmp_path / "demo.html").touch()
    text = report.write_report(
        sorted(tmp_path.glob("*.ipynb")), tmp_path / "report.html"
    ).read_text()
    assert '<a href="demo.html">' in text and "passes.html" not in text
    assert "01-dot.png" in text and "01-dot.svg" not in text  # which only a run here would make
    assert '<figure id="01-dot">' in text and text.count("<figure ") == 1
    assert 'src="data:image/png;base64,iVBORw0KGgo=" alt="a &lt;dot&gt;"' in text
    assert '<h3 id="01_a">' in text and "Lesson 02_b" not in text  # it has no figure
    assert "bXkgb3du" not in text and "Exercise" not in text and "draw()" not in text
    svg = tmp_path / "figures" / "01-dot.svg"
    for png, remains in ((svg.with_suffix(".png").read_bytes(), True), (b"another run's", False)):
        svg.with_suffix(".png").write_bytes(png)
        svg.touch()
        again = report.write_report(sorted(tmp_path.glob("*.ipynb")), tmp_path / "report.html")
        assert (svg.exists(), "01-dot.svg" in again.read_text()) == (remains, remains)
    assert "<th>01_a</th><td>torch 2.0</td>" in text
    assert "<th>02_b</th><td>outputs as shipped; made from results/results.csv</td>" in text
    for row in load().itertuples():
        assert f"{row.file_bytes:,}" in text, row.name
    assert (tmp_path / "figures" / "01-dot.png").read_bytes() == b"\x89PNG\r\n\x1a\n"


@pytest.mark.slow
@pytest.mark.ci
def test_a_layer_in_float_a_spared_trunk_and_a_stage_without_onnx_are_told(tmp_path, monkeypatch):
    def refuse(*_):
        raise RuntimeError("no such operator")

    monkeypatch.setattr(compressed.onnx_float, "export", refuse)

    parts = {"one": nn.Conv2d(8, 8, 3, 1, 1), "gate": nn.Sigmoid(), "two": nn.Conv2d(8, 8, 3, 1, 1)}
    block = Net(lambda m, x: x + m.two(m.gate(m.one(x))), **parts)
    images = torch.randint(0, 256, (40, 1, 12, 12), dtype=torch.uint8)
    labels = torch.arange(40) % 4
    made = data.from_arrays(images, labels, images, labels)
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    model = nn.Sequential(nn.Conv2d(1, 8, 3), block, *head).eval()
    result = pipeline.compress(model, made, finetune_epochs=0, latency_runs=3, progress=False)
    text = compressed.write(result, made, tmp_path).read_text()
    assert "| `_1_gate` | `sigmoid` has no integer form here |" in text
    assert "| 0 | 8 | outside the blocks or on the trunk: only scope=all cuts here |" in text
    assert "| 0 |" not in compressed.not_cut(model, torch.zeros(1, 1, 12, 12), "all")
    assert "`models.load(FILE, factory=FUNCTION)`, with a function that makes" in text
    lines = {line.split(" |")[0]: line for line in text.splitlines()}
    assert lines["| dense"].endswith("| - | no ONNX: no such operator |")
    assert int(lines["| quantized"].split("| ")[-1].split(" of 40")[0]) >= 38
    assert [path.name for path in tmp_path.glob("*.onnx")] == ["quantized.onnx"]


def test_a_file_that_onnx_runtime_cannot_compute_leaves_the_report(tmp_path, monkeypatch):
    def fails(image):
        raise RuntimeError("no kernel | for it")

    monkeypatch.setattr(compressed, "opened", lambda *_: fails)
    result = Namespace(stages={"dense": nn.Flatten()})
    columns = compressed.in_onnx_runtime(result, torch.zeros(2, 3, 4, 4), tmp_path)
    assert [*columns.values()] == [["-"], ["no ONNX: no kernel / for it"]]


def boxes(stage, side, status):
    return {box["name"]: box["note"] for box in stage[side]["boxes"] if box["status"] == status}


def test_each_pass_shows_what_it_removed_made_and_declined_and_differences_of_rounding():
    found = {
        stage["name"]: stage
        for stage in steps.stages(models.pretrained(), torch.randn(2, 3, 32, 32))
    }
    folding, addition, fusion = (
        found[name] for name in ("conv_bn_folding", "conv_add_folding", "fusion")
    )
    removed = boxes(folding, "before", "removed")
    assert len(removed) == folding["changed"] == 52
    assert removed["features_0_1"] == "folded into features_0_0"
    assert "features_0_0" in boxes(folding, "after", "changed")
    assert "features_0_0" in boxes(folding, "before", "changed")
    assert all(len(one["told"]) == one["changed"] + one["declined"] for one in found.values())
    declined = boxes(addition, "before", "declined")
    assert len(declined) == addition["declined"] == 10 and addition["after"] is None
    assert declined["add"] == "features_3_conv_2 is not a constant"
    assert (
        len(boxes(fusion, "after", "made") | boxes(fusion, "after", "changed"))
        == fusion["changed"]
        == 52
    )
    assert found["canonicalize"]["difference"] == 0
    assert 0 < found["conv_bn_folding"]["difference"] < 1e-3
