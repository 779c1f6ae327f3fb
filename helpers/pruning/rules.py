"""The table of rules: what each operation does to the channels.

An operation that is not in these tables is not understood: its channels stay.
"""

from typing import Any

from helpers.graphs.layers import why_not_ordinary
from helpers.pruning import rules_shape as shape
from helpers.pruning import rules_value as value
from helpers.pruning.labelling import Call, Rule
from helpers.pruning.reader import is_aten

ELEMENTWISE = """
    add sub rsub mul truediv div rdiv true_divide pow rpow neg abs exp log sqrt rsqrt square
    maximum minimum where clamp clamp_min clip relu relu6 leaky_relu elu selu celu gelu silu mish
    sigmoid logsigmoid tanh tanhshrink softplus softsign hardtanh hardsigmoid hardswish
    dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout expand_as
    identity contiguous clone detach to float half double bfloat16 type_as eq ne lt le gt ge
    zeros_like ones_like full_like masked_fill reciprocal sign sin cos erf
    torchvision.ops.stochastic_depth.stochastic_depth
"""
POOLS = "max_pool{0}d avg_pool{0}d lp_pool{0}d adaptive_avg_pool{0}d adaptive_max_pool{0}d"
PADDINGS = "zeropad{0}d constantpad{0}d reflectionpad{0}d replicationpad{0}d circularpad{0}d"
OVER_SPACE = " ".join(f"{POOLS} {PADDINGS}".format(n) for n in (1, 2, 3))

TABLE: dict[Rule, str] = {
    value.elementwise: ELEMENTWISE,
    value.over_space: (
        f"{OVER_SPACE} interpolate upsample upsamplingnearest2d upsamplingbilinear2d"
    ),
    value.along_axes: "softmax log_softmax cumsum mean sum amax amin std var argmax argmin",
    value.extreme: "max min",
    value.glu: "glu",
    value.size: "size shape",
    lambda call: call.output: "dim ndimension ndim",  # whatever is cut
    shape.moved: (
        """
        view reshape flatten unflatten squeeze unsqueeze permute transpose swapaxes swapdims
        movedim moveaxis expand repeat tile flip chunk tensor_split split unbind channel_shuffle
        pixel_shuffle pixel_unshuffle unfold
    """
    ),
    shape.item: "getitem",
    shape.concatenate: "cat concat concatenate",
    shape.stack: "stack",
    shape.pad: "pad",
    value.weighted: (
        "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d linear"
    ),
    value.batch_norm: "batch_norm instancenorm1d instancenorm2d instancenorm3d",
    value.layer_norm: "layer_norm rms_norm group_norm",
    value.prelu: "prelu",
}
TAKES_SIZES = {"view", "reshape", "unflatten", "expand", "repeat", "chunk", "split", "getitem"}


RULES = {name: rule for rule, names in TABLE.items() for name in names.split()}


def apply(call: Call) -> Any:
    """The rule of an operation, after the checks that hold for all of them."""
    # ATen gives some operations their arguments in another order.
    ordinary = not is_aten(call.node.target)
    if call.module is not None:
        ordinary = not (
            why_not_ordinary(call.module) or {"weight", "bias"} & call.module._buffers.keys()
        )
    takes_sizes = call.op in TAKES_SIZES
    if ordinary and call.tensors and not takes_sizes:
        call.pin(call.numbers, "computes with the number of channels")
    understood = ordinary and (call.tensors or takes_sizes) and "out" not in call.kwargs
    rule = RULES.get(call.op, value.unknown) if understood else value.unknown
    return rule(call)
