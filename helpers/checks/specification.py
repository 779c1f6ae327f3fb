"""An exercise, described once: inputs from a seed, an independent oracle, a tolerance, points and a
message.

The same `Item` serves three uses: the instant check beside the exercise (its own seed), the hidden
grading (secret seeds, edge cases) and the tests of the exercise itself. What happens to one case of
an item:

    inputs --run--> answer --view--> observed --score--> share of the points
    \\______________ probe __/           expected = oracle(inputs, probe)

`run` is the only step that touches student code. It takes and returns plain data (dictionaries,
lists, tensors, numbers, strings), so that grading can do it in a box. `probe` holds what the box
must not see, such as the images on which a returned network is tried. `view` turns the answer into
something comparable, as running a returned network does. It computes what a student designed, so
grading does that in a second box, which holds none of the student's code.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from helpers.checks.compare import Tolerance, difference

Tree = Any  # dictionaries and lists of tensors, numbers, strings, booleans and None


class SpecificationError(ValueError):
    """An exercise is described in a way that cannot be graded."""


@dataclass(frozen=True)
class Case:
    """One set of inputs. `label` is told to the student, so it must not give the answer away."""

    label: str
    inputs: dict[str, Tree]
    probe: dict[str, Tree] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """The share of an item's points that was earned (0 to 1) and why, in words."""

    share: float
    message: str = ""
    # Such as an accuracy, for the statistics of a class.
    measured: dict[str, float] = field(default_factory=dict)
    values: str = ""  # the first value that differs, in both answers


@dataclass(frozen=True)
class Mistake:
    """A wrong answer that many give, recognised by what it computes, and the hint that helps.

    Args:
        hint: what to say to an answer that is wrong in this way.
        wrong: what the mistake writes.
        right: what the solution has in that place, and only there; empty where `wrong` is the whole
            body.
    """

    hint: str
    wrong: str
    right: str = ""


@dataclass(frozen=True)
class Item:
    """One exercise.

    Args:
        name: also the id of its graded cell; the answer's cell is `<name>_solution`.
        cases: makes the cases from a generator; called again with every seed.
        oracle: the right answer from `inputs` and `probe`, computed in another way than the
            solution.
        hint: the way to the answer, for somebody whose answer is wrong.
        function: the name that the learner must define; by default that of the item.
        points: earned when every case is right.
        nudge: a first hint that gives less away.
        mistakes: what is often wrong, each with a hint of its own, which is told in place of the
            nudge.
        minutes: how long it takes somebody who has read the lesson so far.
        dots: how hard it is, from 1 to 3.
        edges: further cases, for what is easily forgotten; the instant check of an assignment
            leaves them out.
        run: calls the learner's functions on the inputs; by default `function(**inputs)`.
        view: turns the answer into what is compared; may fail on a malformed answer. By default the
            answer itself is compared. Assignments list it in VIEWS of their driver.
        score: judges what was observed, given also how many bytes were submitted; by default all or
            nothing within `tolerance`.
        forbidden: full names, or patterns of them, of library functions that the answer must not
            call, such as "torch.nn.utils.fusion.*". Only calls count, and only those made while the
            answer is computed.
        seconds: time that one case may take in the lesson; when it is graded, all cases together.
    """

    name: str
    cases: Callable[[torch.Generator], list[Case]]
    oracle: Callable[[dict[str, Tree], dict[str, Tree]], Tree]
    hint: str
    function: str = ""
    points: float = 1
    nudge: str = ""
    mistakes: tuple[Mistake, ...] = ()
    minutes: int = 5
    dots: int = 1
    edges: Callable[[torch.Generator], list[Case]] | None = None
    tolerance: Tolerance = field(default_factory=Tolerance)
    run: Callable[[Mapping[str, Any], dict[str, Tree]], Tree] | None = None
    view: Callable[[Tree, dict[str, Tree]], Tree] | None = None
    score: Callable[[Tree, Tree, int], Verdict] | None = None
    forbidden: tuple[str, ...] = ()
    seconds: float = 10.0

    def __post_init__(self):
        object.__setattr__(self, "function", self.function or self.name)
        if not self.points > 0:
            raise SpecificationError(
                f"item {self.name!r} is worth {self.points} points; give it a positive number"
            )

    def answer(self, student: Mapping[str, Any], inputs: dict[str, Tree]) -> Tree:
        """Run the learner's code on one case's inputs."""
        return self.run(student, inputs) if self.run else student[self.function](**inputs)

    def make_cases(self, *seed: str | int, hidden: bool = False) -> list[Case]:
        """Make the cases for a seed; the hidden ones include the edge cases."""
        made = self.cases(generator(*seed, self.name))
        if hidden and self.edges:
            made += self.edges(generator(*seed, self.name, "edges"))
        return made

    def compare(
        self, case: Case, expected: Tree, observed: Tree, submitted_bytes: int = 0
    ) -> Verdict:
        """Judge what was observed of an answer."""
        if self.score:
            verdict = self.score(expected, observed, submitted_bytes)
            return replace(verdict, message=f"{case.label}: {verdict.message}")
        if found := difference(expected, observed, self.tolerance):
            return Verdict(0.0, f"{case.label}: {found[0]}", values=found[1])
        return Verdict(1.0)


@dataclass(frozen=True)
class Assignment:
    """A notebook's worth of items."""

    name: str
    title: str
    items: tuple[Item, ...]
    manual_points: float

    @property
    def points(self) -> float:
        """All points: graded by machine and by hand."""
        return sum(item.points for item in self.items) + self.manual_points


def generator(*parts: str | int) -> torch.Generator:
    """A generator seeded from a few words, such as a class secret and the name of an item."""
    digest = hashlib.sha256("\0".join(str(part) for part in parts).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def combine(item: Item, verdicts: list[Verdict]) -> Verdict:
    """Join the verdicts of an item's cases: the worst case counts, and its message is told."""
    if not verdicts:
        raise SpecificationError(
            f"item {item.name!r} has no cases; its `cases` must return at least one"
        )
    # max(0.0, nan) is 0.0: a share that is no number counts as nothing.
    worst = min(verdicts, key=lambda verdict: max(0.0, verdict.share))
    share = min(1.0, max(0.0, float(worst.share)))
    if share == 1.0:
        return replace(worst, share=share)
    return replace(worst, share=share, message=f"{worst.message}. Hint: {item.hint}")


def copy_tree(tree: Tree) -> Tree:
    """Copy a tree of plain data; tensors are cloned and detached."""
    if isinstance(tree, dict):
        return {key: copy_tree(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [copy_tree(value) for value in tree]
    if isinstance(tree, tuple):
        return tuple(copy_tree(value) for value in tree)
    return tree.detach().clone() if isinstance(tree, torch.Tensor) else tree
