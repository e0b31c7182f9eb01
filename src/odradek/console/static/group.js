// A group: its offsets are reset after a preview. What the preview showed is sent with the change, so that the console can
// refuse it if somebody else was faster.
import { send } from "./actions.js";
import { element } from "./dom.js";

const api = document.querySelector('meta[name="api"]').content;

const cell = (text, isNumber) => element("td", text, isNumber && "num");

function resettable(form) {
  const { to, value, topics } = form.elements;
  const preview = document.getElementById("preview");
  const failure = form.querySelector(".failure");
  const doIt = form.querySelector('button[value="reset"]');
  let expected = {};

  const forget = () => {
    preview.hidden = doIt.hidden = true;
    value.disabled = to.value === "earliest" || to.value === "latest";
  };
  const body = () => ({
    group: form.dataset.group,
    to: to.value,
    value: value.disabled ? "" : value.value,
    topics: topics.value.split(/\s+/).filter(Boolean),
  });
  const show = (plan) => {
    const rows = plan.moves.map((move) => {
      const row = element("tr");
      const now = move.current_offset;
      const difference = now === null ? "" : (move.new_offset - now).toLocaleString("en", { signDisplay: "exceptZero" });
      row.append(
        cell(`${move.topic}-${move.partition}`),
        cell(now === null ? "–" : now.toLocaleString("en"), true),
        cell(move.new_offset.toLocaleString("en"), true),
        cell(difference, true),
      );
      return row;
    });
    preview.querySelector("tbody").replaceChildren(...rows);
    const warnings = plan.warnings.map((text) => element("li", text));
    preview.querySelector(".warnings").replaceChildren(...warnings);
    const known = plan.moves.filter((move) => move.current_offset !== null);
    expected = Object.fromEntries(known.map((move) => [`${move.topic}-${move.partition}`, move.current_offset]));
    preview.hidden = doIt.hidden = false;
  };

  form.addEventListener("input", forget);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    failure.hidden = true;
    try {
      if (event.submitter?.value === "reset") {
        const said = await send("POST", `${api}/group/offsets`, { ...body(), expected });
        sessionStorage.setItem("said", said.said);
        location.reload();
      } else show(await send("POST", `${api}/group/offsets/preview`, body()));
    } catch (error) {
      forget();
      failure.textContent = `▲ ${error.message}`;
      failure.hidden = false;
    }
  });
  forget();
}

const resetForm = document.getElementById("reset-form");
if (resetForm) resettable(resetForm);
