"""Graphs of networks: how they are recorded, read, searched and changed. Passes build on this
package.

In the order in which to read it:

    tracing, recording      from a model to a graph whose nodes know their shapes
    interception            what a forward does that torch.fx alone would not record
    operations, effects     what each operation is called; what it writes to, shares and draws
    editing                 the modules and tensors that a graph uses, and their names
    layers                  which modules a pass may fold, and calls that become modules
    patterns, matching      what a piece of graph looks like, and where it is
    rewriting               the one driver: a table of patterns and rules
    errors                  each names the node, its line in the model if exported, and the reason

Example:
    >>> graph_module = tracing.trace(model, (x,))
    >>> conv = patterns.OpPattern([nn.Conv2d], name="conv")
    >>> rewriting.rewrite(graph_module, {patterns.OpPattern([nn.BatchNorm2d], (conv,)): rule})
"""
