// <k-log>: the log of a container, followed and searched.

import { call, open, path } from "./session.js";

const MOST_LINES = 5000;
const SHOWN_MS = 150;

class Log extends HTMLElement {
  connectedCallback() {
    if (this._view) return;
    this._view = document.createElement("pre");
    this._view.className = "log";
    this._view.tabIndex = 0;
    this._view.setAttribute("role", "log");
    this._view.setAttribute("aria-live", "off");
    this._view.setAttribute("aria-label", "Log");
    this._said = document.createElement("p");
    this._said.className = "dim";
    this._said.setAttribute("role", "status");
    this.append(this._said, this._view);
    this._begin();
  }

  disconnectedCallback() {
    this._stop();
  }

  /** `{namespace, pod, container, previous, follow, search}`. */
  set source(source) {
    const key = JSON.stringify({ ...source, search: "" });
    const searches = this._source?.search !== source.search;
    this._source = source;
    if (key !== this._key) {
      this._key = key;
      if (this._view) this._begin();
    } else if (searches) this._show(true);
  }

  _stop() {
    clearTimeout(this._timer);
    this._timer = null;
    this._generation = (this._generation ?? 0) + 1;
    this._socket?.close();
    this._socket = null;
  }

  async _begin() {
    this._stop();
    const generation = this._generation;
    this._lines = [];
    this._rest = "";
    this._fresh = 0;
    this._view.replaceChildren();
    const { namespace, pod, container, previous, follow } = this._source;
    const target = path("v1", "pods", namespace, pod, "log");
    const query = { container, tailLines: "1000", ...(previous ? { previous: "true" } : {}) };
    this._say("Loading …");
    if (follow && !previous) {
      this._follow(target, { ...query, follow: "true" }, generation);
      return;
    }
    try {
      const text = await (await call(target, { query })).text();
      if (generation === this._generation) this._add(text);
      this._say("");
    } catch (error) {
      this._say(error.message);
    }
  }

  _follow(target, query, generation) {
    const decoder = new TextDecoder();
    const socket = (this._socket = open(target, query, "binary.k8s.io"));
    socket.binaryType = "arraybuffer";
    let opened = false;
    socket.onopen = () => {
      opened = true;
      this._say("");
    };
    socket.onmessage = ({ data }) => generation === this._generation && this._add(decoder.decode(data, { stream: true }));
    socket.onclose = async () => {
      if (generation !== this._generation) return;
      if (opened) this._say("The log has ended.");
      // The reason of a refusal is only in the answer to an ordinary request.
      else this._say(await call(target, { query: { ...query, follow: "false", tailLines: "1" } }).then(() => "The log cannot be followed.", (error) => error.message));
    };
  }

  _say(text) {
    this._said.textContent = text;
  }

  _add(text) {
    const lines = (this._rest + text).split("\n");
    this._rest = lines.pop();
    for (const line of lines) this._lines.push(plain(line));
    this._fresh += lines.length;
    if (this._lines.length > MOST_LINES) this._lines.splice(0, this._lines.length - MOST_LINES);
    this._timer ??= setTimeout(() => {
      this._timer = null;
      this._show(false);
    }, SHOWN_MS);
  }

  _show(all) {
    const view = this._view;
    const isAtEnd = view.scrollHeight - view.scrollTop - view.clientHeight < 40;
    const wanted = this._source.search.toLowerCase();
    const fresh = all ? this._lines : this._lines.slice(-this._fresh || this._lines.length);
    if (!all && !this._fresh) return;
    this._fresh = 0;
    if (all) view.replaceChildren();
    const part = document.createDocumentFragment();
    for (const line of fresh) if (!wanted || line.toLowerCase().includes(wanted)) part.append(row(line, wanted));
    view.append(part);
    while (view.childElementCount > MOST_LINES) view.firstElementChild.remove();
    if (isAtEnd || all) view.scrollTop = view.scrollHeight;
  }
}

function row(line, wanted) {
  const node = document.createElement("div");
  let at = 0;
  const lower = line.toLowerCase();
  for (let found = wanted ? lower.indexOf(wanted) : -1; found >= 0; found = lower.indexOf(wanted, at)) {
    node.append(line.slice(at, found));
    const mark = document.createElement("mark");
    mark.textContent = line.slice(found, found + wanted.length);
    node.append(mark);
    at = found + wanted.length;
  }
  node.append(line.slice(at) || (at ? "" : "\u200b"));
  return node;
}

/** Return a line without the colours of terminals, and what comes after the last carriage return. */
function plain(line) {
  return line.replace(/\r$/, "").replace(/^.*\r/, "").replace(/\x1b\[[0-9;?]*[ -/]*[@-~]/g, "");
}

customElements.define("k-log", Log);
