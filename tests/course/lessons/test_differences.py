"""A published accuracy is measured well enough for the difference that the text draws from it.

Each code cell whose output shows several accuracies stands here, with the differences that the
lesson draws between them: each must be larger than both errors together. Reading alone.
"""

import math
import re
from dataclasses import dataclass, replace

import nbformat
import pytest

from course.publish import runner
from helpers.training import wilson_interval

# The cell computes from its run whether the difference is decided, and prints one of these.
VERDICT = (
    r"the interval (excludes|contains) 0|cannot tell them apart|is better|too close to call|helped|"
    r"right on the same images"
)
SEEDS = "one column for each way, one row for each seed: the difference holds over the seeds"
NONE = "no difference of accuracies is drawn here"
TESTED = "10,000 test images"
VALIDATED = "5,000 validation images"


@dataclass(frozen=True)
class Larger:
    """The first accuracy is larger than the second: where each stands in the output, as #."""

    first: str
    second: str
    images: str = ""  # how the lesson says it; not needed where the interval is printed


DRAWN = {
    ("00", "final-table"): [Larger("dense .*M  #", "smallest .*M  #")],
    ("00", "final-claim"): NONE,  # that of the table above
    ("00", "accuracy-used"): NONE,
    ("00", "slider-static"): NONE,
    ("04", "surprise-run"): NONE,  # times
    ("04", "cases-run"): NONE,  # times
    ("04", "runtime-read"): NONE,  # bytes and times
    ("05", "training-keep"): NONE,
    ("05", "training-hours"): [Larger("dense .*MACs: #", "tiny .*MACs: #", TESTED)],
    ("06", "two-kinds-zeros"): [
        Larger(r"0\.00 +#", r"0\.60 +#", VALIDATED),
        Larger(r"0\.60 +#", r"0\.70 +#", VALIDATED),
        Larger(r"0\.70 +#", r"0\.80 +#", VALIDATED),
    ],
    ("06", "recalibrate-compare"): [
        Larger("Taylor, one ranking .*d +#", "Taylor, one ranking +as cut +#", VALIDATED),
        Larger("Taylor, one ranking .*d +#", "Taylor, equal fractions .*d +#", VALIDATED),
        Larger("Taylor, equal fractions .*d +#", "L1, equal fractions .*d +#", VALIDATED),
    ],
    ("06", "sensitivity-run"): [
        Larger("as cut .*to +#", "recalibrated .*to +#", r"block \(\d+ images")
    ],
    ("06", "claim-run"): [
        Larger("dense +#", "half, recalibrated +#", TESTED),
        Larger("half, trained +#", "half, recalibrated +#", TESTED),
    ],
    ("06b", "layers-run"): NONE,  # times
    ("07", "cut"): [Larger("before .*parameters, #", "as cut .*parameters, #", TESTED)],
    ("07", "stale-run"): [Larger("recalibrated #", "as cut #", TESTED)],
    ("07", "distill-example-run"): NONE,  # a network's answers
    ("07", "loop-result"): [
        Larger("before the cut +#", "trained +#", TESTED),
        Larger("trained +#", "recalibrated +#", TESTED),
        Larger("recalibrated +#", "as cut +#", TESTED),
    ],
    ("07", "paired"): VERDICT,
    ("07", "loop-seeds"): [Larger("with a teacher +#", "labels alone +#", VALIDATED)],
    ("07", "rates-run"): [
        Larger(r"0\.05: '#", r"0\.002: '#", r"validation_images\[:1000\]"),
        Larger(r"0\.002: '#", r"1\.0: '#", r"validation_images\[:1000\]"),
    ],
    ("07", "ablation-seeds"): [
        Larger("\nwith a teacher +#", "\ntrained +#", TESTED),
        Larger("\ntrained +#", "\nrecalibrated +#", TESTED),
        Larger("\nrecalibrated +#", "\ncut +#", TESTED),
    ],
    ("07", "ablation-reference"): [
        Larger("half .*trained #", "half .*recalibrated #", TESTED),
        Larger("fifth .*trained #", "fifth .*recalibrated #", TESTED),
        Larger("tenth .*trained #", "tenth .*recalibrated #", TESTED),
    ],
    ("07", "criteria-figure"): [
        Larger(r"one ranking +[\d.]+ +#", "one ranking +#", VALIDATED),
        Larger(r"one ranking +[\d.]+ +#", r"each layer +[\d.]+ +#", VALIDATED),
    ],
    ("07", "criteria-test"): [Larger("ours: .*taylor +#", "Torch-.*taylor +#", TESTED)],
    ("07", "steps-table"): SEEDS,
    ("08", "break-it"): [Larger("^ *#", r"\)\s+#")],
    ("08", "dead-one"): [Larger(r"\)\s+#", r"none:\s+#")],
    ("08", "bits-run"): [
        Larger(r"\n4 +[\d.]+ +[\d.]+ +#", r"\n4 +[\d.]+ +#", r"% of \d+ validation images")
    ],
    ("08", "own-bits"): NONE,  # the cell prints each gain with its interval
    ("08", "weights-only-run"): NONE,
    ("08", "library-run"): [Larger(r"3 bits, mse\s+#", r"3 bits, minmax\s+#")],
    ("09", "widen-code"): NONE,  # sums
    ("09", "residual-code"): NONE,  # the cell prints the gain with its interval
    ("09", "swap-run"): NONE,  # the same
    ("09", "network-code"): NONE,
    ("09", "kernels-code"): NONE,  # two means, between which the text says no difference
    ("09", "pt2e-table"): NONE,  # as the text says
    ("09b", "three-bits"): [Larger("float32 +#", "nearest +#")],
    ("09b", "adaround-compare"): NONE,  # noise
    ("09b", "adaround-network-run"): [Larger("learned rounding +#", "biases corrected +#")],
    ("09b", "adaround-reference"): [
        Larger("#.*float32", "#.*4 bits .*nearest"),
        Larger(r"4 bits .*nearest\n +#", "#.*4 bits .*nearest"),
        Larger("#.*learned rounding alone", "#.*3 bits .*nearest"),
        Larger(r"2 bits .*nearest\n +#", "#.*2 bits .*nearest"),
    ],
    ("09b", "qat-train"): [Larger("the rounding +#", "before training +#")],
    ("09b", "qat-library-run"): VERDICT,
    ("09b", "qat-seeds"): [
        Larger("QAT +#", "to the nearest +#", VALIDATED),
        Larger("AdaRound +#", "nearest, biases corrected +#", VALIDATED),
    ],
    ("09b", "qat-reference"): [Larger("#.*learned", "#.*nearest"), Larger("#.*QAT", "#.*nearest")],
    ("09b", "equalize-error"): NONE,  # noise
    ("09b", "collapse-run"): [Larger("equalized +#", "per layer +#")],
    ("10", "two-ways"): NONE,  # their intervals overlap, which is the point
    ("10", "differ-run"): VERDICT,
    ("10", "mixed-spend"): VERDICT,
    ("10", "way-tiny"): [
        Larger(r"dense +\d+ +#", r"half of the parameters +\d+ +#"),
        Larger(r"fine-tuned +\d+ +#", r"half of the parameters +\d+ +#"),
    ],
    ("10", "equal-bytes"): VERDICT,
    ("10", "reference-front"): NONE,  # its last column says which are clear
    ("10", "your-dot"): NONE,
    ("10", "promise-table"): NONE,  # a plan has no error
    ("11", "network-train"): NONE,
    ("11", "whole-run"): NONE,  # each stands with its interval
    ("11", "exercise-3-choose"): NONE,
    ("talk", "headline-figure"): [Larger("dense .*M  #", "smallest .*M  #")],
    ("talk", "dead-figure"): [Larger("per channel: +#", "per layer: +#", TESTED)],
    ("talk", "stages-table"): NONE,
}
CELLS = {}
for path in runner.lessons(talk=True):
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            CELLS[path.stem.split("_")[0], cell.id] = (cell, notebook)


def printed(cell):
    """What a cell shows as text."""
    parts = []
    for output in cell.outputs:
        data = output.get("data", {})
        if "image/png" not in data:
            parts.append(output.get("text") or data.get("text/plain", ""))
    return "\n".join(parts)


def shows_accuracies(cell):
    text = printed(cell)
    words = r"accuracy|evaluate\(|\bright\(|measured\(|verdict\(|validation\b"
    numbers = re.findall(r"\d\.\d", text) if re.search(words, cell.source) else []
    return len(numbers) >= 2 or len(re.findall(r"\d ?%", text)) >= 2


def accuracy_and_error(text, where, images):
    """An accuracy in percent, and how far its 95 % interval reaches."""
    found = re.search(where.replace("#", r"(?P<value>\d+\.\d+)"), text)
    assert found, f"{where!r} is not in\n{text}"
    value = float(found["value"])
    behind = text[found.end("value") :]
    if ends := re.match(r"% +\(([\d.]+)% to ([\d.]+)%\)", behind):
        return value, max(value - float(ends[1]), float(ends[2]) - value)
    if error := re.match(r"% ± ([\d.]+)%", behind):
        return value, float(error[1])
    count = int(re.search(r"\d[\d,]*", images)[0].replace(",", ""))
    low, high = wilson_interval(value / 100, count)
    return value, max(value - 100 * low, 100 * high - value)


def undecided(text, larger):
    """Why the text may not say that one is larger; nothing if it may."""
    first, one = accuracy_and_error(text, larger.first, larger.images)
    second, other = accuracy_and_error(text, larger.second, larger.images)
    error = math.hypot(one, other)
    if first - second <= error:
        return f"{first} is {first - second:.1f} more than {second}, with an error of {error:.1f}"
    return ""


def over_seeds(text):
    """The mean difference of two columns, one row for each of three seeds, and its error."""
    rows = re.findall(r"^\d +([\d.]+) +([\d.]+)$", text, re.MULTILINE)
    apart = [float(first) - float(second) for first, second in rows]
    mean = sum(apart) / len(apart)
    deviation = math.sqrt(sum((one - mean) ** 2 for one in apart) / (len(apart) - 1))
    assert len(apart) == 3
    return mean, 4.30 * deviation / math.sqrt(3)  # Student's t for three values


@pytest.mark.parametrize("place", DRAWN, ids=" ".join)
def test_what_a_lesson_says_of_two_accuracies_is_decided(place):
    cell, notebook = CELLS[place]
    text, drawn = printed(cell), DRAWN[place]
    if drawn == VERDICT:
        assert re.search(VERDICT, text)
    elif drawn == SEEDS:
        mean, error = over_seeds(text)
        assert mean > error  # the first column is the better one
    elif drawn != NONE:
        said = "\n".join(map(everything_in, notebook.cells))
        as_said = [replace(one, images=re.search(one.images, said)[0]) for one in drawn]
        assert [why for one in as_said if (why := undecided(text, one))] == []


def everything_in(cell):
    shown = printed(cell) if cell.cell_type == "code" else ""
    return "\n".join([cell.source, shown, cell.metadata.get("speaker_notes", "")])


def test_every_cell_that_shows_accuracies_is_looked_at():
    shown = {place for place, (cell, _) in CELLS.items() if shows_accuracies(cell)}
    assert shown - DRAWN.keys() == set()


def test_a_difference_within_the_error_is_found():
    text = "dense 94.7%\nhalf  94.4%\nbroken 12.0% (8.5% to 16.6%)\n"
    assert not undecided(text, Larger("dense +#", "broken +#", TESTED))
    assert "0.3 more" in undecided(text, Larger("dense +#", "half +#", TESTED))
    assert undecided(text, Larger("broken +#", "dense +#", TESTED))
    assert undecided("a 60.0%\nb 50.0%", Larger("a #", "b #", "100 images"))
    assert not undecided("a 60.0%\nb 50.0%", Larger("a #", "b #", "1,000 images"))
    mean, error = over_seeds("0  82.0  81.0\n1  82.0  83.0\n2  82.0  81.5")
    assert abs(mean) < error
