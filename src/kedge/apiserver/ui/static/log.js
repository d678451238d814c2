// <k-log>: the log of a container, followed and searched.

import { call, open, path } from "./session.js";
import { shownLine } from "./log_lines.js";

const MOST_LINES = 5000;
/** Characters that are kept in all: containers write lines of any length. */
const MOST_CHARACTERS = 4 << 20;
/** A line without an end is shown after so many characters. */
const LONGEST_REST = 1 << 16;
const SHOWN_MS = 150;
const AGAIN_MS = 1000;
/** The codes with which a server that ends, or a lost connection, closes a WebSocket. */
const LOST = [1001, 1006, 1011, 1012];

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

  /** `{namespace, pod, container, instance, previous, follow, times, search}`. Another `instance` of the
   *  container goes on below what the one before has said. */
  set source(source) {
    const before = this._source;
    const key = JSON.stringify({ ...source, search: "", instance: "" });
    this._source = source;
    if (key !== this._key) {
      this._key = key;
      if (this._view) this._begin();
    } else if (before.instance !== source.instance && source.follow && !source.previous) this._continue();
    else if (before.search !== source.search) this._show(true);
  }

  _stop() {
    clearTimeout(this._timer);
    clearTimeout(this._again);
    this._timer = null;
    this._generation = (this._generation ?? 0) + 1;
    this._socket?.close();
    this._socket = null;
  }

  _begin() {
    this._stop();
    this._lines = [];
    this._characters = 0;
    this._fresh = 0;
    this._view.replaceChildren();
    this._read();
  }

  /** Follow the container after its restart. */
  _continue() {
    this._stop();
    this._put(["", "── The container was restarted. ──"]);
    this._read();
  }

  async _read() {
    const generation = this._generation;
    this._rest = "";
    const { namespace, pod, container, previous, follow, times } = this._source;
    const target = path("v1", "pods", namespace, pod, "log");
    const query = { container, tailLines: "1000", ...(previous ? { previous: "true" } : {}), ...(times ? { timestamps: "true" } : {}) };
    this._say("Loading …");
    if (follow && !previous) {
      this._follow(target, { ...query, follow: "true" }, generation);
      return;
    }
    try {
      const text = await (await call(target, { query })).text();
      if (generation !== this._generation) return;
      this._add(text);
      this._end();
      this._say(this._lines.length ? "" : "The log is empty.");
    } catch (error) {
      if (generation === this._generation) this._say(error.message);
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
    socket.onclose = async ({ code }) => {
      if (generation !== this._generation) return;
      this._end();
      if (opened && LOST.includes(code)) {
        this._say("The connection was lost. Trying again …");
        this._again = setTimeout(() => this._begin(), AGAIN_MS);
      } else if (opened) this._say(this._lines.length ? "The log has ended." : "The log is empty.");
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
    if (this._rest.length > LONGEST_REST) {
      lines.push(this._rest);
      this._rest = "";
    }
    this._put(lines.map(shownLine));
  }

  /** Show what came after the last end of a line. */
  _end() {
    if (this._rest) this._put([shownLine(this._rest)]);
    this._rest = "";
  }

  _put(lines) {
    for (const line of lines) {
      this._lines.push(line);
      this._characters += line.length;
    }
    this._fresh += lines.length;
    let first = 0;
    while (this._lines.length - first > MOST_LINES || (this._characters > MOST_CHARACTERS && first < this._lines.length - 1)) this._characters -= this._lines[first++].length;
    if (first) this._lines.splice(0, first);
    this._timer ??= setTimeout(() => {
      this._timer = null;
      this._show(false);
    }, SHOWN_MS);
  }

  _show(all) {
    const view = this._view;
    const isAtEnd = view.scrollHeight - view.scrollTop - view.clientHeight < 40;
    const wanted = this._source.search.toLowerCase();
    if (!all && !this._fresh) return;
    const fresh = all ? this._lines : this._lines.slice(-this._fresh);
    this._fresh = 0;
    if (all || fresh.length === this._lines.length) view.replaceChildren();
    const part = document.createDocumentFragment();
    for (const line of fresh) if (!wanted || line.toLowerCase().includes(wanted)) part.append(row(line, wanted));
    view.append(part);
    while (view.childElementCount > this._lines.length) view.firstElementChild.remove();
    if (isAtEnd || all) view.scrollTop = view.scrollHeight;
    if (wanted || all) this._say(wanted ? `${view.childElementCount} of ${this._lines.length} lines` : "");
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

customElements.define("k-log", Log);
