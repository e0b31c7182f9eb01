// A list that is found as one types. Typing never waits: the newest question counts, and a response to an older one is
// dropped.
import { refresh } from "./live.js";

const PAUSE_MS = 120;

// Each field of the form is a parameter of the page's address: a text, or a box that is ticked or not.
export function searchable(form, list) {
  let timer = 0;
  const search = () => {
    const query = new URLSearchParams(location.search);
    for (const field of form.querySelectorAll("input[name]")) {
      query.set(field.name, field.type === "checkbox" ? String(field.checked) : field.value);
    }
    query.delete("page");
    const address = `${location.pathname}?${query}`;
    history.replaceState(null, "", address);
    return refresh(list, address);
  };
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(search, PAUSE_MS);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    search();
  });
}
