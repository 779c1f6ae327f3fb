"""Structured pruning: find what can be cut, choose what goes, and build the network without it.

To read in this order:

    reader       a forward, as a graph whose values are known
    atoms        numbers for channels, and which of them are tied
    labelling    the channels of every value; rules, rules_value, rules_shape say what an operation
    does
    groups       channels that can only go together; discovery finds them, and tries them out
    surgery      a copy without some of them
    importance   how much a channel matters; allocation: how many go from where
    pruner       all of it in one call
    recovery     BatchNorm after the cut, and channels that never change
"""

from helpers.pruning.discovery import channel_groups
from helpers.pruning.groups import ChannelGroups
from helpers.pruning.pruner import prune
from helpers.pruning.recovery import reestimate_batchnorm, remove_dead_channels
