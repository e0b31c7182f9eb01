// Quotas: found as one types; the form has the names that its kind of entity has.
import "./list.js";

const form = document.querySelector("#set form");
const NAMES = { user: "user", "client-id": "client_id", ip: "ip" };

function show() {
  const kinds = form.elements.kind.value.split(" and ");
  for (const [kind, name] of Object.entries(NAMES)) form.elements[name].parentElement.hidden = !kinds.includes(kind);
  for (const option of form.elements.quota.options) {
    option.disabled = option.hidden = (option.value === "connection_creation_rate") !== kinds.includes("ip");
  }
  const { quota } = form.elements;
  if (quota.selectedOptions[0]?.disabled) quota.value = [...quota.options].find((option) => !option.disabled).value;
}
form.addEventListener("input", show);
show();
