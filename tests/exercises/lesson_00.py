# fmt: off
from tests.exercises.trying import Answers

ANSWERS = {
    "megabytes": Answers(right=["return numbers * bits / 8e6", "return numbers * bits / 8 / 10**6"], wrong=[
        "return numbers * bits / 1e6", "return numbers * bits / 8 / 2**20", "return numbers * (bits // 8) / 1e6",
        "return numbers / 1e6", "return numbers * bits // 8_000_000", "return numbers * bits // 8 / 1e6",
    ]),
    "accuracy_of": Answers(right=[
        "return (scores.argmax(1) == labels).float().mean()",
        "return int((scores.max(dim=1).indices == labels).sum()) / len(labels)",
    ], wrong=[
        "return (scores.argmax(1) != labels).float().mean()", "return (scores.argmax(1) == labels).sum()",
        "return (scores.argmin(1) == labels).float().mean()",
        "return 100 * (scores.argmax(1) == labels).float().mean()",
        "return (scores.argmax(0) == labels).float().mean()", "return scores.max()",
    ]),
}
