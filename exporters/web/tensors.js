// Tensors as flat, row-major arrays, and the operations that all kernels share. Sums are in double precision.

// {name: {data, shape}} of the bytes of a safetensors file.
function readTensors(bytes) {
  const types = { F32: Float32Array, F64: Float64Array, I64: BigInt64Array, I32: Int32Array, I16: Int16Array, U8: Uint8Array };
  const size = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + size)));
  delete header.__metadata__;
  return Object.fromEntries(Object.entries(header).map(([name, { dtype, shape, data_offsets: [from, to] }]) =>
    [name, { shape, data: new types[dtype](bytes.slice(8 + size + from, 8 + size + to).buffer) }]));
}

// Rows of x (rows, columns) times the transposed weight (outputs, columns), plus the bias (outputs).
function linear(x, weight, bias) {
  const [outputs, columns] = weight.shape, rows = x.length / columns, w = weight.data;
  const y = new Float32Array(rows * outputs);
  for (let row = 0; row < rows; row++)
    for (let out = 0; out < outputs; out++) {
      let sum = bias ? bias.data[out] : 0, a = row * columns, b = out * columns, second = 0, third = 0, fourth = 0;
      const end = a + columns;
      for (; a + 3 < end; a += 4, b += 4) {  // four sums, so that none waits for another
        sum += x[a] * w[b];
        second += x[a + 1] * w[b + 1];
        third += x[a + 2] * w[b + 2];
        fourth += x[a + 3] * w[b + 3];
      }
      for (; a < end; a++, b++) sum += x[a] * w[b];
      y[row * outputs + out] = sum + second + third + fourth;
    }
  return y;
}

function layerNorm(x, weight, bias) {
  const width = weight.data.length, y = new Float32Array(x.length);
  for (let start = 0; start < x.length; start += width) {
    let mean = 0, square = 0;
    for (let i = 0; i < width; i++) mean += x[start + i] / width;
    for (let i = 0; i < width; i++) square += (x[start + i] - mean) ** 2 / width;
    const scale = 1 / Math.sqrt(square + 1e-5);
    for (let i = 0; i < width; i++) y[start + i] = (x[start + i] - mean) * scale * weight.data[i] + bias.data[i];
  }
  return y;
}

// Probabilities of logits; -Infinity has probability 0.
function softmax(logits) {
  const largest = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  const weights = Float64Array.from(logits, each => Math.exp(each - largest));
  const total = weights.reduce((a, b) => a + b);
  return weights.map(each => each / total);
}

const sigmoid = x => 1 / (1 + Math.exp(-x));

// The number of a rising list's borders that lie below a value.
const bordersBelow = (borders, value) => borders.filter(border => border < value).length;

// A function that returns numbers in [0, 1) by a seed (mulberry32).
function randomNumbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let bits = Math.imul(state ^ (state >>> 15), 1 | state);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), 61 | bits);
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  };
}

// An unusable input is answered with its error; any other error is a fault of the page.
class Unusable extends Error {}

function answered(compute) {
  try {
    return compute();
  } catch (error) {
    if (error instanceof Unusable) return { error: error.message };
    throw error;
  }
}
