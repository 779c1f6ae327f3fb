ANSWERS = {
    "megabytes": {
        "right": ["return numbers * bits / 8e6", "return numbers * bits / 8 / 10**6"],
        "wrong": [
            "return numbers * bits / 1e6",
            "return numbers * bits / 8 / 2**20",
            "return numbers * (bits // 8) / 1e6",
            "return numbers / 1e6",
            "return numbers * bits // 8_000_000",
            "return numbers * bits // 8 / 1e6",
        ],
    },
    "accuracy_of": {
        "right": ["return int((scores.max(dim=1).indices == labels).sum()) / len(labels)"],
        "wrong": [
            ("==", "!="),
            (".float().mean()", ".sum()"),
            ("argmax", "argmin"),
            ("(scores", "100 * (scores"),
            ("(1)", "(0)"),
            "return scores.max()",
        ],
        "base": "return (scores.argmax(1) == labels).float().mean()",
    },
}

TRIALS = {
    "megabytes": [
        (r"\bbits\b.*byte|eight", "return numbers * bits / 1_000_000"),
        (r"1,?000,?000|million|1024|2\*\*20", "return numbers * bits / 8 / 1024**2"),
        (r"\bbits\b|4 bits|whole", "return numbers * (bits // 8) / 1e6"),
    ],
    "accuracy_of": [
        ("row|axis|dim|image", "return (scores.argmax(0) == labels).float().mean().item()"),
        ("share|mean|divide|fraction", "return (scores.argmax(1) == labels).sum().item()"),
        ("percent|100|between 0 and 1", "return 100 * (scores.argmax(1) == labels).float().mean()"),
    ],
}
