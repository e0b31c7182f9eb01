// One event stream for all tabs of a browser: HTTP/1.1 allows six connections, and people have ten tabs.
// Tabs say whether they are visible; while none is, the stream is closed.
const tabs = new Map();
let stream = null;

function tell(message) {
  for (const port of tabs.keys()) port.postMessage(message);
}

function open() {
  stream = new EventSource("/events");
  stream.onopen = () => tell({ kind: "open" });
  stream.onerror = () => tell({ kind: "lost" });
  stream.addEventListener("changed", (event) => tell({ kind: "changed", ...JSON.parse(event.data) }));
}

function adjust() {
  const isWanted = [...tabs.values()].some(Boolean);
  if (isWanted && (!stream || stream.readyState === EventSource.CLOSED)) open();
  if (!isWanted && stream) {
    stream.close();
    stream = null;
  }
}

onconnect = (event) => {
  const port = event.ports[0];
  tabs.set(port, true);
  port.onmessage = ({ data }) => {
    if (data === "gone") tabs.delete(port);
    else tabs.set(port, data === "visible");
    adjust();
  };
  adjust();
};
