"""Structured pruning: find what can be cut, choose what goes, and build the network without it."""

from helpers.pruning.dead_channels import remove_dead_channels
from helpers.pruning.discovery import channel_groups
from helpers.pruning.groups import ChannelGroups
from helpers.pruning.pruner import prune
from helpers.pruning.recovery import reestimate_batchnorm
from helpers.pruning.surgery import cut

__all__ = ["ChannelGroups", "channel_groups", "cut", "prune", "reestimate_batchnorm", "remove_dead_channels"]
