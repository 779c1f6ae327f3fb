"""Grade submissions: inputs into the box, answers out of it, points awarded outside.

What enters the box: the student's cells, `inside`, `wire.py`, `guard.py`, the assignment's
driver, and the inputs, which the student's code sees once it is asked. What stays outside: the
seeds, the specification with its oracles, the expected values, the probes and the names of the
students.

Where an answer has to be computed with before it can be compared, as a network has, that happens in
a second box, for what a student designed may need any amount of time and memory. This box sees the
answers of a few hand-ins and the probes, such as images, but neither the students' code nor what is
expected.
"""

import json
import re
from contextlib import suppress
from dataclasses import dataclass, replace

import nbformat
import torch

from course.grading import box, wire
from course.grading.copies import copied
from course.grading.course import Exercise
from course.grading.intake import OWN, Submission
from course.grading.job import Place
from helpers.checks.specification import Case, Item, Tree, Verdict, combine

REFUSED = "Not allowed: "
NOBODY = Submission(nbformat.v4.new_notebook())
MOST_NOTES_BYTES = 100_000
# Words that no exercise needs, but attempts to get round what it forbids do.
ODD = re.compile(
    r"\b(take_away|_getframe|_current_frames|gc\.get_\w+|ctypes|(?<!in )sys\.modules|setprofile"
    r"|__file__|find_spec|getsource|site-packages|parse_ir|audithook|cffi|__array_interface__"
    r"|ExtensionFileLoader|_thread|CompilationUnit|graph_for"
    r"|os\.(?:_exit|fork|kill)|b64decode|b85decode|marshal"
    # Names one by one: what runs over all of a line would begin anew at each `import` in it.
    r"|import[ \t]+(?:[\w.]+(?:[ \t]+as[ \t]+\w+)?[ \t]*,[ \t]*)*(?:guard|inside|wire)"
    r"|from[ \t]+(?:guard|inside|wire)(?:\.\w+)*\W+import)\b"
)

Given = list[Tree] | Verdict  # the answers to all cases of an item, or why there are none


@dataclass(frozen=True)
class Sheet:
    """One item made ready: its hidden cases, their encoded inputs, and what is expected."""

    item: Item
    cases: list[Case]
    inputs: bytes
    expected: list[Tree]


def prepare(exercise: Exercise, *seed: str) -> list[Sheet]:
    """Draw the hidden inputs of an assignment from a class secret, once for all, and compute the
    expected answers.
    """
    sheets = []
    for item in exercise.assignment.items:
        cases = item.make_cases(*seed, exercise.assignment.name, hidden=True)
        # Encoded first: an oracle that changed its inputs could not reach the box.
        inputs = wire.encode([case.inputs for case in cases])
        sheets.append(
            Sheet(item, cases, inputs, [item.oracle(case.inputs, case.probe) for case in cases])
        )
    return sheets


def grade(
    exercise: Exercise,
    submissions: list[Submission],
    sheets: list[Sheet],
    limits: box.Limits | None = None,
    boxed: bool = True,
    container: bool = False,
) -> list[dict]:
    """Run submissions, each in a box of its own, and judge them; the second box starts slowly, so
    one serves all of them.
    """
    place = Place(exercise, limits or box.Limits(), boxed, container)
    work = {sheet.item.name: (sheet.item, sheet.inputs) for sheet in sheets}
    unread = box.BoxResult(reason="nothing could be read")
    outcomes = [
        place.run(submission, work) if submission.readable else unread for submission in submissions
    ]
    given = [
        {sheet.item.name: _answers(sheet, outcome, sheet.item.name) for sheet in sheets}
        for outcome in outcomes
    ]
    _look(place, [sheet for sheet in sheets if sheet.item.view], given)
    return [_result(*one, sheets, boxed) for one in zip(submissions, outcomes, given, strict=True)]


def _result(
    submission: Submission,
    outcome: box.BoxResult,
    given: dict[str, Given],
    sheets: list[Sheet],
    boxed: bool,
) -> dict:
    """What is kept of a submission; `refused`: an answer called what its exercise forbids."""
    notes = [*submission.notes, *_cell_problems(outcome)]
    if outcome.reason and submission.readable:
        notes.append(f"Your code was stopped: {outcome.reason}.")
    items = {}
    for sheet in sheets:
        answers = given[sheet.item.name]
        by_case = _by_case(sheet, answers, submission.submitted_bytes)
        verdict = _award(sheet, answers, by_case)
        row = {"points": round(sheet.item.points * verdict.share, 2), "of": sheet.item.points}
        row |= {"message": verdict.message, "measured": verdict.measured}
        row["refused"] = verdict.message.startswith(REFUSED)
        row["shown"] = _shown(sheet, answers, verdict) if verdict.share < 1 else {}
        row["cases"] = [[case.label, one.share] for case, one in by_case]
        items[sheet.item.name] = row
    printed = outcome.printed[:4000]
    return {
        "items": items,
        "notes": notes,
        "printed": printed,
        "odd": _odd(submission, sheets),
        "boxed": boxed,
        "readable": submission.readable,
    }


def _odd(submission: Submission, sheets: list[Sheet]) -> list[str]:
    """What a teacher should read the code for."""
    code = submission.all_code
    patterns = sorted({pattern for sheet in sheets for pattern in sheet.item.forbidden})
    copies = [f"a copy of {name}" for name in copied(code, tuple(patterns))]
    return sorted({*ODD.findall("\n".join(code))}) + copies


def _answers(sheet: Sheet, outcome: box.BoxResult, name: str) -> Given:
    """What came out of a box for one item, by that name: one answer for each case."""
    if name not in outcome.frames:
        return Verdict(
            0.0,
            f"No answer: {outcome.reason or 'the program ended before it came to this exercise'}",
        )
    try:
        answer = wire.decode(outcome.frames[name])
        problem, answers, refused = answer["problem"], answer["answers"], answer.get("refused")
    except (wire.WireError, LookupError, TypeError):
        answers = None
    if not isinstance(answers, list):
        return Verdict(
            0.0, "No answer: the function ended the program, ran out of time or returned too much"
        )
    if refused is True:
        return Verdict(0.0, f"{REFUSED}{problem}"[:400])
    if problem is not None:
        general = str(problem).startswith(
            ("not done yet", "there is no function", "its cell", "it calls", "one of your cells")
        ) or len(answers) >= len(sheet.cases)
        return Verdict(
            0.0, f"{'' if general else f'{sheet.cases[len(answers)].label}: '}{problem}"[:400]
        )
    if len(answers) != len(sheet.cases):
        return Verdict(0.0, "No answer: some cases were not answered")
    return answers


def _look(place: Place, sheets: list[Sheet], given: list[dict[str, Given]]) -> None:
    """Put in place of answers what a second box, in which none of the students' code runs, sees of
    them.
    """
    work, asked = {}, {}
    for number, answers_of in enumerate(given):
        for sheet in sheets:
            if isinstance(answers := answers_of[sheet.item.name], Verdict):
                continue
            pairs = [
                {"answer": answer, "probe": case.probe}
                for answer, case in zip(answers, sheet.cases, strict=True)
            ]
            name = f"{sheet.item.name} {number}"
            try:
                work[name], asked[name] = (sheet.item, wire.encode(pairs)), (sheet, answers_of)
            except wire.WireError as problem:
                answers_of[sheet.item.name] = Verdict(
                    0.0, f"The answer cannot be used: {problem}"[:400]
                )
    if not work:
        return
    outcome = replace(place, limits=place.limits.times(len(given))).run(NOBODY, work, view=True)
    if (
        len(given) > 1 and asked.keys() - outcome.frames.keys()
    ):  # it was stopped: looked at alone, nobody loses points for another
        for answers_of in given:
            _look(place, sheets, [answers_of])
        return
    for name, (sheet, answers_of) in asked.items():
        answers_of[sheet.item.name] = _answers(sheet, outcome, name)


def _by_case(sheet: Sheet, given: Given, submitted_bytes: int) -> list[tuple[Case, Verdict]]:
    """Compare what was given with what is expected, the smallest case first."""
    if isinstance(given, Verdict):
        return []
    triples = zip(sheet.cases, sheet.expected, given, strict=True)
    smallest_first = sorted(triples, key=lambda triple: len(brief(triple[0].inputs, most=10_000)))
    return [(triple[0], sheet.item.compare(*triple, submitted_bytes)) for triple in smallest_first]


def _award(sheet: Sheet, given: Given, by_case: list[tuple[Case, Verdict]]) -> Verdict:
    """What an item earns: as much as its worst case; of equal ones the lower accuracy is told."""
    if isinstance(given, Verdict):
        return given
    verdicts = [verdict for _, verdict in by_case]
    verdicts.sort(key=lambda verdict: verdict.measured.get("accuracy", 0.0))
    return combine(sheet.item, verdicts)


def _shown(sheet: Sheet, given: Given, verdict: Verdict) -> dict[str, str]:
    """The case that a lost point is told of: what went in, what was expected, what came, and the
    hint.
    """
    message = verdict.message
    place = next(
        (i for i, case in enumerate(sheet.cases) if message.startswith(f"{case.label}: ")), None
    )
    # A hint speaks of what is computed, so it would mislead where something else is wrong.
    elsewhere = wire.is_of_form(message) or wire.MISNAMED in message or "its cell raised" in message
    shown = {} if place is None or elsewhere else {"hint": sheet.item.hint}
    if place is None or not sheet.cases[place].inputs:
        return shown
    expected = sheet.expected[place]
    shown |= {"input": brief(sheet.cases[place].inputs), "expected": brief(expected)}
    if isinstance(given, list):
        with suppress(Exception):  # whatever came may be of a kind that cannot be shown
            shown |= {"got": brief(given[place]), "first difference": verdict.values}
    return shown


def brief(tree: Tree, most: int = 12) -> str:
    """A tree of data in a few words: the first numbers of everything."""
    if isinstance(tree, torch.Tensor):
        first = tree.flatten()[: most + 1].tolist()
        form = ".5g" if tree.is_floating_point() else ""
        numbers = [f"{number:{form}}" for number in first]
        if len({*numbers}) < len({*first}):  # some differ in later digits alone
            numbers = [f"{number:.12g}" for number in first]
        shape = f"{tuple(tree.shape)} " if tree.ndim else ""
        return shape + ", ".join([*numbers[:most], *["..."][: len(numbers) - most]])
    if isinstance(tree, dict):
        return "; ".join(f"{name} = {_part(value, most)}" for name, value in [*tree.items()][:most])
    if isinstance(tree, list | tuple):
        values = [_part(value, most) for value in tree[:most]]
        return f"[{', '.join([*values, *['...'][: len(tree) - most]])}]"
    return repr(tree)[: 5 * most]


def _part(tree, most):
    """A nested part, in braces if it is a dictionary."""
    return f"{{{brief(tree, most)}}}" if isinstance(tree, dict) else brief(tree, most)


def _cell_problems(outcome: box.BoxResult) -> list[str]:
    """What the student's cells raised, as they report it."""
    frame = outcome.frames.get("cells", b"")
    try:
        pairs = json.loads(frame)["problems"] if len(frame) <= MOST_NOTES_BYTES else []
        pairs = [
            (str(name).removesuffix("_solution")[:80], str(problem)[:300])
            for name, problem in pairs[:20]
        ]
        return [
            f"{name if name.startswith(OWN) else f'the cell of {name}'} raised {problem}"
            for name, problem in pairs
        ]
    except (ValueError, TypeError, LookupError, RecursionError):
        return []
