// Messages: follow the end of a topic, and search all of it. Rows are made of text nodes, never of HTML.
import { send, say } from "./actions.js";
import { element } from "./dom.js";
import { localTimes } from "./live.js";

const MOST_ROWS = 1000;
const table = document.getElementById("records");
const body = table.tBodies[0];
const progress = document.getElementById("progress");
const meter = document.getElementById("meter");
const pager = document.getElementById("pager");
const read = document.getElementById("read");

function cell(row, className) {
  const made = element("td", undefined, className);
  row.append(made);
  return made;
}

function shown(part, missing) {
  const pre = element("pre");
  pre.append(part.text === null ? element("span", missing, "quiet") : part.text);
  return pre;
}

function rowOf(record) {
  const row = element("tr");
  const link = element("a", record.partition);
  link.href = `${table.dataset.base}/${record.partition}/${record.offset}`;
  cell(row, "num").append(link);
  cell(row, "num").textContent = record.offset;
  const time = element("time", record.timestamp);
  const moment = new Date(record.timestamp);
  if (!Number.isNaN(moment.getTime())) {
    time.dateTime = moment.toISOString();
    time.dataset.local = "";
  }
  cell(row).append(time);
  cell(row, "bytes").append(shown(record.key, "null"));
  const value = cell(row, "bytes");
  value.append(shown(record.value, "null (a tombstone)"));
  if (record.value.is_cut) value.append(element("p", `cut: ${record.value.size_bytes} bytes in all`, "quiet"));
  if (record.value.note) value.append(element("p", record.value.note, "quiet"));
  if (record.headers.length) {
    const headers = element("p", undefined, "headers");
    for (const [name, held] of record.headers) headers.append(element("span", `${name}: ${held.text}`, "tag"), " ");
    value.append(headers);
  }
  return row;
}

function add(records, isNewestFirst) {
  document.getElementById("empty")?.remove();
  for (const record of records) {
    const row = rowOf(record);
    if (isNewestFirst) body.prepend(row);
    else body.append(row);
  }
  while (body.rows.length > MOST_ROWS) body.deleteRow(isNewestFirst ? -1 : 0);
  localTimes(body);
}

function chosen() {
  const partition = read.elements.partition.value;
  return { view: read.elements.view.value, ...(partition === "" ? {} : { partition: Number(partition) }) };
}

// Following: asks each second for what came after the last record, pauses while the page is hidden.
const tail = document.getElementById("tail");
let newer = table.dataset.newer;

async function follow() {
  if (tail.getAttribute("aria-pressed") !== "true") return;
  try {
    if (!document.hidden) {
      const query = new URLSearchParams({ ...chosen(), after: newer, limit: 200 });
      const response = await fetch(`${table.dataset.api}/messages?${query}`);
      const said = await response.json();
      if (!response.ok) throw new Error(said.error);
      add(said.records, true);
      newer = said.newer;
      progress.textContent = `Following; ${body.rows.length} records shown.`;
    }
  } catch (error) {
    progress.textContent = `▲ ${error.message}; trying again.`;
  }
  setTimeout(follow, 1000);
}

tail.addEventListener("click", () => {
  const isOn = tail.getAttribute("aria-pressed") !== "true";
  tail.setAttribute("aria-pressed", isOn);
  tail.textContent = isOn ? "Pause" : "Follow";
  progress.hidden = false;
  progress.textContent = isOn ? "Following." : "Paused.";
  pager.hidden = true;
  if (isOn) follow();
});

// Searching
const form = document.getElementById("search-form");
const cancel = document.getElementById("cancel");
let running = null; // the id of the search that the page shows
let latest = 0; // a search that was begun before it is not shown any more

function downloadsFollow() {
  for (const [id, format] of [["jsonl", "jsonl"], ["csv", "csv"]]) {
    const query = new URLSearchParams({ format, filter: document.getElementById("search").value });
    const { partition } = chosen();
    if (partition !== undefined) query.set("partition", partition);
    if (read.elements.start.value !== "newest") query.set("start", read.elements.start.value);
    document.getElementById(id).href = `${table.dataset.api}/download?${query}`;
  }
}

async function watch(id, number) {
  let count = 0;
  while (number === latest) {
    const response = await fetch(`${table.dataset.api}/searches/${id}?after=${count}`);
    const said = await response.json();
    if (number !== latest) return;
    if (!response.ok) throw new Error(said.error);
    add(said.records, false);
    count = said.count;
    meter.value = said.total ? said.scanned / said.total : 0;
    const of = `${said.scanned.toLocaleString()} of ${said.total.toLocaleString()} records`;
    const limited = said.is_limited ? "; there may be more: narrow the search, or download" : "";
    progress.textContent = `Found ${count} in ${of}${said.is_running ? "…" : `, ${said.took_s.toFixed(1)} s${limited}.`}`;
    if (said.error) throw new Error(said.error);
    if (!said.is_running) return;
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
}

function end(id) {
  send("DELETE", `${table.dataset.api}/searches/${id}`).catch((error) => say(error.message, true));
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const number = ++latest;
  if (running) end(running);
  running = null;
  say("");
  const text = document.getElementById("search").value.trim();
  if (tail.getAttribute("aria-pressed") === "true") tail.click();
  body.replaceChildren();
  pager.hidden = true;
  progress.hidden = meter.hidden = false;
  progress.textContent = "Searching…";
  try {
    const start = read.elements.start.value;
    const wanted = { ...chosen(), start: start === "newest" ? "earliest" : start, filters: text ? [text] : [] };
    const { id } = await send("POST", `${table.dataset.api}/searches`, wanted);
    if (number !== latest) return end(id);
    running = id;
    cancel.hidden = false;
    await watch(id, number);
  } catch (error) {
    if (number === latest) say(error.message, true);
  }
  if (number !== latest) return;
  meter.hidden = cancel.hidden = true;
  running = null;
});
cancel.addEventListener("click", () => {
  if (running) end(running);
});
for (const source of [form, read]) source.addEventListener("input", downloadsFollow);
