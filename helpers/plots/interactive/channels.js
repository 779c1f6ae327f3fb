// A network as its layers, left to right, each as tall as its channels: at its left side those it
// reads, at its right side those it makes. The channels of one group go together or not at all.
function figure(fig, { layers, groups, image, colours }) {
  const sizes = Object.fromEntries(groups.map((group) => [group.name, group.size]));
  const title = (group) => `${group.hidden ? "hidden channels of" : "channels from"} ${group.name}`;
  const which = fig.slider(
    "Group",
    { min: 0, max: groups.length - 1, step: 1, value: 6 },
    (i) => `${i + 1} of ${groups.length}`,
  );
  const share = fig.slider("Remove", { min: 0, max: 90, step: 5, value: 50 }, (x) => `${x} %`);

  /** Parameters (weights, and two numbers of BatchNorm or one bias per channel), multiply-adds. */
  function cost(channels) {
    let side = image;
    const total = { params: 0, macs: 0 };
    for (const layer of layers) {
      side = Math.ceil(side / layer.stride);
      const [read, made] = [channels[layer.read] ?? colours, channels[layer.made]];
      const weights = made * (layer.depthwise ? 1 : read) * layer.kernel ** 2;
      total.params += weights + made * (layer.linear ? 1 : 2);
      total.macs += weights * (layer.linear ? 1 : side ** 2);
    }
    return total;
  }

  const makers = (name) => layers.filter((layer) => layer.made === name && !layer.depthwise);
  let places = [];
  fig.pointer((x, y) => {
    const found = places.findIndex(({ right }) => x < right);
    if (found < 0 || y < 0) return;
    const { left, right } = places[found];
    const name = layers[found][x < (left + right) / 2 ? "read" : "made"] ?? layers[found].made;
    which.value = groups.findIndex((group) => group.name === name);
  });

  fig.draw = (width, svg) => {
    const group = groups[which.value];
    const fixed = group.fixed;
    const gone = fixed ? 0 : Math.floor((group.size * share.value) / 100 + 1e-9);
    const left = { ...sizes, [group.name]: group.size - gone };
    const before = cost(sizes);
    const after = cost(left);
    drawLayers(svg, width, group.name, left);
    const lit = layers.filter((layer) => layer.read === group.name || layer.made === group.name);
    bar(svg, width, 204, "parameters", after.params, before.params, grouped(after.params));
    bar(
      svg,
      width,
      236,
      "multiply-adds",
      after.macs,
      before.macs,
      `${(after.macs / 1e6).toFixed(1)} M`,
    );
    const why = makers(group.name).length > 1 ? " by shortcuts" : "";
    const tied =
      `${group.size} ${title(group)}, tied together${why} in ${lit.length} layers` +
      ` and ${group.tensors} tensors.`;
    const percent = (part) =>
      `${((100 * (before[part] - after[part])) / before[part]).toFixed(1)} %`;
    fig.say(
      fixed
        ? `${tied} They stay: ${fixed}.`
        : `${tied} Without ${gone} of them: ${percent("params")} fewer parameters and` +
            ` ${percent("macs")} fewer multiply-adds.`,
      { ...after, layers: lit.length, group: group.name },
    );
    return 260;
  };

  function drawLayers(svg, width, chosen, channels) {
    const step = width / layers.length;
    const tall = (name) => 4.6 * Math.sqrt(name ? channels[name] : colours);
    places = layers.map((layer, i) => ({ left: i * step, right: (i + 1) * step }));
    const middle = 106;
    const sides = { read: "", made: "" };
    layers.forEach((layer, i) => {
      const [from, to] = [i * step + 1, (i + 1) * step - 1];
      const reads = layer.depthwise ? layer.made : layer.read;
      const [a, b] = [tall(reads) / 2, tall(layer.made) / 2];
      const lit = layer.read === chosen || layer.made === chosen;
      const d = `M${from} ${middle - a}L${to} ${middle - b}V${middle + b}L${from} ${middle + a}Z`;
      add(svg, "path", { d, fill: lit ? "var(--tint)" : "var(--soft)" });
      add(svg, "path", { d, fill: "none", stroke: lit ? "var(--accent)" : "var(--fill)" });
      if (reads === chosen) sides.read += `M${from} ${middle - a}v${2 * a}`;
      if (layer.made === chosen) sides.made += `M${to} ${middle - b}v${2 * b}`;
    });
    for (const d of Object.values(sides)) {
      add(svg, "path", { d, stroke: "var(--accent)", "stroke-width": Math.min(4, step / 2.5) });
    }
    shortcuts(svg, step, chosen, middle - tall(chosen) / 2);
    add(svg, "text", { x: 0, y: 12, class: "muted" }, "image");
    const key = "layers: the taller, the more channels";
    add(svg, "text", { x: 0, y: 188, class: "muted" }, key);
    add(svg, "text", { x: width, y: 12, class: "muted", "text-anchor": "end" }, "classes");
  }

  /** Layers that make the same channels are tied by the additions of shortcuts. */
  function shortcuts(svg, step, chosen, y) {
    const ends = makers(chosen).map((layer) => (layers.indexOf(layer) + 1) * step - 1);
    ends.slice(1).forEach((to, i) => {
      const d = `M${ends[i]} ${y}C${ends[i]} ${y - 90} ${to} ${y - 90} ${to} ${y}`;
      add(svg, "path", { d, fill: "none", stroke: "var(--accent)", "stroke-width": 2 });
    });
  }

  function bar(svg, width, y, name, value, whole, told) {
    const start = 108;
    const length = width - start - 84;
    add(svg, "text", { x: 0, y: y + 14, class: "muted" }, name);
    add(svg, "rect", { x: start, y, width: length, height: 18, rx: 3, fill: "var(--soft)" });
    const part = { x: start, y, width: (length * value) / whole, height: 18, rx: 3 };
    add(svg, "rect", { ...part, fill: "var(--accent)" });
    add(svg, "text", { x: width, y: y + 14, "text-anchor": "end" }, told);
  }
}
