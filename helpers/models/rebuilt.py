"""Is a network still what its builder makes, apart from its weights?

A file holds tensors, and says how the structure is built. Any other change of a network (a layer
replaced, a stride set, a hook added) would silently be lost. So `save` builds the network anew
and compares, in this order: the names, dtypes and shapes of the tensors; the type, attributes and
hooks of each module; and last the answers to an example.

Any difference is refused, with two exceptions. What only training uses (dropout, momentum) may
differ. And if the answers to an example agree, so may attributes that the owner added, and caches
and counters, which change in the fresh network, too, when it runs.

Example:
    >>> network = models.build("resnet18")
    >>> network.maxpool = nn.Identity()
    >>> models.save(network, "resnet18.safetensors")
    ModelError: maxpool.type is torch.nn.modules.linear.Identity, and
    torch.nn.modules.pooling.MaxPool2d in what 'resnet18' makes; ...
"""

import copy
import inspect
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import zip_longest
from typing import Any

import torch
from torch import fx, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_map_only

from helpers.equivalence import (
    TOLERANCE,
    digest,
    forked_random,
    gap,
    seed_generators,
    tensors_in,
)
from helpers.graphs.recording import first_names
from helpers.models.header import ModelError

MOST_NAMED = 20  # of the tensors that do not fit, in an error
# What a file says elsewhere, and what was compiled, or packed for a kernel, from the rest.
MADE_AGAIN = {"_compiled_call_impl", "packed"}
NOT_COMPARED = {"spec", "input_normalization", *MADE_AGAIN, *vars(nn.Module())} - {"training"}
# Settings of PyTorch's own layers that change no answer in eval mode.
OF_TRAINING = {"p", "dropout", "momentum", "inplace"}
OF_GRAPHS = vars(fx.GraphModule({}, fx.Graph())).keys()
FORWARD_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
REMEDY = (
    "a file keeps weights and the builder's name, so this would be lost: undo it (a part in train"
    " mode: model.eval()), or make the change in a function that builds the network, and note it"
    " with models.declare_builder(network, 'package.module:function') before it is optimised or"
    " quantized"
)
IMAGE_SIZES = (32, 64, 224)
Settings = dict[str, dict[str, str]]  # module -> setting -> value


def in_precision_of(tensors: dict[str, torch.Tensor], model: nn.Module) -> nn.Module:
    """The model in the one precision of all these tensors: no step records `model.half()`."""
    dtypes = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
    made = {tensor.dtype for tensor in model.state_dict().values() if tensor.is_floating_point()}
    if len(dtypes) != 1 or dtypes == made:
        return model
    (dtype,) = dtypes  # as `model.half()` does it, complex tensors stay
    return model._apply(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)


def refuse_another_network(model: nn.Module, twin: nn.Module, maker: str) -> None:
    """Put the tensors of a network into its twin, and refuse the network if the two then differ.

    Args:
        model: the network; it stays as it is.
        twin: what a builder makes and a specification's steps have led to, with any weights.
        maker: what the twin is called in errors.
    """
    try:
        put_tensors(twin, untied_state(model), type(model).__name__, maker)
        twin.eval()
        if any(step["step"] == "quantize" for step in twin.spec.steps):
            twin.mode = model.mode
        fresh = _all_settings(twin)
        with forked_random():
            answer = _another_answer(model, twin)
        _compare(model, fresh, _all_settings(twin), answer, maker)
    except ModelError as error:
        raise ModelError(f"{error}; {REMEDY}") from None


def untied_state(model: nn.Module) -> dict[str, torch.Tensor]:
    """The state dict with each shared tensor once, under its first name."""
    state = model.state_dict(keep_vars=True)
    for name, tensor in state.items():
        if not isinstance(tensor, torch.Tensor) or is_lazy(tensor) or tensor.is_meta:
            raise ModelError(
                f"{name} has no numbers, and a file keeps nothing else: put other state"
                " into a buffer, and run a network with lazy layers once, where it is built"
            )
    return {name: state[name] for name in first_names(state).values()}


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


def _all_settings(model: nn.Module) -> Settings:
    modules = model.named_modules(remove_duplicate=False)
    return {name: _settings(module) for name, module in modules}


def _compare(
    model: nn.Module, fresh: Settings, run: Settings, answer: str | None, maker: str
) -> None:
    """Refuse what makes a difference.

    Args:
        fresh, run: the settings of the twin, before it ran and after.
        answer: how it answers differently, "" if it does not, None if it could not be asked.
    """
    decisive = []
    doubtful = []
    given = _all_settings(model)
    for name in given | fresh:
        now = given.get(name, {})
        made = fresh.get(name, {})
        for setting in now | made:
            value = now.get(setting, "not set")
            other = made.get(setting, "not set")
            if value == other or (setting == "training" and model.training):
                continue
            place = f"{name}.{setting}".removeprefix(".")
            start = _where_unlike(value, other)
            difference = f"{place} is {value[start:]:.80}, and {other[start:]:.80} in {maker}"
            decides = made.get(setting) == run.get(name, {}).get(setting)
            if setting not in made and name in fresh:  # added: harmless unless it hides the class's
                decides = hasattr(type(model.get_submodule(name)), setting)
            (decisive if decides else doubtful).append(difference)
    if answer != "":
        decisive += doubtful
    if answer:
        decisive.append(f"it answers differently from {maker}")
    if decisive:
        raise ModelError(": ".join(filter(None, [decisive[0], answer])))


def _where_unlike(text: str, other: str) -> int:
    """An index shortly before two texts begin to differ; code is long."""
    return max(0, len(os.path.commonprefix([text, other])) - 40)  # noqa: RUF071  (no paths)


def _settings(module: nn.Module) -> dict[str, str]:
    """A module's type, hooks and what was set on it, as text without addresses."""
    known = NOT_COMPARED
    if isinstance(module, fx.GraphModule):
        known = known | OF_GRAPHS
    elif any(base.__module__.startswith("torch.nn.modules.") for base in type(module).__mro__[:-2]):
        known = known | OF_TRAINING
    values = {name: value for name, value in vars(module).items() if name not in known}
    values["code"] = getattr(module, "code", None)
    values |= {name: list(getattr(module, name).values()) for name in FORWARD_HOOKS}
    values |= {name: module._buffers[name] for name in module._non_persistent_buffers_set}
    texts = {name: _text(value) for name, value in values.items()}
    return {"type": f"{type(module).__module__}.{type(module).__qualname__}"} | texts


def _text(value: Any) -> str:
    value = tree_map_only(torch.Tensor, _digest, value)
    return re.sub(r" at 0x[0-9a-fA-F]+|\s+", " ", repr(value))


def _digest(tensor: torch.Tensor) -> str:
    """A tensor in a few characters: its `repr` takes long, and leaves most of the numbers out."""
    if tensor.layout != torch.strided:
        return repr(tensor)
    return f"{tensor.dtype} {tuple(tensor.shape)} #{digest([tensor])}"


def _another_answer(model: nn.Module, twin: nn.Module) -> str | None:
    """How the twin answers differently, "" if it does not; None if no input is known for both."""
    try:
        network = copy.deepcopy(model, _computed(model)).cpu().eval()
    except Exception:  # a network may hold what cannot be copied
        return None
    for inputs in _examples(model):  # not `network`: the copy of a plain GraphModule has no spec
        answers = _answers(network, inputs)
        for value, other in zip_longest(answers, _answers(twin, inputs)):
            reason, error = gap(other, value)
            if error > TOLERANCE.get(getattr(value, "dtype", None), 0):
                return reason
        if answers:
            return ""
    return None


def _computed(model: nn.Module) -> dict[int, torch.Tensor]:
    """A memo for `deepcopy` with tensors that each call computes anew, such as those of a spectral
    norm, which it refuses.
    """
    values = [value for module in model.modules() for value in vars(module).values()]
    computed = [v for v in values if isinstance(v, torch.Tensor) and not v.is_leaf]
    return {id(tensor): tensor.detach().clone() for tensor in computed}


@torch.no_grad()
def _answers(network: nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """All tensors in an answer; none if the network does not take these inputs."""
    seed_generators(0)
    with suppress(Exception):  # a network may raise anything
        answer = network(*map(torch.clone, inputs))
        return tensors_in(answer)
    return []


def _examples(network: nn.Module) -> Iterator[tuple[torch.Tensor, ...]]:
    """What a network may take: the example of its last step, else images, rows of numbers or of
    tokens, as many as `forward` asks for."""
    shapes = []
    for step in getattr(getattr(network, "spec", None), "steps", ()):
        if step["step"] == "quantize":
            shapes.insert(0, [2, *step["input_shape"]])
        first = step.get("shapes", [None])[0]
        if isinstance(first, list) and str in map(type, first):  # sizes and dtype of one tensor
            shapes.insert(0, first[:-1])
    filters = [p for p in network.parameters() if p.dim() in (2, 4) and p.dtype in TOLERANCE]
    weight = next(iter(filters), torch.empty(0, 3, 0, 0))
    sides = [()] if weight.dim() == 2 else [(size, size) for size in IMAGE_SIZES]
    parameters = inspect.signature(network.forward).parameters.values()
    wanted = [p for p in parameters if p.default is p.empty and p.kind <= p.POSITIONAL_OR_KEYWORD]
    count = max(1, len(wanted))
    for shape in [*shapes, *((2, weight.shape[1], *side) for side in sides)]:
        yield tuple(torch.randn(count, *shape, dtype=weight.dtype))
    words = [m.num_embeddings for m in network.modules() if isinstance(m, nn.Embedding)]
    if words:
        yield tuple(torch.randint(min(words), (count, 2, 8)))
