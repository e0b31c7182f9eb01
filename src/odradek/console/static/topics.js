// Typing in the search never waits: the newest question counts, and an answer to an older one is dropped.
import { refresh } from "./live.js";

const form = document.getElementById("search-form");
const list = document.getElementById("topics");
let timer = 0;

async function search() {
  const query = new URLSearchParams(location.search);
  query.set("search", form.elements.search.value);
  query.set("internal", form.elements.internal.checked ? "true" : "false");
  query.delete("page");
  const address = `${location.pathname}?${query}`;
  history.replaceState(null, "", address);
  await refresh(list, address);
}

form.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(search, 120);
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  search();
});
