// The routing policy: graph transformer, pointer decoder, and the search over starts and symmetries (models/routing).

const SYMMETRIES = 8, MOST_STARTS = 200, MOST_CUSTOMERS = 200;
const QUICK_STARTS = 20, MOST_TURNED = 40;  // with which a page answers at once

async function openModel(config, files) {
  const tensors = readTensors(files["model.safetensors"]);
  return {
    predict: (input, settings) => answered(() => solve(tensors, config, checkedInstance(input), settings)),
    rivals: input => answered(() => {
      const instance = checkedInstance(input), nodes = instance.locs.length - 1;
      const quick = { starts: Math.min(nodes, QUICK_STARTS), augment: nodes <= MOST_TURNED };
      return { savings: timed(() => finished(instance, savings(instance))), model: timed(() => solve(tensors, config, instance, quick)) };
    }),
  };
}

function timed(compute) {
  const began = performance.now(), found = compute();
  return { ...found, milliseconds: performance.now() - began };
}

function checkedInstance({ name, depot, customers, demands, capacity, windows, depots, prizes }) {
  if (windows || depots || prizes) throw new Unusable("opening hours, several depots and prizes need the served page: run python pipelines/serve.py");
  const whole = value => Number.isSafeInteger(value) && value >= 0;
  if (![depot, ...customers].every(each => each.length == 2 && each.every(Number.isFinite)))
    throw new Unusable("the depot and the customers must be pairs of finite numbers");
  if (customers.length > MOST_CUSTOMERS) throw new Unusable(`there are ${customers.length} customers; give at most ${MOST_CUSTOMERS} here`);
  if (demands.length != customers.length) throw new Unusable(`there are ${demands.length} demands for ${customers.length} customers`);
  if (!whole(capacity) || capacity < 1) throw new Unusable(`the capacity is ${capacity}; it must be a whole number from 1 on`);
  const wrong = demands.findIndex(each => !whole(each) || each > capacity);
  if (wrong >= 0) throw new Unusable(`demand ${wrong + 1} is ${demands[wrong]}; it must be a whole number up to the capacity of ${capacity}`);
  return { name, locs: [depot, ...customers], demand: [0, ...demands], capacity };
}

const apart = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);

function finished({ name, locs }, routes) {
  const length = route => [...route, 0].reduce((sum, node, i, all) => sum + apart(locs[node], locs[i ? all[i - 1] : 0]), 0);
  return { ...(name === undefined ? {} : { name }), routes, cost: routes.reduce((sum, route) => sum + length(route), 0), by: "policy" };
}

// The shortest tour of all starts under all symmetries, measured in the original coordinates.
function solve(tensors, config, instance, settings) {
  const { decode, augment, starts } = { decode: "multistart", augment: true, starts: null, ...settings };
  const nodes = instance.locs.length, scaled = inUnitSquare(instance.locs);
  if (nodes == 1) return finished(instance, []);
  const firsts = decode == "greedy" ? [null] : Array.from({ length: starts ?? Math.min(nodes - 1, MOST_STARTS) }, (_, i) => i + 1);
  let best = null;
  for (let symmetry = 0; symmetry < (augment ? SYMMETRIES : 1); symmetry++) {
    const places = scaled.map(place => turned(place, symmetry));
    const cache = prepare(tensors, config, encode(tensors, config, { ...instance, locs: places }), places);
    for (const first of firsts) {
      const found = finished({ locs: scaled }, build(tensors, config, cache, instance, first));
      if (!best || found.cost < best.cost) best = found;
    }
  }
  return finished(instance, best.routes);
}

// Coordinates scaled to the unit square, as in training; those that all lie in it already are not changed.
function inUnitSquare(locs) {
  const bounds = most => [0, 1].map(axis => most(...locs.map(each => each[axis])));
  const low = bounds(Math.min), high = bounds(Math.max), extent = Math.max(high[0] - low[0], high[1] - low[1]) || 1;
  const inside = Math.min(...low) >= 0 && Math.max(...high) <= 1;
  return locs.map(place => place.map((each, axis) => Math.fround(inside ? each : (each - low[axis]) / extent)));
}

function turned([x, y], symmetry) {
  const place = [symmetry & 1 ? 1 - x : x, symmetry & 2 ? 1 - y : y];
  return symmetry & 4 ? place.reverse() : place;
}

// States (N, D) of all nodes.
function encode(tensors, { width, heads, layers }, { locs, demand, capacity }) {
  const of = name => tensors[name], customers = locs.slice(1).flatMap((place, i) => [...place, demand[i + 1] / capacity]);
  let x = new Float32Array([
    ...linear(locs[0], of("embedding.depot.weight"), of("embedding.depot.bias")),
    ...linear(customers, of("embedding.customer.weight"), of("embedding.customer.bias")),
  ]);
  const add = (x, y) => x.map((each, i) => each + y[i]);
  for (let layer = 0; layer < layers; layer++) {
    const part = name => ["weight", "bias"].map(each => of(`layers.${layer}.${name}.${each}`));
    const mixed = attention(tensors, `layers.${layer}.attention`, width, heads, layerNorm(x, ...part("attention_norm")), locs);
    x = add(x, linear(mixed, ...part("attention.mix")));
    const hidden = linear(layerNorm(x, ...part("feed_forward_norm")), ...part("feed_forward.0")).map(each => Math.max(each, 0));
    x = add(x, linear(hidden, ...part("feed_forward.2")));
  }
  return x;
}

// Attention biased by distances, before the output matrix.
function attention(tensors, name, width, heads, x, locs) {
  const nodes = locs.length, size = width / heads, bias = tensors[`${name}.distance`].data;
  const parts = linear(x, tensors[`${name}.query_key_value.weight`]), out = new Float32Array(nodes * width);
  for (let head = 0; head < heads; head++)
    for (let i = 0; i < nodes; i++) {
      const weights = softmax(locs.map((place, j) => {
        const d = apart(locs[i], place), query = 3 * width * i + head * size, key = 3 * width * j + width + head * size;
        let score = 0;
        for (let c = 0; c < size; c++) score += parts[query + c] * parts[key + c];
        return score / Math.sqrt(size) + d * (bias[head] + bias[heads + head] * d);
      }));
      for (let c = 0; c < size; c++) {
        let sum = 0;
        for (let j = 0; j < nodes; j++) sum += weights[j] * parts[3 * width * j + 2 * width + head * size + c];
        out[i * width + head * size + c] = sum;
      }
    }
  return out;
}

// What all steps of all tours of an instance share: projections (N, 4 D) of nodes, the graph's query, and distances.
function prepare(tensors, { width }, nodes, places) {
  const normed = layerNorm(nodes, tensors["decoder.norm.weight"], tensors["decoder.norm.bias"]);
  const mean = Float32Array.from({ length: width }, (_, c) => places.reduce((sum, _, i) => sum + normed[i * width + c], 0) / places.length);
  return {
    parts: linear(normed, tensors["decoder.node.weight"]),
    graph: linear(mean, tensors["decoder.graph.weight"]),
    distance: places.map(a => places.map(b => apart(a, b))),
  };
}

// The routes of one greedy tour, with `first` as its first customer if given.
function build(tensors, config, cache, { demand, capacity }, first) {
  const waiting = demand.map((_, node) => node > 0), routes = [[]];
  let node = 0, load = capacity, left = demand.length - 1;
  while (left) {
    const allowed = demand.map((each, i) => waiting[i] && each <= load);
    allowed[0] = node != 0;
    node = first ?? likeliest(tensors, config, cache, node, load / capacity, allowed);
    first = null;
    if (node == 0) {
      load = capacity;
      routes.push([]);
    } else {
      load -= demand[node];
      waiting[node] = false;
      routes.at(-1).push(node);
      left--;
    }
  }
  return routes.filter(route => route.length);
}

function likeliest(tensors, { width, heads }, { parts, graph, distance }, here, load, allowed) {
  const size = width / heads, at = (node, part) => (4 * node + part) * width, nodes = allowed.flatMap((each, i) => each ? [i] : []);
  const emptiness = tensors["decoder.load"].data, query = graph.map((each, c) => each + parts[at(here, 0) + c] + emptiness[c] * load);
  const glimpse = new Float32Array(width);
  for (let from = 0; from < width; from += size) {
    const weights = softmax(nodes.map(node => {
      let score = 0;
      for (let c = from; c < from + size; c++) score += parts[at(node, 1) + c] * query[c];
      return score / Math.sqrt(size);
    }));
    nodes.forEach((node, i) => {
      for (let c = from; c < from + size; c++) glimpse[c] += weights[i] * parts[at(node, 2) + c];
    });
  }
  let best = null, most = -Infinity;
  for (const node of nodes) {
    let score = 0;
    for (let c = 0; c < width; c++) score += parts[at(node, 3) + c] * glimpse[c];
    // In single precision: large logits tie there, and the first node is taken.
    const logit = Math.fround(Math.tanh(score / Math.sqrt(width) - tensors["decoder.distance"].data[0] * distance[here][node]));
    if (logit > most) [best, most] = [node, logit];
  }
  return best;
}

// The parallel savings algorithm (Clarke and Wright 1964), which needs no training.
function savings({ locs, demand, capacity }) {
  const home = locs.map(each => apart(each, locs[0])), pairs = [];
  for (let i = 1; i < locs.length; i++)
    for (let j = i + 1; j < locs.length; j++) pairs.push([home[i] + home[j] - apart(locs[i], locs[j]), i, j]);
  pairs.sort((a, b) => b[0] - a[0]);  // stable, so that ties are broken by the numbers of customers
  const routeOf = locs.map((_, node) => [node]), loadOf = new Map(routeOf.map((route, node) => [route, demand[node]]));
  for (const [saving, i, j] of pairs) {
    const left = routeOf[i], right = routeOf[j], load = loadOf.get(left) + loadOf.get(right);
    const ends = (left[0] == i || left.at(-1) == i) && (right[0] == j || right.at(-1) == j);
    if (saving <= 0 || left == right || !ends || load > capacity) continue;
    if (left.at(-1) != i) left.reverse();
    if (right[0] != j) right.reverse();
    left.push(...right);
    right.forEach(node => routeOf[node] = left);
    loadOf.set(left, load);
  }
  return [...new Set(routeOf.slice(1))];
}
