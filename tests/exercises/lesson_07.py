# fmt: off
ANSWERS = {
    "recalibrated_statistics": {"right": [
        "m = torch.stack([b.mean((0, 2, 3)) for b in batches]).mean(0); "
        "return m, torch.stack([b.var((0, 2, 3)) for b in batches]).mean(0)",
    ], "wrong": [
        ("/ n", "/ 1"), ("((0, 2, 3))", "()"), (".var(", ".std("), ("(0, 2, 3)", "(1, 2, 3)"),
        "b = batches[-1]; return b.mean((0, 2, 3)), b.var((0, 2, 3), correction=0)",
        "x = torch.cat(batches) + 0.01; return x.mean((0, 2, 3)), x.var((0, 2, 3))",
    ], "base": "n = len(batches); "
        "return sum(b.mean((0, 2, 3)) for b in batches) / n, sum(b.var((0, 2, 3)) for b in batches) / n"},
    "distillation_loss": {"right": [
        "t = temperature; return t * t * F.kl_div(F.log_softmax(student / t, 1), F.softmax(teacher / t, 1), "
        "reduction='batchmean')",
    ], "wrong": [
        ("temperature**2 * ", ""), ("p * (p / q)", "q * (q / p)"), (" / temperature", " * temperature"),
        (" / temperature", ""), (".sum(1)", ""), ("temperature**2 * (p * (p / q)", "-temperature**2 * (p * q"),
        "return ((student - teacher) ** 2).mean()",
    ], "base": "p = (teacher / temperature).softmax(1); q = (student / temperature).softmax(1); "
        "return temperature**2 * (p * (p / q).log()).sum(1).mean()"},
    "train_with_teacher": {"right": [
        ("        optimizer.zero_grad()\n", "", "optimizer.step()", "optimizer.step(); student.zero_grad()"),
        ("    optimizer.zero_grad()\n", "    student.zero_grad()\n"),
    ], "wrong": [
        ("student.train()", "pass"), ("teacher.eval()", "teacher.train()"), ("        optimizer.zero_grad()\n", ""),
        ("= share *", "= (1 - share) *", "+ (1 - share)", "+ share"), ("4.0)", "1.0)"),
        ("1 - step / len(batches)", "1"), ("1 - step / len(batches)", "1 - (step + 1) / len(batches)"),
        (", momentum=0.9", ""), ("return student.eval()", "return student"),
        ("distillation_loss(scores, wanted, 4.0)", "distillation_loss(wanted, scores, 4.0)"),
        ("with torch.no_grad():", "if True:"),
        ("return student.eval()", "return teacher"), ("return student.eval()", "student.eval()"),
        ("    student.train()", "    import copy; student = copy.deepcopy(student).train()"),
        ("(x, labels) in enumerate(batches):", "_ in enumerate(batches):\n        x, labels = batches[step]"),
    ]},
}
