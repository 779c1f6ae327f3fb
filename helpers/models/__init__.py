"""Networks: build one from a small specification, save and load it at any stage.

spec.py        `Spec`: a builder's name, its arguments, and the steps taken since
building.py    the builders: ours, torchvision's, and factories of your own
files.py       `save` and `load`: tensors and a specification in JSON, never code
header.py      what the header of a file may say
rebuilt.py     `save` refuses a network that its file would bring back as another one
"""

from helpers.models.building import build, declare_builder, mobilenet_v2, name_of, tiny
from helpers.models.files import (
    AS_GIVEN,
    CHECKPOINTS,
    load,
    load_weights,
    pretrained,
    read_header,
    read_tensors,
    save,
    structure,
    untied_state,
)
from helpers.models.header import ModelError
from helpers.models.spec import Spec, bypass, record, resize, set_spec, spec_of
