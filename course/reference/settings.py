"""What may be set in a sweep and of which kind each value is, so that a mistake is reported
before anything runs.
"""

from collections.abc import Mapping
from typing import Any, get_type_hints

from helpers.models.header import Between, problem
from helpers.pruning.allocation import checked_multiple, checked_ratio
from helpers.pruning.groups import SCOPES
from helpers.pruning.importance import CRITERIA
from helpers.quantization import Recipe
from helpers.training import Config

AMOUNTS = ("ratio", "target_params", "target_macs")
PRUNING: dict[str, Any] = dict.fromkeys(AMOUNTS, float) | dict.fromkeys(
    ("scope", "importance"), str
)
PRUNING |= dict.fromkeys(("round_to", "seed"), int) | {"without": list}  # blocks
PRUNING |= {"tolerance": float, "allocation": str | Mapping[str, float], "reestimate": bool}
TRAINING = get_type_hints(Config)
QUANTIZING = get_type_hints(Recipe) | {"file_bytes": int, "seed": int}
# What may be set for a job of each stage.
SETTINGS = {
    "dense": TRAINING | {"network": str},
    "pruned": PRUNING,
    "fine-tuned": PRUNING | TRAINING,  # cut first, when the job says how much goes
    "int8": QUANTIZING,
    "qat": QUANTIZING | TRAINING,
}
OF_ANY_STAGE = {"from": str, "teacher": str, "ship": bool}
FILE = {
    "data": str,
    "results": str,
    "checkpoints": str,
    "work": str,
    "defaults": dict,
    "jobs": dict,
}
# Words that nothing else checks before a network is there.
CHOICES = {"network": ("mobilenet_v2", "tiny"), "allocation": ("uniform", "global")}
CHOICES |= {"scope": SCOPES, "importance": CRITERIA}


class SweepError(ValueError):
    """A sweep's file asks for something that cannot be done; names file, job and remedy."""


NUMBER = Between(float("-inf"), float("inf"))
KINDS: dict[Any, tuple[str, Any]] = {  # what is told, and the kind of `helpers.models.header`
    int: ("a whole number", int),
    float: ("a number", NUMBER),
    bool: ("true or false", bool),
    str: ("text in quotes", str),
    str | None: ("text in quotes", str),
    dict: ("a table", {...: ...}),
    tuple[int, ...]: ("a list of whole numbers", [int]),
    list: ("a list of names", [str]),
    Mapping[str, int]: ("a table of whole numbers", {...: int}),
    str | Mapping[str, float]: ("text or a table of numbers", (str, {...: NUMBER})),
}


def check_table(where: str, stated: Any) -> None:
    """Settings are a table."""
    if not isinstance(stated, dict):
        raise SweepError(
            f"{where}: {stated!r} is not a table; see the top of course/reference/jobs.py for the"
            " form"
        )


def check_kinds(where: str, stated: dict[str, Any], kinds: Mapping[str, Any], place: str) -> None:
    """Every key is known in this place, and every value of its kind."""
    if unknown := stated.keys() - kinds.keys():
        known = ", ".join(sorted(kinds))
        raise SweepError(
            f"{where}: {sorted(unknown)[0]!r} is not a setting of {place}; there are {known}"
        )
    for name, value in stated.items():
        told, kind = KINDS[kinds[name]]
        if problem(value, kind):
            raise SweepError(f"{where}: {name} is {value!r}; give {told}")


def check_defaults(where: str, defaults: dict[str, Any]) -> None:
    """The settings that all jobs of a stage share, also of a stage that has no job yet."""
    if unknown := defaults.keys() - SETTINGS.keys():
        name = sorted(unknown)[0]
        raise SweepError(
            f"{where}, [defaults.{name}]: there is no such stage; choose one of"
            f" {', '.join(SETTINGS)}"
        )
    for stage, stated in defaults.items():
        place = f"{where}, [defaults.{stage}]"
        check_table(place, stated)
        check_kinds(place, stated, OF_ANY_STAGE | SETTINGS[stage], f"the stage {stage}")
        check_values(place, stage, stated)


def check_values(where: str, stage: str, settings: dict[str, Any]) -> None:
    """The values, of the right kind already, are ones that the stage can do something with."""
    for name, known in CHOICES.items():
        if isinstance(settings.get(name), str) and settings[name] not in known:
            raise SweepError(
                f"{where}: {name} is {settings[name]!r}; choose one of {', '.join(known)}"
            )
    for name in ("target_params", "target_macs", "file_bytes"):
        if not settings.get(name, 1) > 0:
            raise SweepError(f"{where}: {name} is {settings[name]!r}; give a number above 0")
    if len(given := [name for name in AMOUNTS if name in settings]) > 1:
        raise SweepError(f"{where}: {' and '.join(given)} both say how much goes; keep one of them")
    table = settings.get("allocation")
    by_group = table if isinstance(table, dict) else {}
    if by_group and given:
        told = "allocation says how much goes from each group"
        raise SweepError(f"{where}: {told}, and {given[0]} how much in all; keep one of them")
    try:
        checked_ratio(settings.get("ratio", 0.5))
        checked_ratio(settings.get("tolerance", 0.01), "tolerance")
        for name, share in by_group.items():
            checked_ratio(share, f"allocation[{name!r}]")
        checked_multiple(settings.get("round_to", 1))
        config(settings), recipe(settings)
    except (ValueError, RuntimeError) as error:
        raise SweepError(f"{where}: {error}") from error


def config(settings: dict[str, Any]) -> Config:
    """How to train."""
    chosen = {name: value for name, value in settings.items() if name in TRAINING}
    sizes = {"image_sizes": tuple(chosen["image_sizes"])} if "image_sizes" in chosen else {}
    return Config(**chosen | sizes)


def recipe(settings: dict[str, Any]) -> Recipe:
    """How to quantize."""
    names = get_type_hints(Recipe)
    return Recipe(**{name: value for name, value in settings.items() if name in names})
