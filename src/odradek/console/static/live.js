// Parts of a page that refresh: <section data-live data-parts="topology offsets"> is asked for again when the server
// says that one of these parts has changed. The server renders it, and escapes what it shows.
const cluster = document.querySelector('meta[name="cluster"]')?.content;
const connection = document.getElementById("connection");
const sections = () => [...document.querySelectorAll("section[data-live]")];
const waiting = new Set();
let isAsking = false;
const subscribers = [];

// For modules of pages: called with the names of the parts that have changed.
export function onChanged(subscriber) {
  subscribers.push(subscriber);
}

function isInUse(section) {
  const selection = document.getSelection();
  if (selection && !selection.isCollapsed && section.contains(selection.anchorNode)) return true;
  return section.matches(":focus-within") && document.activeElement.matches("input, select, textarea");
}

// The body of the part of a page that refreshes, or null. Who has logged out elsewhere gets the login.
export async function fragment(address) {
  const response = await fetch(address, { headers: { "X-Fragment": "1" } });
  if (response.redirected) location.reload();
  if (!response.ok || response.redirected) return null;
  return new DOMParser().parseFromString(await response.text(), "text/html").body;
}

export async function refresh(section, address = location.href) {
  const fresh = await fragment(address);
  if (!fresh) return;
  const focused = section.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  section.replaceChildren(...fresh.childNodes);
  localTimes(section);
  if (focused) section.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

async function ask() {
  if (isAsking || document.hidden || !waiting.size) return;
  isAsking = true;
  const due = [...waiting].filter((section) => !isInUse(section));
  due.forEach((section) => waiting.delete(section));
  try {
    for (const section of due) await refresh(section);
  } catch {
    // the console is away: the stream says so
  }
  isAsking = false;
}

function hear(message) {
  if (message.kind === "open") connection.replaceChildren();
  if (message.kind === "lost") connection.textContent = "▲ no connection to the console";
  if (message.kind !== "changed" || message.cluster !== cluster) return;
  for (const section of sections()) {
    const parts = (section.dataset.parts || "").split(" ");
    if (message.parts.some((part) => parts.includes(part))) waiting.add(section);
  }
  subscribers.forEach((subscriber) => subscriber(message.parts));
  ask();
}

function listenByWorker() {
  const { port } = new SharedWorker(document.body.dataset.worker, "odradek");
  port.onmessage = ({ data }) => hear(data);
  port.start();
  const say = () => port.postMessage(document.hidden ? "hidden" : "visible");
  document.addEventListener("visibilitychange", say);
  addEventListener("pagehide", () => port.postMessage("gone"));
  addEventListener("pageshow", say);
}

function listenHere() {
  let stream = null;
  const adjust = () => {
    if (document.hidden) {
      stream?.close();
      stream = null;
    } else if (!stream) {
      stream = new EventSource("/events");
      stream.onopen = () => hear({ kind: "open" });
      stream.onerror = () => hear({ kind: "lost" });
      stream.addEventListener("changed", (event) => hear({ kind: "changed", ...JSON.parse(event.data) }));
    }
  };
  document.addEventListener("visibilitychange", adjust);
  adjust();
}

// Times of records in the browser's own time.
export function localTimes(root) {
  for (const time of root.querySelectorAll("time[data-local]")) {
    const moment = new Date(time.dateTime);
    if (!Number.isNaN(moment.getTime())) {
      time.title = time.dateTime;
      const two = (value, width = 2) => String(value).padStart(width, "0");
      const day = `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())}`;
      const clock = `${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}`;
      time.textContent = `${day} ${clock}.${two(moment.getMilliseconds(), 3)}`;
    }
  }
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.activeElement.matches("input, textarea, select")) return;
  const search = document.getElementById("search");
  if (search) {
    event.preventDefault();
    search.focus();
    search.select();
  }
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) {
    sections().forEach((section) => waiting.add(section));
    ask();
  }
});
localTimes(document);
document.querySelector(".side a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }); // on a phone
if (cluster) "SharedWorker" in window ? listenByWorker() : listenHere();
setInterval(ask, 1000); // what was in use a moment ago
