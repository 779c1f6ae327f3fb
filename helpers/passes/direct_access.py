"""Weights are read straight out of the module tree's own dictionaries.

For a weight deep in the network, torch.fx writes

    getattr(getattr(getattr(self.features, "1").conv, "0"), "0").weight

and each step runs a Python function, `nn.Module.__getattr__`. For MobileNetV2's hundred weights at batch 1 that is a
tenth of the whole time. The dictionaries hold the same modules, so

    self._modules["features"]._modules["1"]._modules["conv"]._modules["0"]._modules["0"].weight

reads the same tensor. Only the generated code changes: the graph and the state stay as they are.
"""

import re

from torch import fx, nn

from helpers.passes.folder import Pass, PassResult
from helpers.passes.registry import register

# A statement that reads an attribute and calls nothing: name = getattr(self.features, "1").weight;  x = None
STATEMENT = re.compile(r'(\s*\w+ = )((?:getattr\()*self(?:\.\w+|, "\w+"\))+)(;.*|\s*)', re.DOTALL)
STEP = re.compile(r'\.(\w+)|"(\w+)"')


def rewrite(body: list[str]) -> list[str]:
    """The lines of the generated code, with direct access.

    Example:
        >>> rewrite(['w = getattr(self.features, "0").weight'])
        ['w = self._modules["features"]._modules["0"].weight']
    """
    return [_rewrite_line(line) for line in body]


def _rewrite_line(line: str) -> str:
    match = STATEMENT.fullmatch(line)
    if match is None:
        return line
    start, expression, end = match.groups()
    *modules, name = (plain or quoted for plain, quoted in STEP.findall(expression))
    way = "".join(f'._modules["{module}"]' for module in modules)
    return f"{start}self{way}.{name}{end}"


@register
class DirectAccess(Pass):
    """Makes the generated code read weights without asking each module on the way."""

    name = "direct_access"
    kind = "statement"

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """Hand the rewrite to the graph, which applies it each time it generates code."""
        result = PassResult()
        targets = [node.target for node in graph_module.graph.nodes if node.op == "get_attr" and "." in node.target]
        strange = [target for target in targets if not _is_in_modules(graph_module, target)]
        if strange:
            result.decline(strange[0], "is reached through something that is not a module")
        elif targets and graph_module.graph._codegen._body_transformer is None:
            graph_module.graph.on_generate_code(lambda _: rewrite)
            result.change("graph", f"reads {len(targets)} weights directly")
        return result


def _is_in_modules(graph_module: fx.GraphModule, target: str) -> bool:
    module: nn.Module | None = graph_module
    for name in target.split(".")[:-1]:
        module = module._modules.get(name)
        if module is None:
            return False
    return True
