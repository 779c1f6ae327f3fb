"""Where other networks are ahead of ours, with sizes that are counted alike."""

import pandas as pd

from course.reference.chart import coded_size, comparable
from course.reference.headline import headline


def standing(table: pd.DataFrame, others: pd.DataFrame) -> str:
    """In words: which networks are both smaller and more accurate than one of ours."""
    ours, others = headline(table), comparable(others)
    ahead = {
        row.name: others[(others.accuracy >= row.accuracy) & (others.file_bytes <= size)]
        for row, size in zip(ours.itertuples(), coded_size(ours), strict=True)
    }
    behind = [f"*{name}*" for name, better in ahead.items() if len(better)]
    alone = [f"*{name}*" for name, better in ahead.items() if better.empty]
    best = pd.concat(
        [*(rows.nlargest(1, "accuracy") for rows in ahead.values()), others.head(0)]
    ).drop_duplicates()
    stated = [
        f"[{label}]({rows.source.iloc[0]}) states {'; '.join(rows.stated)}"
        + ", epoch chosen on test images" * (rows.chosen_on.iloc[0] == "test images")
        for label, rows in best.groupby("label", sort=False)
    ]
    told = []
    if behind:
        told.append(f"other networks are ahead of {listed(behind)} ({'; '.join(stated)})")
    if alone:
        told.append(
            "no other network that we know of is both smaller and more accurate than"
            f" {listed(alone, 'or')}"
        )
    return f"With sizes counted alike, {', and '.join(told)}." if told else ""


def listed(names: list[str], word: str = "and") -> str:
    """A, B and C."""
    return f" {word} ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
