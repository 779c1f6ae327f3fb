// A graph as rows of nodes, step by step. After a pass: what it removed is dashed, what it made or
// changed is marked. In a trap: red uses what a fold would change.
function figure(fig, { steps, traps }) {
  const step = fig.slider(
    traps ? "Network" : "Step",
    { min: 0, max: steps.length - 1, step: 1, value: 0 },
    (i) => `${i + 1} of ${steps.length}`,
  );
  const back = fig.button("Back", () => {
    step.value -= 1;
  });
  const next = fig.button("Next", () => {
    step.value += 1;
  });
  fig.controls.after(fig.line); // the graph grows and shrinks, the sentence stays
  fig.line.style.margin = "0 0 8px";
  const DOES = {
    canonicalize: "each operation is written in one way",
    elim_identity: "what changes nothing goes",
    constant_folding: "what is always the same is computed once",
    conv_bn_folding: "the BatchNorm moves into the weights of the convolution",
    conv_add_folding: "the constant moves into the bias of the convolution",
  };
  const same = (a, b) => a.what === b.what && a.op === b.op && a.weights === b.weights;

  /** Name -> "removed", "made", or "changed": the nodes that a step touched. */
  function difference(before, after) {
    const [old, now] = [before, after].map((boxes) => new Map(boxes.map((box) => [box.name, box])));
    const touched = {};
    for (const name of old.keys()) if (!now.has(name)) touched[name] = "removed";
    for (const [name, box] of now) {
      if (!old.has(name)) touched[name] = "made";
      else if (!same(old.get(name), box)) touched[name] = "changed";
    }
    return touched;
  }

  /** What a changed node was, and what it is now. */
  function told(old, box) {
    if (old.what !== box.what) return `${old.what} → ${box.what}`;
    return old.op === box.op ? `${box.what}, new weights` : `${box.what}: ${old.op} → ${box.op}`;
  }

  /** The rows of both graphs in one order: a removed node stays where it was. */
  function merged(before, after, touched) {
    const rows = [...after];
    before.forEach((box, i) => {
      if (touched[box.name] !== "removed") return;
      const above = before
        .slice(0, i)
        .reverse()
        .find((one) => rows.some((row) => row.name === one.name));
      const place = above ? rows.findIndex((row) => row.name === above.name) + 1 : 0;
      rows.splice(place, 0, { ...box, name: box.name, gone: true });
    });
    return rows;
  }

  /** Who, besides the BatchNorm, uses the convolution's output or its weights. */
  function others(boxes) {
    const norm = boxes.find((box) => box.what.startsWith("BatchNorm"));
    const conv = boxes.find(
      (box) => norm?.inputs.includes(box.name) && box.what.startsWith("Conv"),
    );
    if (!conv)
      return { touched: {}, why: "Nothing to fold: no convolution right before a BatchNorm." };
    const touched = { [conv.name]: "made", [norm.name]: "made" };
    const users = boxes.filter((box) => box.inputs.includes(conv.name) && box !== norm);
    const again = boxes.filter((box) => box !== conv && box.weights === conv.weights);
    const weight = boxes.filter((box) => box.what.startsWith(`constant ${conv.name}.`));
    for (const box of [...users, ...again, ...weight]) touched[box.name] = "bad";
    const names = (found) => found.map((box) => box.name).join(" and ");
    const why = users.length
      ? `Do not fold ${norm.name} into ${conv.name}: ${names(users)} also uses its output.`
      : again.length
        ? `Fold into a copy of the layer: it is called again, as ${names(again)}.`
        : weight.length
          ? `Fold into a copy of the layer: ${names(weight)} also uses its weight.`
          : `Fold ${norm.name} into ${conv.name}: nothing else needs ${conv.name}.`;
    return { touched, conv: conv.name, why };
  }

  fig.draw = (width, svg) => {
    const at = step.value;
    [back.disabled, next.disabled] = [at === 0, at === steps.length - 1];
    const { name, boxes } = steps[at];
    const before = at && !traps ? steps[at - 1].boxes : boxes;
    const found = traps ? others(boxes) : { touched: difference(before, boxes) };
    const rows = merged(before, boxes, found.touched);
    add(svg, "text", { x: 0, y: 16, style: "font-weight: 600; font-size: 15px" }, name);
    const wide = Math.min(width - 80, 460);
    const y = (i) => 30 + 40 * i;
    const place = Object.fromEntries(rows.map((row, i) => [row.name, i]));
    for (const row of rows)
      for (const source of row.inputs) {
        const bad = found.touched[row.name] === "bad" && source === found.conv;
        if (source in place) edge(svg, wide, y, place[source], place[row.name], bad, row.gone);
      }
    rows.forEach((row, i) => {
      const kind = found.touched[row.name];
      const old = kind === "changed" && before.find((box) => box.name === row.name);
      node(svg, old ? { ...row, what: told(old, row) } : row, y(i), wide, kind);
    });
    const numbers = { removed: 0, made: 0, changed: 0, bad: 0 };
    for (const kind of Object.values(found.touched)) numbers[kind] += 1;
    const kinds = Object.keys(numbers).filter((kind) => numbers[kind]);
    const counts = kinds.map((kind) => `${numbers[kind]} ${kind}`).join(", ");
    const does = DOES[name] ? `${name}: ${DOES[name]}` : name;
    const pass = at
      ? `${does}. ${counts || "Nothing to do"}; ${boxes.length} nodes are left.`
      : `The graph ${name}: ${boxes.length} nodes. Press Next for the first pass.`;
    fig.say(traps ? `${name}: ${found.why}` : pass, { nodes: boxes.length, ...numbers });
    return y(Math.max(...steps.map((one) => one.boxes.length), rows.length)) - 4;
  };

  const LOOKS = {
    removed: { fill: "none", stroke: "var(--muted)", "stroke-dasharray": "5 4" },
    made: { fill: "var(--tint)", stroke: "var(--accent)", "stroke-width": 2 },
    changed: { fill: "var(--tint)", stroke: "var(--accent)", "stroke-width": 2 },
    bad: { fill: "none", stroke: "var(--bad)", "stroke-width": 2.5 },
  };

  function node(svg, box, y, wide, kind) {
    const look = LOOKS[kind] ?? { fill: "var(--soft)", stroke: "var(--rule)" };
    add(svg, "rect", { x: 1, y, width: wide, height: 30, rx: 5, ...look });
    const faded = kind === "removed" ? { class: "muted", "text-decoration": "line-through" } : {};
    add(svg, "text", { x: 12, y: y + 19.5, ...faded }, box.name);
    const what = box.what === box.name ? "" : box.what;
    const most = Math.floor((wide - 30) / 7.4) - box.name.length;
    const short = what.length > most ? `${what.slice(0, most - 1)}…` : what;
    add(svg, "text", { x: wide - 10, y: y + 19.5, "text-anchor": "end", class: "muted" }, short);
  }

  function edge(svg, wide, y, from, to, bad, gone) {
    const look = {
      fill: "none",
      stroke: bad ? "var(--bad)" : "var(--muted)",
      "stroke-width": bad ? 2.5 : 1.4,
      "stroke-dasharray": gone ? "5 4" : "none",
    };
    if (to === from + 1) add(svg, "path", { d: `M${wide / 2} ${y(from) + 30}V${y(to)}`, ...look });
    else {
      const out = wide + Math.min(16 + 9 * Math.abs(to - from), 76);
      const [a, b] = [y(from) + 15, y(to) + 15];
      const d = `M${wide + 1} ${a}C${out} ${a} ${out} ${b} ${wide + 1} ${b}`;
      add(svg, "path", { d, ...look });
    }
  }
}
