# fmt: off
ANSWERS = {
    "megabytes": {"right": ["return numbers * bits / 8e6", "return numbers * bits / 8 / 10**6"], "wrong": [
        "return numbers * bits / 1e6", "return numbers * bits / 8 / 2**20", "return numbers * (bits // 8) / 1e6",
        "return numbers / 1e6", "return numbers * bits // 8_000_000", "return numbers * bits // 8 / 1e6",
    ]},
    "accuracy_of": {"right": ["return int((scores.max(dim=1).indices == labels).sum()) / len(labels)"], "wrong": [
        ("==", "!="), (".float().mean()", ".sum()"), ("argmax", "argmin"), ("(scores", "100 * (scores"), ("(1)", "(0)"),
        "return scores.max()",
    ], "base": "return (scores.argmax(1) == labels).float().mean()"},
}
