"""How the class did: totals, difficulty and discrimination of every item, and its networks side by
side.
"""

import html
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.grading.classroom import Classroom, NotReadyError, pseudonym, write
from course.grading.course import Exercise
from course.grading.export import table
from course.grading.feedback import document


def item_statistics(marks: pd.DataFrame) -> pd.DataFrame:
    """Of each item `earned`, the mean share of its points, and `discrimination`, its correlation
    with all others.
    """
    counted = marks[marks["of"] > 0]
    points = counted.pivot_table(
        index="student", columns="item", values="points", sort=False, dropna=False
    )
    most = counted.groupby("item", sort=False)["of"].max()
    rest = {item: points.drop(columns=item).sum(axis=1) for item in points}
    varies = {item: points[item].std() > 0 and rest[item].std() > 0 for item in points}
    discrimination = {
        item: points[item].corr(rest[item]) if varies[item] else float("nan") for item in points
    }
    return pd.DataFrame({"earned": points.mean() / most, "discrimination": discrimination}).loc[
        list(points)
    ]


def draw(room: Classroom, exercise: Exercise) -> list[Path]:
    """Write how the class did: a histogram, item statistics, and a page with each item in words.

    Returns the files.
    """
    name = exercise.assignment.name
    marks = table(room, [name])
    if marks.empty:
        raise NotReadyError(f"no submission of {name} has been graded yet: run `grade run` first")
    code = marks["item"].isin([item.name for item in exercise.assignment.items])
    waiting = marks.loc[marks["waiting"] & ~code, "item"]
    unread = marks["item"].isin(waiting)  # neither easy nor hard
    statistics = item_statistics(marks.assign(points=marks["points"].mask(unread)))
    read, note = (
        marks[~unread],
        " Written answers that are not all read yet do not count here." if unread.any() else "",
    )
    totals, most = (
        read.groupby("student")["points"].sum().clip(lower=0),
        read.groupby("item")["of"].max().sum(),
    )
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    axes.hist(totals, bins=range(0, int(most) + 11, 10), color="0.5", edgecolor="white")
    axes.axvline(
        totals.median(), color="black", linestyle="--", label=f"median {totals.median():g}"
    )
    axes.set(title=f"{name}: {len(totals)} students", xlabel="total points", ylabel="students")
    axes.legend()
    rows = [
        f'<tr><th scope="row">{html.escape(item)}</th><td>{in_words(row.earned, EARNED)}</td>'
        f"<td class='number'>{'' if pd.isna(row.earned) else f'{row.earned:.0%}'}</td>"
        f"<td>{tells(row.discrimination, len(totals)) * pd.notna(row.earned)}</td></tr>"
        for item, row in statistics.iterrows()
    ]
    title = f"{html.escape(name)}: how the class did"
    heads = ("item", "who solved it", "points earned", "what it tells")
    head = "".join(f'<th scope="col">{words}</th>' for words in heads)
    body = (
        f"<h1>{title}</h1><p>{len(totals)} hand-ins; half of them have {totals.median():g} points"
        f" or more of {most:g}.{note}</p><table><tr>{head}</tr>{''.join(rows)}</table>"
    )
    files = [room.folder / "stats" / f"{name}{ending}" for ending in (".png", ".csv", ".html")]
    write(files[2], document(title, body))
    figure.savefig(files[0], dpi=120)
    statistics.to_csv(files[1], index_label="item")
    return files


SURE_ENOUGH = 0.1  # a correlation with the rest
# From this number on the words hold; what is not a number gets the last.
EARNED = (
    (0.9, "nearly everybody"),
    (0.6, "most"),
    (0.3, "some"),
    (-1, "few"),
    (None, "not all read yet"),
)
SEPARATES = (
    (0.3, "those who have it did well elsewhere, too"),
    (SURE_ENOUGH, "tells little about the rest"),
    (-SURE_ENOUGH, "tells nothing about the rest"),
    (-2, "strong hand-ins lose it more often than weak ones: read this item again"),
    (None, "everybody has the same points, so it tells nothing"),
)


def in_words(number: float, words: tuple) -> str:
    """The words for a number."""
    return next(
        text for least, text in words if least is None or (number == number and number >= least)
    )


def tells(discrimination: float, students: int) -> str:
    """What an item tells about the rest. Without any relation a correlation is larger than
    2 / sqrt(students), up or down, one time in twenty.
    """
    if SURE_ENOUGH <= abs(discrimination) < 2 / students**0.5:
        return "too few hand-ins to tell"
    return in_words(discrimination, SEPARATES)


LEVELS = (0.2, 0.4, 0.6, 0.8)
NAMED = 15
MOST_OVER, MOST_UNDER = 2.0, 0.1  # how far beyond the targets the figure reaches


def standings(room: Classroom, exercise: Exercise, pseudonyms: bool = False) -> pd.DataFrame:
    """Everybody whose network could be computed: accuracy, bytes, share of its points; best first,
    then few bytes.
    """
    rows, name = [], exercise.assignment.name
    for student in room.students(name):
        for row in (room.result(name, student) or {"items": {}})["items"].values():
            if "accuracy" in row.get("measured", {}):
                shown = pseudonym(room, student) if pseudonyms else student
                share = row["points"] / row["of"]
                rows.append(
                    [shown, row["measured"]["accuracy"], int(row["measured"]["bytes"]), share]
                )
    table = pd.DataFrame(rows, columns=["student", "accuracy", "bytes", "share"])
    return table.sort_values(
        ["share", "bytes", "student"], ascending=[False, True, True], ignore_index=True
    )


def draw_leaderboard(room: Classroom, exercise: Exercise, pseudonyms: bool = False) -> list[Path]:
    """Write the figure and the table; nothing where no network was graded. Returns the files."""
    table, rule = standings(room, exercise, pseudonyms), exercise.load_driver()
    if table.empty:
        return []
    figure = Figure(figsize=(9, 6), layout="constrained")
    plot = figure.subplots()
    left, right = min(table["bytes"].min(), rule.FULL_BYTES) / 1.5, rule.TARGET_BYTES * MOST_OVER
    low, high = (
        rule.TARGET_ACCURACY - MOST_UNDER,
        max(table["accuracy"].max(), rule.FULL_ACCURACY) + 0.03,
    )
    _draw_points(plot, rule, np.geomspace(left, right, 300), np.linspace(low, min(1.0, high), 300))
    scored = table[table["share"] > 0]
    front = scored.sort_values(["bytes", "accuracy"], ascending=[True, False])
    front = front[front["accuracy"] > front["accuracy"].cummax().shift(fill_value=0)]
    plot.step(
        front["bytes"], front["accuracy"], where="post", color="black", linewidth=1.5, label="front"
    )
    for part, marker in ((scored, "o"), (table[table["share"] == 0], "x")):
        # What lies far outside stands at the edge, so that it does not squeeze the rest together.
        places = part["bytes"].clip(upper=right), part["accuracy"].clip(lower=low)
        plot.scatter(*places, marker=marker, color="black", s=40, zorder=3, clip_on=False)
    for rank, row in scored.head(NAMED).iterrows():
        words, place = f"{rank + 1} {row.student[:20]}", (row["bytes"], row["accuracy"])
        plot.annotate(words, place, xytext=(6, 4), textcoords="offset points", fontsize=9)
    plot.set_title(
        "Networks of the class, their front, and lines of equal points; x earned nothing"
    )
    files = [
        room.folder / "stats" / f"{exercise.assignment.name}_leaderboard{ending}"
        for ending in (".png", ".csv")
    ]
    files[0].parent.mkdir(exist_ok=True)
    figure.savefig(files[0], dpi=120)
    table.to_csv(files[1], index=False)
    return files


def _draw_points(plot: Axes, rule: ModuleType, sizes: np.ndarray, accuracies: np.ndarray) -> None:
    """The region in which points are earned, and lines of equal points in it."""
    earned = np.array([[rule.earned(accuracy, size) for size in sizes] for accuracy in accuracies])
    plot.contourf(sizes, accuracies, earned, levels=[0.1, 2.0], colors=["0.93"])
    lines = plot.contour(sizes, accuracies, earned, levels=LEVELS, colors="0.45", linewidths=1)
    plot.clabel(lines, fmt=lambda level: f"{level:.0%}", fontsize=9)
    corner = [rule.FULL_ACCURACY, rule.FULL_ACCURACY, accuracies[-1]]
    plot.plot(
        [sizes[0], rule.FULL_BYTES, rule.FULL_BYTES],
        corner,
        color="black",
        linestyle="--",
        linewidth=1,
    )
    plot.text(
        rule.FULL_BYTES * 0.98,
        accuracies[-1] - 0.004,
        "all points",
        ha="right",
        va="top",
        fontsize=9,
    )
    plot.set(xscale="log", xlim=(sizes[0], sizes[-1]), ylim=(accuracies[0], accuracies[-1]))
    plot.set(xlabel="submitted bytes", ylabel="accuracy on disturbed images")
    ticks = [size for size in (5e3, 1e4, 2e4, 3e4, 5e4, 1e5, 2e5) if sizes[0] < size < sizes[-1]]
    plot.set_xticks(ticks, [f"{size / 1000:,.0f} kB" for size in ticks])
    plot.minorticks_off()
    plot.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
