"""Structured pruning: find what can be cut, choose what goes, and build the network without it."""

from helpers.pruning.discovery import channel_groups
from helpers.pruning.groups import ChannelGroups
from helpers.pruning.pruner import prune
from helpers.pruning.recovery import reestimate_batchnorm
from helpers.pruning.schedule import prune_in_steps
from helpers.pruning.surgery import cut

__all__ = ["ChannelGroups", "channel_groups", "cut", "prune", "prune_in_steps", "reestimate_batchnorm"]
