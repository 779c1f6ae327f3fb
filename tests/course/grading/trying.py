"""Judge answers in this process, as the hidden grading would in its box: only for answers that are
our own.
"""

import contextlib
import functools
from dataclasses import replace

from course.grading import answers, wire
from course.grading.guard import Forbidden, Guard
from course.grading.intake import packed_bytes
from helpers.checks.specification import Verdict, combine, copy_tree


def check(item, student, seed="visible", hidden=False, submitted_bytes=0):
    verdicts = []
    for case in _prepared(replace(item, run=None), seed, hidden):
        verdicts.append(judge(item, student, *case, submitted_bytes))
        if not verdicts[-1].share > 0:
            break  # the first that earns nothing is the one that counts
    return combine(item, verdicts)


@functools.cache
def _prepared(item, seed, hidden):
    """Cases with what is expected: the same for many answers."""
    cases = item.make_cases(seed, hidden=hidden)
    return [(case, item.oracle(case.inputs, case.probe)) for case in cases]


def judge(item, student, case, expected, submitted_bytes=0):
    try:  # copies, so that an answer that overwrites its inputs cannot reach the view
        answer = wire.decode(wire.encode(item.answer(student, copy_tree(case.inputs))))
        observed = item.view(answer, case.probe) if item.view else answer
    except Exception as problem:
        return Verdict(0.0, f"{case.label}: {type(problem).__name__}: {problem}")
    return item.compare(case, expected, observed, submitted_bytes)


def item_of(assignment, name):
    return next(item for item in assignment.items if item.name == name)


def handed_in(exercise):
    """The files besides the notebook that belong to the solution."""
    return {path.name: path.read_bytes() for path in sorted(exercise.folder.glob("*.safetensors"))}


def try_out(exercise, answer, seed="tests"):
    item, sources = item_of(exercise.assignment, answer.item), sources_of(exercise, answer)
    with contextlib.chdir(exercise.folder):  # where the files lie that belong to the solution
        return check(guarded(item), answers.execute(sources), seed, True, weight(exercise, sources))


def weight(exercise, sources):
    return packed_bytes(sources.values()) + sum(map(len, handed_in(exercise).values()))


def sources_of(exercise, answer):
    """The notebook's solutions with one answer in the place of its item's."""
    return answers.solution_cells(exercise) | {f"{answer.item}_solution": answer.code}


def guarded(item):
    """The same item, with the library's functions that it forbids out of reach."""

    def run(student, inputs):
        with Guard(item.forbidden) as guard:
            answer = (
                item.run(student, inputs) if item.run else wire.call(student[item.function], inputs)
            )
        if guard.found:
            raise Forbidden(guard.found)
        return answer

    return replace(item, run=run)
