"""Lesson 00. Two small tasks to get used to how exercises work."""

import statistics

import torch
from exercise_inputs import between

from helpers.checks.specification import Case, Item, Mistake


def size_cases(rng: torch.Generator) -> list[Case]:
    """Counts and bits whose product is and is not a whole number of bytes; so few that a part of a
    byte shows.
    """
    inputs = [{"numbers": between(rng, 1, 10**7), "bits": bits} for bits in (32, 8, 4)]
    inputs.append({"numbers": 8 * between(rng, 1, 9) + 5, "bits": 3})
    return [Case(f"{one['numbers']} numbers of {one['bits']} bits", one) for one in inputs]


def size_oracle(inputs: dict, probe: dict) -> float:
    """Eight bits are a byte, a million bytes are a megabyte."""
    return inputs["numbers"] * inputs["bits"] / 8_000_000


def accuracy_cases(rng: torch.Generator) -> list[Case]:
    """Scores of a few images; two of three are right, so that the share of wrong ones is another
    number.
    """
    cases = []
    for images in (between(rng, 20, 60), between(rng, 5, 9)):
        scores = torch.randn(images, 10, generator=rng)
        best = scores.argmax(1)
        labels = torch.where(torch.arange(images) % 3 > 0, best, (best + 1) % 10)
        cases.append(Case(f"{images} images", {"scores": scores, "labels": labels}))
    return cases


def accuracy_oracle(inputs: dict, probe: dict) -> float:
    """Image by image, in plain Python."""
    rows = zip(inputs["scores"].tolist(), inputs["labels"].tolist(), strict=True)
    return statistics.fmean(
        max(range(len(row)), key=row.__getitem__) == label for row, label in rows
    )


ITEMS = (
    Item(
        "megabytes",
        size_cases,
        size_oracle,
        minutes=2,
        dots=1,
        nudge="How many bits are in a byte, and how many bytes in 1 MB?",
        hint="Eight bits are one byte, and 1 MB is 1,000,000 bytes.",
        mistakes=(
            Mistake(
                "Your result is eight times too large: the numbers are given in bits, and a file "
                "is measured in bytes.",
                wrong=" / 1e6",
                right=" / 8 / 1e6",
            ),
            Mistake(
                "You divide by 1024 twice. A megabyte is 1,000,000 bytes here, as on a disk.",
                wrong="1024**2",
                right="1e6",
            ),
            Mistake(
                "You round the bits of one number down to whole bytes. Two numbers of 4 bits "
                "share a byte, so nothing is rounded.",
                wrong="(bits // 8)",
                right="bits / 8",
            ),
        ),
    ),
    Item(
        "accuracy_of",
        accuracy_cases,
        accuracy_oracle,
        view=lambda answer, probe: float(answer),
        minutes=4,
        dots=1,
        nudge="Which method of a tensor gives the index of the largest number in each row?",
        hint="The predicted class is where a row is largest; "
        "return the fraction of rows that agree with the label.",
        mistakes=(
            Mistake(
                "You look for the largest number in each column, which gives one answer per "
                "class. The scores of one image are in one row.",
                wrong="argmax(0)",
                right="argmax(1)",
            ),
            Mistake(
                "You count the images that are right. The accuracy is their share of all images.",
                wrong=".sum()",
                right=".mean()",
            ),
            Mistake(
                "Your accuracy is in percent. It should be a number between 0 and 1.",
                wrong="return 100 * (",
                right="return (",
            ),
        ),
    ),
)
