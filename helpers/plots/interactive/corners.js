// Two weights of one sum, between four codes. The ellipses join roundings that change the output
// equally; they are long where the errors of two inputs that move together cancel.
function figure(fig, { weights, correlation }) {
  const shown = (x) => x.toFixed(2);
  const range = { min: 0.02, max: 0.98, step: 0.02 };
  const together = fig.slider(
    "Correlation of the inputs",
    { min: -0.95, max: 0.95, step: 0.05, value: correlation },
    (x) => minus(x),
  );
  const sliders = ["First weight", "Second weight"].map((name, i) =>
    fig.slider(name, { ...range, value: weights[i] }, shown),
  );
  const CORNERS = [
    [0, 0],
    [1, 0],
    [0, 1],
    [1, 1],
  ];

  /** The mean squared error of w1 x1 + w2 x2, for inputs of variance 1. */
  function loss([a, b]) {
    const [p, q] = [a - sliders[0].value, b - sliders[1].value];
    return p * p + q * q + 2 * together.value * p * q;
  }

  let unit = null;
  const id = `clip-${Math.random().toString(36).slice(2)}`; // a figure may be on a page twice
  fig.pointer((x, y) => {
    sliders[0].value = clamp((x - unit.left) / unit.size, range.min, range.max);
    sliders[1].value = clamp(1 - (y - unit.top) / unit.size, range.min, range.max);
  });

  fig.draw = (width, svg) => {
    const size = Math.min(230, width - 180);
    unit = { left: width / 2 - size / 2, top: 84, size };
    const at = ([a, b]) => [unit.left + a * size, unit.top + (1 - b) * size];
    const point = sliders.map((slider) => slider.value);
    const losses = CORNERS.map(loss);
    const nearest = CORNERS.findIndex(
      ([a, b]) => a === Math.round(point[0]) && b === Math.round(point[1]),
    );
    const least = Math.min(...losses);
    const best = losses[nearest] < least + 1e-9 ? nearest : losses.indexOf(least); // in a tie as well
    const box = { x: unit.left - 70, y: 10, width: size + 140, height: size + 148 };
    const clip = add(svg, "clipPath", { id });
    add(clip, "rect", box);
    const inside = add(svg, "g", { "clip-path": `url(#${id})` });
    for (const level of [0.04, 0.16, 0.36, 0.64, 1]) {
      add(inside, "path", {
        d: ellipse(at, level),
        fill: "none",
        stroke: "var(--rule)",
        "stroke-width": 1.5,
      });
    }
    const through = { d: ellipse(at, losses[best]), fill: "var(--tint)", "fill-opacity": 0.5 };
    add(inside, "path", { ...through, stroke: "var(--accent)", "stroke-width": 2 });
    add(svg, "rect", {
      x: unit.left,
      y: unit.top,
      width: size,
      height: size,
      fill: "none",
      stroke: "var(--muted)",
      "stroke-dasharray": "4 4",
    });
    const [x, y] = at(point);
    add(svg, "path", {
      d: `M${x} ${y}L${at(CORNERS[nearest]).join(" ")}`,
      stroke: "var(--muted)",
      "stroke-width": 2,
    });
    CORNERS.forEach((corner, i) => {
      const [cx, cy] = at(corner);
      const look =
        i === best
          ? { fill: "var(--accent)", r: 9 }
          : { fill: i === nearest ? "var(--bad)" : "var(--muted)", r: 7 };
      add(svg, "circle", { cx, cy, ...look });
      const side = corner[0]
        ? { x: cx + 14, "text-anchor": "start" }
        : { x: cx - 14, "text-anchor": "end" };
      const under = cy + (corner[1] ? -8 : 16);
      add(svg, "text", { ...side, y: under, style: "font-weight: 600" }, losses[i].toFixed(2));
      const told =
        i === best ? (i === nearest ? "best, nearest" : "best") : i === nearest ? "nearest" : "";
      add(svg, "text", { ...side, y: under + 15, class: "muted" }, told);
    });
    add(svg, "circle", {
      cx: x,
      cy: y,
      r: 6,
      fill: "none",
      stroke: "var(--ink)",
      "stroke-width": 2.5,
    });
    const ratio = losses[nearest] / losses[best];
    fig.say(
      "The ring marks the exact weights; each corner shows its error in the output. " +
        (best === nearest
          ? "The nearest corner is the best one."
          : `The nearest corner has ${ratio.toFixed(1)} times the error of the best one: its two` +
            ` errors have ${together.value > 0 ? "the same sign" : "opposite signs"} and add up.`),
      { nearest: losses[nearest], best: losses[best], ratio },
    );
    return unit.top + size + 72;
  };

  /** All points of one loss: the square root of the matrix, by its two axes at 45 degrees. */
  function ellipse(at, level) {
    const [along, across] = [1 + together.value, 1 - together.value].map((one) =>
      Math.sqrt(level / one),
    );
    const points = Array.from({ length: 73 }, (_, i) => {
      const angle = (i * Math.PI) / 36;
      const [u, v] = [along * Math.cos(angle), across * Math.sin(angle)];
      const place = [
        sliders[0].value + (u + v) / Math.SQRT2,
        sliders[1].value + (u - v) / Math.SQRT2,
      ];
      return at(place)
        .map((value) => value.toFixed(1))
        .join(" ");
    });
    return `M${points.join("L")}Z`;
  }
}
