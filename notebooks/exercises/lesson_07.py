"""Lesson 07. The oracles let torch do the bookkeeping, or do by hand what its optimizer does."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from exercise_inputs import between, normal
from torch import nn
from torch.nn import functional as F

from helpers.checks.compare import Tolerance
from helpers.checks.specification import Case, Item, Mistake

CLOSE = Tolerance(relative=1e-5, absolute=1e-6)  # an answer in float32 is right as well


def statistics_cases(rng: torch.Generator) -> list[Case]:
    """A few batches of one size, with means and spreads of their own."""
    cases = []
    for count in (1, between(rng, 2, 5)):
        shape = (between(rng, 4, 8), 3, 4, 4)
        batches = [
            (normal(rng, *shape) * between(rng, 1, 4) + between(rng, -3, 3)).float()
            for _ in range(count)
        ]
        cases.append(Case("one batch" if count == 1 else "several batches", {"batches": batches}))
    return cases


def statistics_oracle(inputs: dict, probe: dict) -> list[torch.Tensor]:
    """torch's BatchNorm with momentum None keeps the plain average over the batches."""
    norm = torch.nn.BatchNorm2d(3, momentum=None).train()
    for batch in inputs["batches"]:
        norm(batch)
    return [norm.running_mean, norm.running_var]


def distillation_cases(rng: torch.Generator) -> list[Case]:
    """Scores of two networks, at two temperatures."""
    cases = []
    for temperature in (4.0, 1.5):
        images = between(rng, 3, 9)
        inputs = {"student": 3 * normal(rng, images, 10), "teacher": 3 * normal(rng, images, 10)}
        cases.append(Case(f"temperature {temperature}", inputs | {"temperature": temperature}))
    return cases


def distillation_run(student: Mapping[str, Any], inputs: dict) -> torch.Tensor:
    """The loss, which must have a slope: the next exercise trains with it."""
    with torch.enable_grad():
        scores = inputs["student"].clone().requires_grad_() * 1  # no leaf, as a network's are
        loss = student["distillation_loss"](**inputs | {"student": scores})
    if not (isinstance(loss, torch.Tensor) and loss.requires_grad):
        raise TypeError(
            "exercise 3 trains with this loss: return a tensor with its slope, without .item(), "
            ".detach() or no_grad"
        )
    if not torch.equal(scores, inputs["student"]):
        raise RuntimeError("student has changed, and exercise 3 needs it again: work on a copy")
    return loss.detach()


def distillation_oracle(inputs: dict, probe: dict) -> torch.Tensor:
    """torch's Kullback-Leibler divergence."""
    t = inputs["temperature"]
    student, teacher = (inputs[name].div(t).log_softmax(1) for name in ("student", "teacher"))
    return t**2 * F.kl_div(student, teacher, reduction="batchmean", log_target=True)


def network_of(rng: torch.Generator, inputs: int, inner: int) -> nn.Module:
    """A small classifier with BatchNorm, so that it matters which mode it is in."""
    net = nn.Sequential(
        nn.Linear(inputs, inner), nn.BatchNorm1d(inner), nn.ReLU(), nn.Linear(inner, 4)
    ).double()
    for weight in net.parameters():
        weight.data = normal(rng, *weight.shape) / 2
    net[1].running_mean += 0.3
    return net


def teaching_cases(rng: torch.Generator) -> list[Case]:
    """Students in either mode, teachers in either mode, several mixtures and numbers of batches."""
    cases = []
    for label, share in (("labels and teacher", 0.7), ("mostly labels", 0.2)):
        size = between(rng, 3, 6)
        student, teacher = (
            network_of(rng, size, between(rng, 4, 6)),
            network_of(rng, size, between(rng, 7, 9)),
        )
        student.eval()
        teacher.train()
        batches = [
            (normal(rng, 8, size), torch.randint(4, (8,), generator=rng))
            for _ in range(between(rng, 3, 6))
        ]
        given = {"student": student, "teacher": teacher, "batches": batches}
        cases.append(Case(label, given | {"rate": 0.01 * between(rng, 5, 20), "share": share}))
    return cases


class Batches:
    """What the lesson hands over, too: it has a length and can be gone through, and no more. A
    batch is fetched when its step comes, for later cells look at the student in between.
    """

    def __init__(self, batches: list, student: nn.Module) -> None:
        self.batches, self.student = batches, student

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator:
        answers = []
        hook = self.student[1].register_forward_hook(lambda *_: answers.append(None))
        for number, batch in enumerate(self.batches):
            yield batch
            if number == 0 and not answers:
                raise ValueError(
                    "your second batch was fetched before the student had seen the first: does "
                    "each step ask student(x), and is each batch fetched only then?"
                )
        hook.remove()


def teaching_run(student: Mapping[str, Any], inputs: dict) -> list:
    """What became of copies of both networks."""
    networks = {name: copy.deepcopy(inputs[name]) for name in ("student", "teacher")}
    trained = student["train_with_teacher"](
        **inputs | networks | {"batches": Batches(inputs["batches"], networks["student"])}
    )
    if trained is not networks["student"]:  # later cells go on with the network that they gave
        raise TypeError("train the student that you are given, and return it")
    if any(weight.grad is not None for weight in networks["teacher"].parameters()):
        raise ValueError("the teacher got gradients; compute its scores under torch.no_grad()")
    return state_of(trained, networks["teacher"])


def state_of(trained: nn.Module, teacher: nn.Module) -> list:
    """All numbers of both networks, and whether the student is ready for use."""
    return [*trained.state_dict().values(), *teacher.state_dict().values(), trained.training]


def teaching_oracle(inputs: dict, probe: dict) -> list:
    """Momentum written out, one weight after the other; the divergence is torch's."""
    student, teacher = (
        copy.deepcopy(inputs["student"]).train(),
        copy.deepcopy(inputs["teacher"]).eval(),
    )
    weights, count = list(student.parameters()), len(inputs["batches"])
    moved = [torch.zeros_like(weight) for weight in weights]
    for step, (x, labels) in enumerate(inputs["batches"]):
        soft, wanted = student(x), teacher(x).detach()
        given = {"student": soft, "teacher": wanted, "temperature": 4.0}
        loss = (1 - inputs["share"]) * F.cross_entropy(soft, labels) + inputs[
            "share"
        ] * distillation_oracle(given, {})
        for place, slope in enumerate(torch.autograd.grad(loss, weights)):
            moved[place] = 0.9 * moved[place] + slope
            weights[place].data -= inputs["rate"] * (count - step) / count * moved[place]
    return state_of(student.eval(), teacher)


ITEMS = (
    Item(
        "recalibrated_statistics",
        statistics_cases,
        statistics_oracle,
        tolerance=CLOSE,
        minutes=6,
        dots=1,
        nudge="Over which axes does the mean of one channel run?",
        hint="One mean and variance per channel and batch, over images, rows and columns; "
        "then the plain average.",
        mistakes=(
            Mistake(
                "You return standard deviations. BatchNorm stores variances.",
                wrong=".std(",
                right=".var(",
            ),
            Mistake(
                "Your variance divides by n. Divide by n - 1, as PyTorch's var does.",
                wrong="batch.var((0, 2, 3), correction=0)",
                right="batch.var((0, 2, 3))",
            ),
            Mistake(
                "Only the last batch counts in yours. Average over all batches.",
                wrong="batch = batches[-1]\nreturn batch.mean((0, 2, 3)), batch.var((0, 2, 3))",
            ),
            Mistake(
                "You add up the statistics of the batches. An average is the sum divided by the "
                "number of batches.",
                wrong="means.sum(0), variances.sum(0)",
                right="means.mean(0), variances.mean(0)",
            ),
            Mistake(
                "You take the variance of all batches together. Take that of each batch, then the "
                "average of these.",
                wrong="torch.cat(batches).var((0, 2, 3))",
                right="variances.mean(0)",
            ),
        ),
    ),
    Item(
        "distillation_loss",
        distillation_cases,
        distillation_oracle,
        tolerance=CLOSE,
        run=distillation_run,
        minutes=8,
        dots=2,
        nudge="Soften both answers with the temperature before you compare them.",
        hint="Soften both, sum p * (log p - log q) over the classes, average over the images, "
        "times T squared.",
        mistakes=(
            Mistake(
                "The factor T squared is missing. Without it the slopes get small when the "
                "temperature is high.",
                wrong="",
                right="temperature**2 * ",
            ),
            Mistake(
                "You have teacher and student the wrong way round. The divergence weighs the "
                "classes with the teacher's probabilities.",
                wrong="q * (q / p)",
                right="p * (p / q)",
            ),
            Mistake(
                "Your softmax runs over the images. It should run over the classes, axis 1.",
                wrong="p = (teacher / temperature).softmax(0)\n"
                "q = (student / temperature).softmax(0)\n"
                "return temperature**2 * (p * (p / q).log()).sum(1).mean()",
            ),
            Mistake(
                "The answers are not softened. Divide the scores of both by the temperature before "
                "the softmax.",
                wrong="p, q = teacher.softmax(1), student.softmax(1)\n"
                "return temperature**2 * (p * (p / q).log()).sum(1).mean()",
            ),
            Mistake(
                "You average over the classes as well. Sum over them, then take the mean over "
                "the images.",
                wrong=".mean()",
                right=".sum(1).mean()",
            ),
        ),
    ),
    Item(
        "train_with_teacher",
        teaching_cases,
        teaching_oracle,
        run=teaching_run,
        tolerance=CLOSE,
        minutes=18,
        dots=3,
        nudge="Which mode does each network belong in, and what is the rate of the very first "
        "step?",
        hint="Student to train(), teacher to eval() and under no_grad. For each batch: set the "
        "rate, both answers, the mixed loss, zero_grad, backward, step. Return the student in eval "
        "mode.",
        mistakes=(
            Mistake(
                "Your student is in evaluation mode while it learns, so its BatchNorms learn "
                "nothing. Set it to training mode first.",
                wrong="student.eval()",
                right="student.train()",
            ),
            Mistake(
                "The teacher is in training mode, and its statistics move with every batch. Set "
                "it to eval mode.",
                wrong="teacher.train()",
                right="teacher.eval()",
            ),
            Mistake(
                "The gradients of all batches so far add up. Clear them before every backward "
                "pass.",
                wrong="",
                right="        optimizer.zero_grad()\n",
            ),
            Mistake(
                "You have the two shares the wrong way round: share belongs to the teacher's loss.",
                wrong="(1 - share) * distillation_loss(scores, wanted, 4.0) + share *",
                right="share * distillation_loss(scores, wanted, 4.0) + (1 - share) *",
            ),
            Mistake(
                "The rate falls one step too early. The very first step should have the full rate.",
                wrong="1 - (step + 1) / len(batches)",
                right="1 - step / len(batches)",
            ),
            Mistake(
                "The rate stays the same in yours. It should fall in a straight line, from step "
                "to step.",
                wrong="rate",
                right="rate * (1 - step / len(batches))",
            ),
            Mistake(
                "None of your steps remembers the one before. The optimizer needs its momentum, "
                "and has to be made once, before the loop.",
                wrong="",
                right=", momentum=0.9",
            ),
        ),
    ),
)
