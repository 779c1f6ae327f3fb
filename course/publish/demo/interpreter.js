// A quantized network in integers only: the same codes as the course's integer mode in Python, bit for bit.
//
// An activation is a Uint8Array, pixel by pixel, the channels of a pixel side by side. A layer's sums are 32-bit
// integers; the product of a sum and its multiplier needs 62 bits, and is kept as hi * 2^16 + lo in two doubles, which
// are exact up to 2^53.
"use strict";

const LOW = 65536;

/** Compute the network on the RGB bytes of an image; `watch` gets each step with its codes. Returns the last sums. */
function runNetwork(network, pixels, watch = () => {}) {
  const codes = new Map([["input", inputCodes(pixels, network.table)]]);
  for (const step of network.steps) {
    const [source, residual] = step.inputs.map((name) => codes.get(name));
    codes.set(step.name, KINDS[step.kind](step, source, residual));
    watch(step, codes.get(step.name));
  }
  return codes.get(network.steps.at(-1).name);
}

/** One look-up per pixel and colour: normalising and quantizing a byte has 256 possible results. */
function inputCodes(pixels, table) {
  return Uint8Array.from(pixels, (byte, i) => table[(i % 3) * 256 + byte]);
}

const KINDS = {
  conv: (step, x, residual) => requantize(step, step.depthwise ? depthwiseSums(step, x) : denseSums(step, x), residual),
  add: (step, x, other) => requantize(step, Int32Array.from(x, (code) => code - step.sourceZero), other),
  average_pool: (step, x) => requantize(step, poolSums(step, x)),
  reshape: (step, x) => x,
};

/** Call `use(patch, place)` with the codes under the kernel at every place; beyond the border stands the zero point. */
function eachPatch(step, x, use) {
  const [channels, height, width] = step.sourceShape, [, rows, columns] = step.shape;
  const [kernelRows, kernelColumns] = step.kernel;
  const patch = new Int32Array(kernelRows * kernelColumns * channels);
  for (let row = 0, place = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++, place++) {
      let at = 0;
      for (let i = 0; i < kernelRows; i++) {
        const y = row * step.stride[0] - step.padding[0] + i;
        for (let j = 0; j < kernelColumns; j++, at += channels) {
          const z = column * step.stride[1] - step.padding[1] + j;
          const inside = y >= 0 && y < height && z >= 0 && z < width, from = (y * width + z) * channels;
          for (let c = 0; c < channels; c++) patch[at + c] = inside ? x[from + c] : step.sourceZero;
        }
      }
      use(patch, place);
    }
  }
}

/** Each output channel: its bias, and the sum of code * weight over the patch. The bias holds the zero point's part. */
function denseSums(step, x) {
  const outputs = step.shape[0], { weights, bias } = step;
  const sums = new Int32Array(outputs * step.shape[1] * step.shape[2]);
  eachPatch(step, x, (patch, place) => dotProducts(patch, weights, bias, sums, place * outputs));
  return sums;
}

/** One patch with every filter, four of them at a time, so that each code is read once for all four. */
function dotProducts(patch, weights, bias, sums, at) {
  const size = patch.length, outputs = bias.length;
  let o = 0;
  for (; o + 4 <= outputs; o += 4) {
    let a = bias[o], b = bias[o + 1], c = bias[o + 2], d = bias[o + 3];
    for (let i = 0, w = o * size; i < size; i++, w++) {
      const code = patch[i];
      a = (a + Math.imul(code, weights[w])) | 0;
      b = (b + Math.imul(code, weights[w + size])) | 0;
      c = (c + Math.imul(code, weights[w + 2 * size])) | 0;
      d = (d + Math.imul(code, weights[w + 3 * size])) | 0;
    }
    sums[at + o] = a;
    sums[at + o + 1] = b;
    sums[at + o + 2] = c;
    sums[at + o + 3] = d;
  }
  for (; o < outputs; o++) {
    let a = bias[o];
    for (let i = 0, w = o * size; i < size; i++, w++) a = (a + Math.imul(patch[i], weights[w])) | 0;
    sums[at + o] = a;
  }
}

/** One filter per channel. */
function depthwiseSums(step, x) {
  const channels = step.shape[0], { weights, bias } = step;
  const sums = new Int32Array(channels * step.shape[1] * step.shape[2]);
  eachPatch(step, x, (patch, place) => {
    for (let c = 0; c < channels; c++) {
      let sum = bias[c];
      for (let i = c; i < patch.length; i += channels) sum = (sum + Math.imul(patch[i], weights[i])) | 0;
      sums[place * channels + c] = sum;
    }
  });
  return sums;
}

/** The sum over the whole map; dividing by its size is part of the multiplier. */
function poolSums(step, x) {
  const [channels, height, width] = step.sourceShape;
  const sums = new Int32Array(channels).fill(-height * width * step.sourceZero);
  for (let i = 0; i < x.length; i++) sums[i % channels] += x[i];
  return sums;
}

/** clamp(round((sum * multiplier + residual * its multiplier) / 2^shift) + zero point); a last layer keeps its sums. */
function requantize(step, sums, residual) {
  if (!step.coded) return sums;
  const { high, low, unit, zero, first, last } = step, channels = step.shape[0];
  const codes = new Uint8Array(sums.length);
  for (let at = 0; at < sums.length; at += channels) {
    for (let c = 0; c < channels; c++) {
      let hi = sums[at + c] * high[c], lo = sums[at + c] * low[c];
      if (residual !== undefined) {
        const other = residual[at + c] - step.residualZero;
        hi += other * step.residualHigh[c];
        lo += other * step.residualLow[c];
      }
      const code = roundShift(hi, lo, unit[c]) + zero;
      codes[at + c] = code < first ? first : code > last[c] ? last[c] : code;
    }
  }
  return codes;
}

/** round((hi * 2^16 + lo) / (unit * 2^16)), ties to even. Dividing a double by a power of two is exact. */
function roundShift(hi, lo, unit) {
  const carry = Math.floor(lo / LOW);
  hi += carry;
  lo -= carry * LOW;
  const below = Math.floor(hi / unit), rest = hi - below * unit, half = unit / 2;
  const up = rest > half || (rest === half && (lo > 0 || below % 2 !== 0));
  return up ? below + 1 : below;
}

/** A network as Python packed it: bytes to typed arrays, codes of a few bits to bytes, weights in the order of a patch. */
function unpackNetwork(packed) {
  const shapes = new Map([["input", packed.shape]]), zeros = new Map([["input", packed.zero]]);
  const table = bytesOf(packed.table);
  const steps = packed.steps.map((given) => {
    const step = { ...given, sourceShape: shapes.get(given.inputs[0]), sourceZero: zeros.get(given.inputs[0]) };
    const [channels] = step.shape;
    if (step.kind === "conv") {
      step.bias = new Int32Array(bytesOf(given.bias, 4 * channels).buffer);
      step.weights = patchOrder(step, unpackCodes(bytesOf(given.weights), given.bits, given.weightShape));
    }
    if (step.coded && step.kind !== "reshape") {
      [step.high, step.low] = halves(new Int32Array(bytesOf(given.multiplier, 4 * channels).buffer));
      step.unit = Float64Array.from(bytesOf(given.shift, channels), (shift) => 2 ** (shift - 16));
      step.last = bytesOf(given.last, channels);
    }
    else if (given.factor) step.factor = new Float32Array(bytesOf(given.factor, 4 * channels).buffer);
    if (given.inputs.length === 2) {
      step.residualZero = zeros.get(given.inputs[1]);
      const multiplier = new Float64Array(bytesOf(given.residualMultiplier, 8 * channels).buffer);
      [step.residualHigh, step.residualLow] = halves(multiplier);
    }
    shapes.set(step.name, step.shape);
    zeros.set(step.name, step.kind === "reshape" ? step.sourceZero : step.zero);
    return step;
  });
  return { ...packed, table, steps };
}

/** Whole numbers as high * 2^16 + low. */
function halves(numbers) {
  return [Float64Array.from(numbers, (n) => Math.floor(n / LOW)), Float64Array.from(numbers, (n) => n % LOW)];
}

/** Base64 to bytes, which must be as many as expected. */
function bytesOf(text, count) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  if (count !== undefined && bytes.length !== count) throw new Error(`${bytes.length} bytes where ${count} belong`);
  return bytes;
}

/** A stream of two's complement codes, lowest bit first, as signed bytes. */
function unpackCodes(stream, bits, shape) {
  const count = shape.reduce((a, b) => a * b), codes = new Int8Array(count);
  if (stream.length !== Math.ceil((count * bits) / 8)) throw new Error(`${stream.length} bytes for ${count} weights`);
  for (let i = 0, at = 0; i < count; i++, at += bits) {
    const pair = stream[at >> 3] | ((stream[(at >> 3) + 1] ?? 0) << 8);
    codes[i] = ((pair >> (at & 7)) << (32 - bits)) >> (32 - bits);
  }
  return codes;
}

/** Weights [output, input, row, column] in the order in which a patch is read: rows, columns, inputs. */
function patchOrder(step, codes) {
  const [outputs, inputs, rows, columns] = step.weightShape, ordered = new Int8Array(codes.length);
  let from = 0;
  for (let o = 0; o < outputs; o++)
    for (let i = 0; i < inputs; i++)
      for (let place = 0; place < rows * columns; place++, from++) {
        const to = step.depthwise ? place * outputs + o : (o * rows * columns + place) * inputs + i;
        ordered[to] = codes[from];
      }
  return ordered;
}

/** A number that changes with any single value and its place; `at(i)` says where value i stands in Python's order. */
function checksum(values, at = (i) => i) {
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum = (sum + Math.imul(values[i], Math.imul(at(i), 2654435761) | 1)) | 0;
  return sum;
}
