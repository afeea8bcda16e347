"""What the panel of images does with files that are given while others are read, and with those that cannot be read."""

import json
import subprocess

import pytest

from common import browser

# A document that keeps what it is told, and files that take their time; prints what the panel says and refuses.
PAGE = """
const said = [], failed = [], made = [];
const element = (tag, attributes = {}, ...children) => {
  const ignored = { replaceChildren() {}, append() {}, removeAttribute() {}, setAttribute() {} };
  const one = { tag, ...attributes, ...ignored, classList: { add() {}, remove() {} } };
  Object.assign(one, { querySelector: () => one, querySelectorAll: () => [], children });
  made.push(one);
  return one;
};
const reporting = () => ({ say: text => said.push(text), fail: text => failed.push(text), parts: [] });
const [labelled, button, table] = [() => element(""), () => element(""), () => element("table")];
const asked = (report, ask) => ask();
class FileReader {
  readAsDataURL(file) {
    this.result = file.name;
    setTimeout(() => file.torn ? this.onerror() : this.onload(), file.milliseconds);
  }
}
eval(require("fs").readFileSync(process.argv[1], "utf8") + ";globalThis.imagesPanel = imagesPanel");
const backend = { predict: async ({ images }) => images
  ? { ranking: images.map((_, image) => ({ image, score: image, low: 0, high: 1 })) }
  : { first_is_higher: 0.5, tie: 0.1 } };
globalThis.imagesPanel(element(""), backend, { digits: false, attributes: ["value"], votes: true });
const input = made.find(each => each.type == "file"), give = (...files) => { input.files = files; input.change(); };
give({ name: "slow.png", size: 1, milliseconds: 60 });
give({ name: "fast.png", size: 1, milliseconds: 1 });
setTimeout(() => give({ name: "folder", size: 1, milliseconds: 1, torn: true }), 200);
setTimeout(() => console.log(JSON.stringify({ said, failed })), 300);
"""


@pytest.mark.slow  # needs node
def test_files_given_while_others_are_read_join_them_and_unreadable_ones_are_told():
    command = ["node", "-e", PAGE, str(browser.FOLDER / "images.js")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["said"][-1].startswith("2 images, by ")
    assert found["failed"] == ["folder cannot be read"]
