"""Save and load a network at any stage.

A file holds tensors and a specification in JSON, never code: the name of a builder, its arguments,
and the steps (channels removed, passes run, quantized) that led to the structure. Loading repeats
them on fresh weights and then puts the tensors of the file in their places.
"""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as deserialized
from safetensors.torch import save as serialized
from torch import nn

from helpers.dataset import CIFAR10, Normalization
from helpers.equivalence import forked_random
from helpers.files import write_atomically
from helpers.graphs.recording import first_names
from helpers.models.building import OURS, build, name_of, one_line
from helpers.models.header import Budget, ModelError, checked
from helpers.models.rebuilt import (
    in_precision_of,
    put_tensors,
    refuse_another_network,
    untied_state,
)
from helpers.models.spec import Spec, replay, spec_of

# Where training scripts put a state dict beside other things.
WRAPPERS = ("state_dict", "model_state_dict", "model")
# What DistributedDataParallel, torch.compile and Lightning put before each name.
PREFIXES = ("module.", "_orig_mod.", "model.")
CHECKPOINTS = Path(__file__).resolve().parents[2] / "data" / "checkpoints"
AS_GIVEN = " as it was given"  # follows the name of a class whose builder is not known
MOST_NUMBERS = 2**28  # 1 GB; VGG asks for more than half, however small it was cut


def pretrained(name: str = "dense") -> nn.Module:
    """Load a checkpoint that comes with the course, in eval mode."""
    path = CHECKPOINTS / f"{name}.safetensors"
    if not path.exists():
        shipped = ", ".join(sorted(p.stem for p in CHECKPOINTS.glob("*.safetensors"))) or "none yet"
        raise ModelError(f"no checkpoint {name!r} in {CHECKPOINTS.name}/; shipped: {shipped}")
    return load(path)


def save(model: nn.Module, path: str | Path, **metadata: Any) -> Path:
    """Write a network of any stage into one safetensors file, atomically.

    Args:
        model: a network with a specification (built by this module, or made from one).
        metadata: plain JSON values kept in the header (metrics, provenance); ``read_header`` gives
            them back.

    Raises:
        ModelError: the file would bring back another network, see rebuilt.py.
    """
    spec = spec_of(model)
    if spec is None:
        raise ModelError(
            f"{type(model).__name__} carries no specification, so a file could not be rebuilt; say"
            " which function makes it: models.declare_builder(model, 'package.module:function',"
            " **arguments); of a network inside torch.compile, DataParallel or an average of"
            " weights, save the network itself"
        )
    stored = {"builder": spec.builder, "arguments": spec.arguments, "steps": spec.steps}
    normalization = getattr(model, "input_normalization", None)
    if normalization and (normalization != CIFAR10 or spec.builder not in OURS):
        stored["normalization"] = normalization
    header = {"spec": json.dumps(stored), "metadata": json.dumps(metadata)}
    checked(header)
    tensors = {
        name: tensor.detach().to("cpu", copy=True).contiguous()
        for name, tensor in untied_state(model).items()
    }
    with forked_random():
        twin = structure(spec, "the network", spec.make or spec.builder)
    refuse_another_network(model, in_precision_of(tensors, twin), f"what {spec.builder!r} makes")
    return write_atomically(Path(path), serialized(tensors, header))


def read_header(path: str | Path) -> tuple[Spec, dict[str, Any]]:
    """The specification and the metadata of a file, without its tensors."""
    try:
        with safe_open(path, "pt") as file:
            stored, metadata = checked(file.metadata() or {})
        return Spec(**stored | {"steps": tuple(stored["steps"])}), metadata
    except FileNotFoundError as error:
        raise ModelError(f"{path} does not exist") from error
    except (SafetensorError, ValueError, OSError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ModelError(f"{path} is not a network saved by this course ({reason})") from error


def load(path: str | Path, factory: str | Callable[..., nn.Module] | None = None) -> nn.Module:
    """Rebuild a saved network, in eval mode. Nothing from the file is executed.

    Args:
        factory: for a network of your own: the factory that the file names, by the same name or as
            a function.

    Raises:
        ModelError: the file is damaged, or tensors are missing, left over or of the wrong shape;
            they are named.
    """
    spec, _ = read_header(path)
    # No network that fits into such a file, even at 2 bits a weight, had more.
    limit = max(MOST_NUMBERS, 16 * Path(path).stat().st_size)
    tensors = read_tensors(path)
    try:
        model = in_precision_of(tensors, structure(spec, path, factory, limit))
        put_tensors(model, tensors, path, "its own specification")
    except ModelError:
        raise
    except ValueError as error:  # of a quantized network, with scales that none has
        raise ModelError(f"{path} is damaged: {error}") from error
    model.spec = replace(spec, make=factory if callable(factory) else None)
    # Ours were trained on CIFAR-10; another network may not say.
    if spec.normalization or spec.builder in OURS:
        model.input_normalization = Normalization(*map(tuple, spec.normalization or CIFAR10))
    return model.eval()


def read_tensors(path: str | Path) -> dict[str, torch.Tensor]:
    """Every tensor of a safetensors file, which is not mapped into memory: Windows replaces no such
    file, even after an error.
    """
    return deserialized(Path(path).read_bytes())


def structure(
    spec: Spec,
    source: str | Path,
    factory: str | Callable[..., nn.Module] | None = None,
    limit: float = math.inf,
) -> nn.Module:
    """The network that a file's specification describes, with any weights.

    Args:
        source: what describes it, for errors.
        factory: as in `load`.
        limit: how many numbers its tensors may have.

    Raises:
        ModelError: it cannot be built; says why in one line.
    """
    if callable(factory) and spec.builder == name_of(factory) + AS_GIVEN:
        raise ModelError(
            f"{source} holds a network that {name_of(factory)!r} alone does not make: give a"
            " function that makes it and changes it as you did"
        )
    builder = factory if callable(factory) else spec.builder
    if factory and factory not in (builder, spec.builder):
        raise ModelError(f"{source} was made by {spec.builder!r}, not by {factory!r}")
    if not factory and ":" in builder:
        raise ModelError(
            f"{source} asks for code, {builder!r}, which runs only if you name it too, so look at"
            " it first: models.load(path, factory=...), or --model on the command line"
        )
    try:
        with Budget(limit):
            model = build(builder, **spec.arguments)
        return replay(model, spec, limit)
    except ModelError:
        raise
    except Exception as error:  # the header led there, and may ask for anything
        raise ModelError(
            f"{source}: its specification does not build ({one_line(error)})"
        ) from error


def load_weights(model: nn.Module, path: str | Path) -> nn.Module:
    """Put a state dict that safetensors or `torch.save` wrote into a network; runs no code.

    Raises:
        ModelError: the file is something else, or a tensor does not fit; names those that do not.
    """
    tensors = _state_dict_in(path)
    expected = model.state_dict(keep_vars=True)
    while tensors and tensors.keys().isdisjoint(expected):
        starts = [p for p in PREFIXES if all(str(name).startswith(p) for name in tensors)]
        if not starts:
            break
        tensors = {name.removeprefix(starts[0]): tensor for name, tensor in tensors.items()}
    if not tensors or not all(isinstance(tensor, torch.Tensor) for tensor in tensors.values()):
        raise ModelError(
            f"{path} holds no state dict; write one with torch.save(model.state_dict(), path)"
        )
    names = first_names(expected)  # a tensor with two names may be there under either or both
    renamed = {names.get(name, name): tensor for name, tensor in tensors.items()}
    for name in names.values():
        if name.endswith("num_batches_tracked"):  # old files, and other frameworks, do not count
            renamed.setdefault(name, expected[name])
    put_tensors(model, renamed, path, type(model).__name__)
    return model


def _state_dict_in(path: str | Path) -> dict[Any, Any]:
    try:
        stored = read_tensors(path)
    except FileNotFoundError as error:
        raise ModelError(f"{path} does not exist") from error
    except (SafetensorError, OSError):
        try:
            stored = torch.load(path, map_location="cpu", weights_only=True)
        except Exception:  # what is no such file fails in many ways
            stored = None
    if not isinstance(stored, dict):
        return {}
    return next((stored[key] for key in WRAPPERS if isinstance(stored.get(key), dict)), stored)
