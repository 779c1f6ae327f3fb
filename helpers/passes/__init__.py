"""Graph passes: fewer and faster operations, and not one answer changed.

graph_module, report = passes.optimize(model, example_inputs)
passes.Passer(["canonicalize", "conv_bn_folding"]).run(graph_module)
passes.registry.get("conv_bn_folding")

In the order in which to read it:

    folder, registry                   what a pass is, how it is found by name
    passer                             runs a list of passes until nothing changes, and tells what each did
    canonicalize                       one spelling for each operation
    elim_identity, constant_folding    what returns its input, what nobody uses, what depends on parameters alone
    rewriter                           the shapes of rewrites: node by node, match by match, and call by call
    conv_bn_folding, conv_add_folding  what goes into the layer beside it
    fusion, fused_layer                layers that apply their activation themselves
    optimizer                          the whole way, and the comparison of answers before anything is handed out
"""

import importlib
import pkgutil

from helpers.passes import registry
from helpers.passes.optimizer import PIPELINES, optimize, replay
from helpers.passes.passer import Passer

# A pass is registered when its file is imported, so every file of this folder is.
for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")
