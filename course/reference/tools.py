"""The part of the results page on other tools: what they make of the same networks, measured here.

Each table is read from the file in data/results/ that a benchmark wrote.
"""

import pandas as pd

from course.lessons.results import reference
from course.reference import jobs
from course.reference.table import RESULTS, as_markdown, load

# Of networks that others wrote. Not read from the benchmark: Windows cannot import it.
COUNTED = ("right", "refused", "wrong", "crashed")
LIMITS = ("too large", "too slow")
STEPS = ("optimize", "optimize fx", "optimize export", "prune", "quantize", "onnx")
STEPS += ("torch fuse", "Torch-Pruning", "torchao PT2E", "ONNX Runtime")
QUANTIZED = (
    "**8 bits.** *dense*, quantized by each tool with the same calibration images ({draws} draws of"
    " them): test accuracy in per cent."
)
PRUNED = (
    "**Pruning.** *dense*, cut to half of its multiply-adds and trained for {epochs} epochs by the"
    " same schedule ({seeds} seeds): the best way of each tool, chosen on validation images."
)
WILD = (
    "**Networks of others.** Untrained networks of timm and transformers, small, with random"
    " statistics of BatchNorm. A folded network must answer like the network itself, a cut one like"
    " it with the same channels at zero (so cutting through a LayerNorm, whose mean changes,"
    " is wrong), an int8 one with at most twice the error of PyTorch's rounding. *right %* is of"
    " the four columns before it, without *over a limit* (8 GB, 120 s). *optimize* takes the"
    " better of its two routes; the last four rows are other tools, on the same networks. Ours was"
    " mended on these networks until none was wrong; the other tools were not. Where maps are"
    " joined, Torch-Pruning's networks were compared with the wrong channels at zero, so some that"
    " count as *wrong* may be right."
)
PEERS = (
    "**Small networks of others**, trained once from random weights, with *fast*'s teacher,"
    " augmentation and {epochs} epochs, and learning rates for random weights. For images of 32"
    " pixels MobileNetV3 has one stride fewer, ShuffleNet two and no first pooling. *fast* had a"
    " head start: it was cut from a trained network. Milliseconds are those of ONNX Runtime, for 1"
    " and for 128 images, with the faster of the float32 and the int8 file: medians ± half the"
    " interquartile range, all in one run ({device}, {threads} threads, load of the machine"
    " {load:.0f}), so not to be compared with those above."
)


def sections() -> list[str]:
    """All tables, each under the sentence that says what was compared."""
    quality = reference("pruning_quality").query("stage == 'compared'")
    quantized = reference("quantization_accuracy")
    counts = {"epochs": quality.epochs.max(), "seeds": quality.seed.nunique()}
    return [
        QUANTIZED.format(draws=quantized.draw.nunique()),
        as_markdown(int8(quantized)),
        PRUNED.format(**counts),
        as_markdown(pruned(quality)),
        WILD,
        as_markdown(wild(reference("wild"))),
        *peer_section(reference("peers"), reference("peers_speed")),
    ]


def int8(rows: pd.DataFrame) -> pd.DataFrame:
    """The accuracy of every tool's int8 network, the best mean first."""
    found = rows.groupby("name").accuracy.agg(["mean", "min", "max"])
    found = found.sort_values("mean", ascending=False).map("{:.2f}".format)
    return found.rename(columns={"min": "lowest", "max": "highest"}).reset_index(names="tool")


def pruned(rows: pd.DataFrame) -> pd.DataFrame:
    """What each tool's pruned network has left, and its accuracy after the same training."""
    found = rows.groupby("method").agg(
        macs=("macs", "mean"),
        parameters=("parameters", "mean"),
        mean=("test", "mean"),
        lowest=("test", "min"),
        highest=("test", "max"),
    )
    sizes = found[["macs", "parameters"]].map("{:,.0f}".format)
    accuracies = found[["mean", "lowest", "highest"]].map("{:.2%}".format)
    table = sizes.join(accuracies).rename(columns={"macs": "multiply-adds"})
    return table.sort_values("mean", ascending=False).reset_index(names="tool")


def wild(rows: pd.DataFrame) -> pd.DataFrame:
    """How many of others' networks had which outcome in each step."""
    counts = rows[rows.result.isin(COUNTED)].pivot_table(
        "network", "step", "result", aggfunc="count", fill_value=0
    )
    steps = [step for step in STEPS if step in counts.index]
    counts = counts.reindex(index=steps, columns=COUNTED, fill_value=0)
    share = counts.right / counts.sum(axis=1)
    limits = rows[rows.result.isin(LIMITS)].groupby("step").size().reindex(steps, fill_value=0)
    shown = {"right %": share.map("{:.1%}".format), "over a limit": limits}
    return counts.assign(**shown).reset_index(names="step")


def peer_section(trained: pd.DataFrame, times: pd.DataFrame) -> list[str]:
    """What was trained and timed, and how."""
    fast, first = jobs.read("reference").jobs["fast"], times.iloc[0]
    how = {"epochs": fast.settings["epochs"], "device": first.device}
    how |= {"threads": first.threads, "load": first.load}
    ours = load(RESULTS).set_index("name").loc["fast"]
    return [PEERS.format(**how), as_markdown(peers(trained, times, ours))]


def peers(trained: pd.DataFrame, times: pd.DataFrame, fast: pd.Series) -> pd.DataFrame:
    """`fast` beside small networks of others, the most accurate first."""
    ours = {"network": "fast", "parameters": fast.params, "macs": fast.macs, "test": fast.accuracy}
    rows = pd.concat([pd.DataFrame([ours]), trained]).sort_values("test", ascending=False)
    fastest = times.sort_values("median_ms").drop_duplicates(["name", "batch"])
    fastest["ms"] = [f"{row.median_ms:.2f} ± {row.iqr_ms / 2:.2f}" for row in fastest.itertuples()]
    ms = fastest.pivot_table("ms", "name", "batch", aggfunc="first").loc[rows.network]
    return pd.DataFrame(
        {
            "network": rows.network,
            "test accuracy": rows.test.map("{:.2%}".format),
            "parameters": rows.parameters.astype(int).map("{:,}".format),
            "multiply-adds": rows.macs.astype(int).map("{:,}".format),
            "1 image": ms[1].to_numpy(),
            "128 images": ms[128].to_numpy(),
        }
    )
