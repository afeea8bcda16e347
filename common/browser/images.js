// A panel for comparators: drop or choose images to rank them in a table; two are also compared.

const MOST_IMAGES = 64, LARGEST_FILE = 5e6;  // bytes
const DIGITS = "value";  // what models of the embedded handwritten digits rank by
const SHOWN_DIGITS = 8;

// `about.attribute`: what higher-ranked images have more of.
function imagesPanel(place, backend, about) {
  const report = reporting(), shown = element("div"), answer = element("p"), digits = about.attribute == DIGITS;
  const file = element("input", { type: "file", accept: "image/*", multiple: true, change: () => take([...file.files]) });
  const drop = element("div", {
    class: "drop",
    dragover: event => { event.preventDefault(); drop.classList.add("over"); },
    dragleave: () => drop.classList.remove("over"),
    drop: event => { event.preventDefault(); drop.classList.remove("over"); take([...event.dataTransfer.files]); },
  }, labelled("images, or drop them here", file));
  let images = [], example = false;

  async function take(files) {
    const before = example ? [] : images, large = files.find(each => each.size > LARGEST_FILE), count = before.length + files.length;
    if (large) return report.fail(`${large.name} has ${large.size} bytes; give images of at most ${LARGEST_FILE}`);
    if (count > MOST_IMAGES) return report.fail(`that makes ${count} images; give at most ${MOST_IMAGES}`);
    images = [...before, ...await Promise.all(files.map(async each => ({ name: each.name, url: await dataUrl(each) })))];
    file.value = "";
    example = false;
    await rank();
  }

  async function rank() {
    answer.textContent = "";
    const given = images.slice();
    if (!given.length) return shown.replaceChildren();
    const found = await asked(report, () => {
      report.say("comparing");
      return backend.predict({ images: given.map(each => each.url) });
    });
    if (!found) return;
    const wrong = found.errors ?? [];
    shown.replaceChildren(rankingTable(`Ranked by ${about.attribute}, with 95 % intervals`, found.ranking.map(row => ({ ...row, ...given[row.image] }))));
    const unlike = found.ranking.filter(row => row.note).map(row => given[row.image].name);
    report.say(`${found.ranking.length} images, by ${about.attribute}, highest first` + (unlike.length
      ? `. Unlike the images that the model was trained on, so that these scores mean little: ${unlike.join(", ")}` : ""));
    if (wrong.length) report.fail(wrong.map(each => `${given[each.image].name} is left out: ${each.error}`).join("; "));
    images = given.filter((_, number) => !wrong.some(each => each.image == number));
    if (images.length == 2) await compare(images);
  }

  async function compare([first, second]) {
    const found = await asked(report, () => backend.predict({ first: first.url, second: second.url }));
    if (found) answer.textContent = `${first.name} ranks higher than ${second.name} with probability ${found.first_is_higher.toFixed(3)}` +
      (found.tie === undefined ? "" : `; similar with ${found.tie.toFixed(3)}`) + (found.note ? `; ${found.note}` : "");
  }

  function drawDigits() {
    [images, example] = [drawnDigits(), true];
    return rank();
  }

  place.append(
    element("p", { class: "note" }, digits
      ? "Example: handwritten digits, ranked by a model that learnt only which of two is larger; bars are 95 % intervals."
      : `Drop some images, and they are ranked by ${about.attribute} in a table, with 95 % intervals.`),
    drop, element("div", { class: "row" },
      button("Compare the last two", () => images.length > 1 ? compare(images.slice(-2)) : report.fail("give two images first")),
      ...(digits ? [button("Draw digits", drawDigits)] : []),
      button("Clear", () => { images = []; rank(); report.say("no images"); })), ...report.parts, answer, shown);
  if (digits) drawDigits();
}

// A table of {name, url, score, low, high}, highest first, sorted anew by a click on a column's name.
function rankingTable(caption, rows) {
  const low = Math.min(...rows.map(each => each.low)), high = Math.max(...rows.map(each => each.high));
  const decimals = Math.min(6, Math.max(0, 1 - Math.floor(Math.log10(Math.max(...rows.map(row => row.high - row.low)) || 1))));
  const entries = rows.map((row, i) => ({ ...row, rank: i + 1 }));
  const columns = { rank: "rank", image: "name", score: "score", "95 % interval": "low" };
  let by = "rank", sign = 1;
  const cells = ({ rank, name, url, score, low: from, high: to }) => [String(rank),
    element("span", { class: "pictured" }, element("img", { src: url, alt: "" }), name), score.toFixed(decimals),
    element("span", {}, `${from.toFixed(decimals)} to ${to.toFixed(decimals)}`, interval(from, score, to, low, high))];
  const made = table(caption, Object.keys(columns).map(name => button(name, () => sort(columns[name]))), entries.map(cells));
  const heads = [...made.querySelectorAll("thead th")], body = made.querySelector("tbody"), lines = [...body.children];

  function sort(key) {
    [by, sign] = [key, key == by ? -sign : 1];
    const order = entries.map((_, i) => i).sort((a, b) => sign * (entries[a][by] < entries[b][by] ? -1 : entries[a][by] > entries[b][by] ? 1 : 0));
    body.replaceChildren(...order.map(i => lines[i]));
    mark();
  }

  function mark() {
    heads.forEach((head, i) => Object.values(columns)[i] == by ? head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending") : head.removeAttribute("aria-sort"));
  }

  mark();
  made.classList.add("ranked");
  return element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "ranking" }, made);
}

// A line from `from` to `to` with a dot at `score`, on a scale from `low` to `high`.
function interval(from, score, to, low, high) {
  const at = value => 3 + 94 * (value - low) / (high - low || 1);
  return element("svg", { viewBox: "0 0 100 8", class: "interval", "aria-hidden": "true" },
    element("line", { x1: at(from), x2: at(to), y1: 4, y2: 4 }), element("circle", { cx: at(score), cy: 4, r: 2.5 }));
}

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error(`${file.name} cannot be read`));
    reader.readAsDataURL(file);
  });
}

// Some of the handwritten digits as white on black, in random order.
function drawnDigits() {
  const order = DRAWN_DIGITS.map((pixels, i) => [Math.random(), Math.floor(i / 2), pixels]).sort(([a], [b]) => a - b).slice(0, SHOWN_DIGITS);
  return order.map(([, digit, pixels]) => {
    const [small, large] = [8, 64].map(side => Object.assign(document.createElement("canvas"), { width: side, height: side }));
    const grey = [...pixels].map(each => Math.round(parseInt(each, 17) * 255 / 16));
    small.getContext("2d").putImageData(new ImageData(Uint8ClampedArray.from(grey.flatMap(value => [value, value, value, 255])), 8), 0, 0);
    large.getContext("2d").drawImage(small, 0, 0, 64, 64);
    return { name: `digit ${digit}`, url: large.toDataURL("image/png") };
  });
}

// Two handwritten digits of each value, 8 x 8 pixels from 0 to g, 16: the first of each in the part that the models that
// come with the project were tested on. Alpaydin and Kaynak (1998), Optical Recognition of Handwritten Digits, UCI Machine
// Learning Repository, CC BY 4.0.
const DRAWN_DIGITS = [
  "0019fb0000bg8e6002ga099001g4088004g4088001g51b3000ccaa00001ad300",
  "00aeb30004gd6e1004g20b7008g00a5008g00e4008g01g1004g1bf0000bgc300",
  "0000ed100005gg20000egc0001aggc0003ceg9000005gf000004ge000001dg10",
  "0001b9000007gd00004eg9000agbg8000003g6000003g8000005ga000002e600",
  "0000bf400003ggc00008egc00005ag60017bgd0009gge100038eg9000001bgc0",
  "0008f800003gcg40002a1g4000008e000009f30003ge400004fe71000009ce40",
  "007fd10008d6f400021dd000002fb1000001cc1000001a8000845e90007dd900",
  "04dggc300374dg600008f500000c80000007c0000004c000017cb00003fc2000",
  "0001b00000078000001d6220007f098005ga0g6004fgdg100003fa000002g400",
  "0008f100001ed11000af3fb007g71g8009gdeg5001afge000001ga00000af400",
  "01dfcc5004g8860007d0000008fdf70001658c000000cb00002de10003ea1000",
  "02fgge2003ge9a1007g6000003ef6000001dc0000008g000009gb00003gd1000",
  "000cd000005g800000dg300000ed000000fc720000dgdg30007gbf800019fb30",
  "0005e200001db000005g2000006f500001fgfb1002de1c90004g7d900005gf30",
  "0027fd1000ec9e8000200c8000000d6005gggg500257de200001f500000b9000",
  "002ff300008egb000000be000000be30004cgg7000bgc100001e6000004c1000",
  "00ab400000afdd10008b0e40000dfd0001bgg00001f39a0000e6fa00008e7100",
  "0048g500009g8b00005a0d20000d4f200009g800008fe50000g5e400006gc100",
  "00da100005ge700004g8e00002egg60000149d1000000d60005859e000ddfgd0",
  "019gd70007e4ac0006f9gb00009b7e0000000f2000000b6003d85e50009eda10",
];
