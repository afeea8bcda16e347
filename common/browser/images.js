// A panel for comparators: drop or choose images to rank them; two are also compared.

const MOST_IMAGES = 24, LARGEST_FILE = 5e6;  // bytes

// `about.attribute`: what higher-ranked images have more of.
function imagesPanel(place, backend, about) {
  const report = reporting(), shown = element("ol", { class: "ranked" }), answer = element("p");
  const file = element("input", { type: "file", accept: "image/*", multiple: true, change: () => take([...file.files]) });
  const drop = element("div", {
    class: "drop",
    dragover: event => { event.preventDefault(); drop.classList.add("over"); },
    dragleave: () => drop.classList.remove("over"),
    drop: event => { event.preventDefault(); drop.classList.remove("over"); take([...event.dataTransfer.files]); },
  }, labelled("images, or drop them here", file));
  let images = [];

  async function take(files) {
    const large = files.find(each => each.size > LARGEST_FILE);
    if (large) return report.fail(`${large.name} has ${large.size} bytes; give images of at most ${LARGEST_FILE}`);
    if (images.length + files.length > MOST_IMAGES) return report.fail(`that makes ${images.length + files.length} images; give at most ${MOST_IMAGES}`);
    images.push(...await Promise.all(files.map(async each => ({ name: each.name, url: await dataUrl(each) }))));
    file.value = "";
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
    const rows = found.ranking, wrong = found.errors ?? [], low = Math.min(...rows.map(each => each.low)), high = Math.max(...rows.map(each => each.high));
    shown.replaceChildren(...rows.map((row, i) => {
      const { name, url } = given[row.image], score = `${shortNumber(row.score)} (95 %: ${shortNumber(row.low)} to ${shortNumber(row.high)})`;
      return element("li", {}, element("img", { src: url, alt: `rank ${i + 1}: ${name}` }),
        element("div", {}, element("strong", {}, `${i + 1}. ${name}`), element("br"), score,
          element("meter", { min: low, max: high, value: row.score, "aria-label": `score of ${name}` })));
    }));
    report.say(`${rows.length} images, by ${about.attribute}, highest first`);
    if (wrong.length) report.fail(wrong.map(each => `${given[each.image].name} is left out: ${each.error}`).join("; "));
    images = given.filter((_, number) => !wrong.some(each => each.image == number));
    if (images.length == 2) await compare(images);
  }

  async function compare([first, second]) {
    const found = await asked(report, () => backend.predict({ first: first.url, second: second.url }));
    if (found) answer.textContent = `${first.name} ranks higher than ${second.name} with probability ${found.first_is_higher.toFixed(3)}` +
      (found.tie === undefined ? "" : `; similar with ${found.tie.toFixed(3)}`);
  }

  place.append(drop, element("div", { class: "row" },
    button("Compare the last two", () => images.length > 1 ? compare(images.slice(-2)) : report.fail("give two images first")),
    button("Draw digits", async () => { images = await Promise.all([7, 2, 9].map(drawnDigit)); rank(); }),
    button("Clear", () => { images = []; rank(); report.say("no images"); })), ...report.parts, answer, shown);
}

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error(`${file.name} cannot be read`));
    reader.readAsDataURL(file);
  });
}

// A white digit on black, as something to rank.
async function drawnDigit(digit) {
  const canvas = Object.assign(document.createElement("canvas"), { width: 64, height: 64 }), context = canvas.getContext("2d");
  context.fillRect(0, 0, 64, 64);
  Object.assign(context, { fillStyle: "#fff", font: "52px sans-serif", textAlign: "center", textBaseline: "middle" });
  context.fillText(String(digit), 32, 34);
  return { name: `digit ${digit}`, url: canvas.toDataURL("image/png") };
}
