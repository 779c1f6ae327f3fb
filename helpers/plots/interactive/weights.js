// A layer's weights and the codes that stand for them. Above, a histogram; below, one row for each
// filter, from the smallest to the largest. A code's mark is where weights may land after rounding.
function figure(fig, { weight, filters, dead }) {
  const bits = fig.slider("Bits", { min: 2, max: 8, step: 1, value: 8 });
  const way = fig.choice("Scale", ["one scale for the layer", "one scale per filter"]);
  const silent = fig.toggle("dead filters set to 0");
  const size = weight.length / filters;
  const rows = Array.from({ length: filters }, (_, i) => weight.slice(i * size, (i + 1) * size));
  const isDead = (i) => dead.includes(i);
  const living = rows.filter((_, i) => !isDead(i));
  const largest = (values) => values.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
  living.sort((a, b) => largest(a) - largest(b));
  const widest = largest(living.at(-1));

  /** What the living filters become, the distance of their marks, and how good that is. */
  function rounded() {
    const last = 2 ** (bits.value - 1) - 1;
    const heard = silent.value ? living : rows;
    const shared = Math.max(...heard.map(largest)) / last;
    const steps = living.map((row) => (way.value ? largest(row) / last || 1 : shared));
    const back = living.map((row, i) => row.map((x) => steps[i] * roundEven(x / steps[i])));
    const signal = sum(living.flat().map((x) => x * x));
    const noise = sum(living.flatMap((row, i) => row.map((x, j) => (x - back[i][j]) ** 2)));
    const zeros = sum(back.flat().map((x) => (x === 0 ? 1 : 0))) / (living.length * size);
    return { steps, back, zeros, sqnr: 10 * Math.log10(signal / noise), last };
  }

  fig.draw = (width, svg) => {
    const { steps, back, zeros, sqnr, last } = rounded();
    const x = linear([-widest, widest], [22, width - 22]);
    const rowHeight = 2;
    const [top, base] = [24, 150];
    const under = base + 34;
    const bottom = under + rowHeight * living.length;
    histogram(svg, x, top, base);
    marks(svg, x, under, rowHeight, steps, last);
    const dots = { lost: "", kept: "" };
    living.forEach((row, i) =>
      row.forEach((value, j) => {
        dots[back[i][j] === 0 ? "lost" : "kept"] +=
          `M${x(value).toFixed(1)} ${under + i * rowHeight + 1}h2`;
      }),
    );
    add(svg, "path", { d: dots.kept, stroke: "var(--ink)", "stroke-width": 2 });
    add(svg, "path", { d: dots.lost, stroke: "var(--bad)", "stroke-width": 2 });
    add(svg, "text", { x: 0, y: 12, class: "muted" }, "weights of living filters");
    add(svg, "text", { x: 0, y: under - 9, class: "muted" }, "filter by filter, small ones first");
    const key = add(svg, "text", { x: width, y: 12, "text-anchor": "end" });
    add(key, "tspan", { style: "fill: var(--accent)" }, "a line is a code");
    add(key, "tspan", { style: "fill: var(--bad)" }, zeros > 0.005 ? " · red becomes 0" : "");
    axis(svg, bottom + 4, x, [-widest, 0, widest], "weight", (v) => v.toFixed(2));
    const dead = `A dead filter, far outside with a weight of ${grouped(largest(rows.flat()))},`;
    const shared = silent.value ? "The largest living filter" : dead;
    const who = way.value
      ? "Each filter has its own scale, so a dead one harms no other"
      : `${shared} sets the scale for all`;
    const told =
      `${who}. At ${bits.value} bits ${(100 * zeros).toFixed(0)} % of the living weights` +
      ` become 0; signal-to-noise ratio ${sqnr.toFixed(1)} dB.`;
    fig.say(told, { sqnr, zeros, step: steps[0] });
    return bottom + 44;
  };

  function histogram(svg, x, top, base) {
    const bins = new Array(81).fill(0);
    for (const value of living.flat()) bins[Math.round(40 + (40 * value) / widest)] += 1;
    const tall = linear([0, Math.sqrt(Math.max(...bins))], [0, base - top]);
    const wide = (x(widest) - x(-widest)) / 80;
    bins.forEach((count, i) => {
      const height = tall(Math.sqrt(count)); // the root, so that rare weights are seen
      const left = x(((i - 40) / 40) * widest) - wide / 2;
      add(svg, "rect", { x: left, y: base - height, width: wide - 1, height, fill: "var(--fill)" });
    });
  }

  function marks(svg, x, under, rowHeight, steps, last) {
    const close = (step) => x(step) - x(0) < 3;
    let lines = "";
    let bands = "";
    steps.forEach((step, i) => {
      const y = under + i * rowHeight;
      const end = Math.min(last, Math.floor(widest / step));
      if (close(step))
        bands += `M${x(-step * end)} ${y}H${x(step * end)}v${rowHeight}H${x(-step * end)}z`;
      else
        for (let q = -end; q <= end; q += 1)
          lines += `M${x(q * step).toFixed(1)} ${y}v${rowHeight}`;
    });
    add(svg, "path", { d: bands, fill: "var(--accent)", opacity: 0.22 });
    add(svg, "path", { d: lines, stroke: "var(--accent)", "stroke-width": 1.2 });
    if (way.value) return;
    const across = Array.from({ length: 2 * last + 1 }, (_, i) => (i - last) * steps[0]);
    const seen = across.filter((value) => Math.abs(value) <= widest);
    const stroke = { stroke: "var(--accent)", opacity: close(steps[0]) ? 0.3 : 1 };
    add(svg, "path", { d: seen.map((v) => `M${x(v)} 24V150`).join(""), ...stroke });
  }
}
