// The picture is drawn by the server, for the width that it has here. What is new of it is not put in the place of the
// old: elements with the same id stay, and their attributes change, so that style sheets can let them move.
import { fragment, localTimes, onChanged } from "./live.js";

const section = document.getElementById("picture");
const parts = section.dataset.parts.split(" ");
const PAUSE_MS = 1000;
let isAsking = false;
let isWanted = false;
let asked = -PAUSE_MS;

function address() {
  const query = new URLSearchParams(location.search);
  query.set("width", String(Math.round(section.clientWidth)));
  return `${location.pathname}?${query}`;
}

function isSame(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) return false;
  return old.nodeType !== Node.ELEMENT_NODE || old.id === fresh.id;
}

function copyAttributes(old, fresh) {
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
}

// Makes the children of one element those of another, and keeps what is the same.
function morph(old, fresh) {
  const byId = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
  let at = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    let found = child.id ? byId.get(child.id) : at && !at.id && isSame(at, child) ? at : null;
    if (found && !isSame(found, child)) found = null;
    if (!found) {
      old.insertBefore(document.importNode(child, true), at);
      continue;
    }
    if (found === at) at = at.nextSibling;
    else old.insertBefore(found, at);
    if (child.nodeType === Node.ELEMENT_NODE) {
      copyAttributes(found, child);
      morph(found, child);
    } else if (found.data !== child.data) found.data = child.data;
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

async function draw() {
  isWanted = true;
  if (isAsking || document.hidden) return;
  isAsking = true;
  while (isWanted && !document.hidden) {
    const pause = asked + PAUSE_MS - performance.now();
    if (pause > 0) await new Promise((done) => setTimeout(done, pause));
    isWanted = false;
    asked = performance.now();
    try {
      const fresh = await fragment(address());
      if (fresh) {
        morph(section, fresh);
        localTimes(section);
      }
    } catch {
      // the console is away: the stream says so
    }
  }
  isAsking = false;
}

onChanged((changed) => {
  if (changed.some((part) => parts.includes(part))) draw();
});
document.addEventListener("visibilitychange", draw);
setInterval(draw, 2000); // offsets move between two looks at the whole cluster
section.addEventListener("submit", () => setTimeout(draw, 300));
let width = 0;
new ResizeObserver(() => {
  if (Math.abs(section.clientWidth - width) < 8) return;
  width = section.clientWidth;
  draw();
}).observe(section);
