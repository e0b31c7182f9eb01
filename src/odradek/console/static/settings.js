// The settings of a topic: found by name, changed one at a time.
const rows = [...document.querySelectorAll("#settings tbody tr")];
const search = document.getElementById("search");
const onlyOwn = document.getElementById("only-own");

function show() {
  const wanted = search.value.trim().toLowerCase();
  for (const row of rows) {
    row.hidden = !row.dataset.key.includes(wanted) || (onlyOwn.checked && !("own" in row.dataset));
  }
}
search.addEventListener("input", show);
search.form.addEventListener("submit", (event) => event.preventDefault());
onlyOwn.addEventListener("change", show);

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-edit]");
  if (!button) return;
  const dialog = document.getElementById("edit");
  const form = dialog.querySelector("form");
  form.dataset.key = button.dataset.edit;
  form.querySelector("h2").textContent = button.dataset.edit;
  form.elements.value.value = button.dataset.value;
  form.querySelector('button[value="delete"]').hidden = button.dataset.ownValue !== "yes";
  dialog.showModal();
});
