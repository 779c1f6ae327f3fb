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
      ? `Do not fold: ${names(users)} also uses the output of ${conv.name}.`
      : again.length
        ? `Fold into a copy: the same layer is called again, as ${names(again)}.`
        : weight.length
          ? `Fold into a copy: its weight is also used, by ${names(weight)}.`
          : `Fold: nothing but ${norm.name} needs ${conv.name}.`;
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
    rows.forEach((row, i) => node(svg, row, y(i), wide, found.touched[row.name]));
    const count = (kind) => Object.values(found.touched).filter((one) => one === kind).length;
    const told = at
      ? `${name}: ${count("removed")} removed, ${count("made")} made,` +
        ` ${count("changed")} changed; ${boxes.length} nodes are left.`
      : `The graph ${name}: ${boxes.length} nodes. Press Next.`;
    fig.say(traps ? found.why : told, {
      nodes: boxes.length,
      removed: count("removed"),
      made: count("made"),
      changed: count("changed"),
      bad: count("bad"),
    });
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
      add(svg, "path", {
        d: `M${wide + 1} ${a}C${out} ${a} ${out} ${b} ${wide + 1} ${b}`,
        ...look,
      });
    }
  }
}
