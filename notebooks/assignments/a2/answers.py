# ruff: noqa: F811
"""Right and wrong answers to a2. Secret. Every wrong one is a plausible mistake that must earn nothing.

Each section replaces one function of the source notebook's solutions: `# %% <item> <right or wrong>: <what it is>`.
"""

import copy
from collections import Counter

import torch
from torch import nn

# A mistake as one line: what it is, and how the notebook's solution is changed.
# %% merge_repeats wrong: merges methods, too: `!= "call_function"` -> `not in ("call_function", "call_method")`
# %% merge_repeats wrong: forgets the order of inputs: `node.args)` -> `frozenset(node.args))`
# %% merge_repeats wrong: compares functions alone: `(node.target, node.args)` -> `node.target`
# %% merge_repeats wrong: in-place methods count only from where they stand: `any(node.op` -> `all(node.op`
# %% remove_dead wrong: removes norms in any mode: ` and module.training` -> ` and False`
# %% remove_dead wrong: keeps norms in any mode: ` and module.training` -> ``
# %% remove_dead wrong: in place means any method: ` and node.target.endswith("_")` -> ``
# %% remove_identities wrong: the first reader is forgotten: `isinstance(module, nn.Identity) or ` -> ``
# %% remove_identities wrong: activations go, too: `nn.Identity) or` -> `(nn.Identity, nn.ReLU)) or`
# %% remove_identities wrong: dropout in training mode and not in evaluation: `not module.training` -> `module.training`
# %% calls_per_module wrong: by the class of the module: `id(graph` -> `type(graph`
# %% calls_per_module wrong: methods and functions count, too: `== "call_module"` -> `!= "placeholder"`
# %% calls_per_module wrong: counts users: `owners.count(owner)` -> `1`
# %% why_not_folded wrong: readers come first: `module.training:` -> `module.training and len(conv.users) == 1:`
# %% why_not_folded wrong: two readers are allowed: `len(conv.users) > 1` -> `len(conv.users) > 2`
# %% why_not_folded wrong: norms without a convolution are left out: `reasons[node.name] = "no convolution"` -> `pass`
# %% fold_norms wrong: padding of the new convolution forgotten: `, padding=conv.padding` -> ``
# %% fold_norms wrong: the mean is forgotten: ` - scale * norm.running_mean` -> ``


# %% calls_per_module right: a counter of modules
def calls_per_module(graph_module):
    nodes = [n for n in graph_module.graph.nodes if n.op == "call_module"]
    counts = Counter(graph_module.get_submodule(n.target) for n in nodes)
    return {n.target: counts[graph_module.get_submodule(n.target)] for n in nodes}


# %% calls_per_module right: every node against every node
def calls_per_module(graph_module):
    found = {}
    for one in graph_module.graph.nodes:
        if one.op == "call_module":
            module = graph_module.get_submodule(one.target)
            same = [n for n in graph_module.graph.nodes if n.op == "call_module"]
            found[one.target] = sum(graph_module.get_submodule(n.target) is module for n in same)
    return found


# %% calls_per_module wrong: lists each module once
def calls_per_module(graph_module):
    return {n.target: 1 for n in graph_module.graph.nodes if n.op == "call_module"}


# %% calls_per_module wrong: counts readers instead of calls
def calls_per_module(graph_module):
    return {n.target: len(n.users) for n in graph_module.graph.nodes if n.op == "call_module"}


# %% calls_per_module wrong: counts modules of the same class
def calls_per_module(graph_module):
    nodes = [n for n in graph_module.graph.nodes if n.op == "call_module"]
    counts = Counter(type(graph_module.get_submodule(n.target)) for n in nodes)
    return {n.target: counts[type(graph_module.get_submodule(n.target))] for n in nodes}


# %% calls_per_module wrong: keyed by the node's name
def calls_per_module(graph_module):
    nodes = [n for n in graph_module.graph.nodes if n.op == "call_module"]
    counts = Counter(graph_module.get_submodule(n.target) for n in nodes)
    return {n.name: counts[graph_module.get_submodule(n.target)] for n in nodes}


# %% calls_per_module wrong: counts names
def calls_per_module(graph_module):
    return dict(Counter(n.target for n in graph_module.graph.nodes if n.op == "call_module"))


# %% remove_dead right: again and again until nothing is found
def remove_dead(graph_module):
    def dead(node):
        if node.users or node.op in ("placeholder", "output"):
            return False
        if node.op == "call_method":
            return node.target[-1] != "_"
        module = graph_module.get_submodule(node.target) if node.op == "call_module" else None
        return not (isinstance(module, nn.BatchNorm2d) and module.training)

    count = 0
    while found := [node for node in graph_module.graph.nodes if dead(node)]:
        for node in found:
            graph_module.graph.erase_node(node)
        count += len(found)
    return count


# %% remove_dead right: marks what is alive first
def remove_dead(graph_module):
    graph, alive = graph_module.graph, set()

    def mark(node):
        if node not in alive:
            alive.add(node)
            for source in node.all_input_nodes:
                mark(source)

    for node in graph.nodes:
        training = node.op == "call_module" and graph_module.get_submodule(node.target)
        training = isinstance(training, nn.BatchNorm2d) and training.training
        if node.op in ("placeholder", "output") or training or (node.op, str(node.target)[-1]) == ("call_method", "_"):
            mark(node)
    dead = [node for node in graph.nodes if node not in alive]
    for node in dead[::-1]:
        graph.erase_node(node)
    return len(dead)


# %% remove_dead wrong: goes forward, so the chain's head stays
def remove_dead(graph_module):
    count = 0
    for node in list(graph_module.graph.nodes):
        in_place = node.op == "call_method" and node.target.endswith("_")
        module = graph_module.get_submodule(node.target) if node.op == "call_module" else None
        training = isinstance(module, nn.BatchNorm2d) and module.training
        if not node.users and node.op not in ("placeholder", "output") and not in_place and not training:
            graph_module.graph.erase_node(node)
            count += 1
    return count


# %% remove_dead wrong: in-place methods go
def remove_dead(graph_module):
    count = 0
    for node in reversed(list(graph_module.graph.nodes)):
        module = graph_module.get_submodule(node.target) if node.op == "call_module" else None
        training = isinstance(module, nn.BatchNorm2d) and module.training
        if not node.users and node.op not in ("placeholder", "output") and not training:
            graph_module.graph.erase_node(node)
            count += 1
    return count


# %% remove_dead wrong: all methods stay
def remove_dead(graph_module):
    count = 0
    for node in reversed(list(graph_module.graph.nodes)):
        module = graph_module.get_submodule(node.target) if node.op == "call_module" else None
        training = isinstance(module, nn.BatchNorm2d) and module.training
        if not node.users and node.op not in ("placeholder", "output", "call_method") and not training:
            graph_module.graph.erase_node(node)
            count += 1
    return count


# %% remove_dead wrong: norms in training mode go
def remove_dead(graph_module):
    count = 0
    for node in reversed(list(graph_module.graph.nodes)):
        in_place = node.op == "call_method" and node.target.endswith("_")
        if not node.users and node.op not in ("placeholder", "output") and not in_place:
            graph_module.graph.erase_node(node)
            count += 1
    return count


# %% remove_dead wrong: inputs go
def remove_dead(graph_module):
    count = 0
    for node in reversed(list(graph_module.graph.nodes)):
        in_place = node.op == "call_method" and node.target.endswith("_")
        module = graph_module.get_submodule(node.target) if node.op == "call_module" else None
        training = isinstance(module, nn.BatchNorm2d) and module.training
        if not node.users and node.op != "output" and not in_place and not training:
            graph_module.graph.erase_node(node)
            count += 1
    return count


# %% remove_dead wrong: removes and does not count
def remove_dead(graph_module):
    for node in reversed(list(graph_module.graph.nodes)):
        in_place = node.op == "call_method" and node.target.endswith("_")
        if not node.users and node.op not in ("placeholder", "output") and not in_place:
            graph_module.graph.erase_node(node)


# %% remove_identities right: rewires reader by reader
def remove_identities(graph_module):
    graph, count = graph_module.graph, 0
    for node in [n for n in graph.nodes if n.op == "call_module"]:
        module = graph_module.get_submodule(node.target)
        if type(module) is nn.Identity or (type(module) is nn.Dropout and not module.training):
            for reader in list(node.users):
                reader.replace_input_with(node, node.args[0])
            graph.erase_node(node)
            count += 1
    return count


# %% remove_identities right: from the back
def remove_identities(graph_module):
    def passes_on(node):
        module = graph_module.get_submodule(node.target) if node.op == "call_module" else None
        return isinstance(module, nn.Identity) or (isinstance(module, nn.Dropout) and module.training is False)

    found = [n for n in graph_module.graph.nodes if passes_on(n)]
    for node in reversed(found):
        node.replace_all_uses_with(node.all_input_nodes[0])
        graph_module.graph.erase_node(node)
    return len(found)


# %% remove_identities wrong: dropout goes in any mode
def remove_identities(graph_module):
    count = 0
    for node in list(graph_module.graph.nodes):
        if node.op == "call_module" and isinstance(graph_module.get_submodule(node.target), nn.Identity | nn.Dropout):
            node.replace_all_uses_with(node.args[0])
            graph_module.graph.erase_node(node)
            count += 1
    return count


# %% remove_identities wrong: identities only
def remove_identities(graph_module):
    count = 0
    for node in list(graph_module.graph.nodes):
        if node.op == "call_module" and isinstance(graph_module.get_submodule(node.target), nn.Identity):
            node.replace_all_uses_with(node.args[0])
            graph_module.graph.erase_node(node)
            count += 1
    return count


# %% remove_identities wrong: looks at the training flag of identities, too
def remove_identities(graph_module):
    count = 0
    for node in list(graph_module.graph.nodes):
        module = graph_module.get_submodule(node.target) if node.op == "call_module" else None
        if isinstance(module, nn.Identity | nn.Dropout) and not module.training:
            node.replace_all_uses_with(node.args[0])
            graph_module.graph.erase_node(node)
            count += 1
    return count


# %% remove_identities wrong: asks the graph module for its mode
def remove_identities(graph_module):
    count = 0
    for node in list(graph_module.graph.nodes):
        module = graph_module.get_submodule(node.target) if node.op == "call_module" else None
        if isinstance(module, nn.Identity) or (isinstance(module, nn.Dropout) and not graph_module.training):
            node.replace_all_uses_with(node.args[0])
            graph_module.graph.erase_node(node)
            count += 1
    return count


# %% remove_identities wrong: the first reader only
def remove_identities(graph_module):
    count = 0
    for node in list(graph_module.graph.nodes):
        module = graph_module.get_submodule(node.target) if node.op == "call_module" else None
        if isinstance(module, nn.Identity) or (isinstance(module, nn.Dropout) and not module.training):
            next(iter(node.users)).replace_input_with(node, node.args[0])
            if not node.users:
                graph_module.graph.erase_node(node)
            count += 1
    return count


# %% remove_identities wrong: counts modules instead of nodes
def remove_identities(graph_module):
    gone = set()
    for node in list(graph_module.graph.nodes):
        module = graph_module.get_submodule(node.target) if node.op == "call_module" else None
        if isinstance(module, nn.Identity) or (isinstance(module, nn.Dropout) and not module.training):
            node.replace_all_uses_with(node.args[0])
            graph_module.graph.erase_node(node)
            gone.add(module)
    return len(gone)


# %% merge_repeats right: compares pairs
def merge_repeats(graph_module):
    graph, kept, count = graph_module.graph, [], 0
    if [n for n in graph.nodes if n.op == "call_method" and n.target[-1] == "_"]:
        return 0
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target != torch.rand_like:
            same = [k for k in kept if k.target is node.target and k.args == node.args and k.kwargs == node.kwargs]
            if same:
                node.replace_all_uses_with(same[0])
                graph.erase_node(node)
                count += 1
            else:
                kept.append(node)
    return count


# %% merge_repeats right: starts anew after each find
def merge_repeats(graph_module):
    graph = graph_module.graph
    if any(n.op == "call_method" and n.target.endswith("_") for n in graph.nodes):
        return 0
    seen = {}
    for node in graph.nodes:
        if node.op == "call_function" and "rand" not in node.target.__name__:
            key = (node.target.__name__, tuple(str(a) for a in node.args))
            if key in seen:
                node.replace_all_uses_with(seen[key])
                graph.erase_node(node)
                return 1 + merge_repeats(graph_module)
            seen[key] = node
    return 0


# %% merge_repeats wrong: merges random numbers
def merge_repeats(graph_module):
    if any(n.op == "call_method" and n.target.endswith("_") for n in graph_module.graph.nodes):
        return 0
    seen, count = {}, 0
    for node in list(graph_module.graph.nodes):
        if node.op == "call_function":
            first = seen.setdefault((node.target, node.args), node)
            if first is not node:
                node.replace_all_uses_with(first)
                graph_module.graph.erase_node(node)
                count += 1
    return count


# %% merge_repeats wrong: merges across in-place methods
def merge_repeats(graph_module):
    seen, count = {}, 0
    for node in list(graph_module.graph.nodes):
        if node.op == "call_function" and node.target is not torch.rand_like:
            first = seen.setdefault((node.target, node.args), node)
            if first is not node:
                node.replace_all_uses_with(first)
                graph_module.graph.erase_node(node)
                count += 1
    return count


# %% merge_repeats wrong: any order of the inputs
def merge_repeats(graph_module):
    if any(n.op == "call_method" and n.target.endswith("_") for n in graph_module.graph.nodes):
        return 0
    seen, count = {}, 0
    for node in list(graph_module.graph.nodes):
        if node.op == "call_function" and node.target is not torch.rand_like:
            first = seen.setdefault((node.target, frozenset(node.args)), node)
            if first is not node:
                node.replace_all_uses_with(first)
                graph_module.graph.erase_node(node)
                count += 1
    return count


# %% merge_repeats wrong: compares inputs that are nodes and forgets the numbers
def merge_repeats(graph_module):
    if any(n.op == "call_method" and n.target.endswith("_") for n in graph_module.graph.nodes):
        return 0
    seen, count = {}, 0
    for node in list(graph_module.graph.nodes):
        if node.op == "call_function" and node.target is not torch.rand_like:
            first = seen.setdefault((node.target, tuple(node.all_input_nodes)), node)
            if first is not node:
                node.replace_all_uses_with(first)
                graph_module.graph.erase_node(node)
                count += 1
    return count


# %% merge_repeats wrong: finds all repeats before it merges any
def merge_repeats(graph_module):
    if any(n.op == "call_method" and n.target.endswith("_") for n in graph_module.graph.nodes):
        return 0
    seen, repeats = {}, []
    for node in graph_module.graph.nodes:
        if node.op == "call_function" and node.target is not torch.rand_like:
            first = seen.setdefault((node.target, node.args), node)
            if first is not node:
                repeats.append((node, first))
    for node, first in repeats:
        node.replace_all_uses_with(first)
        graph_module.graph.erase_node(node)
    return len(repeats)


# %% merge_repeats wrong: merges modules, too
def merge_repeats(graph_module):
    if any(n.op == "call_method" and n.target.endswith("_") for n in graph_module.graph.nodes):
        return 0
    seen, count = {}, 0
    for node in list(graph_module.graph.nodes):
        if node.op in ("call_function", "call_module") and node.target is not torch.rand_like:
            first = seen.setdefault((node.target, node.args), node)
            if first is not node:
                node.replace_all_uses_with(first)
                graph_module.graph.erase_node(node)
                count += 1
    return count


# %% why_not_folded right: a table of questions
def why_not_folded(graph_module):
    graph, module = graph_module.graph, graph_module.get_submodule
    called = [module(n.target) for n in graph.nodes if n.op == "call_module"]
    answers = {}
    for n in graph.nodes:
        if n.op == "call_module" and type(module(n.target)) is nn.BatchNorm2d:
            source = n.args[0]
            conv = module(source.target) if source.op == "call_module" else None
            questions = {
                "no convolution": type(conv) is not nn.Conv2d, "training": module(n.target).training,
                "several readers": set(source.users) != {n}, "shared": sum(m is conv for m in called) > 1,
            }  # fmt: skip
            answers[n.name] = next((answer for answer, applies in questions.items() if applies), "fold")
    return answers


# %% why_not_folded right: from the last reason to the first
def why_not_folded(graph_module):
    module, answers = dict(graph_module.named_modules(remove_duplicate=False)), {}
    calls = Counter(id(module[n.target]) for n in graph_module.graph.nodes if n.op == "call_module")
    for n in graph_module.graph.nodes:
        if n.op != "call_module" or not isinstance(module[n.target], nn.BatchNorm2d):
            continue
        before = n.args[0]
        conv = module.get(before.target) if before.op == "call_module" else None
        answer = "shared" if calls[id(conv)] > 1 else "fold"
        answer = "several readers" if len(before.users) != 1 else answer
        answer = "training" if module[n.target].training else answer
        answers[n.name] = answer if isinstance(conv, nn.Conv2d) else "no convolution"
    return answers


# %% why_not_folded wrong: a norm in training mode may be folded
def why_not_folded(graph_module):
    calls, m, answers = calls_per_module(graph_module), graph_module.get_submodule, {}
    for n in graph_module.graph.nodes:
        if n.op == "call_module" and isinstance(m(n.target), nn.BatchNorm2d):
            c = n.args[0]
            if c.op != "call_module" or not isinstance(m(c.target), nn.Conv2d):
                answers[n.name] = "no convolution"
            else:
                shared = "shared" if calls[c.target] > 1 else "fold"
                answers[n.name] = "several readers" if len(c.users) > 1 else shared
    return answers


# %% why_not_folded wrong: other readers overlooked
def why_not_folded(graph_module):
    calls, m, answers = calls_per_module(graph_module), graph_module.get_submodule, {}
    for n in graph_module.graph.nodes:
        if n.op == "call_module" and isinstance(m(n.target), nn.BatchNorm2d):
            c = n.args[0]
            if c.op != "call_module" or not isinstance(m(c.target), nn.Conv2d):
                answers[n.name] = "no convolution"
            else:
                shared = "shared" if calls[c.target] > 1 else "fold"
                answers[n.name] = "training" if m(n.target).training else shared
    return answers


# %% why_not_folded wrong: the output is not counted as a reader
def why_not_folded(graph_module):
    calls, m, answers = calls_per_module(graph_module), graph_module.get_submodule, {}
    for n in graph_module.graph.nodes:
        if n.op == "call_module" and isinstance(m(n.target), nn.BatchNorm2d):
            c = n.args[0]
            if c.op != "call_module" or not isinstance(m(c.target), nn.Conv2d):
                answers[n.name] = "no convolution"
            elif m(n.target).training:
                answers[n.name] = "training"
            elif len([u for u in c.users if u.op != "output"]) > 1:
                answers[n.name] = "several readers"
            else:
                answers[n.name] = "shared" if calls[c.target] > 1 else "fold"
    return answers


# %% why_not_folded wrong: shared under one name only
def why_not_folded(graph_module):
    calls = Counter(n.target for n in graph_module.graph.nodes if n.op == "call_module")
    m, answers = graph_module.get_submodule, {}
    for n in graph_module.graph.nodes:
        if n.op == "call_module" and isinstance(m(n.target), nn.BatchNorm2d):
            c = n.args[0]
            if c.op != "call_module" or not isinstance(m(c.target), nn.Conv2d):
                answers[n.name] = "no convolution"
            elif m(n.target).training:
                answers[n.name] = "training"
            elif len(c.users) > 1:
                answers[n.name] = "several readers"
            else:
                answers[n.name] = "shared" if calls[c.target] > 1 else "fold"
    return answers


# %% why_not_folded wrong: asks whether the norm is shared
def why_not_folded(graph_module):
    calls, m, answers = calls_per_module(graph_module), graph_module.get_submodule, {}
    for n in graph_module.graph.nodes:
        if n.op == "call_module" and isinstance(m(n.target), nn.BatchNorm2d):
            c = n.args[0]
            if c.op != "call_module" or not isinstance(m(c.target), nn.Conv2d):
                answers[n.name] = "no convolution"
            elif m(n.target).training:
                answers[n.name] = "training"
            elif len(c.users) > 1:
                answers[n.name] = "several readers"
            else:
                answers[n.name] = "shared" if calls[n.target] > 1 else "fold"
    return answers


# %% why_not_folded wrong: another order of the reasons
def why_not_folded(graph_module):
    calls, m, answers = calls_per_module(graph_module), graph_module.get_submodule, {}
    for n in graph_module.graph.nodes:
        if n.op == "call_module" and isinstance(m(n.target), nn.BatchNorm2d):
            c = n.args[0]
            if c.op != "call_module" or not isinstance(m(c.target), nn.Conv2d):
                answers[n.name] = "no convolution"
            elif calls[c.target] > 1:
                answers[n.name] = "shared"
            elif len(c.users) > 1:
                answers[n.name] = "several readers"
            else:
                answers[n.name] = "training" if m(n.target).training else "fold"
    return answers


# %% fold_norms right: a copy of the convolution, until nothing is left to fold
def fold_norms(graph_module):
    names = [name for name, answer in why_not_folded(graph_module).items() if answer == "fold"]
    if not names:
        return 0
    node = next(n for n in graph_module.graph.nodes if n.name == names[0])
    conv = copy.deepcopy(graph_module.get_submodule(node.args[0].target))
    norm = graph_module.get_submodule(node.target)
    with torch.no_grad():
        a = norm.weight * (norm.running_var + norm.eps).rsqrt()
        old = torch.zeros_like(a) if conv.bias is None else conv.bias
        conv.weight = nn.Parameter(torch.einsum("oihw,o->oihw", conv.weight, a))
        conv.bias = nn.Parameter((old - norm.running_mean) * a + norm.bias)
    graph_module.add_submodule(f"new_{node.name}", conv)
    node.args[0].target = f"new_{node.name}"
    node.replace_all_uses_with(node.args[0])
    graph_module.graph.erase_node(node)
    return 1 + fold_norms(graph_module)


# %% fold_norms right: a new node in the place of the norm
def fold_norms(graph_module):
    graph, count = graph_module.graph, 0
    for node in list(graph.nodes):
        if why_not_folded(graph_module).get(node.name) == "fold":
            old, (conv, norm) = node.args[0], map(graph_module.get_submodule, (node.args[0].target, node.target))
            new = nn.Conv2d(3, 3, conv.kernel_size, padding=conv.padding, dtype=torch.float64).eval()
            # The affine map of the norm is read off by feeding zeros and ones.
            ends = torch.tensor([0.0, 1.0], dtype=torch.float64)[:, None, None, None].expand(2, 3, 1, 1)
            low, high = norm(ends).detach()[:, :, 0, 0]
            new.weight.data = conv.weight.detach() * (high - low)[:, None, None, None]
            new.bias.data = low + (0 if conv.bias is None else conv.bias.detach() * (high - low))
            graph_module.add_module(f"replacement{count}", new)
            with graph.inserting_before(node):
                made = graph.call_module(f"replacement{count}", old.args)
            node.replace_all_uses_with(made)
            graph.erase_node(node)
            graph.erase_node(old)
            count += 1
    return count


# %% fold_norms wrong: the given convolution is changed
def fold_norms(graph_module):
    count = 0
    for node in list(graph_module.graph.nodes):
        if why_not_folded(graph_module).get(node.name) != "fold":
            continue
        before = node.args[0]
        conv, norm = graph_module.get_submodule(before.target), graph_module.get_submodule(node.target)
        new = conv
        a = norm.weight.detach() / (norm.running_var + norm.eps).sqrt()
        c = torch.zeros_like(a) if conv.bias is None else conv.bias.detach()
        new.weight = nn.Parameter(conv.weight.detach() * a[:, None, None, None])
        new.bias = nn.Parameter(a * (c - norm.running_mean) + norm.bias.detach())
        graph_module.add_module(f"folded{count}", new)
        before.target = f"folded{count}"
        node.replace_all_uses_with(before)
        graph_module.graph.erase_node(node)
        count += 1
    return count


# %% fold_norms wrong: eps forgotten
def fold_norms(graph_module):
    count = 0
    for node in list(graph_module.graph.nodes):
        if why_not_folded(graph_module).get(node.name) != "fold":
            continue
        before = node.args[0]
        conv, norm = graph_module.get_submodule(before.target), graph_module.get_submodule(node.target)
        new = copy.deepcopy(conv)
        a = norm.weight.detach() / norm.running_var.sqrt()
        c = torch.zeros_like(a) if conv.bias is None else conv.bias.detach()
        new.weight = nn.Parameter(conv.weight.detach() * a[:, None, None, None])
        new.bias = nn.Parameter(a * (c - norm.running_mean) + norm.bias.detach())
        graph_module.add_module(f"folded{count}", new)
        before.target = f"folded{count}"
        node.replace_all_uses_with(before)
        graph_module.graph.erase_node(node)
        count += 1
    return count


# %% fold_norms wrong: scales the input channels
def fold_norms(graph_module):
    count = 0
    for node in list(graph_module.graph.nodes):
        if why_not_folded(graph_module).get(node.name) != "fold":
            continue
        before = node.args[0]
        conv, norm = graph_module.get_submodule(before.target), graph_module.get_submodule(node.target)
        new = copy.deepcopy(conv)
        a = norm.weight.detach() / (norm.running_var + norm.eps).sqrt()
        c = torch.zeros_like(a) if conv.bias is None else conv.bias.detach()
        new.weight = nn.Parameter(conv.weight.detach() * a[None, :, None, None])
        new.bias = nn.Parameter(a * (c - norm.running_mean) + norm.bias.detach())
        graph_module.add_module(f"folded{count}", new)
        before.target = f"folded{count}"
        node.replace_all_uses_with(before)
        graph_module.graph.erase_node(node)
        count += 1
    return count


# %% fold_norms wrong: the old bias is lost
def fold_norms(graph_module):
    count = 0
    for node in list(graph_module.graph.nodes):
        if why_not_folded(graph_module).get(node.name) != "fold":
            continue
        before = node.args[0]
        conv, norm = graph_module.get_submodule(before.target), graph_module.get_submodule(node.target)
        new = copy.deepcopy(conv)
        a = norm.weight.detach() / (norm.running_var + norm.eps).sqrt()
        c = torch.zeros_like(a)
        new.weight = nn.Parameter(conv.weight.detach() * a[:, None, None, None])
        new.bias = nn.Parameter(a * (c - norm.running_mean) + norm.bias.detach())
        graph_module.add_module(f"folded{count}", new)
        before.target = f"folded{count}"
        node.replace_all_uses_with(before)
        graph_module.graph.erase_node(node)
        count += 1
    return count


# %% fold_norms wrong: the old bias is not scaled
def fold_norms(graph_module):
    count = 0
    for node in list(graph_module.graph.nodes):
        if why_not_folded(graph_module).get(node.name) != "fold":
            continue
        before = node.args[0]
        conv, norm = graph_module.get_submodule(before.target), graph_module.get_submodule(node.target)
        new = copy.deepcopy(conv)
        a = norm.weight.detach() / (norm.running_var + norm.eps).sqrt()
        c = torch.zeros_like(a) if conv.bias is None else conv.bias.detach()
        new.weight = nn.Parameter(conv.weight.detach() * a[:, None, None, None])
        new.bias = nn.Parameter(c - a * norm.running_mean + norm.bias.detach())
        graph_module.add_module(f"folded{count}", new)
        before.target = f"folded{count}"
        node.replace_all_uses_with(before)
        graph_module.graph.erase_node(node)
        count += 1
    return count


# %% fold_norms wrong: a second norm in a row is left
def fold_norms(graph_module):
    count, reasons = 0, why_not_folded(graph_module)
    for node in list(graph_module.graph.nodes):
        if reasons.get(node.name) != "fold":
            continue
        before = node.args[0]
        conv, norm = graph_module.get_submodule(before.target), graph_module.get_submodule(node.target)
        new = copy.deepcopy(conv)
        a = norm.weight.detach() / (norm.running_var + norm.eps).sqrt()
        c = torch.zeros_like(a) if conv.bias is None else conv.bias.detach()
        new.weight = nn.Parameter(conv.weight.detach() * a[:, None, None, None])
        new.bias = nn.Parameter(a * (c - norm.running_mean) + norm.bias.detach())
        graph_module.add_module(f"folded{count}", new)
        before.target = f"folded{count}"
        node.replace_all_uses_with(before)
        graph_module.graph.erase_node(node)
        count += 1
    return count


# %% fold_norms wrong: folds after every convolution
def fold_norms(graph_module):
    count = 0
    for node in list(graph_module.graph.nodes):
        if why_not_folded(graph_module).get(node.name, "no convolution") == "no convolution":
            continue
        before = node.args[0]
        conv, norm = graph_module.get_submodule(before.target), graph_module.get_submodule(node.target)
        new = copy.deepcopy(conv)
        a = norm.weight.detach() / (norm.running_var + norm.eps).sqrt()
        c = torch.zeros_like(a) if conv.bias is None else conv.bias.detach()
        new.weight = nn.Parameter(conv.weight.detach() * a[:, None, None, None])
        new.bias = nn.Parameter(a * (c - norm.running_mean) + norm.bias.detach())
        graph_module.add_module(f"folded{count}", new)
        before.target = f"folded{count}"
        node.replace_all_uses_with(before)
        graph_module.graph.erase_node(node)
        count += 1
    return count


# %% fold_norms wrong: folds shared convolutions
def fold_norms(graph_module):
    count = 0
    for node in list(graph_module.graph.nodes):
        if why_not_folded(graph_module).get(node.name) not in ("fold", "shared"):
            continue
        before = node.args[0]
        conv, norm = graph_module.get_submodule(before.target), graph_module.get_submodule(node.target)
        new = copy.deepcopy(conv)
        a = norm.weight.detach() / (norm.running_var + norm.eps).sqrt()
        c = torch.zeros_like(a) if conv.bias is None else conv.bias.detach()
        new.weight = nn.Parameter(conv.weight.detach() * a[:, None, None, None])
        new.bias = nn.Parameter(a * (c - norm.running_mean) + norm.bias.detach())
        graph_module.add_module(f"folded{count}", new)
        before.target = f"folded{count}"
        node.replace_all_uses_with(before)
        graph_module.graph.erase_node(node)
        count += 1
    return count


# %% fold_norms wrong: folds norms in training mode
def fold_norms(graph_module):
    count = 0
    for node in list(graph_module.graph.nodes):
        if why_not_folded(graph_module).get(node.name) not in ("fold", "training"):
            continue
        before = node.args[0]
        conv, norm = graph_module.get_submodule(before.target), graph_module.get_submodule(node.target)
        new = copy.deepcopy(conv)
        a = norm.weight.detach() / (norm.running_var + norm.eps).sqrt()
        c = torch.zeros_like(a) if conv.bias is None else conv.bias.detach()
        new.weight = nn.Parameter(conv.weight.detach() * a[:, None, None, None])
        new.bias = nn.Parameter(a * (c - norm.running_mean) + norm.bias.detach())
        graph_module.add_module(f"folded{count}", new)
        before.target = f"folded{count}"
        node.replace_all_uses_with(before)
        graph_module.graph.erase_node(node)
        count += 1
    return count


# %% fold_norms wrong: the norm becomes an identity
def fold_norms(graph_module):
    count = 0
    for node in list(graph_module.graph.nodes):
        if why_not_folded(graph_module).get(node.name) != "fold":
            continue
        before = node.args[0]
        conv, norm = graph_module.get_submodule(before.target), graph_module.get_submodule(node.target)
        new = copy.deepcopy(conv)
        a = norm.weight.detach() / (norm.running_var + norm.eps).sqrt()
        c = torch.zeros_like(a) if conv.bias is None else conv.bias.detach()
        new.weight = nn.Parameter(conv.weight.detach() * a[:, None, None, None])
        new.bias = nn.Parameter(a * (c - norm.running_mean) + norm.bias.detach())
        graph_module.add_module(f"folded{count}", new)
        before.target = f"folded{count}"
        graph_module.add_module(f"empty{count}", nn.Identity())
        node.target = f"empty{count}"
        count += 1
    return count


# %% fold_norms wrong: does nothing
def fold_norms(graph_module):
    return 0
