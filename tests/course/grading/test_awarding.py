"""What the judge makes of what comes out of a box, as bytes and decoded. No box is opened here."""

import json
import struct

import pytest
import safetensors.torch
import torch
from nbformat.v4 import new_code_cell, new_notebook

from course.grading import judge, wire
from course.grading.box import BoxResult, Limits
from course.grading.course import Exercise
from course.grading.intake import Submission, empty
from course.grading.job import Place
from course.grading.wire import MOST_BYTES, MOST_PARTS, MOST_TEXT_BYTES, WireError, decode, encode
from helpers.checks.compare import Tolerance, difference
from helpers.checks.specification import Assignment, Case, Item, Verdict


def _case(label):
    return lambda rng: [Case(label, {"x": torch.randn(2, generator=rng, dtype=torch.float64)})]


def _exercise(tmp_path, **changes):
    settings = {
        "name": "double",
        "function": "double",
        "points": 4,
        "cases": _case("two numbers"),
        "hint": "Twice.",
        "oracle": lambda inputs, probe: inputs["x"] + inputs["x"],
        "edges": _case("an edge"),
    }
    return Exercise(Assignment("tiny", "Tiny", (Item(**settings | changes),), 0), tmp_path)


def _submission(source="def double(x): return 2 * x"):
    marks = {"grade_id": "double_solution", "locked": False, "grade": False}
    return Submission(new_notebook(cells=[new_code_cell(source, metadata={"nbgrader": marks})]))


@pytest.fixture
def award(monkeypatch, tmp_path):
    """Judge made-up frames; returns the only item's row and the notes."""

    def judged(frame, reason="", cells=None, **changes):
        exercise = _exercise(tmp_path, **changes)
        sheets = judge.prepare(exercise, "secret")
        data = frame(sheets[0]) if callable(frame) else frame
        frames = (
            {}
            if data is None
            else {"double": data if isinstance(data, bytes) else wire.encode(data)}
        )
        frames |= {} if cells is None else {"cells": cells}
        monkeypatch.setattr(Place, "run", lambda *_, **__: BoxResult(frames, "", reason))
        (result,) = judge.grade(exercise, [_submission()], sheets)
        return result["items"]["double"], result["notes"]

    return judged


def right(sheet):
    return {"answers": sheet.expected, "problem": None}


@pytest.mark.parametrize(
    "cells",
    [
        *(None, b"[]," * 10**5, b"{}", b"7", b"[7]", b"\xff", b"[" * 10**5),
        *(b'{"problems": [["a"]]}', json.dumps({"problems": [["a", "x" * 10**5]]}).encode()),
    ],
)
def test_right_answers_earn_all_and_reports_that_make_no_sense_are_left_out(award, cells):
    row, notes = award(right, cells=cells)
    assert (row["points"], row["of"], row["message"], row["shown"], notes) == (4, 4, "", {}, [])


def test_the_name_of_a_cell_that_failed_is_told_to_its_end(award):
    name = f"a cell of your own (`{'x' * 36} ...`)"
    _, (note,) = award(right, cells=json.dumps({"problems": [[name, "NameError: y"]]}).encode())
    assert note == f"{name} raised NameError: y"


def test_a_lost_point_is_explained_on_the_smallest_case_that_fails(award):
    def cases(label, size):
        return lambda rng: [Case(label, {"x": torch.arange(size, dtype=torch.float64)})]

    many = {"cases": cases("many", 400), "edges": cases("few", 3)}
    row, _ = award(
        lambda sheet: {"answers": [x + 1 for x in sheet.expected], "problem": None}, **many
    )
    assert row["message"].startswith("few: ") and row["shown"] == {
        "hint": "Twice.",
        "input": "x = (3,) 0, 1, 2",
        "expected": "(3,) 0, 2, 4",
        "got": "(3,) 1, 3, 5",
        "first difference": "at [0]: expected 0, got 1",
    }
    row, _ = award(lambda sheet: {"answers": sheet.expected[:1], "problem": "it broke"}, **many)
    assert row["shown"] == {
        "hint": "Twice.",
        "input": "x = (3,) 0, 1, 2",
        "expected": "(3,) 0, 2, 4",
    }
    odd = {"a": [None, "text"]}
    row, _ = award({"answers": [odd, odd], "problem": None}, **many)
    assert row["points"] == 0 and row["shown"]["input"] and "hint" not in row["shown"]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda answers: {"answers": answers, "problem": "ValueError: no"}, "ValueError: no"),
        (
            lambda answers: {"answers": answers[:1], "problem": "ValueError: no"},
            "an edge: ValueError: no",
        ),
        (lambda answers: {"answers": answers[:1], "problem": None}, "some cases were not answered"),
        (lambda answers: {"answers": answers * 2, "problem": None}, "some cases were not answered"),
        (lambda answers: {"answers": answers[::-1], "problem": None}, "differs by"),
        (lambda answers: {"answers": answers}, "No answer"),
        (lambda answers: {"answers": None, "problem": None}, "No answer"),
        (lambda answers: [answers, None], "No answer"),
        (lambda answers: {"answers": torch.zeros(2), "problem": None}, "No answer"),
        (lambda answers: {"answers": {"0": answers}, "problem": None}, "No answer"),
        (lambda answers: {"answers": [answers[0], 10**400], "problem": None}, "should be a tensor"),
        (lambda answers: b"\xff" * 100, "No answer"),
        (lambda answers: torch.zeros(1), "No answer"),
        (
            lambda answers: {"answers": answers, "problem": "it calls", "refused": True},
            "Not allowed: it calls",
        ),
    ],
)
def test_anything_else_earns_nothing_and_is_explained(award, spoil, says):
    row, _ = award(lambda sheet: spoil(sheet.expected))
    assert (
        row["points"] == 0
        and says in row["message"]
        and row["refused"] == says.startswith("Not allowed")
    )


def test_what_could_not_be_read_opens_no_box(monkeypatch, tmp_path):
    monkeypatch.setattr(Place, "run", lambda *_, **__: 1 / 0)
    exercise, nothing = _exercise(tmp_path), empty(new_notebook(), "Nothing could be graded: torn.")
    (result,) = judge.grade(exercise, [nothing], judge.prepare(exercise, "secret"))
    assert result["notes"] == nothing.notes and result["items"]["double"]["message"].endswith(
        "nothing could be read"
    )


def test_a_box_that_was_stopped_says_why(award):
    row, notes = award(None, reason="it used more memory than allowed")
    assert row["points"] == 0 and "memory" in row["message"] and "memory" in notes[0]


@pytest.mark.parametrize(("most", "views"), [(1, [2, 1, 1]), (2, [2])])
def test_what_is_viewed_is_seen_in_a_box_for_all_or_one_each_if_that_is_stopped(
    monkeypatch, tmp_path, most, views
):
    exercise = _exercise(
        tmp_path, view=lambda answer, probe: 1 / 0
    )  # called here, and not in a box, it fails
    sheets, handed_in, boxes = judge.prepare(exercise, "secret"), [_submission(), _submission()], []

    def run(place, submission, work, view=False):
        boxes.append((submission, view, place.limits.result_bytes / Limits().result_bytes))
        if len(work) > most:
            return BoxResult(reason="it took longer than allowed")
        frames = {"double": sheets[0].expected if submission is handed_in[1] else [[1.0], [2.0]]}
        if view:

            def answers(pairs):
                return [p["answer"] for p in pairs if p == {"answer": p["answer"], "probe": {}}]

            frames = {name: answers(wire.decode(data)) for name, (_, data) in work.items()}
        return BoxResult(
            {name: wire.encode({"answers": a, "problem": None}) for name, a in frames.items()}
        )

    monkeypatch.setattr(Place, "run", run)
    wrong, right = judge.grade(exercise, handed_in, sheets)
    assert (wrong["items"]["double"]["points"], right["items"]["double"]["points"]) == (0, 4)
    assert boxes == [
        *((one, False, 1) for one in handed_in),
        *((judge.NOBODY, True, times) for times in views),
    ]


def test_hidden_inputs_follow_from_the_secret_and_hold_the_edges(tmp_path):
    exercise = _exercise(tmp_path)
    first, again, other = (judge.prepare(exercise, secret)[0] for secret in ("one", "one", "other"))
    assert first.inputs == again.inputs != other.inputs
    assert [case.label for case in first.cases] == ["two numbers", "an edge"]
    (visible,) = exercise.assignment.items[0].make_cases("visible")
    assert not any(torch.equal(case.inputs["x"], visible.inputs["x"]) for case in first.cases)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.bool]
)
def test_a_tree_survives(dtype):
    tensor = torch.randint(0, 2, (2, 0, 3) if dtype == torch.int8 else (2, 3)).to(dtype)
    tree = {"a": [tensor, tensor.mT, None, True, -1, 0.5, "é"], "b": {}}
    back = decode(encode(tree))
    assert back["a"][0].dtype == dtype
    assert difference(tree, back, Tolerance(0, 0)) is None


@pytest.mark.parametrize(
    "tree", [object(), {"a": {1, 2}}, {1: 2}, {"tensor number": 3}, b"bytes", lambda: None]
)
def test_what_is_no_data_cannot_be_encoded(tree):
    with pytest.raises(WireError):
        encode(tree)


def with_tree(text, **parts):
    return safetensors.torch.save(
        parts | {"tree": torch.frombuffer(bytearray(text), dtype=torch.uint8)}
    )


LIE = json.dumps({"tree": {"dtype": "F64", "shape": [2**40], "data_offsets": [0, 8]}}).encode()
HOSTILE = [
    b"",
    b"\x80\x04cos\nsystem\n(S'id'\ntR.",  # a pickle
    struct.pack("<Q", 2**60) + b"{}",  # a header longer than everything
    struct.pack("<Q", 2) + b"{}",
    struct.pack("<Q", 4) + b"null",
    with_tree(b"[" * 100_000),
    with_tree(b"{'no': json}"),
    with_tree(b'{"tensor number": "7"}'),
    with_tree(b'{"tensor number": ["a"]}'),
    with_tree(b"9" * 10_000),
    with_tree(b"\xff\xfe"),
    encode([1, 2])[:-3],
    safetensors.torch.save({"other": torch.zeros(1)}),
    struct.pack("<Q", len(LIE)) + LIE + bytes(8),  # a header that lies about sizes
    with_tree(
        json.dumps([{"tensor number": "0"}] * 2).encode(), **{"0": torch.zeros(3)}
    ),  # one tensor in two places
]


@pytest.mark.parametrize("data", HOSTILE)
def test_hostile_bytes_are_refused(data):
    with pytest.raises(WireError):
        decode(data)


def test_too_much_is_refused_before_it_is_parsed():
    names = (
        struct.pack("<Q", MOST_TEXT_BYTES + 1) + b"{" + b" " * MOST_TEXT_BYTES
    )  # of tensors, before they are made
    for data, says in (
        (bytes(MOST_BYTES + 1), "allowed"),
        (encode([0] * (MOST_PARTS + 1)), "parts"),
        (with_tree(b"[]," * (MOST_TEXT_BYTES // 3 + 1)), f"{MOST_TEXT_BYTES} allowed"),
        (names, f"{MOST_TEXT_BYTES} allowed"),
    ):
        with pytest.raises(WireError, match=says):
            decode(data)


def test_a_dictionary_in_an_input_is_seen_to_end():
    layers = {"a": {"kind": "conv", "training": False}, "b": {"kind": "relu"}}
    told = judge.brief({"layers": layers, "rows": [{"n": 1}, 2]})
    assert told == (
        "layers = {a = {kind = 'conv'; training = False}; b = {kind = 'relu'}}; rows = [{n = 1}, 2]"
    )


def test_numbers_that_look_alike_are_shown_with_more_digits():
    x = torch.tensor([1e6, 1e6 + 1.25, 1e6 + 2], dtype=torch.float64)
    assert judge.brief(x) == "(3,) 1000000, 1000001.25, 1000002"
    assert judge.brief(torch.cat([torch.zeros(1), x])) == "(4,) 0, 1000000, 1000001.25, 1000002"
    assert judge.brief(torch.full((2,), 1e6)) == "(2,) 1e+06, 1e+06"


def test_of_equal_shares_the_lower_accuracy_is_told(award):
    accuracies = iter((0.9, 0.8))

    def score(expected, answer, submitted_bytes):
        accuracy = next(accuracies)
        return Verdict(1.0, f"{accuracy}", {"accuracy": accuracy})

    row, _ = award(lambda sheet: {"answers": sheet.expected, "problem": None}, score=score)
    assert row["measured"] == {"accuracy": 0.8} and row["message"].endswith("0.8")
