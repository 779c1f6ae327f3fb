"""Structured pruning: find what can be cut, choose what goes, and build the network without it.

To read in this order:

    groups       what is looked for, with an example: channels that can only go together
    reader       a forward, as a graph whose values are known
    ties         numbers for channels, and which of them are tied
    labelling    the channels of every value; rules, rules_value, rules_shape say what an
                 operation does to them
    discovery    finds the groups, and tries them out
    surgery      a copy without some channels
    importance   how much a channel matters; allocation: how many go, and which
    pruner       all of it in one call
    recovery     BatchNorm after the cut, and channels that never change; constants finds those

Four words are used throughout:

    label    a number at each index of each axis that holds channels
    unit     labels that are tied, so that they can only be cut together; the smallest stands for it
    group    units on the same axes of the same tensors, among which one can choose
    member   a part of an axis that belongs to a group
"""

from helpers.pruning.discovery import channel_groups
from helpers.pruning.groups import ChannelGroups
from helpers.pruning.pruner import prune
from helpers.pruning.recovery import reestimate_batchnorm, remove_dead_channels
