"""The networks of other packages at a small size, with weights that hide nothing.

A package has `names()` and `built(name)`; PACKAGES lists them all.
"""

import re
from itertools import chain, zip_longest
from typing import Protocol

import torch
from torch import nn

from helpers.metrics import randomize_batchnorm

SIDE, BATCH, TOKENS = 64, 2, 12
# From the smallest to the largest, as the names of networks say it; others stand at "".
SIZES = ("test", "atto", "femto", "pico", "nano", "xx", "tiny", "mini", "lite", "small", "_s", "")
SIZES += ("medium", "_m", "base", "_b", "large", "_l", "huge", "_h", "giant")
Built = tuple[nn.Module, tuple[torch.Tensor, ...]]


class Package(Protocol):
    """Where networks come from."""

    def names(self) -> list[str]:
        """Small ones of each family first."""

    def built(self, name: str) -> Built:
        """A network with untrained weights, and the inputs of one call."""


def by_size(name: str) -> tuple[int, int, str]:
    """A key to sort names by: the word for a size, the first number, the name."""
    words = re.findall("|".join(f"{size}(?![a-z])" for size in SIZES if size), name)
    word = words[0] if words else ""
    number = re.search(r"\d+", name.replace("v2", "").replace("v3", ""))
    return SIZES.index(word), int(number[0]) if number else 0, name


def in_turn(families: list[list[str]]) -> list[str]:
    """The first of each family, then the second of each."""
    turns = zip_longest(*(sorted(family, key=by_size) for family in families))
    rounds = (sorted(filter(None, turn), key=by_size) for turn in turns)
    return list(dict.fromkeys(chain.from_iterable(rounds)))


def fits(model: nn.Module, x: torch.Tensor) -> bool:
    """Whether a network takes such images."""
    try:
        with torch.no_grad():
            model.eval()(x)
    except Exception:  # it may raise anything
        return False
    return True


class Timm:
    """Every family of timm."""

    def names(self) -> list[str]:
        import timm

        return in_turn([timm.list_models(module=family) for family in timm.list_modules()])

    def built(self, name: str) -> Built:
        import timm

        small = torch.randn(BATCH, 3, SIDE, SIDE)
        for settings in ({"img_size": SIDE}, {}):
            try:
                model = timm.create_model(name, **settings)
            except Exception:  # most have no such setting
                if not settings:
                    raise
            else:
                if fits(model, small):
                    return model, (small,)
        return model, (torch.randn(BATCH, *model.default_cfg["input_size"]),)


class Torchvision:
    """The classification networks of torchvision."""

    def names(self) -> list[str]:
        import torchvision

        families: dict[str, list[str]] = {}
        for name in torchvision.models.list_models(module=torchvision.models):
            families.setdefault(re.match("[a-z]+", name)[0], []).append(name)
        return in_turn([*families.values()])

    def built(self, name: str) -> Built:
        import torchvision

        extra = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        model = torchvision.models.get_model(name, **extra)
        sizes = (torch.randn(BATCH, 3, side, side) for side in (SIDE, 96, 224, 299))
        return model, (next(x for x in sizes if fits(model, x)),)


class Transformers:
    """Networks for words and for images, with few and narrow layers where settings say so."""

    OF_WORDS = (
        *("bert", "roberta", "electra", "distilbert", "albert", "gpt2", "opt", "mpnet", "fnet"),
        *("deberta-v2", "squeezebert", "gpt_neo", "llama", "mistral", "qwen2", "gpt_neox", "bloom"),
        *("mobilebert", "convbert", "funnel", "xlnet", "nystromformer", "roformer"),
    )
    OF_IMAGES = (
        *("vit", "resnet", "convnext", "regnet", "mobilenet_v1", "mobilenet_v2", "swin", "beit"),
        *("dinov2", "poolformer", "convnextv2", "mobilevit", "segformer", "levit", "cvt", "pvt"),
        *("vit_msn", "swiftformer", "efficientnet", "focalnet", "mobilevitv2", "bit", "deit"),
    )
    SMALL = (
        {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "dim": 32}
        | {"intermediate_size": 64, "num_key_value_heads": 4, "vocab_size": 100, "n_layers": 2}
        | {"n_heads": 4, "hidden_dim": 64, "n_embd": 32, "n_head": 4, "n_layer": 2, "d_model": 32}
        | {"embedding_size": 32, "max_position_embeddings": 64, "num_layers": 2, "num_heads": 4}
        | {"attention_types": [[["global", "local"], 1]], "d_inner": 64, "d_head": 8}
        | {"word_embed_proj_dim": 32, "ffn_dim": 64, "pad_token_id": 0, "head_dim": 8}
    )

    def names(self) -> list[str]:
        return in_turn([[*self.OF_WORDS], [*self.OF_IMAGES]])

    def built(self, name: str) -> Built:
        from transformers import AutoConfig, AutoModel

        config = AutoConfig.for_model(name)
        if name in self.OF_WORDS:
            for setting, value in self.SMALL.items():
                if hasattr(config, setting) and not isinstance(getattr(config, setting), list):
                    setattr(config, setting, value)
            config.use_cache = False
            return AutoModel.from_config(config), (torch.randint(1, 100, (BATCH, TOKENS)),)
        sides = (SIDE, 224)
        for side in sides:
            x = torch.randn(BATCH, 3, side, side)
            config.image_size = side
            model = AutoModel.from_config(config)
            if fits(model, x):
                break
        return model, (x,)


PACKAGES: dict[str, Package] = {
    "timm": Timm(),
    "torchvision": Torchvision(),
    "transformers": Transformers(),
}


@torch.no_grad()
def lively(model: nn.Module) -> nn.Module:
    """Replace parameters that start as a constant by random ones, in place, and draw the statistics
    of norms.

    A branch that is multiplied by 0 or by 0.000001 would hide whatever happens in it.
    """
    for parameter in model.parameters():
        if parameter.is_floating_point() and bool((parameter == parameter.flatten()[:1]).all()):
            if parameter.flatten()[0] == 0:
                parameter.normal_(0, 0.1)
            else:
                parameter.uniform_(0.5, 1.5)
    return randomize_batchnorm(model).eval()


def network(package: str, name: str) -> Built:
    """A network that is always the same, and the inputs of one call."""
    torch.manual_seed(0)
    model, inputs = PACKAGES[package].built(name)
    return lively(model), inputs
