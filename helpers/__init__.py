"""What the lessons import: small modules, one concept each. `import helpers` alone loads nothing.

    data            CIFAR-10: find it or fetch it, and verify it; images of your own
    augment         other views of training images
    models          build, save and load networks
    training        train, fine-tune, evaluate
    metrics         parameters, multiply-adds, bytes and milliseconds; do two networks agree?
    graphs          networks as graphs of operations: trace, match, edit
    passes          fold BatchNorm and constants, fuse layers: `passes.optimize`
    pruning         remove whole channels: `pruning.prune`
    quantization    integers instead of floats: `quantization.quantize`
    pipeline        all of it in one call: `pipeline.compress`
    plots, checks   figures, and the checks of the exercises: every lesson uses both
    allocator       keep freed memory while something is timed

Which lesson uses what, besides plots and checks:

    00     allocator, data, metrics, models, training
    01     data, models, passes
    02     graphs, metrics
    02b    graphs, metrics, passes
    03     allocator, data, graphs, metrics, models, passes
    04     allocator, data, graphs, metrics, models, passes
    04a    data, graphs, metrics, models, passes
    04b    graphs, metrics, passes
    05     allocator, data, metrics, models, training
    06     allocator, data, metrics, models, pruning, training
    06b    data, metrics, models, pruning, quantization
    07     data, metrics, pruning, training
    08     data, models, passes, quantization, training
    09     allocator, data, metrics, models, passes, quantization
    09b    data, models, quantization, training
    10     data, metrics, models, passes, pruning, quantization, training
    11     data, metrics, models, passes, pipeline, pruning, quantization, training

Inside, imports go one way: quantization and pruning -> passes -> graphs. `models` imports passes
and quantization only to repeat a step that a file records.
"""
