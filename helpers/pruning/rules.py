"""The table of rules: what each operation does to the channels. An operation that is not here is not understood."""

from typing import Any

from helpers.pruning import rules_layer as layer
from helpers.pruning import rules_shape as shape
from helpers.pruning import rules_value as value
from helpers.pruning.labelling import Call, Labelling, Rule

ELEMENTWISE = """
    add sub rsub mul truediv div rdiv true_divide pow rpow neg abs exp log sqrt rsqrt square maximum minimum where clamp
    clamp_min clip relu relu6 leaky_relu elu selu celu gelu silu mish sigmoid logsigmoid tanh tanhshrink softplus
    softsign torchvision.ops.stochastic_depth.stochastic_depth
    hardtanh hardsigmoid hardswish dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout
    contiguous clone detach to float half double bfloat16 type_as eq ne lt le gt ge
    ReLU ReLU6 LeakyReLU ELU SELU CELU GELU SiLU Mish Sigmoid LogSigmoid Tanh Tanhshrink Softplus Softsign Hardtanh
    Hardsigmoid Hardswish Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout Identity
"""
OVER_SPACE = " ".join(
    f"max_pool{n}d avg_pool{n}d lp_pool{n}d adaptive_avg_pool{n}d adaptive_max_pool{n}d "
    f"MaxPool{n}d AvgPool{n}d LPPool{n}d AdaptiveAvgPool{n}d AdaptiveMaxPool{n}d ZeroPad{n}d ReflectionPad{n}d "
    f"ReplicationPad{n}d CircularPad{n}d "
    for n in (1, 2, 3)
)

TABLE: dict[Rule, str] = {
    value.elementwise: ELEMENTWISE,
    value.over_space: OVER_SPACE + "interpolate Upsample UpsamplingNearest2d UpsamplingBilinear2d",
    value.along_axes: "softmax log_softmax cumsum Softmax LogSoftmax mean sum amax amin",
    value.size: "size shape",
    value.asked: "decision question assert dim ndimension ndim",
    shape.moved: """
        view reshape flatten Flatten unflatten Unflatten unsqueeze permute transpose swapaxes swapdims movedim moveaxis
        expand repeat tile flip chunk tensor_split split unbind squeeze channel_shuffle ChannelShuffle
    """,
    shape.item: "getitem",
    shape.concatenate: "cat concat concatenate",
    shape.pad: "pad",
    layer.weighted: """
        Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d Linear conv1d conv2d conv3d linear
    """,
    layer.batch_norm: "BatchNorm1d BatchNorm2d BatchNorm3d batch_norm",
    layer.layer_norm: "LayerNorm RMSNorm GroupNorm layer_norm rms_norm",
    layer.prelu: "PReLU",
}
RULES = {name: rule for rule, names in TABLE.items() for name in names.split()}
TAKES_SIZES = {"view", "reshape", "unflatten", "expand", "repeat", "chunk", "split", "getitem", "decision"}


def apply(labelling: Labelling, call: Call) -> Any:
    """The rule of an operation, after the checks that hold for all of them."""
    ordinary = call.module is None or layer.is_ordinary(call.module)
    if ordinary and call.tensors and call.numbers and call.op not in TAKES_SIZES:
        labelling.pin_all(call.numbers, f"{call.name}: computes with the number of channels")
    understood = ordinary and (call.tensors or call.op in TAKES_SIZES) and "out" not in call.kwargs
    return (RULES.get(call.op, value.unknown) if understood else value.unknown)(labelling, call)
