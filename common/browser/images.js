// A panel for comparators: drop or choose images to rank them in a table; two are also compared, and people can vote.

const MOST_IMAGES = 500, LARGEST_FILE = 5e6;  // bytes
const AT_ONCE = 32, AT_ONCE_LENGTH = 6e6;  // most images of a request, and most characters of their URLs if there are several
const SHOWN_DIGITS = 8, NAMED = 5;

// `about.attributes`: what higher-ranked images have more of, to choose from; `about.digits`: the model learnt from the embedded digits;
// `about.votes`: the backend also ranks by votes, and returns the most informative pair.
function imagesPanel(place, backend, about) {
  const report = reporting(), shown = element("div"), answer = element("p"), ballot = element("div", { class: "row" }), { digits, attributes } = about;
  const by = element("select", { change: chosen }, ...attributes.map(name => element("option", { value: name }, name)));
  const file = element("input", { type: "file", accept: "image/*", multiple: true, change: () => take([...file.files]) });
  const drop = element("div", {
    class: "drop",
    dragover: event => { event.preventDefault(); drop.classList.add("over"); },
    dragleave: () => drop.classList.remove("over"),
    drop: event => { event.preventDefault(); drop.classList.remove("over"); take([...event.dataTransfer.files]); },
  }, labelled("images, or drop them here", file));
  let images = [], example = false, turn = 0;  // images: {name, url, row} with the row of the table once it is known
  let poll = null;  // while people vote: {of: images, votes: [first, second, answer], next: the pair to vote on, rows}

  async function take(files) {
    const before = example ? [] : images, large = files.find(each => each.size > LARGEST_FILE), count = before.length + files.length;
    if (large) return report.fail(`${large.name} has ${large.size} bytes; give images of at most ${LARGEST_FILE}`);
    if (count > MOST_IMAGES) return report.fail(`that makes ${count} images; give at most ${MOST_IMAGES}`);
    try {
      const read = await Promise.all(files.map(async each => ({ name: each.name, url: await dataUrl(each) })));
      images = [...example ? [] : images, ...read];  // not `before`, as images may have been added meanwhile
    } catch (error) {  // of a folder, for instance
      return report.fail(error.message);
    } finally {
      file.value = "";
    }
    example = false;
    await rank();
  }

  // Images are compared with the model's references, not with each other, so each is sent once, some at a time.
  async function rank() {
    const own = ++turn, wrong = [];
    answer.textContent = "";
    close();
    for (let waiting; (waiting = images.filter(each => !each.row)).length;) {
      report.say(`comparing: ${images.length - waiting.length} of ${images.length} images are ranked`);
      await new Promise(resolve => setTimeout(resolve));  // lets the line be shown
      const some = together(waiting), left = new Set(some), found = await reply({ images: some.map(each => each.url) });
      if (own != turn) return;  // images were given or cleared meanwhile
      if (found.error) wrong.push(found.error);
      if (found.later) break;  // the server did not judge these images; they are sent again with the next ones
      for (const row of found.ranking ?? []) {
        some[row.image].row = row;
        left.delete(some[row.image]);
      }
      images = images.filter(each => !left.has(each));
      wrong.push(...(found.errors ?? []).map(each => `${some[each.image].name} is left out: ${each.error}`));
    }
    show();
    if (wrong.length) report.fail(wrong.join("; "));
    if (images.length == 2) await compare(images);
  }

  const reply = async input => backend.predict(input).catch(error => ({ error: error.message, later: error.status != 422 }));

  // The first of some images that fit into a request.
  function together(waiting) {
    let length = 0;
    return waiting.slice(0, AT_ONCE).filter(({ url }, number) => (length += url.length) <= AT_ONCE_LENGTH || !number);
  }

  // A row of the ranking with the chosen attribute's score and interval; with several attributes, it has those of all.
  const byAttribute = row => row.scores ? { ...row, score: row.scores[by.value], low: row.lows[by.value], high: row.highs[by.value] } : row;

  function chosen() {
    answer.textContent = "";
    close();
    show();
    if (images.length == 2) compare(images);
  }

  function show() {
    const ranked = images.filter(each => each.row).map(each => ({ ...each, row: byAttribute(each.row) })).sort((a, b) => b.row.score - a.row.score);
    if (!ranked.length) return shown.replaceChildren();
    const rows = ranked.map(({ name, url, row }, i) => ({ ...row, name, url, rank: i + 1 }));
    shown.replaceChildren(button("Save as CSV", () => saved("ranking.csv", asCsv(rows))),
      rankingTable(`Ranked by ${by.value}, with 95 % intervals`, rows));
    const unlike = ranked.filter(each => each.row.note).map(each => each.name);
    report.say(`${ranked.length} images, by ${by.value}, highest first` + (unlike.length
      ? `. Unlike the training images, so that their scores mean little: ${unlike.slice(0, NAMED).join(", ")}${unlike.length > NAMED ? ` and ${unlike.length - NAMED} more` : ""}` : ""));
  }

  // The ranking begins as the model's, whose errors say how far votes can move it, and settles with each vote.
  async function vote(...given) {
    const of = poll?.of ?? images.filter(each => each.row), votes = [...poll?.votes ?? [], ...given];
    const own = turn, attribute = by.value, before = poll;
    if (of.length < 2) return report.fail("give two images first");
    const known = of.map(each => byAttribute(each.row)), errors = known.map(row => Math.max(1e-6, (row.high - row.low) / 2 / 1.96));
    const found = await reply({ scores: known.map(row => row.score), errors, votes });
    // Images were given or cleared meanwhile, another attribute was chosen, or the vote was left or given twice.
    if (own != turn || attribute != by.value || before != poll) return;
    if (found.error) return report.fail(found.error);
    const rows = found.ranking.map((row, i) => ({ ...row, name: of[row.image].name, url: of[row.image].url, rank: i + 1 }));
    poll = { of, votes, next: found.next };
    shown.replaceChildren(button("Save as CSV", () => saved("ranking.csv", asCsv(rows))),
      rankingTable(`Ranked by ${votes.length} ${votes.length == 1 ? "vote" : "votes"}, scores about 0 with 95 % intervals`, rows));
    const width = rows.reduce((sum, row) => sum + row.high - row.low, 0) / rows.length;
    report.say(`${votes.length} votes; the intervals are ${width.toFixed(2)} wide on average`);
    const stop = button("Back to the model's ranking", () => { close(); show(); });
    if (!found.next) return ballot.replaceChildren("Every pair has a vote.", stop);
    const [first, second] = found.next, say = said => () => vote([first, second, said]);
    const side = (image, text, said) => element("figure", {}, element("img", { src: of[image].url, alt: of[image].name, class: "voted" }), button(text, say(said)));
    ballot.replaceChildren(element("span", {}, `Which has more ${by.value}?`), side(first, "The first", "First"),
      button("Similar", say("Similar")), side(second, "The second", "Second"), stop);
  }

  function close() {
    poll = null;
    ballot.replaceChildren();
  }

  async function compare([first, second]) {
    const own = turn, attribute = by.value, found = await asked(report, () => backend.predict({ first: first.url, second: second.url }, { attribute }));
    if (found && own == turn && attribute == by.value) answer.textContent = `${first.name} ranks higher than ${second.name} with probability ${found.first_is_higher.toFixed(3)}` +
      (found.tie === undefined ? "" : `; similar with ${found.tie.toFixed(3)}`) + (found.note ? `; ${found.note}` : "");
  }

  function drawDigits() {
    [images, example] = [drawnDigits(), true];
    return rank();
  }

  place.append(
    element("p", { class: "note" }, digits
      ? "Example: handwritten digits, ranked by a model that learnt from others; bars are 95 % intervals."
      : `Drop up to ${MOST_IMAGES} images, and they are ranked by ${attributes.join(" or ")} in a table, with 95 % intervals.`),
    drop, element("div", { class: "row" },
      ...(attributes.length > 1 ? [labelled("ranked by", by)] : []),
      button("Compare the last two", () => images.length > 1 ? compare(images.slice(-2)) : report.fail("give two images first")),
      ...(about.votes ? [button("Vote", () => vote())] : []),
      ...(digits ? [button("Draw digits", drawDigits)] : []),
      button("Clear", () => { images = []; close(); show(); turn++; answer.textContent = ""; report.say("no images"); })), ...report.parts, answer, ballot, shown);
  if (digits) drawDigits();
}

// A table of {rank, name, url, score, low, high}, highest first, sorted anew by a click on a column's name.
function rankingTable(caption, rows) {
  const low = Math.min(...rows.map(each => each.low)), high = Math.max(...rows.map(each => each.high));
  const decimals = Math.min(6, Math.max(0, 1 - Math.floor(Math.log10(Math.max(...rows.map(row => row.high - row.low)) || 1))));
  const columns = { rank: "rank", image: "name", score: "score", "95 % interval": "low" };
  let by = "rank", sign = 1;
  const cells = ({ rank, name, url, score, low: from, high: to }) => [String(rank),
    element("span", { class: "pictured" }, element("img", { src: url, alt: "", loading: "lazy", decoding: "async" }), name), score.toFixed(decimals),
    element("span", {}, `${from.toFixed(decimals)} to ${to.toFixed(decimals)}`, interval(from, score, to, low, high))];
  const made = table(caption, Object.keys(columns).map(name => button(name, () => sort(columns[name]))), rows.map(cells));
  const heads = [...made.querySelectorAll("thead th")], body = made.querySelector("tbody"), lines = [...body.children];

  function sort(key) {
    [by, sign] = [key, key == by ? -sign : 1];
    const order = rows.map((_, i) => i).sort((a, b) => sign * (rows[a][by] < rows[b][by] ? -1 : rows[a][by] > rows[b][by] ? 1 : 0));
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

// The ranking as CSV for spreadsheets, which must not take an image's name for a formula.
function asCsv(rows) {
  const cell = value => {
    const text = typeof value == "string" && /^'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/.test(value) ? `'${value}` : String(value ?? "");
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const columns = { rank: "rank", image: "name", score: "score", low: "low", high: "high", note: "note" };
  return [Object.keys(columns), ...rows.map(row => Object.values(columns).map(key => row[key]))].map(row => row.map(cell).join(",") + "\n").join("");
}

function saved(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url));
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
