"""Graph passes: fewer and faster operations, and not one answer changed.

    graph_module, report = passes.optimize(model, example_inputs)
    passes.Passer(["canonicalize", "conv_bn_folding"]).run(graph_module)

In the order in which to read it:

    base                what a pass is: node by node, or a table of rules
    passer              all passes in their order; runs them, and reports what each did
    canonicalize        one form for each operation
    constant_folding    what depends on parameters alone is computed once
    elim_identity       what returns its input goes, and what nothing uses
    conv_bn_folding     a batch norm goes into the layer before it
    conv_add_folding    constants go into the layer before them; matrix products become layers
    fusion              layers that apply their activation themselves,
    fused_layer         ... and the module that does so
    optimizer           the whole way, and the comparison of answers before it hands out a network
"""

from helpers.passes.optimizer import PIPELINES, optimize, replay
from helpers.passes.passer import Passer
