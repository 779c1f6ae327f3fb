"""Notes on each node of a graph which shape and dtype its value has, as a tensor without data in
`node.meta["val"]`.

The graph runs on the meta device, where nothing is computed. Where that fails (devices differ, a
shape depends on numbers, a function looks into tensors) one real call on copies tells.
"""

import copy
from typing import Any

import torch
from torch import fx, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from helpers.graphs.effects import AUGMENTED, attribute, has_hooks
from helpers.graphs.errors import GraphMismatch
from helpers.graphs.operations import KEEPS_SHAPE


def annotate(graph_module: fx.GraphModule, example_inputs: tuple[Any, ...]) -> None:
    """Write a tensor without data into each node's `meta["val"]`; plain values, and shapes that
    change, get none.

    Raises:
        GraphMismatch: a node does not accept what it gets; the node is named.
    """
    takes = len(graph_module.graph.find_nodes(op="placeholder"))
    if len(example_inputs) > takes:
        takes = f"{takes} input{'s' * (takes != 1)}"
        raise GraphMismatch(
            "tracing", f"the network takes {takes} and got {len(example_inputs)} example inputs"
        )
    tables = [
        table
        for module in graph_module.modules()
        for table in (module._parameters, module._buffers)
    ]
    stored = [
        {name: tensor for name, tensor in table.items() if tensor is not None} for table in tables
    ]
    given = {
        value.device for value in tree_leaves(example_inputs) if isinstance(value, torch.Tensor)
    }
    devices = given | {tensor.device for table in stored for tensor in table.values()}
    if torch.device("meta") in devices - given:
        named = (*graph_module.named_parameters(), *graph_module.named_buffers())
        name = next(name for name, tensor in named if tensor.is_meta)
        raise GraphMismatch(
            "tracing", f"{name} has no data (device meta), and the inputs have some"
        )
    if len(devices) == 1:
        inputs = tree_map_only(torch.Tensor, lambda value: value.to("meta"), [*example_inputs])
        try:
            # For a moment, every parameter and buffer is a tensor without data, so nothing is
            # written to the real one.
            for table, tensors in zip(tables, stored, strict=True):
                table.update(
                    (name, torch.empty_like(tensor, device="meta"))
                    for name, tensor in tensors.items()
                )
            with torch.no_grad():
                return _Notes(graph_module, graph_module).take(inputs)
        except GraphMismatch:
            pass  # perhaps only because of the stand-ins; a real call will tell
        finally:
            for table, tensors in zip(tables, stored, strict=True):
                table.update(tensors)
    inputs = tree_map_only(
        torch.Tensor, torch.clone, [*example_inputs]
    )  # the network may write into them
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        return _Notes(copy.deepcopy(graph_module), graph_module).take(inputs)


class _Notes(fx.Interpreter):
    """Runs a graph over the modules of `root`, and notes each tensor on its node."""

    def __init__(self, root: nn.Module, graph_module: fx.GraphModule):
        super().__init__(root, garbage_collect_values=False, graph=graph_module.graph)
        self.extra_traceback = False  # a GraphMismatch says where it was

    def take(self, inputs: list[Any]) -> None:
        """Run, and forget what is known of values that were reshaped in place: it depends on when
        one asks.
        """
        self.run(*inputs)
        for node, value in self.env.items():
            if "val" in node.meta and _form(value) != _form(node.meta["val"]):
                del node.meta["val"]

    def run_node(self, n: fx.Node) -> Any:
        """Run one node.

        Without data, what keeps the shape of its operands is not run: torch's rules are slow.
        """
        try:
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            called = attribute(self.module, n.target) if n.op == "call_module" else n.target
            known = (
                called if n.op == "call_function" else type(called)
            ) in KEEPS_SHAPE and not has_hooks(called)
            like = alike(args) if known else None
            value = (
                like.detach()
                if like is not None and like.is_meta
                else getattr(self, n.op)(n.target, args, kwargs)
            )
        except Exception as error:
            what = (
                "an input is missing"
                if n.op == "placeholder"
                else f"does not accept its inputs: {error}"
            )
            advice = "Check the example inputs, and that dtypes and devices agree"
            raise GraphMismatch("tracing", f"{what}. {advice}", n) from error
        if n.target in AUGMENTED and isinstance(value, (int, float, torch.SymInt)):
            n.target = AUGMENTED[n.target]  # `n += 1` writes into nothing when n is a number
        if isinstance(value, torch.Tensor) and n.op != "output":
            n.meta["val"] = (
                value.detach() if value.is_meta else torch.empty_like(value, device="meta")
            )
        return value


def _form(value: Any) -> tuple[torch.Size, torch.dtype] | None:
    return (value.shape, value.dtype) if isinstance(value, torch.Tensor) else None


def alike(tensors: tuple[Any, ...]) -> torch.Tensor | None:
    """The first of tensors of one shape and type, which a sum of them is like; None for anything
    else.
    """
    forms = set(map(_form, tensors))
    return tensors[0] if len(forms) == 1 and None not in forms else None
