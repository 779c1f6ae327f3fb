"""How the class did: distribution of totals, difficulty and discrimination of every item."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from course.grading.classroom import Classroom
from course.grading.course import Exercise
from course.grading.export import table


class StatsError(ValueError):
    """There is nothing to count."""


def item_statistics(marks: pd.DataFrame) -> pd.DataFrame:
    """Difficulty and discrimination of each item.

    Args:
        marks: the long table of one assignment.

    Returns:
        One row per item: `earned`, the mean share of its points, and `discrimination`, the correlation of its
        points with the points of all other items. It is undefined when everybody has the same points.

    Example:
        >>> marks = pd.DataFrame({"student": list("aabb"), "item": ["x", "y"] * 2, "points": [1, 2, 0, 0], "of": 2})
        >>> item_statistics(marks)["earned"].tolist()
        [0.25, 0.5]
    """
    counted = marks[marks["of"] > 0]
    points = counted.pivot_table(index="student", columns="item", values="points", sort=False, dropna=False)
    most = counted.groupby("item", sort=False)["of"].max()
    rest = {item: points.drop(columns=item).sum(axis=1) for item in points}
    varies = {item: points[item].std() > 0 and rest[item].std() > 0 for item in points}
    return pd.DataFrame(
        {
            "earned": points.mean() / most,
            "discrimination": {i: points[i].corr(rest[i]) if varies[i] else float("nan") for i in points},
        }
    ).loc[list(points)]


def draw(room: Classroom, exercise: Exercise) -> list[Path]:
    """Write the figure and the table of item statistics of one assignment.

    Returns:
        The files that were written.
    """
    name = exercise.assignment.name
    marks = table(room, [name])
    if marks.empty:
        raise StatsError(f"no submission of {name} has been graded yet: run `grade run` first")
    # An item of which answers wait to be read is neither easy nor hard.
    waiting = marks["item"].isin(marks.loc[marks["waiting"], "item"])
    statistics = item_statistics(marks.assign(points=marks["points"].mask(waiting)))
    totals = marks.groupby("student")["points"].sum().clip(lower=0)
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.2, 1, 1))
    left.hist(totals, bins=range(0, int(exercise.assignment.points) + 11, 10), color="0.5", edgecolor="white")
    left.axvline(totals.median(), color="black", linestyle="--", label=f"median {totals.median():g}")
    left.set(title=f"{name}: {len(totals)} students", xlabel="total points", ylabel="students")
    left.legend()
    middle.barh(statistics.index, statistics["earned"].fillna(0), color="0.5")
    for item in statistics.index[statistics["earned"].isna()]:
        middle.annotate(" not read yet", (0, item), va="center", color="0.4")
    middle.set(title="share of the points earned", xlim=(0, 1))
    right.barh(statistics.index, statistics["discrimination"].fillna(0), color="0.5")
    right.set(title="correlation with the rest", xlim=(-1, 1), yticklabels=[])
    for axes in (middle, right):
        axes.invert_yaxis()
    folder = room.folder / "stats"
    folder.mkdir(exist_ok=True)
    files = [folder / f"{name}.png", folder / f"{name}.csv"]
    figure.savefig(files[0], dpi=120)
    statistics.to_csv(files[1], index_label="item")
    return files
