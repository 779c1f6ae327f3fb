RELU = 'node.op == "call_module" and type(modules[node.target]) is nn.ReLU'
CONV = 'node.args[0].op == "call_module" and type(modules[node.args[0].target]) is nn.Conv2d'
ALONE_BEFORE = f"""
modules, found = dict(graph_module.named_modules()), []
for node in graph_module.graph.nodes:
    if {RELU} and {CONV} and len(node.args[0].users) == 1:
        found.append(node.name)
return found
"""

ANSWERS = {
    "intensity": {
        "right": [
            "W = torch.zeros(c_out, c_in // groups, kernel, kernel); "
            "x = torch.zeros(c_in, side, side); y = torch.zeros(c_out, side, side); "
            "return 2 * y.numel() * W[0].numel() / (x.nbytes + y.nbytes + W.nbytes)",
        ],
        "wrong": [
            ("2 * w", "w"),
            (" // groups", ""),
            (" // groups", " // max(1, groups // 2)"),
            ("w = c_out * c_in // groups", "w = c_out * (1 if groups > 1 else c_in)"),
            ("4 * (", "("),
            (" + w +", " +"),
            ("c_in * p + ", ""),
            ("kernel**2", "kernel"),
        ],
        "base": "w = c_out * c_in // groups * kernel**2; p = side**2; "
        "return 2 * w * p / (4 * (c_in * p + w + c_out * p))",
    },
    "fusable": {
        "right": [
            (
                "len(node.args[0].users) == 1",
                "list(node.args[0].users) == [node]",
                "node.name",
                "node",
            ),
        ],
        "wrong": [
            (" and len(node.args[0].users) == 1", ""),
            (f" and {CONV}", ""),
            ("len(node.args[0].users)", "len(node.users)"),
            ("users) == 1", "users) == 1 and len(node.users) == 1"),
            ("node.name", "node.args[0].name"),
            ("== 1", "<= 2"),
            "return []",
            (CONV, CONV.partition(" and ")[2]),
            "m, nodes = dict(graph_module.named_modules()), list(graph_module.graph.nodes)\n"
            "return [b.name for a, b in zip(nodes, nodes[1:]) if a.op == b.op == 'call_module'\n"
            "        and type(m[a.target]) is nn.Conv2d and type(m[b.target]) is nn.ReLU]",
            "m, nodes = dict(graph_module.named_modules()), list(graph_module.graph.nodes)\n"
            "return [b.name for a, b in zip(nodes, nodes[1:]) if a.op == b.op == 'call_module'\n"
            "        and type(m[a.target]) is nn.Conv2d and type(m[b.target]) is nn.ReLU\n"
            "        and len(a.users) == 1]",
        ],
        "base": ALONE_BEFORE,
    },
}

TRIALS = {
    "intensity": [
        (
            "two|multiply|add",
            "w = c_out * c_in // groups * kernel * kernel\n"
            "return w * side**2 / (4 * (side**2 * (c_in + c_out) + w))",
        ),
        (
            "byte|4",
            "w = c_out * c_in // groups * kernel * kernel\n"
            "return 2 * w * side**2 / (side**2 * (c_in + c_out) + w)",
        ),
        (
            "group",
            "w = c_out * c_in * kernel * kernel\n"
            "return 2 * w * side**2 / (4 * (side**2 * (c_in + c_out) + w))",
        ),
        (
            "weight",
            "w = c_out * c_in // groups * kernel * kernel\n"
            "return 2 * w * side**2 / (4 * side**2 * (c_in + c_out))",
        ),
        (
            "input",
            "w = c_out * c_in // groups * kernel * kernel\n"
            "return 2 * w * side**2 / (4 * (side**2 * c_out + w))",
        ),
    ],
    "fusable": [
        ("user|reads|reader|twice", ("if is_conv and len(source.users) == 1", "if is_conv")),
        ("conv", ("if is_conv and len(source.users) == 1", "if len(source.users) == 1")),
        (
            "ReLU.*(reader|users|itself)|users? of (its|the) (operand|conv)|wrong node",
            ("len(source.users)", "len(node.users)"),
        ),
        ("name|ReLU", ("found.append(node.name)", "found.append(source.name)")),
    ],
}
