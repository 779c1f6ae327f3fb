"""Graph passes: fewer and faster operations, and not one answer changed.

graph_module, report = passes.optimize(model, example_inputs)
passes.Passer(["canonicalize", "conv_bn_folding"]).run(graph_module)
passes.registry.get("conv_bn_folding")
"""

import importlib
import pkgutil

from helpers.passes import registry
from helpers.passes.optimizer import PIPELINES, optimize, replay
from helpers.passes.passer import Passer

__all__ = ["PIPELINES", "Passer", "optimize", "registry", "replay"]

# A pass is registered when its file is imported, so every file of this folder is.
for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")
