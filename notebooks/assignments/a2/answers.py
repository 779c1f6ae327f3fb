# ruff: noqa: F811
"""Right and wrong answers to a2. Secret. Every wrong one is a plausible mistake, and earns nothing.

`# %% <item> <right or wrong>: <what it is>` stands above code that replaces a solution of the
notebook. Most mistakes are a list below `# %% <item> wrong`: what it is, and how the solution is
changed.
"""

import copy
import itertools
from collections import Counter

import torch
from torch import fx, nn


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


# %% calls_per_module wrong
# - modules that nobody calls are listed: `return {target: ` ->
#   `called += [name for name, _ in graph_module.named_children() if name not in called];
#   owners += [0] * (len(called) - len(owners)); return {target: `
# - two names at most: `return {target: owners.count(owner)` ->
#   `return {target: min(owners.count(owner), len([t for t in called if t == target]) + 1)`
# - an input named like a module is a call, too: `if node.op == "call_module"` ->
#   `if node.op in ("call_module", "placeholder") and hasattr(graph_module, node.target)`
# - by the class of the module: `id(graph` -> `type(graph`
# - methods and functions count, too: `== "call_module"` -> `!= "placeholder"`
# - counts users: `owners.count(owner)` -> `1`
# - one name each: `id(graph_module.get_submodule(target))` -> `target`
# - modules with equal weights are one: `id(graph_module.get_submodule(target))` ->
#   `str(graph_module.get_submodule(target).state_dict())`
# - one name each for what has no weights: `id(graph_module.get_submodule(target))` ->
#   `id(m) if [*(m := graph_module.get_submodule(target)).parameters()] else target`
# - calls that nobody reads are left out: `== "call_module"` -> `== "call_module" and node.users`
# - all calls: `owners.count(owner)` -> `len(owners)`
# - the other calls: `owners.count(owner)` -> `owners.count(owner) - 1`
# - readers instead of calls: `called = [` ->
#   `return {n.target: len(n.users) for n in graph_module.graph.nodes if n.op == "call_module"};
#   called = [`
# - by the names of a module: `owners.count(owner)` ->
#   `max(called.count(target), sum(id(m) == owner
#   for _, m in graph_module.named_modules(remove_duplicate=False)))`
# - by the name of the node: `return {target:` ->
#   `names = [n.name for n in graph_module.graph.nodes if n.op == "call_module"];
#   return {names[called.index(target)]:`
# - calls that agree count once: `owners.count(owner)` ->
#   `len({n.args for n in graph_module.graph.nodes
#   if n.op == "call_module" and id(graph_module.get_submodule(n.target)) == owner})`
# - modules within modules are not found: `graph_module.get_submodule(target)` ->
#   `getattr(graph_module, target, target)`
# - all modules of two names are lumped together: `id(graph_module.get_submodule(target))` ->
#   `(m := graph_module.get_submodule(target)) and (1 < [id(o) for _, o in
#   graph_module.named_modules(remove_duplicate=False)].count(id(m)) or id(m))`
# - a method named like a module is a call, too: `if node.op == "call_module"` ->
#   `if node.op in ("call_module", "call_method") and
#   node.target in dict(graph_module.named_modules(remove_duplicate=False))`
# - identities and dropouts by their names: `id(graph_module.get_submodule(target))` ->
#   `target if isinstance(m := graph_module.get_submodule(target),
#   nn.Identity | nn.Dropout) else id(m)`
# - names of Python alone: `id(graph_module.get_submodule(target))` ->
#   `id(eval(f"graph_module.{target}", {"graph_module": graph_module}))`
# - nine calls at most: `owners.count(owner)` -> `min(9, owners.count(owner))`
# - dropouts in training mode by their names:
#   `id(graph_module.get_submodule(target))` -> `(target if isinstance(m :=
#   graph_module.get_submodule(target), nn.Dropout) and m.training else id(m))`
# - norms in training mode by their names:
#   `id(graph_module.get_submodule(target))` -> `(target if isinstance(m :=
#   graph_module.get_submodule(target), nn.BatchNorm2d) and m.training else id(m))`


# %% calls_per_module wrong: follows the first input alone
def calls_per_module(graph_module):
    reached, todo = set(), [next(iter(graph_module.graph.nodes))]
    while todo:
        node = todo.pop()
        todo += set(node.users) - reached
        reached.add(node)
    nodes = [node for node in graph_module.graph.nodes if node.op == "call_module"]
    counts = Counter(graph_module.get_submodule(node.target) for node in nodes if node in reached)
    return {n.target: max(1, counts[graph_module.get_submodule(n.target)]) for n in nodes}


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
        if (
            node.op in ("placeholder", "output")
            or training
            or (node.op, str(node.target)[-1]) == ("call_method", "_")
        ):
            mark(node)
    dead = [node for node in graph.nodes if node not in alive]
    for node in dead[::-1]:
        graph.erase_node(node)
    return len(dead)


# %% remove_dead wrong: takes nodes out of the list alone, so inputs still count them as readers
def remove_dead(graph_module):
    alive, dead = set(), []
    for node in reversed(graph_module.graph.nodes):
        stays = node.op in ("placeholder", "output")
        stays = stays or (node.op == "call_method" and node.target.endswith("_"))
        if node.op == "call_module":
            module = graph_module.get_submodule(node.target)
            stays = isinstance(module, nn.BatchNorm2d) and module.training
        if stays or alive & set(node.users):
            alive.add(node)
        else:
            dead.append(node)
    for node in dead:
        node._remove_from_list()
    return len(dead)


# %% remove_dead wrong
# - in place on what nobody else reads: `node.target.endswith("_"))` ->
#   `node.target.endswith("_") and len(node.args[0].users) > 1)`
# - every module in training mode acts:
#   `isinstance(module, nn.BatchNorm2d) and module.training` -> `module.training`
# - an underscore anywhere is in place: `node.target.endswith("_")` -> `"_" in node.target`
# - removes norms in any mode: ` and module.training` -> ` and False`
# - keeps norms in any mode: ` and module.training` -> ``
# - in place means any method: ` and node.target.endswith("_")` -> ``
# - knows one in-place method: `node.target.endswith("_")` -> `node.target == "add_"`
# - goes forward, so the chain's head stays:
#   `reversed(list(graph_module.graph.nodes))` -> `list(graph_module.graph.nodes)`
# - in-place methods go: ` or (node.op == "call_method" and node.target.endswith("_"))` -> ``
# - inputs go: `("placeholder", "output")` -> `("output",)`
# - the output goes: `("placeholder", "output")` -> `("placeholder",)`
# - does not count: `removed += 1` -> `pass`
# - random numbers stay:
#   `("placeholder", "output")` -> `("placeholder", "output") or node.target is torch.rand_like`
# - asks the graph module, too:
#   ` and module.training` -> ` and module.training and graph_module.training`
# - goes forward three times:
#   `reversed(list(graph_module.graph.nodes))` -> `3 * list(graph_module.graph.nodes)`,
#   `not node.users and` -> `not node._erased and not node.users and`
# - counts what is left: `return removed` -> `return len(graph_module.graph.nodes)`
# - any name that ends with an underscore is in place: ` and module.training` ->
#   ` and module.training or node.target.endswith("_")`
# - the module of a dead call goes, too: `erase_node(node)` ->
#   `erase_node(node); node.op == "call_module" and graph_module.delete_submodule(node.target)`
# - a norm acts at its first call alone: ` and module.training` ->
#   ` and module.training and next(
#   n for n in graph_module.graph.nodes if n.target == node.target) is node`
# - one name of a module: `removed = 0` ->
#   `removed, modules = 0, dict(graph_module.named_modules())`,
#   `graph_module.get_submodule(node.target)` -> `modules[node.target]`
# - what has a second name is no norm: `removed = 0` ->
#   `removed, modules = 0, dict(graph_module.named_modules())`,
#   `graph_module.get_submodule(node.target)` -> `modules.get(node.target)`
# - goes forward ten times:
#   `reversed(list(graph_module.graph.nodes))` -> `10 * list(graph_module.graph.nodes)`,
#   `not node.users and` -> `not node._erased and not node.users and`
# - the mode of the whole makes norms act, too: ` and module.training` ->
#   ` and (module.training or graph_module.training)`
# - a norm acts where nobody reads it: `removed = 0` ->
#   `removed, unread = 0, [n for n in graph_module.graph.nodes if not n.users]`,
#   ` and module.training` -> ` and module.training and node in unread`
# - a list of in-place methods: `node.target.endswith("_")` ->
#   `node.target in ("add_", "sub_", "mul_", "div_", "relu_", "clamp_")`
# - a list of other methods: `node.target.endswith("_")` ->
#   `node.target not in ("neg", "type_as", "relu", "abs")`
# - a list of functions: `("placeholder", "output")` -> `("placeholder", "output") or
#   node.op == "call_function" and node.target not in (
#   torch.add, torch.sub, torch.mul, torch.relu, torch.rand_like)`
# - modules within modules are not found: `graph_module.get_submodule(node.target)` ->
#   `getattr(graph_module, node.target, None)`
# - readers by the text of their inputs: `not node.users` ->
#   `not [n for n in graph_module.graph.nodes if node.name in str(n.args)]`
# - convolutions in training mode act: `isinstance(module, nn.BatchNorm2d)` ->
#   `isinstance(module, nn.BatchNorm2d | nn.Conv2d)`
# - activations in training mode act: `isinstance(module, nn.BatchNorm2d)` ->
#   `isinstance(module, nn.BatchNorm2d | nn.ReLU)`
# - in place on an input goes: `node.target.endswith("_"))` ->
#   `node.target.endswith("_") and node.args[0].op != "placeholder")`
# - what has a whole number stays: `not node.users and` ->
#   `not node.users and not any(isinstance(a, int) for a in node.args) and`
# - the mode of the module around it counts, too: `and module.training` ->
#   `and module.training and ("." not in node.target
#   or graph_module.get_submodule(node.target.rpartition(".")[0]).training)`
# - readers by their first two inputs:
#   `not node.users and` ->
#   `not [u for u in node.users if u.op == "output" or node in u.args[:2]] and`
# - norms in training mode after a method:
#   `module.training` -> `module.training and node.args[0].op != "call_method"`
# - functions that end in an underscore stay:
#   `node.op == "call_method" and node.target.endswith("_")` ->
#   `node.op in ("call_method", "call_function") and getattr(node.target, "__name__",
#   str(node.target)).endswith("_")`
# - what has two numbers stays:
#   `not node.users and` -> `not node.users and not (len(node.args) == 3 and not
#   isinstance(node.args[2], fx.Node)) and`


# %% remove_dead wrong: asks each reader as often as paths lead to it: no box has time for that
def remove_dead(graph_module):
    steps = itertools.count()

    def dead(node):
        assert next(steps) < 10_000, "takes too long"
        module = graph_module.get_submodule(node.target) if node.op == "call_module" else None
        if (
            node.op in ("placeholder", "output")
            or (isinstance(module, nn.BatchNorm2d) and module.training)
            or (node.op == "call_method" and node.target.endswith("_"))
        ):
            return False
        return all(dead(user) for user in node.users)

    gone = [node for node in graph_module.graph.nodes if dead(node)]
    for node in reversed(gone):
        graph_module.graph.erase_node(node)
    return len(gone)


# %% remove_dead wrong: a reader that reads a result twice counts twice, and leaves once
def remove_dead(graph_module):
    graph, count = graph_module.graph, 0
    readers = Counter()
    for node in graph.nodes:
        fx.map_arg(node.args, lambda source: readers.update([source]))
    for node in reversed(list(graph.nodes)):
        module = graph_module.get_submodule(node.target) if node.op == "call_module" else None
        acts = node.op in ("placeholder", "output")
        acts = acts or (node.op == "call_method" and node.target.endswith("_"))
        acts = acts or (isinstance(module, nn.BatchNorm2d) and module.training)
        if readers[node] == 0 and not acts:
            readers.subtract(node.all_input_nodes)
            graph.erase_node(node)
            count += 1
    return count


# %% remove_dead wrong: follows the first input of what is alive
def remove_dead(graph_module):
    alive, count = set(), 0
    for node in reversed(list(graph_module.graph.nodes)):
        module = graph_module.get_submodule(node.target) if node.op == "call_module" else None
        stays = node.op in ("placeholder", "output") or node in alive
        stays = stays or (node.op == "call_method" and node.target.endswith("_"))
        if stays or (isinstance(module, nn.BatchNorm2d) and module.training):
            alive.update(node.all_input_nodes if node.op == "output" else node.all_input_nodes[:1])
        else:
            graph_module.graph.erase_node(node)
            count += 1
    return count


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
        return isinstance(module, nn.Identity) or (
            isinstance(module, nn.Dropout) and module.training is False
        )

    found = [n for n in graph_module.graph.nodes if passes_on(n)]
    for node in reversed(found):
        node.replace_all_uses_with(node.all_input_nodes[0])
        graph_module.graph.erase_node(node)
    return len(found)


# %% remove_identities wrong
# - by the target of any node: `node.op != "call_module"` ->
#   `not node.args or
#   node.target not in dict(graph_module.named_modules(remove_duplicate=False))`
# - one name of a module: `module = graph_module.get_submodule(node.target)` ->
#   `module = dict(graph_module.named_modules()).get(node.target)`
# - a method in place anywhere stops everything: `removed = 0` ->
#   `removed = 0; assert not [n for n in graph_module.graph.nodes if str(n.target)[-1] == "_"]`
# - the first reader is forgotten: `isinstance(module, nn.Identity) or ` -> ``
# - activations go, too: `nn.Identity) or` -> `(nn.Identity, nn.ReLU)) or`
# - dropout in training mode and not in evaluation: `not module.training` -> `module.training`
# - dropout goes in any mode: ` and not module.training` -> ``
# - asks the graph module, too:
#   `not module.training` -> `(not module.training or not graph_module.training)`
# - identities only: ` or off` -> ``
# - asks the graph module for its mode: `not module.training` -> `not graph_module.training`
# - looks at the mode of identities, too: `nn.Identity) or off` ->
#   `nn.Identity | nn.Dropout) and not module.training`
# - the first reader alone:
#   `node.replace_all_uses_with(` -> `next(iter(node.users)).replace_input_with(node, `,
#   `graph_module.graph.erase_node(node)` -> `node.users or graph_module.graph.erase_node(node)`
# - one that nobody reads stays:
#   `node.op != "call_module"` -> `node.op != "call_module" or not node.users`
# - the node before instead of the input: `node.args[0]` -> `node.prev`
# - the first input for any other: `node.args[0]` ->
#   `(node.args[0] if node.args[0].op != "placeholder" else next(iter(graph_module.graph.nodes)))`
# - counts modules instead of nodes: `removed = 0` -> `gone = set()`,
#   `removed += 1` -> `gone.add(module)`, `return removed` -> `return len(gone)`
# - of two activations in a row one goes: ` or off` -> ` or off or 2 * [nn.ReLU] ==
#   [n.op == "call_module" and type(graph_module.get_submodule(n.target))
#   for n in (node, node.args[0])]`
# - dropout that nobody reads goes in any mode: `not module.training` ->
#   `not (module.training and node.users)`
# - a reader reads once: `node.replace_all_uses_with(node.args[0])` ->
#   `[user.update_arg(user.args.index(node), node.args[0]) if node in user.args
#   else user.replace_input_with(node, node.args[0]) for user in list(node.users)]`
# - modules within modules are not found: `graph_module.get_submodule(node.target)` ->
#   `getattr(graph_module, node.target, None)`
# - identities in evaluation mode stay: `isinstance(module, nn.Identity) or off` ->
#   `(isinstance(module, nn.Identity) and module.training) or off`
# - what an in-place method reads stays: `isinstance(module, nn.Identity) or off:` ->
#   `(isinstance(module, nn.Identity) or off) and not any(
#   n.op == "call_method" and n.target[-1] == "_" for n in node.users):`
# - norms in evaluation mode go, too: `nn.Identity) or` ->
#   `nn.Identity) or (isinstance(module, nn.BatchNorm2d) and not module.training) or`
# - what stands between an input and the output stays: `isinstance(module, nn.Identity) or off:` ->
#   `(isinstance(module, nn.Identity) or off) and not (node.args[0].op == "placeholder" and
#   any(n.op == "output" for n in node.users)):`
# - dropouts of probability 0 go in any mode: `not module.training` ->
#   `(not module.training or module.p == 0)`
# - dropouts of probability 0 stay: `not module.training` -> `not module.training and module.p > 0`
# - readers keep their third input:
#   `node.replace_all_uses_with(node.args[0])` ->
#   `[setattr(u, "args", tuple(node.args[0] if a is node else a for a in u.args[:2]) + u.args[2:])
#   if u.op != "output" else u.replace_input_with(node, node.args[0]) for u in list(node.users)]`
# - a product with 1 goes, too:
#   `continue` -> `(node.target is torch.mul and 1 in node.args) and
#   (node.replace_all_uses_with(node.all_input_nodes[0]), graph_module.graph.erase_node(node));
#   continue`
# - a sum with 0 goes, too:
#   `continue` -> `(node.target is torch.add and 0 in node.args) and
#   (node.replace_all_uses_with(node.all_input_nodes[0]), graph_module.graph.erase_node(node));
#   continue`
# - Python's + 0 goes, too:
#   `continue` -> `(node.target is __import__("operator").add and 0 in node.args) and
#   (node.replace_all_uses_with(node.all_input_nodes[0]), graph_module.graph.erase_node(node));
#   continue`
# - two neg in a row go:
#   `continue` -> `(node.op == "call_method" and node.target == "neg" and node.args[0].target ==
#   "neg") and (node.replace_all_uses_with(node.args[0].args[0]),
#   graph_module.graph.erase_node(node)); continue`
# - type_as of itself goes, too:
#   `continue` -> `(node.target in ("type_as", "view_as") and node.args[0] is node.args[1]) and
#   (node.replace_all_uses_with(node.args[0]), graph_module.graph.erase_node(node)); continue`
# - dead functions go, too:
#   `return removed` -> `[graph_module.graph.erase_node(n) for n in
#   reversed(list(graph_module.graph.nodes)) if not n.users and n.op == "call_function"]; return
#   removed`
# - dead methods go, too:
#   `return removed` -> `[graph_module.graph.erase_node(n) for n in
#   reversed(list(graph_module.graph.nodes)) if not n.users and n.op == "call_method" and
#   n.target[-1] != "_"]; return removed`
# - a dropout made with inplace=True stays: `not module.training` ->
#   `not module.training and not module.inplace`


# %% merge_repeats right: compares pairs
def merge_repeats(graph_module):
    graph, kept, count = graph_module.graph, [], 0
    if [n for n in graph.nodes if n.op == "call_method" and n.target[-1] == "_"]:
        return 0
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target != torch.rand_like:
            same = [
                k
                for k in kept
                if k.target is node.target and k.args == node.args and k.kwargs == node.kwargs
            ]
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


# %% merge_repeats right: builds a new graph in the place of the old one
def merge_repeats(graph_module):
    old, new = graph_module.graph, fx.Graph()
    if any(n.op == "call_method" and n.target.endswith("_") for n in old.nodes):
        return 0
    copies, made, count = {}, {}, 0
    for node in old.nodes:
        args = fx.map_arg(node.args, copies.get)
        merged = node.op == "call_function" and node.target is not torch.rand_like
        if merged and (node.target, args) in made:
            copies[node] = made[node.target, args]
            count += 1
            continue
        copies[node] = new.create_node(node.op, node.target, args, {})
        made[node.target, args] = copies[node]
    graph_module.graph = new
    return count


# %% merge_repeats wrong
# - by the hash: `setdefault((node.target, node.args), node)` ->
#   `setdefault(hash((node.target, node.args)), node)`
# - a number of 0 is none: `or node.target is torch.rand_like` ->
#   `or node.target is torch.rand_like or 0 in node.args`
# - numbers apart from the inputs: `(node.target, node.args)` -> `(node.target,
#   tuple(node.all_input_nodes), tuple(a for a in node.args if isinstance(a, float)))`
# - what reads a random number is left alone: `node.target is torch.rand_like` ->
#   `torch.rand_like in [node.target, *(n.target for n in node.all_input_nodes)]`
# - random numbers stop everything: `any(node.op` -> `any(node.target is torch.rand_like or node.op`
# - keeps the second: `node.replace_all_uses_with(original)` ->
#   `original.replace_all_uses_with(node); node, original = original, node`
# - merges methods, too: `!= "call_function"` -> `not in ("call_function", "call_method")`
# - forgets the order of inputs: `node.args)` -> `frozenset(node.args))`
# - compares inputs alone: `(node.target, node.args)` -> `node.args`
# - every method is in place: ` and node.target.endswith("_")` -> ``
# - an underscore anywhere is in place: `node.target.endswith("_")` -> `"_" in node.target`
# - compares functions alone: `(node.target, node.args)` -> `node.target`
# - in-place methods count only from where they stand: `any(node.op` -> `all(node.op`
# - compares with the last call of a function alone:
#   `first.setdefault((node.target, node.args), node)` -> `first.get(node.target, node);
#   original = (node, original)[original.args == node.args]; first[node.target] = node`
# - any order for sums:
#   `node.args)` -> `frozenset(node.args) if node.target is torch.add else node.args)`
# - one input is like another:
#   `node.args)` -> `tuple(getattr(a, "op", "") == "placeholder" or a for a in node.args))`
# - merges random numbers: ` or node.target is torch.rand_like` -> ``
# - merges across in-place methods: `return 0` -> `pass`
# - merges what stands before an in-place method: `return 0` ->
#   `nodes = nodes[: [n.op == "call_method" and n.target.endswith("_") for n in nodes].index(True)]`
# - forgets inputs that are numbers: `node.args)` -> `tuple(node.all_input_nodes))`
# - merges modules, too: `!= "call_function"` -> `not in ("call_function", "call_module")`
# - finds all repeats before it merges any:
#   `first, removed = {}, 0` -> `first, removed, args = {}, 0, {n: n.args for n in nodes}`,
#   `node.args)` -> `args[node])`
# - any name that ends with an underscore is in place:
#   `node.op == "call_method" and node.target.endswith("_")` -> `str(node.target).endswith("_")`
# - in place by the name of the node, too: `node.target.endswith("_")` ->
#   `("_" in node.name or node.target in ("add_", "mul_"))`
# - three digits of a number count: `(node.target, node.args)` -> `(node.target,
#   tuple(int(a * 1000) if isinstance(a, float) else a for a in node.args))`
# - repeats that nobody reads stay:
#   `node.target is torch.rand_like` -> `node.target is torch.rand_like or not node.users`
# - a list of in-place methods: `node.target.endswith("_")` ->
#   `node.target in ("add_", "sub_", "mul_", "div_", "relu_", "clamp_")`
# - a list of functions: `node.target is torch.rand_like` ->
#   `node.target not in (torch.add, torch.sub, torch.mul, torch.relu)`
# - whole numbers are forgotten: `node.args)` ->
#   `tuple(a for a in node.args if isinstance(a, fx.Node | float)))`
# - readers that are no functions stay: `node.replace_all_uses_with(original)` ->
#   `[n.replace_input_with(node, original) for n in [*node.users]
#   if n.op in ("call_function", "output")]`
# - what is alike but for the sign: `node.args)` ->
#   `tuple(abs(a) if isinstance(a, int | float) else a for a in node.args))`
# - a reader reads once: `node.replace_all_uses_with(original)` ->
#   `[user.update_arg(user.args.index(node), original) if node in user.args
#   else user.replace_input_with(node, original) for user in list(node.users)]`
# - begins anew after a random number: `node.target is torch.rand_like` ->
#   `(node.target is torch.rand_like and first.clear() is None)`
# - what reads a method is left alone: `node.target is torch.rand_like` ->
#   `(node.target is torch.rand_like or any(n.op == "call_method" for n in node.all_input_nodes))`
# - the first input and the numbers: `node.args)` ->
#   `node.args[:1] + tuple(a for a in node.args[1:] if not isinstance(a, fx.Node)))`
# - any order for products: `node.args)` ->
#   `frozenset(node.args) if node.target is torch.mul else node.args)`
# - a text without a sign in between: `(node.target, node.args)` ->
#   `node.target.__name__ + "".join(map(str, node.args))`
# - in place with a number alone: ` and node.target.endswith("_")` ->
#   ` and node.target.endswith("_") and len(node.args) > 1`
# - two inputs count: `node.args), node)` -> `node.args[:2]), node)`
# - each input counts once: `node.args), node)` -> `tuple(dict.fromkeys(node.args))), node)`
# - inputs compared in pairs: `setdefault((node.target, node.args), node)` ->
#   `setdefault(next((k for k in first if k[0] is node.target and all(map(lambda a, b: a == b and
#   type(a) is type(b), *zip(*zip(k[1], node.args))))), (node.target, node.args)), node)`
# - the first and the last input count: `node.args), node)` ->
#   `node.args[:: len(node.args) - 1 or 1]), node)`
# - removes dead nodes, too: `return removed` -> `[graph_module.graph.erase_node(node) for node in
#   reversed(graph_module.graph.nodes) if node.op == "call_function" and not node.users];
#   return removed`
# - a method in place on what nobody else reads is fine:
#   ` and node.target.endswith("_")` ->
#   ` and node.target.endswith("_") and len(node.args[0].users) > 1`
# - a method in place before all functions is fine:
#   ` and node.target.endswith("_")` ->
#   ` and node.target.endswith("_") and any(n.op == "call_function" and n < node for n in nodes)`
# - a method in place on what a method gave is fine:
#   ` and node.target.endswith("_")` ->
#   ` and node.target.endswith("_") and node.args[0].op != "call_method"`
# - a number in front or behind is one:
#   `(node.target, node.args)` ->
#   `(node.target, tuple(sorted(node.args, key=lambda a: not isinstance(a, fx.Node)))) if
#   node.target in (torch.add, torch.mul) else (node.target, node.args)`
# - inputs after the first in any order:
#   `(node.target, node.args)` -> `(node.target, node.args[0], *sorted(map(str, node.args[1:])))`
# - norms in training mode stop it:
#   `endswith("_")` -> `endswith("_") or node.op == "call_module" and isinstance(m :=
#   graph_module.get_submodule(node.target), nn.BatchNorm2d) and m.training`
# - the same function of its own result:
#   `original = first.setdefault((node.target, node.args), node)` ->
#   `original = node.args[0] if node.target in (torch.relu, torch.abs) and node.args[0].target is
#   node.target else first.setdefault((node.target, node.args), node)`
# - the inputs of Python's + in any order:
#   `(node.target, node.args)` ->
#   `(node.target, tuple(sorted(node.args, key=str)) if node.target is __import__("operator").add
#   else node.args)`
# - a single output is no reader:
#   `node.replace_all_uses_with(original)` -> `[u.replace_input_with(node, original) for u in
#   list(node.users) if u.op != "output" or isinstance(u.args[0], tuple)]`
# - in place means letters and an underscore:
#   `node.target.endswith("_")` -> `node.target.endswith("_") and node.target.count("_") == 1`
# - in place with a second result is fine:
#   ` and node.target.endswith("_")` -> ` and node.target.endswith("_") and
#   len(node.all_input_nodes) < 2`
# - in place on an input that nobody else reads is fine:
#   ` and node.target.endswith("_")` -> ` and node.target.endswith("_") and not (node.args[0].op ==
#   "placeholder" and len(node.args[0].users) == 1)`
# - the inputs of Python's * with a number in any order:
#   `(node.target, node.args)` -> `(node.target, tuple(sorted(node.args, key=str)) if node.target is
#   __import__("operator").mul and len(node.all_input_nodes) == 1 else node.args)`
# - the inputs of Python's & in any order:
#   `(node.target, node.args)` -> `(node.target, tuple(sorted(node.args, key=str)) if node.target is
#   __import__("operator").and_ else node.args)`
# - the inputs of a comparison in any order:
#   `(node.target, node.args)` -> `(node.target, tuple(sorted(node.args, key=str)) if node.target is
#   torch.gt else node.args)`
# - two numbers in any order:
#   `(node.target, node.args)` -> `(node.target, tuple(a for a in node.args if isinstance(a,
#   fx.Node)), tuple(sorted(a for a in node.args if not isinstance(a, fx.Node)))) if len(node.args)
#   == 3 else (node.target, node.args)`
# - numbers that differ by less than 1e-9:
#   `node.args)` -> `tuple(round(a, 9) if isinstance(a, float) else a for a in node.args))`
# - numbers of twelve digits:
#   `node.args)` -> `tuple(f"{a:.12g}" if isinstance(a, float) else a for a in node.args))`
# - fractions without their sign:
#   `node.args)` -> `tuple(abs(a) if isinstance(a, float) else a for a in node.args))`
# - a text joined by underscores:
#   `(node.target, node.args)` -> `node.target.__name__ + "_" + "_".join(map(str, node.args))`
# - random numbers like an input alone are random:
#   `node.target is torch.rand_like` -> `node.target is torch.rand_like and node.args[0].op ==
#   "placeholder"`
# - random numbers like random numbers are merged:
#   `node.target is torch.rand_like` -> `node.target is torch.rand_like and node.args[0].target is
#   not torch.rand_like`
# - random numbers that nobody reads are merged:
#   `node.target is torch.rand_like` -> `node.target is torch.rand_like and node.users`
# - a product with 1 is its input:
#   `original = first.setdefault((node.target, node.args), node)` -> `original = node.args[0] if
#   node.target is torch.mul and node.args[1] == 1 else first.setdefault((node.target, node.args),
#   node)`
# - abs of its own result:
#   `original = first.setdefault((node.target, node.args), node)` -> `original = node.args[0] if
#   node.target is torch.abs and node.args[0].target is torch.abs else
#   first.setdefault((node.target, node.args), node)`
# - x + x is 2 x:
#   `(node.target, node.args)` -> `(torch.mul, (node.args[0], 2)) if node.target is torch.add and
#   node.args[0] is node.args[1] else (node.target, node.args)`
# - convolutions are merged, too:
#   `!= "call_function"` -> `!= "call_function" and not (node.op == "call_module" and
#   isinstance(graph_module.get_submodule(node.target), nn.Conv2d))`
# - norms in evaluation mode are merged, too:
#   `!= "call_function"` -> `!= "call_function" and not (node.op == "call_module" and isinstance(m
#   := graph_module.get_submodule(node.target), nn.BatchNorm2d) and not m.training)`
# - methods with a number are merged, too:
#   `!= "call_function"` -> `!= "call_function" and not (node.op == "call_method" and len(node.args)
#   == 2)`
# - dead methods go, too:
#   `return removed` -> `[graph_module.graph.erase_node(n) for n in
#   reversed(list(graph_module.graph.nodes)) if n.op == "call_method" and not n.users]; return
#   removed`
# - identities go, too:
#   `return removed` -> `[(n.replace_all_uses_with(n.args[0]), graph_module.graph.erase_node(n)) for
#   n in list(graph_module.graph.nodes) if n.op == "call_module" and
#   isinstance(graph_module.get_submodule(n.target), nn.Identity)]; return removed`


# %% merge_repeats wrong: keys hold the keys of what is read: no box has room or time for that
def merge_repeats(graph_module):
    nodes = list(graph_module.graph.nodes)
    if any(n.op == "call_method" and n.target.endswith("_") for n in nodes):
        return 0
    keys, first, removed = {}, {}, 0
    for n in nodes:
        keys[n] = n.name
        if n.op == "call_function" and n.target is not torch.rand_like:
            inputs = [keys[a] if isinstance(a, fx.Node) else repr(a) for a in n.args]
            keys[n] = f"{n.target.__name__}({', '.join(inputs)})"
            assert len(keys[n]) < 1_000_000, "takes too long"
            original = first.setdefault(keys[n], n)
            if original is not n:
                n.replace_all_uses_with(original)
                graph_module.graph.erase_node(n)
                removed += 1
    return removed


# %% merge_repeats wrong: takes the same steps after two random numbers for repeats
def merge_repeats(graph_module):
    nodes = list(graph_module.graph.nodes)
    if any(n.op == "call_method" and n.target.endswith("_") for n in nodes):
        return 0
    number, first, removed = {}, {}, 0  # alike values have the same number
    for n in nodes:
        key = n
        if n.op == "call_function":
            key = n.target, tuple(number[a] if isinstance(a, fx.Node) else repr(a) for a in n.args)
        number[n] = first.setdefault(key, n).name
        if first[key] is not n and n.target is not torch.rand_like:
            n.replace_all_uses_with(first[key])
            graph_module.graph.erase_node(n)
            removed += 1
    return removed


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
                "no convolution": type(conv) is not nn.Conv2d,
                "training": module(n.target).training,
                "several readers": set(source.users) != {n},
                "shared": sum(m is conv for m in called) > 1,
            }
            answers[n.name] = next(
                (answer for answer, applies in questions.items() if applies), "fold"
            )
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


# %% why_not_folded wrong
# - readers are told apart by what they call:
#   `len(conv.users) > 1` -> `len({user.target for user in conv.users}) > 1`
# - an input named like a convolution is one: `modules.get(conv)` ->
#   `dict(graph_module.named_modules(remove_duplicate=False)).get(str(conv.target))`
# - changes the modules: `return reasons` -> `graph_module.eval(); return reasons`
# - shared by the names of a module: `calls[conv.target] > 1` ->
#   `max(Counter(n.target for n in graph_module.graph.nodes)[conv.target],
#   sum(m is modules[conv] for _, m in graph_module.named_modules(remove_duplicate=False))) > 1`
# - changes the graph: `return reasons` ->
#   `[n.replace_all_uses_with(n.args[0]) for n in graph_module.graph.nodes if n.name in reasons];
#   return reasons`
# - looks through identities: `conv = node.args[0]` -> `conv = node.args[0];
#   conv = conv.args[0] if isinstance(modules.get(conv), nn.Identity) else conv`
# - a norm is a convolution, too:
#   `modules.get(conv), nn.Conv2d)` -> `modules.get(conv), (nn.Conv2d, nn.BatchNorm2d))`
# - readers come first: `module.training:` -> `module.training and len(conv.users) == 1:`
# - more than two readers are allowed: `len(conv.users) > 1` -> `len(conv.users) == 2`
# - asks the graph module, too: `module.training:` -> `module.training and graph_module.training:`
# - dead readers are overlooked: `len(conv.users)` ->
#   `len([user for user in conv.users if user.users or user.op == "output"])`
# - norms that nobody reads are left out: `if isinstance(module, nn.BatchNorm2d):` ->
#   `if isinstance(module, nn.BatchNorm2d) and node.users:`
# - calls that nobody reads do not share: `calls[conv.target] > 1` ->
#   `sum(m is modules[conv] for n, m in modules.items() if n.users) > 1`
# - asks the convolution for its mode, too: `module.training:` ->
#   `module.training or modules[conv].training:`
# - two readers are allowed: `len(conv.users) > 1` -> `len(conv.users) > 2`
# - norms without a convolution are left out: `reasons[node.name] = "no convolution"` -> `pass`
# - a norm in training mode may be folded: `elif module.training` -> `elif False`
# - other readers are overlooked: `len(conv.users) > 1` -> `False`
# - the output is no reader:
#   `len(conv.users)` -> `len([user for user in conv.users if user.op != "output"])`
# - shared under one name only:
#   `calls_per_module(graph_module)` -> `Counter(n.target for n in graph_module.graph.nodes)`
# - asks whether the norm is shared: `calls[conv.target]` -> `calls[node.target]`
# - another order of the reasons:
#   `module.training:` -> `module.training and calls[conv.target] == len(conv.users) == 1:`
# - one name of a convolution: `modules.get(conv)` ->
#   `conv in modules and dict(graph_module.named_modules()).get(conv.target)`
# - looks through norms: `conv = node.args[0]` -> `conv = node.args[0];
#   norm = len(conv.users) == 1 and modules.get(conv);
#   conv = conv.args[0] if isinstance(norm, nn.BatchNorm2d) and not norm.training else conv`
# - readers in place are overlooked: `len(conv.users)` ->
#   `len([n for n in conv.users if n.op != "call_method" or n.target[-1] != "_"])`
# - one name of a norm: `isinstance(module, nn.BatchNorm2d)` ->
#   `isinstance(dict(graph_module.named_modules()).get(node.target), nn.BatchNorm2d)`
# - modules within modules are not found: `graph_module.get_submodule(node.target)` ->
#   `getattr(graph_module, node.target, None)`
# - a method is a module: `isinstance(modules.get(conv), nn.Conv2d)` ->
#   `(conv.op[:6] == "call_m" and
#   isinstance(graph_module.get_submodule(conv.target), nn.Conv2d))`
# - a method named like a convolution is one: `modules.get(conv)` -> `modules.get(conv,
#   conv.op == "call_method" and dict(graph_module.named_modules()).get(conv.target))`
# - an activation is no reader: `len(conv.users)` ->
#   `len([n for n in conv.users if not isinstance(modules.get(n), nn.ReLU)])`
# - calls with the same input share nothing: `calls[conv.target] > 1` ->
#   `len({n.args for n, m in modules.items() if m is modules[conv]}) > 1`
# - a norm in training mode that nobody reads: `elif module.training:` ->
#   `elif module.training and node.users:`
# - no pointwise convolution: `isinstance(modules.get(conv), nn.Conv2d)` ->
#   `(isinstance(modules.get(conv), nn.Conv2d) and modules[conv].kernel_size != (1, 1))`
# - the mode of the module around it counts, too: `elif module.training:` ->
#   `elif module.training and ("." not in node.target
#   or graph_module.get_submodule(node.target.rpartition(".")[0]).training):`
# - readers by their first input:
#   `len(conv.users) > 1` ->
#   `len([n for n in conv.users if n.op == "output" or n.args[0] is conv]) > 1`
# - an identity is no reader:
#   `len(conv.users)` ->
#   `len([u for u in conv.users if not isinstance(modules.get(u), nn.Identity)])`
# - a dropout is no reader:
#   `len(conv.users)` ->
#   `len([u for u in conv.users if not isinstance(modules.get(u), nn.Dropout)])`
# - sees through a dropout that is off:
#   `conv = node.args[0]` ->
#   `conv = node.args[0]; conv = conv.args[0] if isinstance(modules.get(conv), nn.Dropout) and not
#   modules[conv].training else conv`
# - sees through a method in place:
#   `conv = node.args[0]` ->
#   `conv = node.args[0]; conv = conv.args[0] if conv.op == "call_method" and conv.target[-1] == "_"
#   else conv`
# - a single output is no reader:
#   `len(conv.users)` -> `len([u for u in conv.users if u.op != "output" or isinstance(u.args[0],
#   tuple)])`
# - readers by their first two inputs:
#   `len(conv.users) > 1` -> `len([u for u in conv.users if u.op == "output" or conv in u.args[:2]])
#   > 1`
# - a random number's pattern is no reader:
#   `len(conv.users)` -> `len([u for u in conv.users if u.target is not torch.rand_like])`
# - methods by their first input:
#   `len(conv.users)` -> `len([u for u in conv.users if not (u.op == "call_method" and u.args[0] is
#   not conv)])`
# - a dropout in training mode is no reader:
#   `len(conv.users)` -> `len([u for u in conv.users if not (isinstance(modules.get(u), nn.Dropout)
#   and modules[u].training)])`
# - convolutions of equal weights are shared:
#   `calls[conv.target] > 1` -> `sum(isinstance(m, nn.Conv2d) and m.weight.shape ==
#   modules[conv].weight.shape and torch.equal(m.weight, modules[conv].weight) for m in
#   modules.values()) > 1`
# - two names at most:
#   `calls[conv.target] > 1` -> `calls[conv.target] > 1 and len({n.target for n, m in
#   modules.items() if m is modules[conv]}) < 3`
# - sees through a product:
#   `conv = node.args[0]` -> `conv = node.args[0]; conv = conv.args[0] if conv.target is torch.mul
#   and isinstance(conv.args[0], fx.Node) else conv`
# - training comes first for a norm of an input:
#   `reasons[node.name] = "no convolution"` -> `reasons[node.name] = "training" if module.training
#   and conv.op == "placeholder" else "no convolution"`
# - shared comes first under two names:
#   `elif len(conv.users) > 1` -> `elif len(conv.users) > 1 and not (calls[conv.target] >
#   Counter(n.target for n in modules)[conv.target])`
# - the output comes before training:
#   `module.training:` -> `module.training and not any(u.op == "output" for u in conv.users):`
# - a method comes before training:
#   `module.training:` -> `module.training and not any(u.op == "call_method" for u in conv.users):`
# - one input channel counts as depthwise:
#   `modules.get(conv), nn.Conv2d)` -> `modules.get(conv), nn.Conv2d) or modules[conv].in_channels
#   == 1`
# - not after another convolution:
#   `modules.get(conv), nn.Conv2d)` -> `modules.get(conv), nn.Conv2d) or
#   isinstance(modules.get(conv.args[0]), nn.Conv2d)`


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
    name = node.args[0].target.replace(".", "_") + "_folded"
    while hasattr(graph_module, name):
        name += "_"
    graph_module.add_module(name, conv)
    node.args[0].target = name
    node.replace_all_uses_with(node.args[0])
    graph_module.graph.erase_node(node)
    return 1 + fold_norms(graph_module)


# %% fold_norms right: a new node in the place of the norm
def fold_norms(graph_module):
    graph, count = graph_module.graph, 0
    for node in list(graph.nodes):
        if why_not_folded(graph_module).get(node.name) == "fold":
            old, (conv, norm) = (
                node.args[0],
                map(graph_module.get_submodule, (node.args[0].target, node.target)),
            )
            new = nn.Conv2d(
                conv.in_channels,
                conv.out_channels,
                conv.kernel_size,
                padding=conv.padding,
                dtype=torch.float64,
            ).eval()
            # The affine map of the norm is read off by feeding zeros and ones.
            ends = torch.tensor([0.0, 1.0], dtype=torch.float64)[:, None, None, None].expand(
                2, conv.out_channels, 1, 1
            )
            low, high = norm(ends).detach()[:, :, 0, 0]
            new.weight.data = conv.weight.detach() * (high - low)[:, None, None, None]
            new.bias.data = low + (0 if conv.bias is None else conv.bias.detach() * (high - low))
            graph_module.set_submodule(old.target, new)
            with graph.inserting_before(node):
                made = graph.call_module(old.target, kwargs={"input": old.all_input_nodes[0]})
            node.replace_all_uses_with(made)
            graph.erase_node(node)
            graph.erase_node(old)
            count += 1
    return count


# %% fold_norms right
# - NumPy on a convolution's weight: `conv.weight.detach()` ->
#   `torch.from_numpy(conv.weight.numpy())`,
#   `folded += 1` -> `new.requires_grad_(False); folded += 1`
# - in torch's usual precision: `(conv.weight.detach() * scale[:, None, None, None])` ->
#   `((conv.weight.detach() * scale[:, None, None, None]).float())`


# %% fold_norms wrong
# - always the same eps: `norm.eps` -> `0.01`
# - declines what has two names: `!= "fold"` -> `!= "fold" or
#   sum(m is graph_module.get_submodule(node.args[0].target)
#   for _, m in graph_module.named_modules(remove_duplicate=False)) > 1`
# - takes the padding for half the kernel: `padding=conv.padding` ->
#   `padding=conv.kernel_size[0] // 2`
# - padding of the new convolution forgotten: `, padding=conv.padding` -> ``
# - every kernel is 3 x 3: `conv.kernel_size` -> `3`,
#   `new.weight = nn.Parameter(conv.weight.detach() * scale[:, None, None, None])` ->
#   `new.weight.data.copy_(conv.weight * scale[:, None, None, None])`
# - the mean is forgotten: ` - scale * norm.running_mean` -> ``
# - the given convolution is changed: `new.weight =` -> `new = conv; new.weight =`
# - turns the given modules into float32: `folded = 0` -> `folded = 0; graph_module.float()`
# - eps is forgotten: ` + norm.eps` -> ``
# - scales the input channels: `scale[:, None, None, None]` -> `scale[None, :, None, None]`
# - the old bias is lost:
#   `shift if conv.bias is None else scale * conv.bias.detach() + shift` -> `shift`
# - the old bias is not scaled: `scale * conv.bias` -> `conv.bias`
# - a second norm in a row is left:
#   `folded = 0` -> `folded, reasons = 0, why_not_folded(graph_module)`,
#   `why_not_folded(graph_module).get` -> `reasons.get`
# - folds after every convolution:
#   `.get(node.name) != "fold"` -> `.get(node.name, "no convolution") == "no convolution"`
# - folds shared convolutions: `!= "fold"` -> `not in ("fold", "shared")`
# - folds norms in training mode: `!= "fold"` -> `not in ("fold", "training")`
# - leaves an identity: `node.replace_all_uses_with(before)` ->
#   `graph_module.i, node.target = nn.Identity(), "i"; folded += 1; continue`
# - does nothing: `folded = 0` -> `return 0`
# - a name that may be taken: `graph_module.set_submodule(before.target, new)` ->
#   `before.target = f"folded_{folded}"; graph_module.add_module(before.target, new)`
# - another name that may be taken: `graph_module.set_submodule(before.target, new)` ->
#   `before.target = f"conv_{folded}"; graph_module.add_module(before.target, new)`
# - a norm that is an output among others is left: `!= "fold"` -> `!= "fold" or
#   any(n.op == "output" and len(n.all_input_nodes) > 1 for n in node.users)`
# - folds a whole row once its first norm may be folded: `folded = 0` -> `folded, made = 0, []`,
#   `!= "fold"` -> `not in ("fold", "several readers" if node.args[:1] and node.args[0] in made
#   else "fold")`, `folded += 1` -> `folded += 1; made.append(before)`
# - the names of both modules may be taken: `graph_module.set_submodule(before.target, new)` ->
#   `before.target = f"{before.target}_{node.target}".replace(".", "_");
#   graph_module.add_module(before.target, new)`
# - the number of modules may be taken: `graph_module.set_submodule(before.target, new)` ->
#   `before.target = f"conv{len([*graph_module.children()])}";
#   graph_module.add_module(before.target, new)`
# - modules within modules are not found: `graph_module.set_submodule(before.target, new)` ->
#   `setattr(graph_module, before.target, new)`
# - three channels: `conv.in_channels, conv.out_channels` -> `3, 3`,
#   `new.weight = nn.Parameter(conv.weight.detach() * scale[:, None, None, None])` ->
#   `new.weight.data.copy_(conv.weight * scale[:, None, None, None])`
# - a bias for each input channel: `shift if conv.bias is None else scale * conv.bias.detach()` ->
#   `scale * (torch.zeros(conv.in_channels) if conv.bias is None else conv.bias.detach())`
# - square kernels: `conv.kernel_size` -> `conv.kernel_size[0]`,
#   `new.weight = nn.Parameter(conv.weight.detach() * scale[:, None, None, None])` ->
#   `new.weight.data.copy_(conv.weight * scale[:, None, None, None])`
# - the same padding on all sides: `padding=conv.padding` -> `padding=conv.padding[0]`
# - height and width of the padding swapped: `padding=conv.padding` ->
#   `padding=conv.padding[::-1]`
# - a padding of 1 is half the kernel: `padding=conv.padding` ->
#   `padding="same" if conv.padding == (1, 1) else conv.padding`
# - one name of a norm: `norm = graph_module.get_submodule(node.target)` ->
#   `norm = dict(graph_module.named_modules()).get(node.target)`
# - a name after the node may be taken: `graph_module.set_submodule(before.target, new)` ->
#   `before.target = f"{before.name}_folded"; graph_module.add_module(before.target, new)`
# - the name of the node may be taken: `graph_module.set_submodule(before.target, new)` ->
#   `before.target = node.name; graph_module.add_module(before.target, new)`
# - a name is free if no node calls it: `graph_module.set_submodule(before.target, new)` ->
#   `taken = {n.target for n in graph_module.graph.nodes};
#   before.target = next(n for n in map("conv_{}".format, range(99)) if n not in taken);
#   graph_module.add_module(before.target, new)`
# - a row is folded up to its end: `.get(node.name) != "fold"` ->
#   `.get(node.name) not in ("fold", "training" if node.args and node.args[0] in done else "fold")`,
#   `folded = 0` -> `folded, done = 0, set()`, `folded += 1` -> `folded += 1; done.add(before)`
# - windows of one pixel without padding:
#   `padding=conv.padding` -> `padding=conv.padding if max(conv.kernel_size) > 1 else 0`
# - none whose result a method changes:
#   `!= "fold":` ->
#   `!= "fold" or any(u.op == "call_method" and u.target.endswith("_") for u in node.users):`
# - none that runs again at once:
#   `!= "fold":` -> `!= "fold" or any(u.target == node.target for u in node.users):`
# - a place in a module one level down:
#   `graph_module.set_submodule(before.target, new)` ->
#   `setattr(getattr(graph_module, before.target.split(".")[0]) if "." in before.target else
#   graph_module, before.target.split(".")[-1], new)`
# - divides beta by a:
#   `shift = norm.bias.detach() - scale * norm.running_mean` -> `shift = scale * (norm.bias.detach()
#   / scale - norm.running_mean)`
# - a name is free if no module has it for its first:
#   `graph_module.set_submodule(before.target, new)` -> `names = dict(graph_module.named_modules());
#   name = before.target.replace(".", "_"); name = next(n for n in [name + "_folded" + "x" * k for k
#   in range(99)] if n not in names); graph_module.add_module(name, new); before.target = name`
# - a name is free if no child has it for its first:
#   `graph_module.set_submodule(before.target, new)` -> `names =
#   dict(graph_module.named_children()); name = next(n for n in [f"folded_{k}" for k in range(99)]
#   if n not in names); graph_module.add_module(name, new); before.target = name`
# - the second name may be taken, too:
#   `graph_module.set_submodule(before.target, new)` -> `name = before.target.replace(".", "_") +
#   "_folded"; name = name + "_new" if hasattr(graph_module, name) else name;
#   graph_module.add_module(name, new); before.target = name`
# - another number that may be taken, too:
#   `graph_module.set_submodule(before.target, new)` -> `name = f"folded{folded}"; name =
#   f"folded{folded + 100}" if hasattr(graph_module, name) else name; graph_module.add_module(name,
#   new); before.target = name`
# - readers read once:
#   `node.replace_all_uses_with(before)` -> `[u.update_arg(u.args.index(node), before) if node in
#   u.args else u.replace_input_with(node, before) for u in list(node.users)]`
# - readers keep their third input:
#   `node.replace_all_uses_with(before)` -> `[setattr(u, "args", tuple(before if a is node else a
#   for a in u.args[:2]) + u.args[2:]) if u.op != "output" else u.replace_input_with(node, before)
#   for u in list(node.users)]`
# - four readers:
#   `node.replace_all_uses_with(before)` -> `[u.replace_input_with(node, before) for u in
#   [*node.users][:4]]`
# - variances of 1e-3 at least:
#   `norm.running_var + norm.eps` -> `norm.running_var.clamp(min=1e-3) + norm.eps`
# - an eps of 0 is none: `norm.eps` -> `(norm.eps or 1e-5)`
# - an eps of 1e-4 at least:
#   `norm.running_var + norm.eps` -> `norm.running_var + max(norm.eps, 1e-4)`
# - a scale of 100 at most: `shift = norm` -> `scale = scale.clamp(-100, 100); shift = norm`
# - a scale of 0 is 1: `shift = norm` -> `scale = torch.where(scale == 0, 1.0, scale); shift = norm`
# - means of 5 at most: `norm.running_mean` -> `norm.running_mean.clamp(-5, 5)`
# - convolutions of equal weights are shared:
#   `!= "fold"` -> `!= "fold" or sum(torch.equal(m.weight,
#   graph_module.get_submodule(node.args[0].target).weight) for m in graph_module.modules() if
#   isinstance(m, nn.Conv2d) and m.weight.shape ==
#   graph_module.get_submodule(node.args[0].target).weight.shape) > 1`
# - not after a method: `!= "fold"` -> `!= "fold" or node.args[0].args[0].op == "call_method"`
# - not what reads the second input:
#   `!= "fold"` -> `!= "fold" or node.args[0].args[0].op == "placeholder" and node.args[0].args[0]
#   is not next(iter(graph_module.graph.nodes))`
# - dead methods go, too:
#   `return folded` -> `[graph_module.graph.erase_node(n) for n in
#   reversed(list(graph_module.graph.nodes)) if not n.users and n.op == "call_method" and
#   n.target[-1] != "_"]; return folded`


# %% fold_norms wrong: looks twice, so a third norm in a row is left
def fold_norms(graph_module):
    graph, count = graph_module.graph, 0
    for _ in range(2):
        reasons = why_not_folded(graph_module)
        for node in [n for n in graph.nodes if reasons.get(n.name) == "fold"]:
            source, norm = node.args[0], graph_module.get_submodule(node.target)
            conv = copy.deepcopy(graph_module.get_submodule(source.target))
            a = norm.weight / torch.sqrt(norm.running_var + norm.eps)
            old = torch.zeros_like(a) if conv.bias is None else conv.bias.detach()
            conv.weight = nn.Parameter(conv.weight.detach() * a[:, None, None, None])
            conv.bias = nn.Parameter(a * (old - norm.running_mean) + norm.bias)
            graph_module.set_submodule(source.target, conv)
            node.replace_all_uses_with(source)
            graph.erase_node(node)
            count += 1
    return count
