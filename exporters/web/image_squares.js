// An image as a square in the size of a model's input, as models/images/image_files.py and Pillow make it.

const PRECISION = 2 ** 22;  // of Pillow's coefficients

// {width, height, data (RGBA)} of an image file in a data: URL, on white; throws Unusable for anything else.
async function decodedImage(url) {
  const image = new Image();
  image.src = url;
  await image.decode().catch(() => { throw new Unusable("not an image that this browser can read; give a PNG or JPEG file"); });
  const canvas = Object.assign(document.createElement("canvas"), { width: image.naturalWidth, height: image.naturalHeight });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#fff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0);
  return context.getImageData(0, 0, canvas.width, canvas.height);
}

// Pixels (channels, size, size) from 0 to 255 of the middle square, or of the whole image, padded or stretched.
function fitted({ width, height, data }, size, channels, fit = "crop") {
  const side = Math.min(width, height), whole = fit != "crop", longer = Math.max(width, height);
  const [left, top, across, down] = whole ? [0, 0, width, height] : [(width - side) / 2, (height - side) / 2, side, side];
  const [columns, rows] = fit == "pad" ? [width, height].map(length => Math.max(1, rounded(length / longer * size))) : [size, size];
  const [before, above] = [rounded((size - columns) * 0.5), rounded((size - rows) * 0.5)];
  const planes = [0, 1, 2].map(channel => {
    const plane = Uint8Array.from({ length: width * height }, (_, i) => data[4 * i + channel]);
    const narrow = resampled(plane, width, height, left, across, columns);
    const inner = transposed(resampled(transposed(narrow, columns, height), height, columns, top, down, rows), rows, columns);
    if (columns == size && rows == size) return inner;
    const square = new Uint8Array(size * size).fill(255);
    for (let row = 0; row < rows; row++) square.set(inner.subarray(row * columns, (row + 1) * columns), (above + row) * size + before);
    return square;
  });
  if (channels == 3) return Uint8Array.from({ length: 3 * size * size }, (_, i) => planes[Math.floor(i / size / size)][i % (size * size)]);
  return planes[0].map((red, i) => rounded(Math.fround(Math.fround(0.299) * red + Math.fround(0.587) * planes[1][i] + Math.fround(0.114) * planes[2][i])));
}

function rounded(value) {  // halves to the even neighbour
  const below = Math.floor(value), rest = value - below;
  return below + (rest > 0.5 || (rest == 0.5 && below % 2) ? 1 : 0);
}

function transposed(plane, width, height) {
  return Uint8Array.from({ length: plane.length }, (_, i) => plane[(i % height) * width + Math.floor(i / height)]);
}

// Resamples the columns from `left` to `left + span` to `size` columns, by Lanczos' filter in fixed point.
function resampled(plane, width, height, left, span, size) {
  if (span == size && width == size) return plane;
  const scale = span / size, stretch = Math.max(scale, 1), out = new Uint8Array(size * height);
  for (let column = 0; column < size; column++) {
    const centre = left + (column + 0.5) * scale, reach = 3 * stretch;
    const first = Math.max(Math.trunc(centre - reach + 0.5), 0), end = Math.min(Math.trunc(centre + reach + 0.5), width);
    const weights = Array.from({ length: end - first }, (_, i) => lanczos((i + first - centre + 0.5) / stretch));
    const total = weights.reduce((a, b) => a + b), whole = weights.map(each => Math.trunc(each / total * PRECISION + (each < 0 ? -0.5 : 0.5)));
    for (let row = 0; row < height; row++) {
      const sum = whole.reduce((sum, weight, i) => sum + weight * plane[row * width + first + i], PRECISION / 2);
      out[row * size + column] = Math.max(0, Math.min(255, Math.floor(sum / PRECISION)));
    }
  }
  return out;
}

function lanczos(x) {
  const wave = x => x == 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x);
  return -3 <= x && x < 3 ? wave(x) * wave(x / 3) : 0;
}
