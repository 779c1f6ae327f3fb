// The page: pictures in, answers out. All computing happens in the worker.
"use strict";

const SIDE = 32, BYTES = SIDE * SIDE * 3, MAPS_SHOWN = 64, MOST_ZOOM = 64;
const $ = (id) => document.getElementById(id);
const state = { networks: [], classes: [], pixels: null, asked: 0, turn: 0 };

/** Put a question to the worker; resolves with its answer. Answers come in the order of the questions. */
const ask = (() => {
  const waiting = new Map();
  let worker, asked = 0;
  return (question) => new Promise((resolve, reject) => {
    if (!worker) {
      worker = new Worker(URL.createObjectURL(new Blob([$("interpreter").textContent], { type: "text/javascript" })));
      worker.onmessage = ({ data: { id, answer, problem } }) => {
        const { resolve, reject } = waiting.get(id);
        waiting.delete(id);
        if (problem === undefined) resolve(answer);
        else reject(new Error(problem));
      };
      worker.onerror = ({ message }) => {
        for (const { reject } of waiting.values()) reject(new Error(message || "the worker did not start"));
        waiting.clear();
      };
    }
    waiting.set(++asked, { resolve, reject });
    worker.postMessage({ id: asked, ...question });
  });
})();

document.addEventListener("DOMContentLoaded", () => start().catch((error) => say(
  `These networks cannot be read: ${error.message}. Make the page again with “python -m course demo”.`)));
addEventListener("unhandledrejection", ({ reason }) => say(`Something went wrong: ${reason.message}. Load the page again.`));
// In a slide this page has the keyboard after a click; the keys of a presenter's remote belong to the slides.
if (parent !== window) addEventListener("keydown", ({ key }) => {
  const method = { PageDown: "next", PageUp: "prev" }[key];
  if (method) parent.postMessage(JSON.stringify({ method }), "*");
});

async function start() {
  say("Unpacking the networks …");
  listenForPhotos();
  const images = JSON.parse($("images").textContent);
  state.classes = images.classes;
  state.networks = await ask({ kind: "load", text: $("data").textContent });
  const bytes = Uint8Array.from(atob(images.pixels), (letter) => letter.charCodeAt(0));
  const pictures = images.labels.map((label, i) => ({ label, pixels: bytes.slice(i * BYTES, (i + 1) * BYTES) }));
  if (pictures.some(({ pixels }) => pixels.length !== BYTES)) throw new Error("some pictures are missing");
  buildNetworks();
  buildPictures(pictures);
  $("classes").textContent = state.classes.join(", ");
  document.querySelector("main").hidden = false;
  say("");
  await choose(pictures[0].pixels, state.classes[pictures[0].label], $("pictures").firstChild);
  await scoreAll(pictures);
}

function say(text) {
  $("status").textContent = text;
}

function make(tag, text = "", attributes = {}) {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

const megabytes = (bytes) => `${(bytes / 1e6).toFixed(2)} MB`;

function buildNetworks() {
  state.networks.forEach((network, n) => {
    const card = make("article", "", { class: "network" });
    card.append(make("h3", network.name), make("p", `${megabytes(network.bytes)}: ${network.told}`, { class: "small" }), make("ol"));
    $("networks").append(card);
    $("network").append(make("option", network.name, { value: n }));
    const row = make("tr");
    row.append(make("th", network.name, { scope: "row" }), make("td", megabytes(network.bytes)), make("td"), make("td"));
    $("scores").append(row);
  });
  $("network").onchange = () => { listLayers(); askMaps(); };
  $("layer").onchange = askMaps;
  listLayers();
}

function listLayers() {
  const { layers } = state.networks[$("network").value];
  $("layer").replaceChildren(...layers.map(({ name, shape }) => make("option", `${name} (${shape.join(" × ")})`, { value: name })));
}

function buildPictures(pictures) {
  const seen = state.classes.map(() => 0);
  for (const { pixels, label } of pictures) {
    const name = `${state.classes[label]} ${++seen[label]}`;
    const button = make("button", "", { type: "button", "aria-pressed": "false", "aria-label": name });
    const canvas = make("canvas", "", { width: SIDE, height: SIDE });
    drawPixels(canvas, pixels);
    button.append(canvas);
    button.tabIndex = -1;  // the tab key stops at one picture, arrow keys choose among them
    button.onclick = () => choose(pixels, state.classes[label], button);
    $("pictures").append(button);
  }
  $("pictures").firstChild.tabIndex = 0;
  $("pictures").onkeydown = chooseByKey;
}

/** Arrow keys, Home and End choose another picture of the grid. */
function chooseByKey(event) {
  if (event.altKey || event.ctrlKey || event.metaKey) return;  // the browser's own, such as Back
  const buttons = [...$("pictures").children], now = buttons.indexOf(document.activeElement);
  const across = getComputedStyle($("pictures")).gridTemplateColumns.split(" ").length;
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across, Home: -now, End: buttons.length - 1 - now };
  const next = buttons[now + steps[event.key]];
  if (now < 0 || !(event.key in steps)) return;
  event.preventDefault();  // or the page would scroll
  next?.focus();
  next?.click();
}

function drawPixels(canvas, pixels) {
  const image = new ImageData(SIDE, SIDE);
  for (let i = 0; i < image.data.length; i++) image.data[i] = i % 4 === 3 ? 255 : pixels[(i >> 2) * 3 + (i % 4)];
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/** Show a picture and what each network says of it, unless another one was chosen since; `truth` labels a test picture. */
async function choose(pixels, truth, button) {
  const turn = ++state.turn;
  state.asked++;
  state.pixels = pixels;
  $("photoStatus").textContent = $("said").textContent = "";
  for (const other of $("pictures").children) {
    other.setAttribute("aria-pressed", other === button);
    if (button) other.tabIndex = other === button ? 0 : -1;
  }
  for (const card of $("networks").children) card.classList.add("waiting");
  drawPixels($("picture"), pixels);
  $("picture").setAttribute("aria-label", truth ? `Test picture: ${truth}` : "Your photo at 32 by 32 pixels");
  $("truth").textContent = truth ? `A test picture of the class “${truth}”.` : "Your photo, as the networks see it.";
  const said = [];
  for (const [n, { name }] of state.networks.entries()) {
    await state.answered?.catch(() => {});  // of the picture before: keys may pass over many
    if (turn !== state.turn) return;
    state.answered = ask({ kind: "run", network: n, pixels });
    const answer = await state.answered;
    if (turn !== state.turn) return;
    said.push(`${name}: ${showAnswer(n, answer.scores)}`);
  }
  $("said").textContent = said.join("; ");
  await askMaps();
}

/** Fill the card of a network; returns its first answer in words. */
function showAnswer(n, scores) {
  const card = $("networks").children[n], best = scores.indexOf(Math.max(...scores));
  const shares = scores.map((score) => Math.exp(score - scores[best])), total = shares.reduce((a, b) => a + b);
  card.classList.remove("waiting");
  card.querySelector("ol").replaceChildren(...shares.map((share, c) => {
    const line = make("li", "", c === best ? { class: "first" } : {});
    const room = make("span", "", { "aria-hidden": "true" }), bar = make("div", "", { class: "bar" });
    bar.style.width = `${(100 * share) / total}%`;
    room.append(bar);
    line.append(make("span", state.classes[c]), room, make("span", `${((100 * share) / total).toFixed(1)} %`));
    return line;
  }));
  return `${state.classes[best]} ${(100 / total).toFixed(0)} %`;
}

/** Ask for the codes of the chosen layer, and show them unless something else was chosen meanwhile. */
async function askMaps() {
  const network = Number($("network").value), name = $("layer").value, { turn, pixels } = state;
  const answer = await ask({ kind: "run", network, pixels, layer: name });
  const same = turn === state.turn && network === Number($("network").value) && name === $("layer").value;
  if (same) showMaps(name, state.networks[network].layers.find((layer) => layer.name === name).shape, answer);
}

/** The codes of a layer as grey squares, one per channel. */
function showMaps(name, [channels, height, width], { codes, checksum }) {
  const shown = Math.min(channels, MAPS_SHOWN), across = Math.min(shown, 16), zoom = Math.max(1, Math.floor(72 / width));
  const canvas = $("maps"), step = width * zoom + 2;
  canvas.width = across * step;
  canvas.height = Math.ceil(shown / across) * (height * zoom + 2);
  const image = new ImageData(canvas.width, canvas.height);
  for (let c = 0; c < shown; c++) {
    const left = (c % across) * step, top = Math.floor(c / across) * (height * zoom + 2);
    for (let y = 0; y < height * zoom; y++) {
      for (let x = 0; x < width * zoom; x++) {
        const code = codes[(Math.floor(y / zoom) * width + Math.floor(x / zoom)) * channels + c];
        const at = 4 * ((top + y) * canvas.width + left + x);
        image.data[at] = image.data[at + 1] = image.data[at + 2] = code;
        image.data[at + 3] = 255;
      }
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  const text = `${shown} of ${channels} channels of ${name}, ${height} by ${width} values each, from 0 (black) to 255 (white).`;
  canvas.setAttribute("aria-label", text);
  $("mapsText").textContent = text;
  $("checksum").textContent = `Checksum of all values, to compare with lesson 09: ${checksum}`;
}

/** Each picture goes through all networks in turn, so that a drift of the device meets them alike; first runs are cold. */
async function scoreAll(pictures) {
  const rows = state.networks.map((_, n) => ({ count: 0, times: [], cells: $("scores").children[n].children }));
  for (const n of rows.keys()) await ask({ kind: "run", network: n, pixels: pictures[0].pixels });
  for (const [i, { pixels, label }] of pictures.entries()) {
    for (const [n, row] of rows.entries()) {
      const { scores, milliseconds } = await ask({ kind: "run", network: n, pixels });
      row.count += scores.indexOf(Math.max(...scores)) === label;
      row.times.push(milliseconds);
      row.cells[2].textContent = i + 1 < pictures.length ? `${row.count} of the first ${i + 1}` : `${row.count}`;
    }
  }
  for (const { times, cells } of rows) {
    const median = times.sort((a, b) => a - b)[times.length >> 1];
    cells[3].textContent = `${median.toFixed(median < 10 ? 1 : 0)} ms`;
  }
  document.body.dataset.scored = "yes";
}

function listenForPhotos() {
  $("file").onchange = ({ target }) => {
    takePhotos([...target.files]);
    target.value = "";  // or the same file could not be chosen again
  };
  document.addEventListener("paste", ({ clipboardData }) => clipboardData.files.length && takePhotos(clipboardData.files));
  document.addEventListener("dragover", (event) => { event.preventDefault(); $("drop").classList.add("over"); });
  document.addEventListener("dragleave", () => $("drop").classList.remove("over"));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    $("drop").classList.remove("over");
    takePhotos(event.dataTransfer.files);
  });
}

/** The first of these files, if it is a picture; says what is wrong beside the place where it was dropped. */
async function takePhotos([file, ...more]) {
  if (!state.pixels) return;  // the networks are not unpacked yet
  const told = $("photoStatus"), asked = ++state.asked;
  told.textContent = file ? "" : "That was not a file. Save the picture, then drop the file.";
  if (!file) return;
  let pixels;
  try {
    pixels = shrunk(await createImageBitmap(file));
  } catch {
    if (asked === state.asked) told.textContent = `${file.name} is not a picture that this browser can read, or it is too large. PNG, JPEG and WebP work.`;
    return;
  }
  if (asked !== state.asked) return;  // something else was chosen meanwhile
  const chosen = choose(pixels, "", null);
  if (more.length) told.textContent = `The first of ${more.length + 1} files was taken.`;
  await chosen;
}

/** The middle square of a photo at 32 by 32 pixels, each the mean of its part: no browser has to smooth as others do. */
function shrunk(photo) {
  const side = Math.min(photo.width, photo.height), zoom = Math.min(MOST_ZOOM, Math.max(1, Math.floor(side / SIDE)));
  const size = SIDE * zoom, canvas = make("canvas", "", { width: size, height: size });
  const context = canvas.getContext("2d"), sums = new Float64Array(BYTES);
  context.fillStyle = "white";
  context.fillRect(0, 0, size, size);
  context.drawImage(photo, (photo.width - side) / 2, (photo.height - side) / 2, side, side, 0, 0, size, size);
  photo.close();
  const { data } = context.getImageData(0, 0, size, size);
  for (let y = 0, at = 0; y < size; y++) {
    for (let x = 0; x < size; x++, at += 4) {
      const place = 3 * (Math.floor(y / zoom) * SIDE + Math.floor(x / zoom));
      for (let c = 0; c < 3; c++) sums[place + c] += data[at + c];
    }
  }
  return Uint8Array.from(sums, (sum) => Math.round(sum / zoom ** 2));
}
