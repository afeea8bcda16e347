// A panel for vehicle routing: place customers on a map, and watch tours grow beside those of rivals.

const STEP = 4, COLOURS = 10, MOST_SHOWN = 200;

// `about.rivals`: the backend has `rivals(input, milliseconds)`; `about.milliseconds`: the user may choose that time, which is
// the model's own by default.
function routesPanel(place, backend, about) {
  const report = reporting(), map = element("svg", {
    class: "map", viewBox: "0 0 100 100", tabindex: 0, role: "application", "aria-roledescription": "map",
    "aria-label": "Map of customers. Arrow keys move the cross, Enter adds a customer, Backspace removes the last one.",
    click: clicked, keydown: pressed,
  });
  const drawn = element("div", { class: "tours" });
  const capacity = numberField(about.capacity ?? 30, { min: 1, max: 1e6, change: solve });
  const count = numberField(20, { min: 1, max: MOST_SHOWN });
  const milliseconds = numberField("", { min: 1, max: 2000, change: solve, placeholder: "as the model" });
  const depot = [50, 50], cross = [50, 40];
  let customers = [], wanted = 0;

  const random = () => ({ at: [0, 1].map(() => Math.round(4 + 92 * Math.random())), demand: 1 + Math.floor(9 * Math.random()) });
  const instance = () => ({
    depot: depot.map(each => each / 100), customers: customers.map(each => each.at.map(each => each / 100)),
    demands: customers.map(each => Math.min(each.demand, Number(capacity.value))), capacity: Number(capacity.value),
  });

  function draw() {
    map.replaceChildren(...places(depot, customers), element("path", { class: "cursor", d: `M${cross[0] - 3} ${cross[1]}h6M${cross[0]} ${cross[1] - 3}v6` }));
  }

  function add(at) {
    if (customers.length >= MOST_SHOWN) return report.fail(`there are ${MOST_SHOWN} customers; remove some`);
    customers.push({ ...random(), at });
    changed(`customer ${customers.length} at ${at[0]}, ${at[1]}, demand ${customers.at(-1).demand}`);
  }

  function changed(said) {
    draw();
    report.say(said);
    solve();
  }

  function scatter() {
    customers = Array.from({ length: Math.min(Number(count.value), MOST_SHOWN) }, random);
    changed(`${customers.length} customers`);
  }

  function clicked(event) {
    if (!event.detail) return;
    const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(map.getScreenCTM().inverse());
    add([x, y].map(each => Math.round(Math.max(0, Math.min(each, 100)))));
  }

  function pressed(event) {
    const move = { ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, -STEP], ArrowDown: [0, STEP] }[event.key];
    if (move) move.forEach((by, axis) => cross[axis] = Math.max(0, Math.min(cross[axis] + by, 100)));
    else if (event.key == "Enter" || event.key == " ") add([...cross]);
    else if (event.key == "Backspace" && customers.length) changed(`removed customer ${customers.length}`, customers.pop());
    else return;
    event.preventDefault();
    draw();
  }

  // Asks once customers stop changing, and drops answers to earlier questions.
  async function solve() {
    const mine = ++wanted;
    await new Promise(resolve => setTimeout(resolve, 150));
    if (mine != wanted) return;
    if (!customers.length) return drawn.replaceChildren();
    const given = instance(), shown = customers.slice();
    const found = await asked(report, async () => about.rivals
      ? await backend.rivals(given, Number(milliseconds.value) || null)
      : { model: await backend.predict(given) });
    if (!found || mine != wanted) return;
    const ways = Object.entries(found.outputs ?? found);
    drawn.replaceChildren(...ways.map(([name, way]) => tour(name, way, depot, shown)));
    report.say(ways.map(([name, way]) => `${name}: ${summary(way)}`).join("; "));
  }

  place.append(
    element("div", { class: "row" },
      labelled("vehicle's capacity", capacity),
      ...(about.milliseconds ? [labelled("milliseconds for each solver", milliseconds)] : []),
      labelled("customers", count),
      button("Place at random", scatter, { class: "main" }),
      button("Clear", () => { customers = []; changed("no customers"); })),
    element("p", { class: "note" }, "Click on the map to add a customer with a demand of 1 to 9; tours start at the square."),
    ...report.parts, element("div", { class: "board" }, map, drawn));
  draw();
}

function summary({ error, cost, routes, milliseconds }) {
  if (error) return error;
  const time = milliseconds === undefined ? "" : `, ${shortNumber(milliseconds)} ms`;
  return `${shortNumber(cost)}, ${routes.length} ${routes.length == 1 ? "route" : "routes"}${time}`;
}

function places(depot, customers) {
  return [
    ...customers.map(({ at: [x, y], demand }) => element("circle", { class: "dot", cx: x, cy: y, r: 0.8 + 0.12 * demand })),
    element("rect", { class: "depot", x: depot[0] - 1.6, y: depot[1] - 1.6, width: 3.2, height: 3.2 }),
  ];
}

// A tour that grows customer by customer.
function tour(name, way, depot, customers) {
  const label = `${name}: ${summary(way)}`, lines = (way.routes ?? []).map((route, number) => {
    const points = [depot, ...route.map(customer => customers[customer - 1].at), depot];
    const line = element("path", { class: "route", d: `M${points.map(each => each.join(" ")).join("L")}`, stroke: `var(--c${number % COLOURS})` });
    return { line, stops: points.length };
  });
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches, began = performance.now();
  let total = 0;
  const starts = lines.map(({ stops }) => (total += stops) - stops);
  const grow = now => {
    const reached = calm ? total : (now - began) / 40;
    lines.forEach(({ line, stops }, i) => {
      const length = line.getTotalLength(), share = Math.max(0, Math.min((reached - starts[i]) / stops, 1));
      line.style.strokeDasharray = `${length * share} ${length}`;
    });
    if (reached < total) requestAnimationFrame(grow);
  };
  requestAnimationFrame(grow);
  return element("figure", {}, element("svg", { class: "map still", viewBox: "0 0 100 100", role: "img", "aria-label": label },
    ...lines.map(({ line }) => line), ...places(depot, customers)), element("figcaption", {}, label));
}
