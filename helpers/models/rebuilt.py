"""Is a network still what its builder makes, apart from its weights?

A file holds tensors, and says how the structure is built. Whatever else an owner did to a network
(replaced a layer, set a stride, added a hook) would be lost without a word. So `save` builds the
network anew and compares, in this order: the names and forms of the tensors, the type, attributes
and hooks of each module, and last the answers to an example.

An attribute of one of PyTorch's layers must be the same. An attribute of another class may be a
cache or a counter: there the answers decide. Where no input is known that the network takes, it
must be the same, too.

Example:
    >>> network = models.build("resnet18")
    >>> network.maxpool = nn.Identity()
    >>> models.save(network, "resnet18.safetensors")
    ModelError: maxpool.type is torch.nn.modules.linear.Identity, and
    torch.nn.modules.pooling.MaxPool2d in what 'resnet18' makes; ...
"""

import copy
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import zip_longest
from typing import Any

import torch
from torch import fx, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from helpers.equivalence import TOLERANCE, gap
from helpers.models.header import ModelError

MOST_NAMED = 20  # tensors that do not fit
# What differs between networks that answer alike: how they are trained, where they write, what a
# file says elsewhere, and how an int8 network computes.
NOT_COMPARED = {"training", "p", "dropout", "momentum", "inplace"}
NOT_COMPARED |= {"spec", "input_normalization", "_mode", *vars(nn.Module())}
OF_GRAPHS = vars(fx.GraphModule({}, fx.Graph())).keys()
HOOKS = ("_forward_hooks", "_forward_pre_hooks")
REMEDY = (
    "a file keeps weights and the builder's name, so this would be lost: make the change in a"
    " function that builds the network, and note it with models.declare_builder(network,"
    " 'package.module:function')"
)
IMAGE_SIZES = (32, 64, 224)


def refuse_another_network(model: nn.Module, twin: nn.Module, maker: str) -> None:
    """Put the tensors of a network into its twin, and refuse the network if they differ then.

    Args:
        model: the network; it stays as it is.
        twin: what a builder makes and a specification's steps have led to, with any weights.
        maker: what the twin is called in errors.
    """
    try:
        put_tensors(twin, untied_state(model), type(model).__name__, maker)
        unsure = _compare_settings(model, twin, maker)
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            _compare_answers(model, twin, maker, unsure)
    except ModelError as error:
        raise ModelError(f"{error}; {REMEDY}") from None


def untied_state(model: nn.Module) -> dict[str, torch.Tensor]:
    """The state dict with each shared tensor once, under its first name."""
    first_name: dict[int, str] = {}
    return {
        name: tensor
        for name, tensor in model.state_dict(keep_vars=True).items()
        if first_name.setdefault(id(tensor), name) == name
    }


def put_tensors(
    model: nn.Module, tensors: dict[str, torch.Tensor], source: Any, owner: str
) -> None:
    """Load every tensor into its place, or change nothing and say what does not fit.

    Args:
        source: where the tensors come from, for the error.
        owner: what wants them, for the error.
    """
    wanted = _forms(untied_state(model))
    stored = _forms(tensors)
    problems = [f"missing {name}" for name in wanted.keys() - stored.keys()]
    problems += [f"unexpected {name}" for name in stored.keys() - wanted.keys()]
    for name in wanted.keys() & stored.keys():
        if wanted[name] != stored[name]:
            problems.append(f"{name} is {stored[name]}, expected {wanted[name]}")
    if problems:
        listed = "; ".join(sorted(problems)[:MOST_NAMED])
        more = f"; and {len(problems) - MOST_NAMED} more" if len(problems) > MOST_NAMED else ""
        raise ModelError(f"{source} does not fit {owner}: {listed}{more}")
    state = model.state_dict()  # carries the layout version that some networks (MNASNet) ask for
    state.update(tensors)
    # Not strict: every name is checked already, and tied tensors come along.
    model.load_state_dict(state, strict=False)


def _forms(tensors: dict[str, torch.Tensor]) -> dict[str, str]:
    return {name: f"{t.dtype} {tuple(t.shape)}" for name, t in tensors.items()}


def _compare_settings(model: nn.Module, twin: nn.Module, maker: str) -> str | None:
    """Refuse what makes a difference; return the first setting that only may make one."""
    unsure = None
    modules = dict(model.named_modules(remove_duplicate=False))
    made = dict(twin.named_modules(remove_duplicate=False))
    for name in modules | made:
        given = _settings(modules.get(name))
        wanted = _settings(made.get(name))
        for setting in given | wanted:
            value = given.get(setting, "not set")
            other = wanted.get(setting, "not set")
            if value == other:
                continue
            place = f"{name}.{setting}".removeprefix(".")
            difference = f"{place} is {value:.80}, and {other:.80} in {maker}"
            of_torch = setting in wanted and wanted["type"].startswith("torch.")
            overrides = callable(getattr(type(modules.get(name)), setting, None))
            if of_torch or overrides or setting == "type":
                raise ModelError(difference)
            unsure = unsure or difference
    return unsure


def _settings(module: nn.Module | None) -> dict[str, str]:
    """A module's type, hooks and what was set on it, as text without addresses."""
    if module is None:
        return {}
    graph = isinstance(module, fx.GraphModule)
    known = NOT_COMPARED | OF_GRAPHS if graph else NOT_COMPARED
    values = {name: value for name, value in vars(module).items() if name not in known}
    values["code"] = getattr(module, "code", None)
    values |= {name: list(getattr(module, name).values()) for name in HOOKS}
    values |= {name: module._buffers[name] for name in module._non_persistent_buffers_set}
    texts = {name: _text(value) for name, value in values.items()}
    return {"type": f"{type(module).__module__}.{type(module).__qualname__}"} | texts


def _text(value: Any) -> str:
    value = tree_map_only(torch.Tensor, _digest, value)
    return re.sub(r" at 0x[0-9a-f]+|\s+", " ", repr(value))


def _digest(tensor: torch.Tensor) -> str:
    """All numbers of a tensor in one: writing them down takes long, and leaves most of them out."""
    if tensor.layout != torch.strided:
        return repr(tensor)
    content = tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
    return f"{tensor.dtype} {tuple(tensor.shape)} #{hash(content)}"


def _compare_answers(model: nn.Module, twin: nn.Module, maker: str, unsure: str | None) -> None:
    network = copy.deepcopy(model).cpu().eval()
    twin.eval()
    if hasattr(network, "mode"):  # in which an int8 network computes
        twin.mode = network.mode
    for example in _examples(model):  # a copied graph has no specification
        answers = _answers(network, example)
        if not answers:
            continue
        for value, other in zip_longest(answers, _answers(twin, example)):
            reason, error = gap(other, value)
            if error > TOLERANCE.get(value.dtype, 0):
                difference = unsure or f"it answers otherwise than {maker}"
                raise ModelError(f"{difference}: {reason}")
        return
    if unsure:
        raise ModelError(unsure)


@torch.no_grad()
def _answers(network: nn.Module, example: torch.Tensor) -> list[torch.Tensor]:
    """All tensors in an answer; none if the network does not take this example."""
    torch.manual_seed(0)
    with suppress(Exception):  # a network may raise anything
        answer = network(example.clone())
        return [leaf for leaf in tree_leaves(answer) if isinstance(leaf, torch.Tensor)]
    return []


def _examples(network: nn.Module) -> Iterator[torch.Tensor]:
    """What a network may take: the example of its last step, else images, else rows of numbers."""
    shapes = []
    for step in getattr(getattr(network, "spec", None), "steps", ()):
        if step["step"] == "quantize":
            shapes.insert(0, [2, *step["input_shape"]])
        if step["step"] == "optimize" and isinstance(step["shapes"][0], list):
            shapes.insert(0, step["shapes"][0][:-1])
    weight = next((p for p in network.parameters() if p.dim() in (2, 4)), torch.empty(0, 3, 0, 0))
    sides = [()] if weight.dim() == 2 else [(size, size) for size in IMAGE_SIZES]
    for shape in [*shapes, *((2, weight.shape[1], *side) for side in sides)]:
        yield torch.randn(shape, dtype=weight.dtype)
