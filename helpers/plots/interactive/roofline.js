// The roofline: what bounds each layer, as the batch grows? Its time is the longest of three: to
// compute, to move its bytes, and to be started at all. Maps are moved once for each image.
function figure(fig, { layers, peak, bandwidth, overhead }) {
  const batch = fig.slider("Batch", { min: 0, max: 8, step: 1, value: 0 }, (power) =>
    power ? `${2 ** power} images` : "1 image",
  );
  const which = fig.slider(
    "Layer",
    { min: 0, max: layers.length - 1, step: 1, value: 0 },
    (i) => `${i + 1} of ${layers.length}`,
  );
  const BOUNDS = ["compute", "memory", "overhead"];
  const MEANT = {
    compute: "compute, its multiplications",
    memory: "memory, the bytes it moves",
    overhead: "overhead, the time to start it",
  };
  const LOOKS = {
    compute: { fill: "var(--accent)", stroke: "var(--accent)" },
    memory: { fill: "var(--fill)", stroke: "var(--ink)" },
    overhead: { fill: "none", stroke: "var(--muted)" },
  };

  function timed(layer) {
    const images = 2 ** batch.value;
    const operations = layer.operations * images;
    const bytes = layer.weights + layer.maps * images;
    const times = [operations / peak, bytes / bandwidth, overhead];
    const seconds = Math.max(...times);
    const bound = BOUNDS[times.indexOf(seconds)];
    return { layer, intensity: operations / bytes, rate: operations / seconds, seconds, bound };
  }

  let points = [];
  fig.pointer((x, y) => {
    const far = points.map((point) => (point.x - x) ** 2 + (point.y - y) ** 2);
    const least = Math.min(...far);
    if (least < 400) which.value = far.indexOf(least); // else what the slider chose stays
  }, true);

  fig.draw = (width, svg) => {
    const found = layers.map(timed);
    const chosen = found[which.value];
    const [left, right, top, bottom] = [52, width - 14, 26, 320];
    const log = Math.log10;
    const across = linear([log(0.25), log(128)], [left, right]);
    const ceiling = log(peak);
    const up = linear([ceiling - 2.4, ceiling + 0.2], [bottom, top]);
    const ridge = peak / bandwidth;
    const foot = Math.max(log(0.25), ceiling - 2.4 - log(bandwidth));
    const corners = [
      [across(foot), up(foot + log(bandwidth))],
      [across(log(ridge)), up(ceiling)],
      [right, up(ceiling)],
    ];
    add(svg, "path", {
      d: `M${corners.join("L")}`,
      stroke: "var(--ink)",
      fill: "none",
      "stroke-width": 2.5,
    });
    const roof = { x: right, y: up(ceiling) - 17, "text-anchor": "end" };
    add(svg, "text", roof, `compute: ${grouped(peak / 1e9)} billion operations/s`);
    const [x1, y1] = corners[0].map((from, i) => (from + corners[1][i]) / 2);
    const angle =
      (Math.atan2(corners[1][1] - corners[0][1], corners[1][0] - corners[0][0]) * 180) / Math.PI;
    add(
      svg,
      "text",
      { x: x1, y: y1 - 10, "text-anchor": "middle", transform: `rotate(${angle} ${x1} ${y1})` },
      `memory: ${(bandwidth / 1e9).toFixed(0)} GB/s`,
    );
    for (let power = Math.ceil(ceiling - 2.4); power <= ceiling; power += 1) {
      const told = power >= 9 ? 10 ** (power - 9) : `1/${10 ** (9 - power)}`;
      add(
        svg,
        "text",
        { x: left - 8, y: up(power) + 4, "text-anchor": "end", class: "muted" },
        told,
      );
      add(svg, "path", {
        d: `M${left} ${up(power)}H${right}`,
        stroke: "var(--rule)",
        opacity: 0.6,
      });
    }
    add(svg, "text", { x: 0, y: 12, class: "muted" }, "billion operations/s");
    points = found.map((one) => ({ x: across(log(one.intensity)), y: up(log(one.rate)) }));
    found.forEach((one, i) => {
      const place = { cx: points[i].x, cy: points[i].y, r: one === chosen ? 9 : 5.5 };
      add(svg, "circle", {
        ...place,
        ...LOOKS[one.bound],
        "stroke-width": 1.5,
        "fill-opacity": 0.75,
      });
    });
    const at = points[which.value];
    add(svg, "circle", {
      cx: at.x,
      cy: at.y,
      r: 12,
      fill: "none",
      stroke: "var(--ink)",
      "stroke-width": 2,
    });
    const marks = [0.25, 1, 4, 16, 64, 128];
    axis(svg, bottom, (v) => across(log(v)), marks, "operations per byte");
    const whole = sum(found.map((one) => one.seconds));
    const share = (bound) =>
      sum(found.filter((one) => one.bound === bound).map((one) => one.seconds)) / whole;
    legend(svg, width, bottom + 58, share);
    const images = 2 ** batch.value;
    const each = (whole / images) * 1e3;
    fig.say(
      `${chosen.layer.name}, ${chosen.layer.kind}: bound by ${MEANT[chosen.bound]}.` +
        ` The network takes ${each.toFixed(2)} ms per image,` +
        ` ${(100 * share("overhead")).toFixed(0)} % of it in layers bound by overhead.`,
      {
        seconds: whole,
        intensity: chosen.intensity,
        overhead: share("overhead"),
        compute: share("compute"),
        memory: share("memory"),
        layer: chosen.layer.name,
      },
    );
    return bottom + 66;
  };

  function legend(svg, width, y, share) {
    BOUNDS.forEach((bound, i) => {
      const x = 8 + (i * width) / 3;
      add(svg, "circle", { cx: x, cy: y - 4, r: 5.5, ...LOOKS[bound], "stroke-width": 1.5 });
      const name = width < 520 ? bound : `${bound}-bound`;
      add(svg, "text", { x: x + 12, y }, `${name}: ${(100 * share(bound)).toFixed(0)} %`);
    });
  }
}
