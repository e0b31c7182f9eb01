// Forms with data-action: sent as JSON with the token of the page; what the server says is shown.
//   data-method   POST, PATCH, DELETE
//   data-then     where to go afterwards; "reload" stays
// Buttons with data-opens open a dialog: data-fields are values for the fields of its form, as JSON, and data-tells is
// what it is about.
// Fields: data-kind="number" | "optional" (left out if empty), "pairs" (an object), "headers" (a list of pairs).
const token = () => document.querySelector('meta[name="csrf-token"]').content;

export async function send(method, address, body) {
  const response = await fetch(address, {
    method,
    headers: { "X-CSRF-Token": token(), ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const isJson = (response.headers.get("content-type") || "").startsWith("application/json");
  const said = isJson ? await response.json() : { error: await response.text() };
  if (!response.ok) throw new Error(said.error || `the console answered ${response.status}`);
  return said;
}

export function say(text, isBad = false) {
  const place = document.getElementById("said");
  place.textContent = isBad ? `▲ ${text}` : text;
  place.classList.toggle("bad", isBad);
  place.hidden = !text;
}

function pairs(text) {
  return text
    .split("\n")
    .filter((line) => line.trim())
    .map((line) => {
      const at = line.indexOf("=");
      if (at < 1) throw new Error(`“${line}” is not of the form name=value`);
      return [line.slice(0, at).trim(), line.slice(at + 1)];
    });
}

function bodyOf(form) {
  const body = {};
  for (const field of form.elements) {
    if (!field.name) continue;
    const kind = field.dataset.kind;
    if (field.value === "" && (kind === "number" || kind === "optional")) continue;
    if (kind === "number") body[field.name] = Number(field.value);
    else if (kind === "pairs") body[field.name] = Object.fromEntries(pairs(field.value));
    else if (kind === "headers") body[field.name] = pairs(field.value);
    else body[field.name] = field.value;
  }
  return body;
}

function fill(form, values) {
  for (const [name, value] of Object.entries(values)) {
    if (form.elements[name]) form.elements[name].value = value ?? "";
  }
  form.dispatchEvent(new Event("input"));
}

function settingBody(form, submitter) {
  const key = form.dataset.key;
  return submitter?.value === "delete" ? { delete: [key] } : { set: { [key]: form.elements.value.value } };
}

// What was said before the page was left.
const kept = sessionStorage.getItem("said");
if (kept) {
  sessionStorage.removeItem("said");
  say(kept);
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.dataset.action) return;
  event.preventDefault();
  const failure = form.querySelector(".failure");
  const buttons = form.querySelectorAll("button[type=submit]");
  buttons.forEach((button) => (button.disabled = true));
  try {
    const body = "setting" in form.dataset ? settingBody(form, event.submitter) : bodyOf(form);
    const said = await send(form.dataset.method, form.dataset.action, body);
    if (said.said) sessionStorage.setItem("said", said.said);
    if (form.dataset.thenTopic) location.href = form.dataset.thenTopic + encodeURIComponent(said.topic);
    else if (form.dataset.then === "reload") location.reload();
    else if (form.dataset.then) location.href = form.dataset.then;
    else {
      sessionStorage.removeItem("said");
      say(said.said || "Done.");
    }
  } catch (error) {
    if (failure) {
      failure.textContent = `▲ ${error.message}`;
      failure.hidden = false;
    } else say(error.message, true);
  }
  buttons.forEach((button) => (button.disabled = false));
});

document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-opens]");
  if (opener) {
    const dialog = document.getElementById(opener.dataset.opens);
    if (opener.dataset.fill !== undefined) dialog.querySelector("[data-filled]").value = opener.dataset.fill;
    if (opener.dataset.fields !== undefined) fill(dialog.querySelector("form"), JSON.parse(opener.dataset.fields));
    if (opener.dataset.tells !== undefined) dialog.querySelector("[data-told]").textContent = opener.dataset.tells;
    dialog.showModal();
  }
  if (event.target.closest("[data-closes]")) event.target.closest("dialog").close();
});
