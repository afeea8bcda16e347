// What model.py computes, and a panel to try it.

async function openModel(config, files) {
  const tensors = readTensors(files["model.safetensors"]);
  const layer = (number, x) => linear(x, tensors[`layers.${number}.weight`], tensors[`layers.${number}.bias`]);
  return {
    predict: async ({ past }, { steps = 1 } = {}) => {
      const known = [...past];
      for (let i = 0; i < steps; i++) known.push(layer(2, layer(0, known.slice(-config.window)).map(Math.tanh))[0]);
      return { next: known.slice(past.length) };
    },
  };
}

function wavesPanel(place, backend, about) {
  const past = Object.assign(element("input", { size: 60 }), { value: about.past.join(" ") }), report = reporting();
  const act = async () => {
    const answer = await asked(report, () => backend.predict({ past: past.value.split(/\s+/).map(Number) }, { steps: 3 }));
    if (answer) report.say(answer.next.map(shortNumber).join(" "));
  };
  place.append(labelled("past values", past), button("Continue", act), ...report.parts);
}
