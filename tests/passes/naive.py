"""The rewrites that a hurried engineer would write. Each trap of the zoo names the one that it catches."""

import operator

import torch
import torch.nn.functional as F
from torch import fx, nn

from helpers.graphs.tracing import trace
from tests.passes.zoo import CONVS, NORMS, TRANSPOSED

LAYERS = (*CONVS.values(), *TRANSPOSED.values(), nn.Linear)


def rewrite(kind: str, model: nn.Module, x: torch.Tensor) -> fx.GraphModule:
    graph_module = trace(model, (x,))
    REWRITES[kind](graph_module)
    graph_module.graph.lint()
    graph_module.recompile()
    return graph_module


def replace(node: fx.Node, other: fx.Node) -> None:
    node.replace_all_uses_with(other)
    node.graph.erase_node(node)


def scale_in_place(layer: nn.Module, factor: torch.Tensor, summand: torch.Tensor) -> None:
    """Writes into the weights of the layer that is there, whoever else uses them."""
    with torch.no_grad():
        shape = (-1, *[1] * (layer.weight.dim() - 1))
        layer.weight.mul_(factor.reshape(shape).to(layer.weight.dtype))
        bias = torch.zeros_like(summand) if layer.bias is None else layer.bias
        folded = (bias * factor + summand).to(layer.weight.dtype)
        if layer.bias is None:
            layer.bias = nn.Parameter(folded)
        else:
            layer.bias.copy_(folded)


def fold_norms(graph_module: fx.GraphModule) -> None:
    """conv -> bn becomes conv, without a question asked."""
    modules = dict(graph_module.named_modules(remove_duplicate=False))
    for node in list(graph_module.graph.nodes):
        source = node.args[0] if node.args and isinstance(node.args[0], fx.Node) else None
        layer = modules.get(source.target) if source is not None and source.op == "call_module" else None
        if not isinstance(layer, LAYERS):
            continue
        if node.op == "call_module" and isinstance(modules[node.target], tuple(NORMS.values())):
            norm = modules[node.target]
            mean, var, gamma, beta, eps = norm.running_mean, norm.running_var, norm.weight, norm.bias, norm.eps
        elif node.target is F.batch_norm:
            given = dict(zip(("input", "running_mean", "running_var"), node.args, strict=False)) | dict(node.kwargs)
            names = ("running_mean", "running_var", "weight", "bias")
            mean, var, gamma, beta = (operator.attrgetter(given[name].target)(graph_module) for name in names)
            eps = given["eps"]
        else:
            continue
        channels = layer.weight.shape[0]
        mean = torch.zeros(channels) if mean is None else mean
        a = (torch.ones(channels) if gamma is None else gamma) / ((1 if var is None else var) + eps) ** 0.5
        scale_in_place(layer, a, (0 if beta is None else beta) - mean * a)
        replace(node, source)


def fold_constants(graph_module: fx.GraphModule) -> None:
    """conv (+ or *) z becomes conv, as if z had one value per channel."""
    modules = dict(graph_module.named_modules())
    for node in list(graph_module.graph.nodes):
        if node.op != "call_function" or node.target not in (operator.add, operator.mul, operator.truediv):
            continue
        pair = [arg for arg in node.args if isinstance(arg, fx.Node) and arg.op == "call_module"]
        if not pair or not isinstance(modules[pair[0].target], LAYERS):
            continue
        source, layer = pair[0], modules[pair[0].target]
        others = [arg for arg in node.args if arg is not source]
        if not others:
            continue
        z = value_of(graph_module, others[0])
        channels = layer.weight.shape[0]
        z = z.real.double().reshape(-1)
        z = (z if z.numel() in (1, channels) else z.mean()).expand(channels)
        is_sum = node.target is operator.add
        scale_in_place(layer, torch.ones(channels) if is_sum else z, z if is_sum else torch.zeros(channels))
        replace(node, source)


def value_of(graph_module: fx.GraphModule, value) -> torch.Tensor:
    if not isinstance(value, fx.Node):
        return torch.as_tensor(value)
    if value.op == "get_attr":
        return operator.attrgetter(value.target)(graph_module)
    args = [value_of(graph_module, arg) for arg in value.args]
    return getattr(args[0], value.target)(*args[1:]) if value.op == "call_method" else value.target(*args)


def drop_identities(graph_module: fx.GraphModule) -> None:
    """x + 0 and x * 1 become x, whatever shape and dtype the 0 and the 1 have, and whoever writes to it."""
    for node in list(graph_module.graph.nodes):
        if node.target in (operator.add, operator.mul) and value_of(graph_module, node.args[1]).unique().numel() == 1:
            neutral = 0 if node.target is operator.add else 1
            if value_of(graph_module, node.args[1]).flatten()[0] == neutral:
                replace(node, node.args[0])


def freeze(graph_module: fx.GraphModule) -> None:
    """Whatever has only constant inputs is computed once."""
    for node in list(graph_module.graph.nodes):
        constant = all(source.op == "get_attr" for source in node.all_input_nodes)
        if node.op not in ("call_function", "call_method") or not constant:
            continue
        args = [value_of(graph_module, arg).clone() if isinstance(arg, fx.Node) else arg for arg in node.args]
        kwargs = dict(node.kwargs)
        value = getattr(args[0], node.target)(*args[1:]) if node.op == "call_method" else node.target(*args, **kwargs)
        graph_module.register_buffer(f"frozen_{node.name}", value.detach())
        with graph_module.graph.inserting_before(node):
            constant_node = graph_module.graph.get_attr(f"frozen_{node.name}")
        replace(node, constant_node)


def delete(graph_module: fx.GraphModule) -> None:
    """Whatever nobody uses goes."""
    graph_module.graph.eliminate_dead_code(is_impure_node=lambda node: node.op in ("placeholder", "output"))


REWRITES = {"norm": fold_norms, "constant": fold_constants, "identity": drop_identities, "frozen": freeze}
REWRITES |= {"deleted": delete}
