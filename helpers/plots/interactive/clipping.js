// Where to cut the range of codes: a small range clips the large values, a large one rounds all
// coarsely. The curves are the mean squared errors of both, and their sum.
function figure(fig, { values, bits }) {
  const largest = values.reduce((most, x) => Math.max(most, x), 0);
  const count = fig.slider("Bits", { min: 2, max: 8, step: 1, value: bits });
  const STEPS = 80;
  const ends = Array.from({ length: STEPS }, (_, i) => ((i + 1) * largest) / STEPS);
  const shown = (i) => ends[i - 1].toFixed(2);
  const place = fig.slider("Clip at t", { min: 1, max: STEPS, step: 1, value: STEPS }, shown);
  const measured = {}; // by the number of bits: it takes a moment

  /** Both errors for a range from 0 to t. */
  function errors(t, bits) {
    const step = t / (2 ** bits - 1);
    let rounding = 0;
    let clipping = 0;
    for (const x of values) {
      if (x > t) clipping += (x - t) ** 2;
      else rounding += (x - step * roundEven(x / step)) ** 2;
    }
    return { rounding: rounding / values.length, clipping: clipping / values.length };
  }

  let scale = null;
  fig.pointer((x) => {
    place.value = clamp(Math.round(scale(x)), 1, STEPS);
  });

  fig.draw = (width, svg) => {
    const curves = (measured[count.value] ??= ends.map((t) => errors(t, count.value)));
    const both = curves.map(({ rounding, clipping }) => rounding + clipping);
    const best = both.indexOf(Math.min(...both));
    const at = place.value - 1;
    const across = linear([0, largest], [44, width - 16]);
    scale = linear([44, width - 16], [0, STEPS]);
    histogram(svg, across, 96, ends[at]);
    const [top, bottom] = [126, 330];
    const most = 4 * both[best];
    const up = linear([0, most], [bottom, top]);
    const height = (error) => clamp(up(error), top, bottom);
    add(svg, "path", { d: `M44 ${up(both[best])}H${width - 16}`, stroke: "var(--rule)" });
    const least = { x: 38, y: up(both[best]) + 4, "text-anchor": "end", class: "muted" };
    add(svg, "text", least, "least");
    add(svg, "text", { x: 44, y: top - 8, class: "muted" }, "mean squared error");
    const draw = (errors, look) => {
      const seen = errors.map((error, i) => [across(ends[i]).toFixed(1), error]);
      const points = seen
        .filter(([, error]) => error <= most)
        .map(([x, error]) => `${x} ${up(error)}`);
      add(svg, "path", { d: `M${points.join("L")}`, fill: "none", "stroke-width": 2, ...look });
    };
    draw(
      curves.map((one) => one.rounding),
      { stroke: "var(--muted)", "stroke-dasharray": "6 4" },
    );
    draw(
      curves.map((one) => one.clipping),
      { stroke: "var(--muted)", "stroke-dasharray": "2 3" },
    );
    draw(both, { stroke: "var(--accent)", "stroke-width": 3.5 });
    names(svg, across, height, most, curves);
    const x = across(ends[at]);
    add(svg, "path", { d: `M${x} 8V${bottom}`, stroke: "var(--ink)", "stroke-width": 1.5 });
    const inside = both[at] <= most; // else the dot waits at the edge, hollow
    const dot = { cx: x, cy: height(both[at]), r: 7, stroke: "var(--accent)", "stroke-width": 2 };
    add(svg, "circle", { ...dot, fill: inside ? "var(--accent)" : "none" });
    if (ends[at] < largest) {
      const red = { x: width - 16, y: 30, "text-anchor": "end", style: "fill: var(--bad)" };
      add(svg, "text", red, "red: clipped to t");
    }
    axis(
      svg,
      bottom,
      across,
      [0, 2, 4, 6, 8, 10, 12].filter((v) => v <= largest),
      "value of an activation",
    );
    const { rounding, clipping } = curves[at];
    const who =
      at === best
        ? "Their sum is least here"
        : `Their sum is ${(both[at] / both[best]).toFixed(1)} times the least one,` +
          ` which is at t = ${ends[best].toFixed(2)}`;
    fig.say(
      `Clipped at ${ends[at].toFixed(2)}: rounding costs ${rounding.toFixed(4)}, clipping` +
        ` ${clipping.toFixed(4)}. ${who}.`,
      { rounding, clipping, best: ends[best], t: ends[at] },
    );
    return bottom + 40;
  };

  /** Each name stands beside its curve, where that is at most half as high as the picture. */
  function names(svg, across, height, most, curves) {
    const both = curves.map(({ rounding, clipping }) => rounding + clipping);
    const start = curves.findIndex(({ clipping }) => clipping <= most / 2);
    const end = curves.findLastIndex(({ rounding }) => rounding <= most / 2);
    const far = Math.min(end, STEPS - 18);
    const label = (x, y, text, look) => add(svg, "text", { x, y, class: "muted", ...look }, text);
    const left = { "text-anchor": "end" };
    label(across(ends[start]) - 8, height(curves[start].clipping) + 8, "clipping", left);
    label(across(ends[far]) + 8, height(curves[far].rounding) + 28, "rounding");
    const seen = both.findIndex((error) => error <= most);
    const blue = { class: "", style: "fill: var(--accent)" };
    label(across(ends[seen]) + 10, height(both[seen]) + 8, "both", blue);
  }

  function histogram(svg, across, base, t) {
    const bins = new Array(90).fill(0);
    for (const x of values) bins[Math.min(89, Math.floor((90 * x) / largest))] += 1;
    const most = Math.sqrt(Math.max(...bins));
    bins.forEach((found, i) => {
      const from = (i * largest) / 90;
      const height = (80 * Math.sqrt(found)) / most;
      const fill = from < t ? "var(--fill)" : "var(--bad)";
      const wide = across(largest / 90) - across(0) - 1;
      add(svg, "rect", { x: across(from), y: base - height, width: wide, height, fill });
    });
  }
}
