"""What nobody uses goes; what has a side effect stays, used or not."""

from torch import fx

from helpers.graphs.editing import Editor
from helpers.graphs.effects import is_pure
from helpers.passes import registry
from helpers.passes.folder import Pass, PassResult


@registry.register
class DeadCode(Pass):
    """Removes unused pure nodes, and the modules, parameters and buffers that no node reads any more."""

    name = "dead_code"

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """One walk from the output to the inputs is enough: users come after what they use."""
        result = PassResult()
        editor = Editor(graph_module)
        for node in reversed(graph_module.graph.nodes):
            if node.op in ("placeholder", "output") or node.users:
                continue
            if is_pure(node, editor.module(node)):
                result.change(node, "nobody used it")
                graph_module.graph.erase_node(node)
            elif node.op != "call_module":
                result.decline(node, "nobody uses its result, but it may have a side effect")
        read = {node.target for node in graph_module.graph.nodes if node.op == "get_attr"}
        called = {node.target for node in graph_module.graph.nodes if node.op == "call_module"}
        _drop_modules(graph_module, read | called, called)
        for path in _unread_tensors(graph_module, read, called):
            owner, _, name = path.rpartition(".")
            delattr(graph_module.get_submodule(owner), name)
            result.change(path, "nobody read it")
        return result


def _drop_modules(graph_module: fx.GraphModule, read: set[str], called: set[str]) -> None:
    """Take away the modules that are neither called nor part of one, and in which nothing is read."""
    holders = {"", *(prefix for path in read for prefix in _prefixes(path))}
    modules = dict(graph_module.named_modules(remove_duplicate=False))
    for path in modules.keys() - holders:
        owner, _, name = path.rpartition(".")
        inside = any(prefix in called for prefix in _prefixes(owner))
        if owner in holders and not inside:  # what is part of a module goes or stays with it
            modules[owner]._modules.pop(name)


def _unread_tensors(graph_module: fx.GraphModule, read: set[str], called: set[str]) -> list[str]:
    """Parameters and buffers that no get_attr node reads and no called module contains."""
    unread = []
    for path, module in dict(graph_module.named_modules(remove_duplicate=False)).items():
        if not any(prefix in called for prefix in _prefixes(path)):
            names = [*module._parameters, *module._buffers]
            unread += [full for name in names if (full := f"{path}.{name}".lstrip(".")) not in read]
    return unread


def _prefixes(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[: count + 1]) for count in range(len(parts))]
