"""Grade one submission: inputs into the box, answers out of it, points awarded outside.

What enters the box: the student's cells, `inside.py`, `wire.py`, the assignment's driver, the allowed modules
of `helpers` and the inputs. What stays outside: the seeds, the specification with its oracles, the expected
values, the probes and the names of the students.

Where an answer has to be computed with before it can be compared, as a network has, that happens in a second
box. It sees the answer and the probe, such as images, but neither the student's code nor what is expected.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import nbformat

from helpers.grading import box, wire
from helpers.grading.course import Exercise
from helpers.grading.forbidden import used
from helpers.grading.intake import Submission
from helpers.grading.job import Place
from helpers.grading.specification import Case, Item, Tree, Verdict, combine

NOBODY = Submission(nbformat.v4.new_notebook())


class AnswerError(ValueError):
    """There is no answer to judge. The message is meant for the student."""


@dataclass(frozen=True)
class Sheet:
    """One item made ready: its hidden cases, their encoded inputs, and what is expected."""

    item: Item
    cases: list[Case]
    inputs: bytes
    expected: list[Tree]


def prepare(exercise: Exercise, *seed: str) -> list[Sheet]:
    """Draw the hidden inputs of an assignment and compute the expected answers, once for a whole class.

    Args:
        exercise: the assignment.
        seed: the class secret; everything is drawn from it, so all students get the same inputs.
    """
    sheets = []
    for item in exercise.assignment.items:
        cases = item.make_cases(*seed, exercise.assignment.name, hidden=True)
        # Encoded first: an oracle that changed its inputs could not reach the box.
        inputs = wire.encode([case.inputs for case in cases])
        sheets.append(Sheet(item, cases, inputs, [item.oracle(case.inputs, case.probe) for case in cases]))
    return sheets


def grade(
    exercise: Exercise,
    submission: Submission,
    sheets: list[Sheet],
    limits: box.Limits | None = None,
    boxed: bool = True,
) -> dict:
    """Run and judge one submission.

    Returns:
        {"items": {name: {"points", "of", "message", "measured"}}, "notes", "printed", "boxed"}; points are plain
        numbers.
    """
    place = Place(exercise, limits or box.Limits(), boxed)
    outcome = place.run(submission, [(sheet.item, sheet.inputs) for sheet in sheets])
    notes = [*submission.notes, *_cell_problems(outcome)]
    if outcome.reason:
        notes.append(f"Your code was stopped: {outcome.reason}.")
    items = {}
    for sheet in sheets:
        verdict = _judge_item(place, sheet, submission, outcome)
        points = round(sheet.item.points * verdict.share, 2)
        items[sheet.item.name] = {
            "points": points,
            "of": sheet.item.points,
            "message": verdict.message,
            "measured": verdict.measured,
        }
    return {"items": items, "notes": notes, "printed": outcome.printed[:4000], "boxed": boxed}


def _judge_item(place: Place, sheet: Sheet, submission: Submission, outcome: box.BoxResult) -> Verdict:
    found = used(submission.code_for(sheet.item.name), sheet.item.forbidden)
    if found:
        return Verdict(0.0, f"The notebook uses {', '.join(found)}, which this exercise asks you to write yourself")
    try:
        answers, judge = _answers(sheet, outcome), sheet.item.judge
        if sheet.item.view_in_box:
            answers, judge = _look(place, sheet, answers), sheet.item.compare
    except AnswerError as problem:
        return Verdict(0.0, str(problem)[:400])
    verdicts = [
        judge(case, expected, given, submission.submitted_bytes)
        for case, expected, given in zip(sheet.cases, sheet.expected, answers, strict=True)
    ]
    return combine(sheet.item, verdicts)


def _answers(sheet: Sheet, outcome: box.BoxResult) -> list[Tree]:
    """What came out of a box for one item: one answer for each case."""
    if sheet.item.name not in outcome.frames:
        raise AnswerError(f"No answer: {outcome.reason or 'the program ended before it came to this exercise'}")
    try:
        answer = wire.decode(outcome.frames[sheet.item.name])
        problem, answers = answer["problem"], list(answer["answers"])
    except (wire.WireError, KeyError, TypeError):
        raise AnswerError("No answer: the function ended the program, ran out of time or returned too much") from None
    if problem is not None:
        raise AnswerError(f"{_where(sheet, answers, str(problem))}{problem}")
    if len(answers) != len(sheet.cases):
        raise AnswerError("No answer: some cases were not answered")
    return answers


def _look(place: Place, sheet: Sheet, answers: list[Tree]) -> list[Tree]:
    """Look at answers in a second box, in which none of the student's code runs."""
    pairs = [{"answer": answer, "probe": case.probe} for answer, case in zip(answers, sheet.cases, strict=True)]
    try:
        work = [(sheet.item, wire.encode(pairs))]
    except wire.WireError as problem:
        raise AnswerError(f"The answer cannot be used: {problem}") from None
    return _answers(sheet, place.run(NOBODY, work, view=True))


def _where(sheet: Sheet, answers: list, problem: str) -> str:
    """Name the case that failed, unless the trouble is not one of cases."""
    general = problem.startswith(("not done yet", "there is no function"))
    return "" if general or len(answers) >= len(sheet.cases) else f"{sheet.cases[len(answers)].label}: "


def _cell_problems(outcome: box.BoxResult) -> list[str]:
    """What the student's cells raised, as they report it."""
    try:
        pairs = json.loads(outcome.frames.get("cells", b"[]"))
        return [f"{str(name)[:60]} raised {str(problem)[:300]}" for name, problem in pairs[:20]]
    except (ValueError, TypeError, RecursionError):
        return []
