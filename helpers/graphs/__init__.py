"""Graphs of networks: how they are recorded, read, searched and changed. Passes build on this room.

In the order in which to read it:

    tracing, tracer, annotation    from a model to a graph whose nodes know their shapes, by
    torch.fx or torch.export
    operations, effects            how each operation is written; what it writes to, what shares
    storage, what is random
    editing                        modules, tensors and names that hang on a graph; nothing that
    exists is overwritten
    layers                         which modules a pass may fold, and functional calls that become
    such modules
    patterns, matching             what a piece of graph looks like; where it is, and what takes its
    place
    errors                         each names the node, its line in the model if it was exported,
    and the reason

Example:
    >>> graph_module = tracing.trace(model, (x,))
    >>> conv = patterns.Op([nn.Conv2d], name="conv")
    >>> matching.find(graph_module, patterns.Op([nn.BatchNorm2d], (conv,)))
"""
