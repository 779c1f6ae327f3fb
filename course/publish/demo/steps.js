// The graph of a network before and after each pass; boxes and lines were placed by Python.
"use strict";

const FIRST = "conv_bn_folding";  // the pass that the course begins with
const BOX = { width: 168, height: 68, inner: 46 };
const $ = (id) => document.getElementById(id);
let stages = [], chosen = 0, side = "before";

document.addEventListener("DOMContentLoaded", () => {
  try {
    stages = JSON.parse($("stages").textContent);
  } catch {
    $("status").textContent = "The graphs cannot be read. Make the page again with “python -m course demo”.";
    return;
  }
  $("passes").append(...stages.map(({ name }, i) => button(name, () => show(i, "before"))));
  $("sides").append(...["before", "after"].map((which) => button(which, () => show(chosen, which))));
  document.querySelector("main").hidden = false;
  $("status").textContent = "";
  fitBoxes();
  show(Math.max(0, stages.findIndex(({ name }) => name === FIRST)), "before");
});

/** As wide as the longest label, so that none is cut. */
function fitBoxes() {
  const context = document.createElement("canvas").getContext("2d"), { fontFamily } = getComputedStyle(document.body);
  context.font = `13px ${fontFamily}`;
  for (const { before, after } of stages) {
    for (const box of [...before.boxes, ...(after?.boxes ?? [])]) {
      for (const label of [box.what, box.shape]) BOX.width = Math.max(BOX.width, Math.ceil(context.measureText(label).width) + 28);
    }
  }
}

function button(text, press) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.onclick = press;
  return made;
}

function show(number, which) {
  chosen = number;
  const stage = stages[number];
  side = stage.after ? which : "before";
  [...$("passes").children].forEach((made, i) => made.setAttribute("aria-pressed", i === number));
  [...$("sides").children].forEach((made) => made.setAttribute("aria-pressed", made.textContent === side));
  $("sides").lastChild.disabled = !stage.after;
  $("sides").lastChild.title = stage.after ? "" : "This pass changed nothing.";
  const nodes = stage.after ? `${stage.before.boxes.length} nodes became ${stage.after.boxes.length}.` : "The graph stayed as it was.";
  $("summary").textContent = `${stage.sentence} Here: ${stage.changed} changed, ${stage.declined} declined. ${nodes} ` +
    `Largest difference from the first network's answers (rounding of 32-bit numbers): ${stage.difference.toExponential(1)}.`;
  draw(stage[side]);
  $("list").replaceChildren(...stage.told.map((textContent) => Object.assign(document.createElement("li"), { textContent })));
  const first = stage[side].boxes.find((box) => box.status) ?? stage[side].boxes[0], [x, y] = place(first.at), view = $("graph");
  view.scrollTo({ left: x - view.clientWidth / 2, top: y - view.clientHeight / 2 });
  choose(first);
}

function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const place = ([x, y]) => [x * BOX.width + 10, y * BOX.height + 10];

function draw({ width, height, boxes, lines }) {
  const shapes = boxes.map((box) => {
    const [x, y] = place(box.at);
    const group = svg("g", { class: box.status, id: `box-${box.name}`, tabindex: -1, role: "button", "aria-label": `${box.name}: ${box.what} ${box.status}` },
      svg("rect", { x: x - BOX.width / 2 + 6, y: y - BOX.inner / 2, width: BOX.width - 12, height: BOX.inner }),
      svg("text", { x, y: y - 4 }, box.what), svg("text", { x, y: y + 13 }, box.shape));
    group.onclick = () => choose(box);
    group.onkeydown = (event) => {
      const [before, after] = [group.previousElementSibling, group.nextElementSibling];
      const beside = { ArrowLeft: before, ArrowUp: before, ArrowRight: after, ArrowDown: after }[event.key];
      if (beside?.matches("g")) {
        event.preventDefault();  // or the graph would scroll
        beside.focus();
        choose(boxes[shapes.indexOf(beside)]);
      }
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();  // the space bar would scroll the graph as well
      choose(box);
    };
    return group;
  });
  const paths = lines.map((line) => svg("polyline", { points: line.map((point) => place(point).join(",")).join(" ") }));
  $("graph").replaceChildren(svg("svg", { width: width * BOX.width + 20, height: height * BOX.height + 20 }, ...paths, ...shapes));
}

function choose(box) {
  for (const group of $("graph").querySelectorAll("g")) {
    const isChosen = group.id === `box-${box.name}`;
    group.classList.toggle("chosen", isChosen);
    group.setAttribute("tabindex", isChosen ? 0 : -1);  // one stop for Tab; arrow keys go on from it
  }
  $("boxTitle").textContent = box.name;
  const fate = box.status ? ` This pass: ${box.status}. ` : " This pass left it alone. ";
  $("box").textContent = `${box.what}${box.shape && `, ${box.shape}`}.${fate}${box.note}`;
}
