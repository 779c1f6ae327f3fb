"""Graph passes: fewer and faster operations, and not one answer changed.

graph_module, report = passes.optimize(model, example_inputs)
passes.Passer(["canonicalize", "conv_bn_folding"]).run(graph_module)

In the order in which to read it:

    folder                             what a pass is
    passer                             all passes by name; runs them until nothing changes, and
    tells what each did
    canonicalize                       one spelling for each operation
    elim_identity, constant_folding    what returns its input, what nobody uses, what depends on
    parameters alone
    rewriter                           the shapes of rewrites: node by node, match by match, and
    call by call
    conv_bn_folding, conv_add_folding  what goes into the layer beside it
    fusion, fused_layer                layers that apply their activation themselves
    optimizer                          the whole way, and the comparison of answers before anything
    is handed out
"""

from helpers.passes.optimizer import PIPELINES, optimize, replay
from helpers.passes.passer import Passer
