// Shows the values of a plot's lines nearest to the pointer.
const tip = document.body.appendChild(document.createElement("output"));
tip.className = "tip";

function nearest(line, x) {
  const places = line.querySelector("path").getAttribute("d").match(/-?[\d.]+/g).map(Number).filter((_, i) => i % 2 == 0);
  const best = places.reduce((best, place, i) => Math.abs(place - x) < Math.abs(places[best] - x) ? i : best, 0);
  return `${line.dataset.name}: ${line.dataset.y.split("\n")[best]} at ${line.dataset.x.split("\n")[best]}`;
}

document.addEventListener("pointermove", event => {
  const plot = event.target.closest("svg.plot");
  const lines = plot ? [...plot.querySelectorAll("[data-x]")] : [];
  tip.hidden = !lines.length;
  if (tip.hidden) return;
  const { x } = new DOMPoint(event.clientX, event.clientY).matrixTransform(plot.getScreenCTM().inverse());
  tip.textContent = lines.map(line => nearest(line, x)).join("\n");
  const right = innerWidth - tip.offsetWidth - 8;
  tip.style.left = `${Math.max(0, Math.min(event.clientX + 12, right))}px`;
  tip.style.top = `${event.clientY + 16}px`;
});
